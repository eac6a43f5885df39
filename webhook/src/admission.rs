//! Admission: a validating webhook for claims and volumes.
//!
//! `POST /validate` takes an `AdmissionReview` of `admission.k8s.io/v1` and has the engine review its object.
//! A denial names the field, both values and the remedy; a warning does so in 120 characters.
//! `docs/admission.md` lists the rules and their answers. `POST /mutate` steers claims ([`SteeredClass`]).
//! `POST /validate-policy` reviews policies that are cluster objects ([`PolicyReviewer`]).
//!
//! # Guarantees
//!
//! - Admission fails open. A request that cannot be reviewed passes with a warning and is counted: while the
//!   replica starts, when the engine or anything else fails, and under too much load.
//! - A denial rests on the state of the API server at that moment: each one is confirmed by a second review
//!   that reads every claim and volume live, and the guard checks its findings. A replica that lags behind,
//!   or an engine that answers nonsense, denies nothing that should pass.
//! - A review writes nothing, so a dry run is like any other request.
//! - A request is answered within half the time that the API server waits, or within a second if its body
//!   does not come.
//! - Memory is limited: the bytes of all bodies share one budget, and at most two policies are reviewed at a
//!   time.

mod body;
mod fault;
mod metrics;
mod policy;
mod request;
mod response;
mod rules;
mod steer;
mod wording;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, body::Body};
use bindery_controller::{Binder, Port, Reads, ReviewError, Reviewed};
use bindery_core::{Class, Declared, Finding, Lookup, ReclaimPolicy, Regarding, Rule, Text, Volume};
use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

pub use self::body::BODY_MAX;
use self::body::{BodyBudget, BodyError};
use self::fault::Fault;
pub use self::metrics::AdmissionMetrics;
use self::metrics::Outcome;
pub use self::policy::{PolicyFinding, PolicyReviewer, ReviewPermit};
use self::request::AdmissionRequest;
use self::response::{AdmissionResponse, AnsweredReview, Findings};
pub use self::rules::{AdmissionRule, Level, Levels, RuleLevel, RuleLevelError};
pub use self::steer::{SteeredClass, SteeredClassError};
use self::wording::{AdmissionFinding, clipped};

/// The path of reviews.
pub const PATH: &str = "/validate";
/// The path of requests that may be changed.
pub const MUTATE_PATH: &str = "/mutate";

/// The path of policies and engines that are cluster objects.
pub const POLICY_PATH: &str = "/validate-policy";

/// How long an API server waits if it does not say so: the timeout that the chart sets.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longest timeout of a webhook.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Longest reason why a body is not a review, in characters.
const REASON_MAX: usize = 512;
/// Most reviews at the same time that read live; others wait. They share the API server's limits with the
/// binder's writes, which must not wait for thousands of them.
const LIVE_REVIEWS_MAX: usize = 16;
/// Most reviews of policies at the same time; others wait. Each may read a module of up to 32 MiB and compile
/// it.
const POLICY_REVIEWS_MAX: usize = 2;

/// Settings of admission.
#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    /// The level of each rule.
    pub levels: Levels,
    /// Most reviews at the same time; further requests pass with a warning.
    pub in_flight_max: usize,
    /// Longest time from the head of a request to the end of its body.
    pub body_within: Duration,
    /// The label, key and value, of precious volumes.
    pub precious: (Text, Text),
    /// The classes whose claims are steered.
    pub steered: Vec<SteeredClass>,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            levels: Levels::default(),
            // By default an API server has at most 600 requests in flight (400, and 200 that write). A review
            // takes tens of microseconds, so few of them are in flight here. This limit is reached only when
            // reviews wait for live reads; more of them would make a slow API server slower.
            in_flight_max: 256,
            // An API server sends head and body together; this allows for some lost packets.
            body_within: Duration::from_secs(1),
            precious: ("bindery.dev/precious".into(), "true".into()),
            steered: Vec::new(),
        }
    }
}

/// Reviews objects that are about to be written.
pub trait Reviewer: Send + Sync + 'static {
    /// The findings about the object, by cached or live reads.
    ///
    /// # Errors
    ///
    /// The object cannot be reviewed.
    fn review(
        &self,
        reviewed: Reviewed,
        reads: Reads,
    ) -> impl Future<Output = Result<Vec<Finding>, ReviewError>> + Send;

    /// The facts that policies declare, which are decoded with each object.
    fn declared(&self) -> Arc<Declared> {
        Arc::default()
    }

    /// A class of the cluster.
    fn class(&self, _name: &str) -> Lookup<Arc<Class>> {
        Lookup::Absent
    }
}

