//! The network between a replica and the API server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bindery_controller::Mode;
use bindery_sim::AnswerLost;
use bytes::Bytes;
use futures::stream::unfold;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::json;
use tower::ServiceExt as _;

use crate::delay::pass;
use crate::law;
use crate::link::WatchFault;
use crate::script::{Effect, KINDS, Refusal, UPSTREAM};
use crate::timeline::{Point, Timeline};

type Answer = Result<Response<UnsyncBoxBody<Bytes, Infallible>>, AnswerLost>;

/// The version of a kind that an answer tells.
#[derive(Clone, Copy)]
struct Told {
    kind: usize,
    version: u64,
}

/// The network of one replica, or of upstream's binder.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) replica: usize,
    /// The mode of the replica; own for upstream's binder.
    pub(crate) mode: Mode,
    pub(crate) timeline: Arc<Timeline>,
    /// Whether the replica was killed. Its tasks may go on, but nothing that they send arrives.
    pub(crate) is_killed: Arc<AtomicBool>,
}

impl Network {
    /// A client on this network.
    pub(crate) fn client(&self) -> kube::Client {
        let network = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| network.clone().send(request));
        kube::Client::new(service, "default")
    }

    /// The place of a watch among all that a change wakes, from 1.
    fn turn(&self, kind: usize) -> u64 {
        u64::try_from(self.replica * KINDS.len() + kind + 1).expect("a small number")
    }

    pub(crate) async fn send(self, request: Request<Body>) -> Answer {
        if self.is_killed.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let (mut head, body) = request.into_parts();
        if self.replica == UPSTREAM {
            head.uri = as_upstream(&head.uri);
        }
        let body = body.collect().await.map_err(|_| AnswerLost)?.to_bytes();
        let is_write = is_write(&head.method, &head.uri);
        let what = format!("{} {}", head.method, head.uri);
        if is_write && !may_write(self.mode, &head.method, &head.uri) {
            self.timeline.violated(&what, &format!("a replica in mode {:?} writes that", self.mode));
        }
        let point = Point { replica: self.replica, what, is_write, frame: None };
        let (number, effect) = self.timeline.add(point);
        match effect {
            // A creation is answered so only if the object exists; a creation that is repeated is.
            Some(Effect::Refuse(Refusal::AlreadyExists)) if head.method == Method::POST => {}
            Some(Effect::Refuse(refusal)) => return Ok(refused(refusal)),
            Some(Effect::Swallow) => return std::future::pending().await,
            _ => {}
        }
        let (timeline, replica) = (Arc::clone(&self.timeline), self.replica);
        // A request that was sent arrives, even if the replica gives it up or dies.
        let carried = tokio::spawn(async move {
            self.timeline.until_connected(self.replica).await;
            if effect == Some(Effect::Delay) {
                self.timeline.until(number + 4).await;
            }
            let sent = || Request::from_parts(head.clone(), Body::from(body.clone()));
            let mut answer = self.carry(sent(), &body).await;
            if effect == Some(Effect::Repeat) {
                answer = self.carry(sent(), &body).await;
            }
            if effect == Some(Effect::DelayAnswer) {
                self.timeline.until(number + 4).await;
            }
            self.timeline.until_connected(self.replica).await;
            answer
        });
        let answer = carried.await.map_err(|_| AnswerLost)?;
        if effect == Some(Effect::LoseAnswer) {
            return Err(AnswerLost);
        }
        if let Some(Told { kind, version }) =
            answer.as_ref().ok().and_then(|answer| answer.extensions().get())
        {
            timeline.answered(replica, *kind, *version);
        }
        answer
    }

    /// Has the API server carry out a request, and holds it against the laws.
    async fn carry(&self, request: Request<Body>, body: &Bytes) -> Answer {
        if self.timeline.is_down() {
            return Err(AnswerLost);
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let kind = kind(&uri).filter(|_| method == Method::GET);
        let query = uri.query().unwrap_or("");
        let is_watch = query.contains("watch=true");
        // A watch from a later version than the current one says nothing until that version comes.
        if let Some(kind) = kind.filter(|_| !is_watch || query.contains("sendInitialEvents")) {
            self.timeline.listed(self.replica, kind);
        }
        if let Some(kind) = kind.filter(|_| is_watch) {
            return self.watch(request, kind).await;
        }
        let sim = &self.timeline.sim;
        let before = law::before(&self.timeline, self.replica, &method, uri.path(), body);
        let mut answer = sim.service().oneshot(request).await?;
        if let Some(kind) = told(&method, &uri).filter(|_| answer.status().is_success()) {
            answer.extensions_mut().insert(Told { kind, version: sim.revision() });
        }
        if is_write(&method, &uri) && answer.status().is_success() {
            self.timeline.note_volumes();
            for violation in before.into_iter().chain(law::after(&self.timeline)) {
                self.timeline.violated(&format!("replica {}: {method} {uri}", self.replica), &violation);
            }
        }
        Ok(answer)
    }

    /// Whether the version that a watch begins from has been given. After a restore it may not have been.
    fn has_revision(&self, request: &Request<Body>) -> bool {
        let query = request.uri().query().unwrap_or("");
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        from.and_then(|from| from.parse::<u64>().ok()).is_none_or(|from| from <= self.timeline.sim.revision())
    }

    async fn watch(&self, request: Request<Body>, kind: usize) -> Answer {
        let is_from_version = !request.uri().query().unwrap_or("").contains("sendInitialEvents");
        let fault = self.timeline.take_fault(self.replica, kind, is_from_version);
        if fault == Some(WatchFault::Expired) {
            return Ok(answer(410, "Expired", None));
        }
        let cuts = self.timeline.cuts(self.replica, kind);
        if fault == Some(WatchFault::Silent) || !self.has_revision(&request) {
            // The real server waits without a word for a version that it has not given.
            let silent = StreamBody::new(futures::stream::pending()).boxed_unsync();
            return Ok(Response::new(silent));
        }
        let answer = self.timeline.sim.service().oneshot(request).await?;
        let network = self.clone();
        Ok(answer.map(|body| {
            let frames = unfold((body, network, cuts), move |(mut body, network, mut cuts)| async move {
                let frame = tokio::select! {
                    biased;
                    _ = cuts.changed() => return None,
                    frame = body.frame() => frame?,
                };
                // The simulator wakes watches in any order.
                pass(Duration::from_millis(network.turn(kind))).await;
                let what = format!("frame of {}", KINDS[kind]);
                let replica = network.replica;
                network.timeline.add(Point { replica, what, is_write: false, frame: Some(kind) });
                tokio::select! {
                    biased;
                    _ = cuts.changed() => return None,
                    () = network.timeline.until_passed(network.replica, kind) => {}
                }
                if let Some(data) = frame.as_ref().ok().and_then(|frame| frame.data_ref()) {
                    network.timeline.received(replica, kind, data);
                }
                Some((frame, (body, network, cuts)))
            });
            StreamBody::new(Box::pin(frames)).boxed_unsync()
        }))
    }
}

