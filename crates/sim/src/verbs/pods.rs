//! The subresources of pods that schedulers and evictors use.

use super::{Answer, body, delete, existing, success};
use crate::http::route::Call;
use crate::object;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Key;

/// POST to `binding` or `eviction`.
pub(super) fn create_subresource(state: &mut State, call: &Call) -> ApiResult<Answer> {
    let body = body::read(call, call.resource.kind)?;
    let key = Key::new(&call.namespace, &call.name);
    let existing = existing(state, call)?;
    if call.subresource == "eviction" {
        if !call.is_dry_run() {
            delete::delete_object(state, call.resource, &key, &delete::Options::default());
        }
    } else {
        let node = object::text(&existing, "/spec/nodeName");
        if !node.is_empty() {
            let why = format!("pod {} is already assigned to node {node:?}", call.name);
            return Err(ApiError::conflict(call.resource, &call.name, &why));
        }
        if !call.is_dry_run() {
            let mut pod = (*existing).clone();
            let target = object::text(&body, "/target/name");
            object::child_mut(&mut pod, "spec").insert("nodeName".to_owned(), target.into());
            state.put(call.resource.kind, pod);
        }
    }
    let mut status = success();
    status["code"] = 201.into();
    Ok(Answer { code: 201, body: status, warnings: Vec::new() })
}
