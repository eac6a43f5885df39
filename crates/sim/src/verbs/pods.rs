//! The pods' subresources that a scheduler and an evictor need.

use serde_json::{Value, json};

use super::Answer;
use crate::object;
use crate::request::Call;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::store::Key;

/// POST to `binding` or `eviction`.
pub(super) fn create_subresource(state: &mut State, call: &Call, body: &Value) -> ApiResult<Answer> {
    let key = Key::new(&call.namespace, &call.name);
    let existing = state
        .store
        .get(call.stored_as(), &key)
        .cloned()
        .ok_or_else(|| ApiError::not_found(call.resource, &call.name))?;
    if call.subresource == "eviction" {
        if !call.is_dry_run() {
            super::delete_object(state, call.stored_as(), &key, &super::delete::Options::default());
        }
    } else {
        let node = object::text(&existing, "/spec/nodeName");
        let target = object::text(body, "/target/name");
        if !node.is_empty() {
            let why = format!("pod {} is already assigned to node {node:?}", call.name);
            return Err(ApiError::conflict(call.resource, &call.name, &why));
        }
        if !call.is_dry_run() {
            let mut pod = (*existing).clone();
            object::child_mut(&mut pod, "spec").insert("nodeName".to_owned(), target.into());
            state.put(call.stored_as(), pod);
        }
    }
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Answer { code: 201, body: status, warnings: Vec::new() })
}