impl<P: Port> Reviewer for Binder<P> {
    async fn review(&self, reviewed: Reviewed, reads: Reads) -> Result<Vec<Finding>, ReviewError> {
        Self::review(self, reviewed, reads).await
    }

    fn declared(&self) -> Arc<Declared> {
        self.intake().declared()
    }

    fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        let store = self.store();
        if store.synced() { store.class(name) } else { Lookup::Failed("Bindery is starting".into()) }
    }
}

/// The routes of admission; `policies` reviews policies that are cluster objects, where these are loaded.
pub fn admission<R: Reviewer>(
    reviewer: Arc<R>,
    settings: AdmissionSettings,
    metrics: AdmissionMetrics,
    policies: Option<Arc<dyn PolicyReviewer>>,
) -> Router {
    let reviews = Semaphore::new(settings.in_flight_max);
    let live_reviews = Semaphore::new(LIVE_REVIEWS_MAX);
    let policy_reviews = Arc::new(Semaphore::new(POLICY_REVIEWS_MAX));
    let bodies = BodyBudget::new();
    let admission =
        Admission { reviewer, policies, settings, metrics, bodies, reviews, live_reviews, policy_reviews };
    let answer = |service| {
        post(move |State(admission): State<Arc<Admission<R>>>, request: Request<Body>| async move {
            admission.respond(request, service).await
        })
    };
    Router::new()
        .route(PATH, answer(Service::Validate))
        .route(MUTATE_PATH, answer(Service::Mutate))
        .route(POLICY_PATH, answer(Service::ValidatePolicy))
        .with_state(Arc::new(admission))
}

struct Admission<R> {
    reviewer: Arc<R>,
    policies: Option<Arc<dyn PolicyReviewer>>,
    settings: AdmissionSettings,
    metrics: AdmissionMetrics,
    bodies: BodyBudget,
    reviews: Semaphore,
    live_reviews: Semaphore,
    policy_reviews: Arc<Semaphore>,
}

/// What a request is answered with.
#[derive(Clone, Copy)]
enum Service {
    Validate,
    Mutate,
    ValidatePolicy,
}

impl<R: Reviewer> Admission<R> {
    /// Reads a request within the limits and answers it.
    async fn respond(&self, request: Request<Body>, service: Service) -> Response {
        let (head, body) = request.into_parts();
        // The other half is for the network.
        let deadline = Instant::now() + timeout(head.uri.query()) / 2;
        // Headers take memory, and the body may be slow.
        drop(head);
        let body = match self.bodies.receive(body, self.settings.body_within, deadline).await {
            Ok(body) => body,
            Err(error) => {
                if error == BodyError::Busy {
                    self.metrics.count_shed_body()
                } else {
                    self.metrics.count_bad_request()
                }
                return (error.status(), format!("{error}\n")).into_response();
            }
        };
        let request = match AdmissionRequest::parse(body.bytes()) {
            Ok(request) => request,
            Err(error) => {
                self.metrics.count_bad_request();
                // The error may repeat what was sent.
                let why = clipped(&error.to_string(), REASON_MAX) + "\n";
                return (StatusCode::BAD_REQUEST, why).into_response();
            }
        };
        let response = match service {
            Service::Validate => self.review(&request, deadline).await,
            Service::Mutate => self.steer(&request),
            Service::ValidatePolicy => self.review_policy(&request, deadline).await,
        };
        match serde_json::to_vec(&AnsweredReview::from(response)) {
            Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }

    async fn review(&self, request: &AdmissionRequest<'_>, deadline: Instant) -> AdmissionResponse {
        let started = Instant::now();
        // A panic would close the connection uncounted.
        let mut object = None;
        let answered = AssertUnwindSafe(self.answer(request, deadline, &mut object)).catch_unwind().await;
        let (outcome, response) =
            answered.unwrap_or_else(|_| self.pass_unchecked(request, object.as_ref(), &Fault::Bug));
        self.metrics.count_review(request.kind(), outcome, started.elapsed());
        response
    }

    async fn review_policy(&self, request: &AdmissionRequest<'_>, deadline: Instant) -> AdmissionResponse {
        let review = policy::review(request, self.policies.as_deref(), &self.policy_reviews);
        match timeout_at(deadline, AssertUnwindSafe(review).catch_unwind()).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => self.pass_unchecked(request, None, &Fault::Bug).1,
            Err(_) => AdmissionResponse::warned(&request.uid, policy::NOT_CHECKED),
        }
    }

    fn steer(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let class = |name: &str| self.reviewer.class(name);
        let (steering, response) = steer::steer(request, &self.settings.steered, class);
        self.metrics.count_steering(steering);
        response
    }

