//! The door: a validating webhook for claims and volumes (design section 7).
//!
//! `POST /validate` takes an `AdmissionReview` of `admission.k8s.io/v1`, has the object reviewed by the
//! engine that decides, and says what it finds: a denial names the field, both values and the remedy, a
//! warning does so in 120 characters. `docs/admission.md` lists the rules and their replies.
//!
//! # Guarantees
//!
//! - The door fails open: where nobody can say whether an object may be written it passes, with a warning,
//!   and is counted. That is so while the lists are not complete, where the engine fails or anything else
//!   does, and under too much load.
//! - A denial rests on what the API server has at that moment: before a request is denied, it is reviewed
//!   once more with every claim and volume read live, and the guard holds what is found against them. A
//!   replica that lags behind, or an engine that answers nonsense, denies nothing that should pass.
//! - Nothing is written, so a dry run needs no care of its own.
//! - A request is answered within half the time that the API server waits, one whose body does not come
//!   within a second.
//! - Memory is bounded however many come and whatever is in them: bodies are held within so much room, and
//!   what is larger than usual is decoded when it has its turn.

mod body;
mod envelope;
mod metrics;
mod reviewer;
mod rules;
mod sentence;
mod subject;
mod verdict;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, body::Body};
use bindery_controller::{ReviewError, Reviewed, Sight};
use bindery_core::{ReclaimPolicy, Regarding, Rule, Text, Volume};
use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

pub use self::body::BODY_MAX;
use self::body::{BodyError, Held, Room, told_length};
use self::envelope::{AdmissionResponse, EnvelopeError, Reply};
pub use self::metrics::AdmissionMetrics;
use self::metrics::{Ending, FaultCause};
pub use self::reviewer::Reviewer;
pub use self::rules::{DoorRule, Level, Levels, RuleLevel, RuleLevelError};
use self::sentence::{Found, WARNING_MAX, clipped};
use self::subject::{Kind, Subject, is_newly_precious, regarding, subject};
use self::verdict::Verdict;

/// The path that reviews are sent to.
pub const PATH: &str = "/validate";

/// How long the API server waits where it does not say: the timeout that the chart sets.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longest timeout that a webhook can have.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// Longest reason why a body is no review, in characters.
const REASON_MAX: usize = 512;

/// Most looks at the API server at the same time, for requests that would be denied or name a volume that is
/// not there; others wait in line. They share its patience with the binder's writes, which must not wait for
/// such requests by the thousand.
const LIVE_LOOKS_MAX: usize = 16;

/// What the operator sets.
#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    /// What becomes of what each rule finds.
    pub levels: Levels,
    /// Most reviews at the same time; what comes beyond passes with a warning.
    pub in_flight_max: usize,
    /// Longest time from the head of a request until its body has come whole, however long the caller says
    /// that he waits.
    pub body_within: Duration,
    /// The label, key and value, that marks a volume as precious.
    pub precious: (Text, Text),
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            levels: Levels::default(),
            // An API server has 600 requests under way at most by its own defaults (400, and 200 that change
            // something: with priority and fairness they are one number). Few of them are here at a time: a
            // review takes some tens of microseconds. As many as these are here where reviews wait for live
            // reads, so where the API server is slow; then more would only make it slower.
            in_flight_max: 256,
            // An API server sends both at once, so it is enough for some packets that are lost on the way.
            body_within: Duration::from_secs(1),
            precious: ("bindery.dev/precious".into(), "true".into()),
        }
    }
}

/// The path of the door. `metrics` count what it does; whoever serves them registers them.
pub fn admission<R: Reviewer>(
    reviewer: Arc<R>,
    settings: AdmissionSettings,
    metrics: AdmissionMetrics,
) -> Router {
    let reviews = Semaphore::new(settings.in_flight_max);
    let live_looks = Semaphore::new(LIVE_LOOKS_MAX);
    let room = Room::new(settings.body_within);
    let door = Door { reviewer, settings, metrics, reviews, live_looks, room };
    Router::new().route(PATH, post(validate::<R>)).with_state(Arc::new(door))
}

struct Door<R> {
    reviewer: Arc<R>,
    settings: AdmissionSettings,
    metrics: AdmissionMetrics,
    reviews: Semaphore,
    live_looks: Semaphore,
    room: Room,
}

