//! A leader that cannot lead any more hands over within 30 seconds. One whose writes fail does so only if
//! another replica could lead and its writes might succeed.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Mode, Parts, Settings};
use bindery_engine::DefaultEngine;
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{ApiClient, ApiPort, Eligibility, Events, Leadership, LeaseSettings};
use bindery_sim::SimBody;
use bindery_store::Store;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch as channel;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::simulated::{Cluster, claim, merged, volume};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const MINUTE: Duration = Duration::from_secs(60);
/// How long a leader that fails may keep the Lease where another replica could lead.
const HANDOVER_MAX: Duration = Duration::from_secs(30);
/// Status and message of an answer that another replica might not get.
const DOWN: (u16, &str) = (500, "etcdserver: request timed out");

/// Status and body of an answer.
type Answer = (u16, Value);
/// Answers some requests in place of the API server.
type Fault = Box<dyn Fn(&Request<Bytes>) -> Option<Answer> + Send>;

struct Replica {
    eligibility: Arc<Eligibility>,
    leads: channel::Receiver<bool>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Default)]
struct Faults {
    fault: Option<Fault>,
    /// The first refusal.
    began: Option<Instant>,
}

impl Replica {
    /// Starts a replica, and waits until it could lead.
    async fn start(cluster: &Cluster, identity: &str) -> Self {
        let faults = Arc::<Mutex<Faults>>::default();
        let client = client(cluster, Arc::clone(&faults));
        let (events, worker) = Events::new(client.clone());
        let binder = Arc::new(Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), cluster.clock(), events),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration::default(),
            settings: Settings::default(),
            journal: None,
        }));
        let (intake, shutdown) = (binder.intake().clone(), CancellationToken::new());
        tokio::spawn(worker.run());
        tokio::spawn(watch::run(client.clone(), intake, WatchLimits::default(), shutdown.clone()));
        let lease = LeaseSettings {
            namespace: "kube-system".to_owned(),
            name: "bindery".to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(15),
        };
        let eligibility = Arc::new(Eligibility::new(client.clone(), &binder, &lease, Mode::Own, false));
        let leads = channel::Sender::default();
        let replica = Self { eligibility: Arc::clone(&eligibility), leads: leads.subscribe(), faults };
        let (foreign_writer_check, clock, policies) = (None, cluster.clock(), None);
        let leadership =
            Leadership { client, lease, eligibility, binder, foreign_writer_check, clock, leads, policies };
        tokio::spawn(leadership.run(shutdown));
        cluster.until("it could lead", || replica.eligibility.causes().is_empty()).await;
        replica
    }

    fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    fn suffers(&self, fault: impl Fn(&Request<Bytes>) -> Option<Answer> + Send + 'static) {
        self.faults.lock().fault = Some(Box::new(fault));
    }

    /// Refuses the writes of volumes and claims of this replica whose path has this part.
    fn refuse(&self, part: &'static str, (code, message): (u16, &'static str)) {
        self.suffers(move |request| {
            let path = request.uri().path();
            let is_write = *request.method() == Method::PATCH && path.contains("/persistentvolume");
            (is_write && path.contains(part)).then(|| status(code, message))
        });
    }

    /// Lets this time pass, and asserts that the replica leads without a pause.
    async fn keeps_leading(&mut self, cluster: &Cluster, time: Duration) {
        self.leads.mark_unchanged();
        let began = Instant::now();
        cluster.until("the time passes", || began.elapsed() >= time).await;
        assert!(self.leads() && !self.leads.has_changed().unwrap(), "it has stood down");
    }
}

impl Faults {
    fn answer(&mut self, request: &Request<Bytes>) -> Option<Response<SimBody>> {
        let (code, body) = self.fault.as_ref()?(request)?;
        if code >= 400 {
            self.began.get_or_insert_with(Instant::now);
        }
        let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
        Some(Response::builder().status(code).header(CONTENT_TYPE, "application/json").body(body).unwrap())
    }
}