/// Whether a replica in a mode may make a write of this kind. Mode steer annotates and reserves only.
fn may_write(mode: Mode, method: &Method, uri: &Uri) -> bool {
    match mode {
        Mode::Own => true,
        Mode::Steer => *method == Method::PATCH && !uri.path().ends_with("/status"),
        Mode::Observe => false,
    }
}

/// The URI of a request by the field manager that upstream is.
fn as_upstream(uri: &Uri) -> Uri {
    let uri = uri.to_string().replace("fieldManager=bindery", "fieldManager=kube-controller-manager");
    uri.parse().expect("a valid URI")
}

/// Whether a request writes something other than the Lease or an event, and does not just ask for rights.
fn is_write(method: &Method, uri: &Uri) -> bool {
    method != Method::GET
        && !["/leases", "/events", "/selfsubjectaccessreviews"].iter().any(|other| uri.path().contains(other))
}

/// The index of the kind that a path lists whole. A list of one namespace, such as the recycler's list of
/// pods, is of no kind: a replica learns no version from it.
fn kind(uri: &Uri) -> Option<usize> {
    let (path, resource) = uri.path().rsplit_once('/')?;
    KINDS.iter().position(|kind| *kind == resource && !path.contains("/namespaces/"))
}

/// The index of the kind whose version an answer tells: that of a whole list, or of a volume or claim that is
/// written.
fn told(method: &Method, uri: &Uri) -> Option<usize> {
    match *method {
        Method::GET => kind(uri),
        Method::DELETE => None,
        _ => KINDS[..2].iter().position(|kind| uri.path().split('/').any(|part| part == *kind)),
    }
}

/// The answer to a refused request.
fn refused(refusal: Refusal) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    const SECONDS: u32 = 7;
    let (code, reason) = refusal.status();
    if refusal == Refusal::Unreadable {
        return Response::new(Full::new(Bytes::from("<html>injected</html>")).boxed_unsync());
    }
    answer(code, reason, (refusal == Refusal::UnavailableForSeconds).then_some(SECONDS))
}

/// An answer with a `metav1.Status`, as an API server or a proxy before it gives.
fn answer(code: u16, reason: &str, retry_after: Option<u32>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code, "reason": reason, "message": "injected",
    });
    let mut response = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    response.body(Full::new(Bytes::from(status.to_string())).boxed_unsync()).expect("a status and headers")
}
