//! GET of the changes of a collection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::field::FieldErrors;
use crate::http::accept::Accept;
use crate::http::route::Call;
use crate::http::table::Header;
use crate::http::{SimBody, stream_body};
use crate::object;
use crate::registry::Resource;
use crate::selectors::Selector;
use crate::sim::Sim;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Change;
use crate::verbs::events::to_view;
use crate::verbs::list::{requested_version, selector};

/// The default duration of a watch. The real server draws from 30 to 60 minutes.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1800);

/// The longest duration of a watch: longer than any client runs, and within the range of an instant.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The time between bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// The time between the last bookmark and the end of a watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// The annotation of the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The body of a watch.
pub(crate) fn watch(
    sim: &Sim,
    call: &Call,
    accept: &Accept,
    stopped: Option<watch::Receiver<bool>>,
) -> ApiResult<SimBody> {
    let mut watch = Watch::start(sim, call, accept, stopped)?;
    watch.send_initial_events(&sim.state(), call)?;
    Ok(stream_body(stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((piece, watch))
    })))
}

struct Watch {
    sim: Sim,
    resource: &'static Resource,
    selector: Selector,
    accept: Accept,
    /// The newest revision whose change was handled.
    revision: u64,
    ready: VecDeque<Bytes>,
    header: Header,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    revisions: watch::Receiver<u64>,
    stopped: Option<watch::Receiver<bool>>,
    /// The stream ends after the ready pieces.
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
            revision: 0,
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

    /// Sends the existing objects if the version requests them, and sets the revision to watch from.
    fn send_initial_events(&mut self, state: &State, call: &Call) -> ApiResult<()> {
        let newest = state.store.revision();
        let from = requested_version(call, state, |why| ApiError::new(500, "", why))?;
        self.revision = newest;
        let streaming_list = call.query.flag("sendInitialEvents");
        let no_list = call.query.has("sendInitialEvents") && !streaming_list;
        if streaming_list || (from == 0 && !no_list) {
            for object in state.store.all(call.resource.kind).values() {
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
            self.revision = from;
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

    /// Turns new changes into events.
    fn catch_up(&mut self) {
        let sim = self.sim.clone();
        let state = sim.state();
        let newest = state.store.revision();
        match state.store.changes_after(self.revision) {
            Ok(changes) => {
                for change in changes.filter(|change| change.kind == self.resource.kind) {
                    self.change(change);
                }
                self.revision = newest;
            }
            Err(_) => self.expire(self.revision, &state),
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
            // An object that left the selection is sent as it was, with the revision of the change.
            (_, Some(previous)) if was => self.event("DELETED", previous, Some(change.revision)),
            _ => {}
        }
    }

    fn event(&mut self, event_type: &str, object: &Arc<Value>, revision: Option<u64>) {
        let mut object = to_view(self.resource, object);
        if let Some(revision) = revision {
            object::meta_mut(&mut object).insert("resourceVersion".to_owned(), revision.to_string().into());
        }
        let object = self.accept.shape(self.resource, object, self.header, &self.sim.inner.clock);
        self.header = Header::Without;
        self.push(event_type, &object);
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
        let object = self.accept.shape(self.resource, object, self.header, &self.sim.inner.clock);
        self.push("BOOKMARK", &object);
    }

    fn expire(&mut self, from: u64, state: &State) {
        let oldest = state.store.compacted();
        let error = ApiError::expired(format!("too old resource version: {from} ({oldest})"));
        self.push("ERROR", &error.status());
        self.ended = true;
    }

    fn push(&mut self, event_type: &str, object: &Value) {
        let mut line = json!({"type": event_type, "object": object}).to_string();
        line.push('\n');
        self.ready.push_back(line.into());
    }

    /// Waits for a change, the next bookmark, the end of the watch, or the end of the server.
    async fn wait(&mut self) {
        let stop = async {
            match &mut self.stopped {
                // A dropped sender also means that the server ended.
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
            self.bookmark(self.revision, false);
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

/// `ValidateListOptions` of apimachinery.
fn check_initial_events(call: &Call) -> ApiResult<()> {
    const FIELD: &str = "resourceVersionMatch";
    let matching = call.query.get(FIELD);
    let mut errors = FieldErrors::default();
    if call.query.has("sendInitialEvents") {
        if matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.forbidden(FIELD, why);
        }
    } else if !matching.is_empty() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        errors.forbidden(FIELD, why);
    }
    if !matching.is_empty() {
        errors.one_of(FIELD, matching, &["NotOlderThan"]);
    }
    ApiError::check("ListOptions", "meta.k8s.io", "", &errors)
}