/// A client that has these faults.
fn client(cluster: &Cluster, faults: Arc<Mutex<Faults>>) -> ApiClient {
    let sim = cluster.sim.service();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (sim, faults) = (sim.clone(), Arc::clone(&faults));
        async move {
            let (head, body) = request.into_parts();
            let request = Request::from_parts(head, body.collect_bytes().await.unwrap());
            let answer = faults.lock().answer(&request);
            match answer {
                Some(answer) => Ok(answer),
                None => sim.oneshot(request.map(Body::from)).await,
            }
        }
    });
    kube::Client::new(service, "default").into()
}

fn status(code: u16, message: &str) -> Answer {
    (code, json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": message}))
}

/// A cluster, a leader, and another replica that could lead.
async fn leader_and_follower() -> (Cluster, Replica, Replica) {
    let cluster = Cluster::new();
    let first = Replica::start(&cluster, "first").await;
    cluster.until("it leads", || first.leads()).await;
    let second = Replica::start(&cluster, "second").await;
    (cluster, first, second)
}

/// Adds volumes, and for each a claim that names it.
fn add(cluster: &Cluster, names: &[&str]) {
    for name in names {
        cluster.add(volume(name));
        cluster.add(merged(claim(name), json!({"spec": {"volumeName": name}})));
    }
}

fn are_bound(cluster: &Cluster, names: &[&str]) -> bool {
    names.iter().all(|name| cluster.phases(name, name) == ("Bound".to_owned(), "Bound".to_owned()))
}

/// How often the holder of the Lease has changed.
fn transitions(cluster: &Cluster) -> u64 {
    let lease = cluster.sim.object("leases", Some("kube-system"), "bindery").unwrap();
    lease["spec"]["leaseTransitions"].as_u64().unwrap()
}

/// Whether the holder of the Lease asks whether another replica could lead.
fn asks(cluster: &Cluster) -> bool {
    let lease = cluster.sim.object("leases", Some("kube-system"), "bindery").unwrap();
    lease["metadata"]["annotations"]["bindery.dev/hand-over"] == ""
}

#[tokio::test(start_paused = true)]
async fn given_a_leader_whose_writes_fail_another_one_leads_and_binds() {
    let (cluster, first, second) = leader_and_follower().await;
    first.refuse("", DOWN);
    add(&cluster, &["a", "b"]);
    let began = Instant::now();
    cluster.until("the other one leads", || second.leads()).await;
    assert!(began.elapsed() < HANDOVER_MAX && !first.leads(), "{:?}", began.elapsed());
    assert_eq!(first.eligibility.causes(), ["its writes failed, and another replica could lead"]);
    cluster.until("both claims are bound", || are_bound(&cluster, &["a", "b"])).await;
    ["a", "b"].into_iter().for_each(|name| cluster.assert_bound(name, name));
    assert!(second.leads());
}

#[tokio::test(start_paused = true)]
async fn given_no_other_replica_a_leader_whose_writes_fail_stays() {
    let cluster = Cluster::new();
    let mut only = Replica::start(&cluster, "only").await;
    cluster.until("it leads", || only.leads()).await;
    only.refuse("", DOWN);
    add(&cluster, &["a", "b"]);
    cluster.until("it asks", || asks(&cluster)).await;
    only.keeps_leading(&cluster, MINUTE * 4).await;
    only.faults.lock().fault = None;
    let is_over = || are_bound(&cluster, &["a", "b"]) && !asks(&cluster);
    cluster.until("its writes succeed, and it does not ask any more", is_over).await;
}

#[tokio::test(start_paused = true)]
async fn given_writes_that_admission_refuses_the_leader_stays() {
    for answer in [
        (403, "admission webhook \"w\" denied the request: no"),
        (500, "Internal error occurred: failed calling webhook \"w\": connection refused"),
    ] {
        let (cluster, mut first, _second) = leader_and_follower().await;
        first.refuse("", answer);
        add(&cluster, &["a", "b"]);
        first.keeps_leading(&cluster, MINUTE * 4).await;
        assert!(!are_bound(&cluster, &["a"]) && !are_bound(&cluster, &["b"]), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn given_other_writes_that_succeed_failing_writes_change_nothing() {
    let (cluster, mut first, _second) = leader_and_follower().await;
    first.refuse("/bad-", DOWN);
    add(&cluster, &["bad-a", "bad-b"]);
    for number in 0..20 {
        let name = format!("good-{number}");
        add(&cluster, &[name.as_str()]);
        first.keeps_leading(&cluster, Duration::from_secs(10)).await;
        assert!(are_bound(&cluster, &[name.as_str()]), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn given_writes_that_fail_for_all_the_lease_moves_ever_more_rarely() {
    let (cluster, first, mut second) = leader_and_follower().await;
    [&first, &second].into_iter().for_each(|replica| replica.refuse("", DOWN));
    add(&cluster, &["a", "b"]);
    cluster.until("the other one leads", || second.leads()).await;
    second.keeps_leading(&cluster, MINUTE * 4).await;
    assert!(asks(&cluster) && first.eligibility.causes().is_empty());
    let (began, before) = (Instant::now(), transitions(&cluster));
    cluster.until("the time passes", || began.elapsed() >= MINUTE * 40).await;
    // After about 5, 10, 20, 30 and 40 minutes.
    let moves = transitions(&cluster) - before;
    assert!((3..=5).contains(&moves), "{moves} moves");
}

fn refuses_credentials(_: &Request<Bytes>) -> Option<Answer> {
    Some(status(401, "Unauthorized"))
}

/// Once the open watch of volumes has ended, no watch and no list begins.
fn expires_volumes(request: &Request<Bytes>) -> Option<Answer> {
    (request.uri().path() == VOLUMES).then(|| status(410, "too old resource version"))
}

/// The same, with lists that fail.
fn fails_lists_of_volumes(request: &Request<Bytes>) -> Option<Answer> {
    let is_list = !request.uri().query().unwrap_or_default().contains("&resourceVersion=");
    expires_volumes(request).map(|expired| if is_list { status(DOWN.0, DOWN.1) } else { expired })
}

fn forbids_patches_of_volumes(request: &Request<Bytes>) -> Option<Answer> {
    let path = request.uri().path();
    if path.ends_with("/selfsubjectaccessreviews") {
        let review: Value = serde_json::from_slice(request.body()).unwrap();
        let wanted = &review["spec"]["resourceAttributes"];
        let lacks = wanted["resource"] == "persistentvolumes" && wanted["verb"] == "patch";
        return Some((201, json!({"status": {"allowed": !lacks || wanted["subresource"] == "status"}})));
    }
    let is_patch = *request.method() == Method::PATCH && path.starts_with(VOLUMES);
    (is_patch && !path.ends_with("/status")).then(|| status(403, "persistentvolumes \"a\" is forbidden"))
}

#[tokio::test(start_paused = true)]
async fn given_a_leader_that_alone_is_refused_another_leads_within_30_s() {
    for (fault, cause) in [
        (refuses_credentials as fn(&Request<Bytes>) -> Option<Answer>, "its credentials are refused"),
        (expires_volumes, "the list of PersistentVolume is not complete"),
        (fails_lists_of_volumes, "the list of PersistentVolume is not complete"),
        (forbids_patches_of_volumes, "it may not patch persistentvolumes"),
    ] {
        let (cluster, first, second) = leader_and_follower().await;
        first.suffers(fault);
        add(&cluster, &["a"]);
        cluster.until("the other one leads", || second.leads()).await;
        let time = first.faults.lock().began.unwrap().elapsed();
        assert!(time < HANDOVER_MAX && !first.leads(), "{cause}: {time:?}");
        assert_eq!(first.eligibility.causes(), [cause]);
    }
}