/// What is known of a request, as far as it was read.
struct Known {
    /// Empty where it was not read yet.
    uid: String,
    kind: Kind,
    object: Option<Regarding>,
}

/// Why a review gave no verdict; the request passes.
enum Fault {
    Review(ReviewError),
    Overdue,
    Bug,
}

async fn validate<R: Reviewer>(State(door): State<Arc<Door<R>>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    // The other half is for the way there and back.
    let deadline = Instant::now() + timeout(head.uri.query()) / 2;
    let length = told_length(&head.headers);
    // Headers take more memory than it takes to send them, and the body may be long in coming.
    drop(head);
    let body = match door.room.read(length, body, deadline).await {
        Ok(body) => body,
        Err(error) => return door.turn_away(error),
    };
    let started = Instant::now();
    let mut known = Known { uid: String::new(), kind: Kind::Other, object: None };
    // A panic would close the connection, and nobody would count it.
    let answered = AssertUnwindSafe(door.answer(&body, deadline, &mut known)).catch_unwind().await;
    let (ending, response) = match answered {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            door.metrics.bad_request();
            // It may repeat what was sent.
            let why = clipped(&error.to_string(), REASON_MAX);
            return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response();
        }
        Err(_) => door.failed(&known, &Fault::Bug),
    };
    door.metrics.ended(known.kind, ending, started.elapsed());
    match serde_json::to_vec(&Reply::from(response)) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

impl<R: Reviewer> Door<R> {
    fn turn_away(&self, error: BodyError) -> Response {
        if error == BodyError::Busy {
            self.metrics.turned_away();
        } else {
            self.metrics.bad_request();
        }
        (error.status(), format!("{error}\n")).into_response()
    }

    async fn answer(
        &self,
        body: &Held<'_>,
        deadline: Instant,
        known: &mut Known,
    ) -> Result<(Ending, AdmissionResponse), EnvelopeError> {
        let request = envelope::parse(body.bytes())?;
        known.uid = request.uid.to_string();
        known.kind = Kind::of(&request);
        let passed = AdmissionResponse::allowed(&request.uid);
        // What has had no turn is not even decoded.
        let reviewed = match body.may_be_reviewed().then(|| subject(&request)) {
            Some(Subject::Review(reviewed)) => reviewed,
            Some(Subject::Pass) => return Ok((Ending::Passed, passed)),
            Some(Subject::Unreadable(why)) => {
                return Ok((Ending::Unreadable, warned(passed, &why.to_string())));
            }
            None => return Ok(shed(passed)),
        };
        known.object = Some(regarding(&reviewed));
        let Ok(_permit) = self.reviews.try_acquire() else { return Ok(shed(passed)) };
        Ok(match self.judge(&reviewed, deadline).await {
            Ok(verdict) => {
                verdict.told().for_each(|(rule, level)| self.metrics.found(rule, level));
                let response = verdict.response(&request.uid, &reviewed);
                let ending = match (response.allowed, response.warnings.is_empty()) {
                    (false, _) => Ending::Denied,
                    (true, false) => Ending::Warned,
                    (true, true) => Ending::Allowed,
                };
                (ending, response)
            }
            Err(fault) => self.failed(known, &fault),
        })
    }

    /// The answer to a request that passes because of a fault.
    fn failed(&self, known: &Known, fault: &Fault) -> (Ending, AdmissionResponse) {
        let (cause, why) = fault.told();
        self.metrics.faulted(cause);
        let object = known.object.as_ref();
        tracing::warn!(
            object = object.map(tracing::field::display),
            uid = object.map(|object| tracing::field::display(object.uid())),
            review = known.uid,
            why = fault.detail(),
            "a request passes unchecked"
        );
        (Ending::Faulted, warned(AdmissionResponse::allowed(&known.uid), why))
    }