    /// The answer to a request. `object` is set once it is known, for the log.
    async fn answer(
        &self,
        request: &AdmissionRequest<'_>,
        deadline: Instant,
        object: &mut Option<Regarding>,
    ) -> (Outcome, AdmissionResponse) {
        let reviewed = match request.reviewed(&self.reviewer.declared()) {
            Ok(Some(reviewed)) => reviewed,
            Ok(None) => return (Outcome::Passed, AdmissionResponse::allowed(&request.uid)),
            Err(why) => {
                return (Outcome::Unreadable, AdmissionResponse::warned(&request.uid, &why.to_string()));
            }
        };
        *object = Some(match &reviewed {
            Reviewed::Claim { new, .. } => Regarding::Claim(new.target()),
            Reviewed::Volume { new, .. } => Regarding::Volume(new.target()),
        });
        let Ok(_permit) = self.reviews.try_acquire() else {
            let why = "Bindery has not checked this request: too many are under way";
            return (Outcome::Shed, AdmissionResponse::warned(&request.uid, why));
        };
        let findings = match self.confirmed_findings(&reviewed, deadline).await {
            Ok(findings) => findings,
            Err(fault) => return self.pass_unchecked(request, object.as_ref(), &fault),
        };
        findings.rules().for_each(|(rule, level)| self.metrics.count_finding(rule, level));
        let response = findings.response(&request.uid, &reviewed);
        let outcome = match (response.allowed, response.warnings.is_empty()) {
            (false, _) => Outcome::Denied,
            (true, false) => Outcome::Warned,
            (true, true) => Outcome::Allowed,
        };
        (outcome, response)
    }

    /// The answer to a request that passes because its review failed.
    fn pass_unchecked(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Regarding>,
        fault: &Fault,
    ) -> (Outcome, AdmissionResponse) {
        let (cause, why) = fault.cause();
        self.metrics.count_fault(cause);
        tracing::warn!(
            object = object.map(tracing::field::display),
            uid = object.map(|object| tracing::field::display(object.uid())),
            review = &*request.uid,
            why = fault.detail(),
            "a request passes unchecked"
        );
        (Outcome::Faulted, AdmissionResponse::warned(&request.uid, why))
    }

    /// The findings about an object. Live reads confirm a denial and a missing volume: a client that applies
    /// a volume and its claim together is faster than a watch.
    async fn confirmed_findings(&self, reviewed: &Reviewed, deadline: Instant) -> Result<Findings, Fault> {
        let findings = self.findings(reviewed, Reads::Cached, deadline).await?;
        let lacks_volume =
            findings.iter().any(|finding| finding.rule == AdmissionRule::Engine(Rule::VolumeMissing));
        let findings = Findings::by_level(findings, &self.settings.levels);
        if findings.denying.is_empty() && !lacks_volume {
            return Ok(findings);
        }
        let permit = timeout_at(deadline, self.live_reviews.acquire()).await;
        let _permit = permit.map_err(|_| Fault::Overdue)?;
        let findings = self.findings(reviewed, Reads::Live, deadline).await?;
        Ok(Findings::by_level(findings, &self.settings.levels))
    }

    async fn findings(
        &self,
        reviewed: &Reviewed,
        reads: Reads,
        deadline: Instant,
    ) -> Result<Vec<AdmissionFinding>, Fault> {
        let findings = match timeout_at(deadline, self.reviewer.review(reviewed.clone(), reads)).await {
            Ok(findings) => findings.map_err(Fault::Review)?,
            Err(_) => return Err(Fault::Overdue),
        };
        Ok(findings.into_iter().map(AdmissionFinding::from).chain(self.precious_deleted(reviewed)).collect())
    }

    /// Finds policy Delete on a precious volume, unless it was so before.
    fn precious_deleted(&self, reviewed: &Reviewed) -> Option<AdmissionFinding> {
        let Reviewed::Volume { new, old } = reviewed else { return None };
        let (key, value) = &self.settings.precious;
        let is_found =
            |volume: &Volume| volume.policy == ReclaimPolicy::Delete && volume.labels.get(key) == Some(value);
        let is_new = is_found(new) && !old.as_ref().is_some_and(|old| is_found(old));
        is_new.then(|| AdmissionFinding {
            rule: AdmissionRule::PreciousDeleted,
            volume: "".into(),
            claim: None,
            found: format!("{key}={value}").into(),
            wanted: "".into(),
        })
    }
}

/// How long the API server waits, by the query (`?timeout=10s`), in whole seconds.
fn timeout(query: Option<&str>) -> Duration {
    let mut pairs = query.unwrap_or_default().split('&');
    let seconds = pairs.find_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok());
    seconds.map_or(TIMEOUT, Duration::from_secs).clamp(Duration::from_secs(1), TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_the_api_server_is_read_from_the_query() {
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
