//! GET of a collection, by pages.

use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, to_view};
use crate::request::Call;
use crate::selectors::Selector;
use crate::state::State;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::Key;

/// What the real server says when a page can no longer be continued.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You \
                                can start a new list without the continue parameter, or use the continue token in \
                                this response to retrieve the remainder of the results. Continuing with the provided \
                                token results in an inconsistent list - objects that were created, modified, or \
                                deleted between the time the first chunk was returned and now may show up in the list.";

/// What it says when a version can no longer be listed.
const VERSION_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// Stands in a token for the revision that is the newest when the page is asked for.
const WHATEVER_IS_NEWEST: u64 = 0;

/// A page that was asked for: the revision of the first page, and the last key of the one before.
struct Page {
    revision: u64,
    after: Option<Key>,
}

pub(super) fn list(state: &State, call: &Call) -> ApiResult<Answer> {
    let limit = limit(call)?;
    let selector = selector(call)?;
    let page = page(state, call)?;
    let expired = |_| expired(page.after.as_ref());
    let resource = call.stored_as();
    let past;
    let all = if page.revision == state.store.revision() {
        state.store.all(resource)
    } else {
        past = state.store.all_at(resource, page.revision).map_err(expired)?;
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
        // With a selector the real server does not count what is left.
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

/// How many objects a page has at most, or 0. The real server's cache, which answers who takes any version,
/// makes no pages.
fn limit(call: &Call) -> ApiResult<usize> {
    let limit = check_numbers(call)?;
    let any_version = call.query.get("resourceVersion") == "0" && call.query.get("continue").is_empty();
    Ok(if any_version { 0 } else { limit })
}

/// The refusal of a list at a revision that is forgotten. After a page, it tells how to read on from where
/// the page ended.
fn expired(after: Option<&Key>) -> Box<ApiError> {
    let Some(after) = after else { return ApiError::expired(VERSION_EXPIRED) };
    let mut error = ApiError::expired(CONTINUE_EXPIRED);
    error.next = Some(token(WHATEVER_IS_NEWEST, after));
    error
}

/// Refuses numbers of the query that are none. The limit is 0 where there is none.
pub(super) fn check_numbers(call: &Call) -> ApiResult<usize> {
    call.query.number("timeoutSeconds")?;
    let limit = call.query.number("limit")?.unwrap_or(0);
    // Negative limits count as none.
    Ok(usize::try_from(limit).unwrap_or(0))
}

/// An item as lists hold it.
fn item(call: &Call, object: &Arc<Value>) -> Value {
    let mut item = to_view(call.resource, object);
    // Items of typed lists carry no kind and version of their own.
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

/// The selector of a list, watch or deletion of a collection.
pub(super) fn selector(call: &Call) -> ApiResult<Selector> {
    Selector::parse(
        call.resource,
        &call.namespace,
        &call.name,
        call.query.get("labelSelector"),
        call.query.get("fieldSelector"),
    )
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
        let revision = if revision == WHATEVER_IS_NEWEST { newest } else { revision };
        return Ok(Page { revision, after: Some(after) });
    }
    let wanted: u64 = match version {
        "" => 0,
        text => text.parse().map_err(|_| {
            ApiError::bad_request(format!("invalid resource version: {}", unreadable_version(text)))
        })?,
    };
    if wanted > newest {
        return Err(too_large(wanted, newest));
    }
    let revision = if matching == "Exact" { wanted } else { newest };
    Ok(Page { revision, after: None })
}

/// As `ValidateListOptions` of apimachinery.
fn check_match(call: &Call) -> ApiResult<()> {
    let (version, matching) = (call.query.get("resourceVersion"), call.query.get("resourceVersionMatch"));
    let mut errors = Vec::new();
    let mut forbid = |field: &str, why: &str| errors.push(FieldError::forbidden(field, why));
    if !matching.is_empty() {
        let field = "resourceVersionMatch";
        if version.is_empty() {
            forbid(field, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !call.query.get("continue").is_empty() {
            forbid(field, "resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == "Exact" && version == "0" {
            forbid(field, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
    }
    if call.query.has("sendInitialEvents") {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if !matches!(matching, "" | "Exact" | "NotOlderThan") {
        let supported = ["Exact", "NotOlderThan", ""];
        errors.push(FieldError::not_supported("resourceVersionMatch", matching, &supported));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("ListOptions", "meta.k8s.io", "", &errors)) }
}

/// What is said of a resourceVersion that is no number.
pub(super) fn unreadable_version(text: &str) -> String {
    format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax")
}

/// A resourceVersion that has not happened yet.
pub(super) fn too_large(wanted: u64, newest: u64) -> Box<ApiError> {
    let mut error = ApiError::new(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {wanted}, current: {newest}"),
    );
    error.details = Some(json!({
        "retryAfterSeconds": 1,
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    }));
    error
}

/// The token is opaque to clients; hexadecimal keeps it safe in URLs.
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
