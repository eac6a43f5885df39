//! The proxy makes the errors of a case.

use std::sync::{Mutex, PoisonError};

use bindery_cluster::{Faults, Request, RequestFault, Response};
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

impl Faults for Errors {
    fn on_request(&self, request: &Request) -> RequestFault {
        // Upstream does not make the guard's reads, so they use up no error.
        if request.headers.contains_key(GUARD_HEADER) {
            return RequestFault::None;
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = left.iter().position(|error| meets(error, request)) else { return RequestFault::None };
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
        RequestFault::Answer(Response {
            status: StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            body: status.to_string().into(),
        })
    }
}

fn meets(error: &ApiError, request: &Request) -> bool {
    let verb = match request.method {
        Method::GET => "get",
        Method::POST => "create",
        Method::DELETE => "delete",
        _ => "update",
    };
    verb == error.verb && request.path.split('/').any(|part| part == error.resource)
}
