//! GET of a collection's changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::list::{selector, too_large};
use super::to_view;
use crate::body::SimBody;
use crate::negotiate::Accept;
use crate::object;
use crate::registry::Resource;
use crate::request::Call;
use crate::selectors::Selector;
use crate::sim::Sim;
use crate::state::State;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::Change;
use crate::table::Header;

/// How long a watch lasts that does not say; the real server draws from 30 to 60 minutes.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1800);

/// The longest that a watch lasts, whatever it asks for: longer than any client, and within what instants can
/// tell.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The time between bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// How long before its end a watch gets its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Marks the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The body of a watch.
pub(crate) fn watch(
    sim: &Sim,
    call: &Call,
    accept: &Accept,
    stopped: Option<watch::Receiver<bool>>,
) -> ApiResult<SimBody> {
    accept.check()?;
    let mut watch = Watch::start(sim, call, accept, stopped)?;
    watch.send_initial_events(&sim.state(), call)?;
    Ok(SimBody::stream(stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((piece, watch))
    })))
}

struct Watch {
    sim: Sim,
    resource: &'static Resource,
    selector: Selector,
    accept: Accept,
    /// The newest revision whose change was looked at.
    seen: u64,
    ready: VecDeque<Bytes>,
    header: Header,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    revisions: watch::Receiver<u64>,
    stopped: Option<watch::Receiver<bool>>,
    /// What was ready is still sent, then the stream ends.
    ended: bool,
}

impl Watch {
    fn start(
        sim: &Sim,
        call: &Call,
        accept: &Accept,
        stopped: Option<watch::Receiver<bool>>,
    ) -> ApiResult<Self> {
        let bookmarks = call.query.flag("allowWatchBookmarks");
        check_initial_events(call)?;
        let seconds = call
            .query
            .number("timeoutSeconds")?
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        let now = Instant::now();
        let end = now + seconds.map_or(TIMEOUT_DEFAULT, Duration::from_secs).min(TIMEOUT_MAX);
        Ok(Watch {
            sim: sim.clone(),
            resource: call.resource,
            selector: selector(call)?,
            accept: *accept,
            seen: 0,
            ready: VecDeque::new(),
            header: Header::With,
            bookmarks,
            next_bookmark: next_bookmark(now, end),
            end,
            revisions: sim.inner.revisions.subscribe(),
            stopped,
            ended: false,
        })
    }

    /// What is there already, where the version asks for it, and the revision from which changes count.
    fn send_initial_events(&mut self, state: &State, call: &Call) -> ApiResult<()> {
        let newest = state.store.revision();
        let version = call.query.get("resourceVersion");
        let from: u64 = match version {
            "" => 0,
            text => {
                text.parse().map_err(|_| ApiError::new(500, "", super::list::unreadable_version(text)))?
            }
        };
        if from > newest {
            return Err(too_large(from, newest));
        }
        self.seen = newest;
        let streaming_list = call.query.flag("sendInitialEvents");
        let no_list = call.query.has("sendInitialEvents") && !streaming_list;
        if streaming_list || (from == 0 && !no_list) {
            for object in state.store.all(call.stored_as()).values() {
                if self.selector.matches(object) {
                    self.event("ADDED", object, None);
                }
            }
            if streaming_list && self.bookmarks {
                self.bookmark(newest, true);
            }
        } else if from > 0 {
            if state.store.changes_after(from).is_err() {
                self.expire(from, state);
                return Ok(());
            }
            self.seen = from;
        }
        Ok(())
    }

    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            if self.ended || self.stopped.as_ref().is_some_and(|stopped| *stopped.borrow()) {
                return None;
            }
            self.revisions.borrow_and_update();
            self.catch_up();
            if !self.ready.is_empty() {
                continue;
            }
            self.wait().await;
        }
    }

    /// Turns the changes since the last look into events.
    fn catch_up(&mut self) {
        let sim = self.sim.clone();
        let state = sim.state();
        let newest = state.store.revision();
        match state.store.changes_after(self.seen) {
            Ok(changes) => {
                for change in changes.filter(|change| change.resource == self.resource.stored_as) {
                    self.change(change);
                }
                self.seen = newest;
            }
            Err(_) => self.expire(self.seen, &state),
        }
    }

    fn change(&mut self, change: &Change) {
        let matches =
            |object: &Option<Arc<Value>>| object.as_ref().is_some_and(|object| self.selector.matches(object));
        let (was, is) = (matches(&change.previous), matches(&change.object));
        match (&change.object, &change.previous) {
            (Some(object), _) if is => {
                self.event(if was { "MODIFIED" } else { "ADDED" }, object, None);
            }
            // What left the selection is told as it was, at the version of the change.
            (_, Some(previous)) if was => self.event("DELETED", previous, Some(change.revision)),
            _ => {}
        }
    }

    fn event(&mut self, kind: &str, object: &Arc<Value>, revision: Option<u64>) {
        let mut object = to_view(self.resource, object);
        if let Some(revision) = revision {
            object::meta_mut(&mut object).insert("resourceVersion".to_owned(), revision.to_string().into());
        }
        let object = self.accept.shape_event(self.resource, object, self.header, &self.sim.inner.clock);
        self.header = Header::Without;
        self.push(kind, &object);
    }

    fn bookmark(&mut self, revision: u64, initial_events_end: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let object = json!({
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version(),
            "metadata": metadata,
        });
        let object = self.accept.shape_event(self.resource, object, self.header, &self.sim.inner.clock);
        self.push("BOOKMARK", &object);
    }

    fn expire(&mut self, from: u64, state: &State) {
        let oldest = state.store.compacted();
        let error = ApiError::expired(format!("too old resource version: {from} ({oldest})"));
        self.push("ERROR", &error.status());
        self.ended = true;
    }

    fn push(&mut self, kind: &str, object: &Value) {
        let mut line = json!({"type": kind, "object": object}).to_string();
        line.push('\n');
        self.ready.push_back(line.into());
    }

    /// Waits for a change, the time of a bookmark, the end of the watch or of the server.
    async fn wait(&mut self) {
        let stop = async {
            match &mut self.stopped {
                // A sender that is gone has stopped, too.
                Some(stopped) => drop(stopped.wait_for(|stopped| *stopped).await),
                None => std::future::pending().await,
            }
        };
        let (mut bookmark, mut end) = (false, false);
        tokio::select! {
            biased;
            () = stop => end = true,
            changed = self.revisions.changed() => end = changed.is_err(),
            () = sleep_until(self.end) => end = true,
            () = sleep_until(self.next_bookmark), if self.bookmarks => bookmark = true,
        }
        self.ended = end;
        if bookmark {
            self.next_bookmark = next_bookmark(Instant::now(), self.end);
            self.bookmark(self.seen, false);
        }
    }
}

/// Each minute, and once shortly before the end (`nextBookmarkTime` of apiserver's watch cache).
fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let regular = now + BOOKMARK_PERIOD;
    match end.checked_sub(LAST_BOOKMARK) {
        Some(last) if last > now => last.min(regular),
        _ => regular,
    }
}

/// As `ValidateListOptions` of apimachinery.
fn check_initial_events(call: &Call) -> ApiResult<()> {
    let matching = call.query.get("resourceVersionMatch");
    let mut errors = Vec::new();
    if call.query.has("sendInitialEvents") {
        if matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
    } else if !matching.is_empty() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        errors.push(FieldError::forbidden("resourceVersionMatch", why));
    }
    if !matches!(matching, "" | "NotOlderThan") {
        errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("ListOptions", "meta.k8s.io", "", &errors)) }
}
