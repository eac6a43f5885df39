//! A holder whose writes fail learns by an annotation of the Lease whether another replica could lead.
//!
//! The holder asks: it renews the Lease with the annotation [`HAND_OVER`] and no value. A follower answers
//! with its identity as the value. It competes only while it could lead, and its answer shows that its own
//! API server carries out writes. The holder sees the answer at its next renewal; then it ends its writes and
//! releases the Lease, as for every other reason. So two replicas do not lead at the same time, and a holder
//! without other replicas keeps the Lease, as it does if the followers have an earlier version. While writes
//! succeed, no holder asks, and this costs no request.
//!
//! A holder asks only if its writes fail in a way that another replica might not see
//! ([`bindery_controller::WriteHealth`]). Such a failure may concern all replicas all the same. Then the new
//! holder asks as well, and the old one would take the Lease back. So a replica that was answered does not
//! answer for [`REST`], and for twice as long each time that it hands over again soon: the Lease moves ever
//! more rarely. A replica still takes a Lease that is free or expired.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::keys::HAND_OVER;

/// How long a replica that was answered does not answer others, the first time.
const REST: Duration = Duration::from_secs(300);
/// The longest such time.
const REST_MAX: Duration = Duration::from_secs(3_600);

/// The question of one replica, for its elector and for [`crate::Eligibility`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Handover {
    state: watch::Sender<State>,
    rest: Arc<Mutex<Option<Rest>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Quiet,
    Asks,
    /// Another replica could lead.
    Answered,
}

/// The time in which a replica that was answered does not answer others.
#[derive(Clone, Copy, Debug)]
struct Rest {
    since: Instant,
    lasts: Duration,
}

impl Rest {
    /// The rest that begins now, if `last` was the one before.
    fn after(last: Option<Self>) -> Self {
        let soon = last.filter(|last| last.since.elapsed() < last.lasts * 4);
        let lasts = soon.map_or(REST, |last| (last.lasts * 2).min(REST_MAX));
        Self { since: Instant::now(), lasts }
    }
}

impl Handover {
    /// Begins or ends to ask whether another replica could lead.
    pub(crate) fn ask(&self, asks: bool) {
        self.state.send_replace(if asks { State::Asks } else { State::Quiet });
    }

    /// Waits until another replica has answered.
    pub(crate) async fn until_answered(&self) {
        let mut state = self.state.subscribe();
        // The sender lives in self.
        let _ = state.wait_for(|state| *state == State::Answered).await;
    }

    /// Puts the question into a Lease that is about to be taken or renewed, or removes it.
    pub(super) fn put(&self, lease: &mut Value, is_renewal: bool) {
        if is_renewal && *self.state.borrow() == State::Asks {
            annotate(lease, "");
        } else if let Some(annotations) =
            lease.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.remove(HAND_OVER);
        }
    }

    /// Takes note of an answer in the Lease that this replica holds.
    pub(super) fn hear(&self, lease: &Value) {
        let is_answered = annotation(lease).is_some_and(|answer| !answer.is_empty());
        self.state.send_if_modified(|state| {
            let hears = is_answered && *state == State::Asks;
            if hears {
                *state = State::Answered;
                let mut rest = self.rest.lock();
                *rest = Some(Rest::after(*rest));
            }
            hears
        });
    }

    /// Whether this replica is to answer the holder of a Lease.
    pub(super) fn is_asked(&self, lease: &Value) -> bool {
        let rests = self.rest.lock().is_some_and(|rest| rest.since.elapsed() < rest.lasts);
        annotation(lease) == Some("") && !rests
    }
}

/// Sets the annotation: to an identity, or to no value.
pub(super) fn annotate(lease: &mut Value, value: &str) {
    lease["metadata"]["annotations"][HAND_OVER] = value.into();
}

fn annotation(lease: &Value) -> Option<&str> {
    lease["metadata"]["annotations"][HAND_OVER].as_str()
}
