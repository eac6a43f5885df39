//! GET of one object.

use super::{Answer, to_view};
use crate::request::Call;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::store::Key;

pub(super) fn get(state: &State, call: &Call) -> ApiResult<Answer> {
    let version = call.query.get("resourceVersion");
    if !version.is_empty() {
        // An error of the storage that the real server does not foresee, and so has no reason for.
        let wanted: u64 =
            version.parse().map_err(|_| ApiError::new(500, "", super::list::unreadable_version(version)))?;
        if wanted > state.store.revision() {
            return Err(super::list::too_large(wanted, state.store.revision()));
        }
    }
    let key = Key::new(&call.namespace, &call.name);
    let object = state
        .store
        .get(call.stored_as(), &key)
        .ok_or_else(|| ApiError::not_found(call.resource, &call.name))?;
    Ok(Answer::ok(to_view(call.resource, object)))
}
