//! GET of one object.

use super::{Answer, to_view};
use crate::request::Call;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::store::Key;

pub(super) fn get(state: &State, call: &Call) -> ApiResult<Answer> {
    let key = Key::new(&call.namespace, &call.name);
    let object = state
        .store
        .get(call.stored_as(), &key)
        .ok_or_else(|| ApiError::not_found(call.resource, &call.name))?;
    if let Ok(wanted) = call.query.get("resourceVersion").parse::<u64>()
        && wanted > state.store.revision()
    {
        return Err(super::list::too_large(wanted, state.store.revision()));
    }
    Ok(Answer::ok(to_view(call.resource, object)))
}
