//! The proxy makes the errors of a case.

use std::sync::{Mutex, PoisonError};

use bindery_cluster::{Answered, Asked, Before, Weather};
use bindery_kube::GUARD_HEADER;
use http::{Method, StatusCode};
use serde_json::json;

use crate::case::ApiError;

/// The errors that have not occurred yet. Each occurs once.
pub(super) struct Errors {
    left: Mutex<Vec<ApiError>>,
}

impl Errors {
    pub(super) fn new(errors: &[ApiError]) -> Self {
        Self { left: Mutex::new(errors.to_vec()) }
    }
}

impl Weather for Errors {
    fn before(&self, asked: &Asked) -> Before {
        // Upstream does not make the guard's reads, so they use up no error.
        if asked.headers.contains_key(GUARD_HEADER) {
            return Before::Pass;
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = left.iter().position(|error| meets(error, asked)) else { return Before::Pass };
        let ApiError { message, .. } = left.remove(at);
        let (code, reason) = match &*message {
            message if message.ends_with(" already exists") => (409, "AlreadyExists"),
            message if message.ends_with(" not found") => (404, "NotFound"),
            _ => (500, "InternalError"),
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Before::Answer(Answered {
            status: StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            body: status.to_string().into(),
        })
    }
}

fn meets(error: &ApiError, asked: &Asked) -> bool {
    let verb = match asked.method {
        Method::GET => "get",
        Method::POST => "create",
        Method::DELETE => "delete",
        _ => "update",
    };
    verb == error.verb && asked.path.split('/').any(|part| part == error.resource)
}
