//! GET of a collection, by pages.

use std::ops::Bound;

use serde_json::{Value, json};

use super::Answer;
use super::events::to_view;
use crate::field::FieldErrors;
use crate::http::route::Call;
use crate::selectors::Selector;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Key;

/// Upstream's message for a page that can no longer be continued.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list \
    result. You can start a new list without the continue parameter, or use the continue token in this \
    response to retrieve the remainder of the results. Continuing with the provided token results in an \
    inconsistent list - objects that were created, modified, or deleted between the time the first chunk was \
    returned and now may show up in the list.";

/// Upstream's message for a version that can no longer be listed.
const VERSION_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// The revision in a continue token that stands for the current one.
const CURRENT: u64 = 0;

/// A requested page: the revision of the first page, and the last key of the previous one.
struct Page {
    revision: u64,
    after: Option<Key>,
}

pub(super) fn list(state: &State, call: &Call) -> ApiResult<Answer> {
    let limit = limit(call)?;
    let selector = selector(call)?;
    let page = page(state, call)?;
    let expired = |_| expired(page.after.as_ref());
    let kind = call.resource.kind;
    let past;
    let all = if page.revision == state.store.revision() {
        state.store.all(kind)
    } else {
        past = state.store.all_at(kind, page.revision).map_err(expired)?;
        &past
    };
    let start = page.after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut selected =
        all.range((start, Bound::Unbounded)).filter(|(_, object)| selector.matches(object)).peekable();
    let mut items: Vec<Value> = Vec::new();
    let mut last: Option<&Key> = None;
    while let Some((key, object)) = selected.next_if(|_| limit == 0 || items.len() < limit) {
        items.push(item(call, object));
        last = Some(key);
    }
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let (Some(last), true) = (last, selected.peek().is_some()) {
        metadata["continue"] = token(page.revision, last).into();
        // The real server does not count the remaining objects of a selection.
        if call.query.get("labelSelector").is_empty() && call.query.get("fieldSelector").is_empty() {
            metadata["remainingItemCount"] = selected.count().into();
        }
    }
    Ok(Answer::ok(json!({
        "kind": format!("{}List", call.resource.kind),
        "apiVersion": call.resource.api_version(),
        "metadata": metadata,
        "items": items,
    })))
}

/// The most objects of a page, or 0 for no limit. The real server answers a list of any version from its
/// cache, which makes no pages.
fn limit(call: &Call) -> ApiResult<usize> {
    let limit = check_numbers(call)?;
    let any_version = call.query.get("resourceVersion") == "0" && call.query.get("continue").is_empty();
    Ok(if any_version { 0 } else { limit })
}

/// The refusal of a list at a compacted revision. It offers a token that continues after the last page.
fn expired(after: Option<&Key>) -> Box<ApiError> {
    let Some(after) = after else { return ApiError::expired(VERSION_EXPIRED) };
    let mut error = ApiError::expired(CONTINUE_EXPIRED);
    error.next = Some(token(CURRENT, after));
    error
}

/// Refuses malformed numbers of the query. Returns the limit, or 0 for no limit.
pub(super) fn check_numbers(call: &Call) -> ApiResult<usize> {
    call.query.number("timeoutSeconds")?;
    let limit = call.query.number("limit")?.unwrap_or(0);
    // A negative limit means no limit.
    Ok(usize::try_from(limit).unwrap_or(0))
}

/// An object as an item of a list, where it has no kind and version of its own.
fn item(call: &Call, object: &Value) -> Value {
    let mut item = to_view(call.resource, object);
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

/// The selector of a list, watch or deletion of a collection.
pub(crate) fn selector(call: &Call) -> ApiResult<Selector> {
    let (labels, fields) = (call.query.get("labelSelector"), call.query.get("fieldSelector"));
    Selector::parse(call.resource, &call.namespace, &call.name, labels, fields)
}

fn page(state: &State, call: &Call) -> ApiResult<Page> {
    let newest = state.store.revision();
    let version = call.query.get("resourceVersion");
    let matching = call.query.get("resourceVersionMatch");
    let given = call.query.get("continue");
    check_match(call)?;
    if !given.is_empty() {
        if !matches!(version, "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (revision, after) = read_token(given).ok_or_else(|| {
            ApiError::bad_request(
                "invalid continue token: continue key is not valid: it was not made by this server",
            )
        })?;
        let revision = if revision == CURRENT { newest } else { revision };
        return Ok(Page { revision, after: Some(after) });
    }
    let wanted = requested_version(call, state, |why| {
        ApiError::bad_request(format!("invalid resource version: {why}"))
    })?;
    let revision = if matching == "Exact" { wanted } else { newest };
    Ok(Page { revision, after: None })
}

/// `ValidateListOptions` of apimachinery.
fn check_match(call: &Call) -> ApiResult<()> {
    const FIELD: &str = "resourceVersionMatch";
    let (version, matching) = (call.query.get("resourceVersion"), call.query.get(FIELD));
    let mut errors = FieldErrors::default();
    if !matching.is_empty() {
        if version.is_empty() {
            errors.forbidden(FIELD, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !call.query.get("continue").is_empty() {
            errors.forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.forbidden(FIELD, why);
        }
    }
    if call.query.has("sendInitialEvents") {
        errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    errors.one_of(FIELD, matching, &["Exact", "NotOlderThan", ""]);
    ApiError::check("ListOptions", "meta.k8s.io", "", &errors)
}

/// The requested resourceVersion, or 0. Refuses malformed ones as `refuse` says, and future ones.
pub(crate) fn requested_version(
    call: &Call,
    state: &State,
    refuse: impl Fn(String) -> Box<ApiError>,
) -> ApiResult<u64> {
    let text = call.query.get("resourceVersion");
    if text.is_empty() {
        return Ok(0);
    }
    let unreadable = |_| {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        refuse(format!("resourceVersion: Invalid value: {text:?}: {why}"))
    };
    let (wanted, newest): (u64, _) = (text.parse().map_err(unreadable)?, state.store.revision());
    if wanted > newest {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {newest}");
        return Err(ApiError::new(504, "Timeout", message).with_details(json!({
            "retryAfterSeconds": 1,
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        })));
    }
    Ok(wanted)
}

/// A continue token. It is opaque to clients, and hexadecimal to be safe in URLs.
fn token(revision: u64, last: &Key) -> String {
    let plain = format!("{revision}/{}/{}", last.namespace, last.name);
    plain.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    let bytes: Option<Vec<u8>> =
        (0..token.len()).step_by(2).map(|at| u8::from_str_radix(token.get(at..at + 2)?, 16).ok()).collect();
    let plain = String::from_utf8(bytes?).ok()?;
    let mut parts = plain.splitn(3, '/');
    let revision = parts.next()?.parse().ok()?;
    Some((revision, Key::new(parts.next()?, parts.next()?)))
}