    /// What was found and what becomes of it. What would be denied is looked at once more, as it is now, and
    /// so is a claim whose volume is not there: who applies both at once is faster than a watch.
    async fn judge(&self, reviewed: &Reviewed, deadline: Instant) -> Result<Verdict, Fault> {
        let found = self.look(reviewed, Sight::Watched, deadline).await?;
        let lacks_volume = found.iter().any(|found| found.rule == DoorRule::Engine(Rule::VolumeMissing));
        let verdict = Verdict::new(found, &self.settings.levels);
        if verdict.denying.is_empty() && !lacks_volume {
            return Ok(verdict);
        }
        let turn = timeout_at(deadline, self.live_looks.acquire()).await;
        let _turn = turn.map_err(|_| Fault::Overdue)?;
        let found = self.look(reviewed, Sight::Live, deadline).await?;
        Ok(Verdict::new(found, &self.settings.levels))
    }

    async fn look(&self, reviewed: &Reviewed, sight: Sight, deadline: Instant) -> Result<Vec<Found>, Fault> {
        let review = self.reviewer.review(reviewed.clone(), sight);
        let findings = match timeout_at(deadline, review).await {
            Ok(Ok(findings)) => findings,
            Ok(Err(error)) => return Err(Fault::Review(error)),
            Err(_) => return Err(Fault::Overdue),
        };
        Ok(findings.into_iter().map(Found::from).chain(self.precious(reviewed)).collect())
    }

    /// Policy Delete on what a label marks as precious.
    fn precious(&self, reviewed: &Reviewed) -> Option<Found> {
        let (key, value) = &self.settings.precious;
        let is_precious =
            |volume: &Volume| volume.policy == ReclaimPolicy::Delete && volume.labels.get(key) == Some(value);
        is_newly_precious(reviewed, is_precious).then(|| Found {
            rule: DoorRule::PreciousDeleted,
            volume: "".into(),
            claim: None,
            found: format!("{key}={value}").into(),
            wanted: "".into(),
        })
    }
}

impl Fault {
    /// What is counted, and what the author of the request is told: what an engine or a server has said is
    /// for the log.
    fn told(&self) -> (FaultCause, &'static str) {
        match self {
            Self::Review(ReviewError::NotSynced) => {
                (FaultCause::NotReady, "Bindery has not checked this request: it is starting")
            }
            Self::Review(ReviewError::Failed(_)) => (
                FaultCause::Read,
                "Bindery has not checked this request: it could not read an object that the request names",
            ),
            Self::Review(
                ReviewError::Engine(_)
                | ReviewError::Nonsense
                | ReviewError::Refused(_)
                | ReviewError::TooManyReads(_),
            ) => (FaultCause::Engine, "Bindery has not checked this request: its engine failed"),
            Self::Overdue => (FaultCause::Overdue, "Bindery has not checked this request: it took too long"),
            Self::Bug => (FaultCause::Bug, "Bindery has not checked this request: it failed"),
        }
    }

    /// What is logged.
    fn detail(&self) -> String {
        match self {
            Self::Review(error) => error.to_string(),
            Self::Overdue => "the review did not end in time".to_owned(),
            Self::Bug => "the review panicked; please report it".to_owned(),
        }
    }
}

/// The answer to a request that passes because too many are under way.
fn shed(passed: AdmissionResponse) -> (Ending, AdmissionResponse) {
    (Ending::Shed, warned(passed, "Bindery has not checked this request: too many are under way"))
}

fn warned(mut response: AdmissionResponse, why: &str) -> AdmissionResponse {
    let clean: String = why.chars().filter(|c| !c.is_control()).collect();
    response.warnings.push(clipped(&clean, WARNING_MAX));
    response
}

/// How long the API server waits for an answer, as it says in the query (`?timeout=10s`), in whole seconds.
fn timeout(query: Option<&str>) -> Duration {
    let mut pairs = query.unwrap_or_default().split('&');
    let told = pairs.find_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok());
    told.map_or(TIMEOUT, Duration::from_secs).clamp(Duration::from_secs(1), TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_says_how_long_it_waits() {
        for (query, seconds) in [
            (None, 3),
            (Some(""), 3),
            (Some("timeout=10s"), 10),
            (Some("a=b&timeout=2s"), 2),
            (Some("timeout=0s"), 1),
            (Some("timeout=99s"), 30),
            (Some("timeout=1m0s"), 3),
            (Some("timeout=soon"), 3),
        ] {
            assert_eq!(timeout(query), Duration::from_secs(seconds), "{query:?}");
        }
    }
}
