//! Kubernetes events.

use std::collections::BTreeSet;
use std::time::Duration;

use bindery_controller::Note;
use bindery_core::{ClaimKey, ClaimTarget, EventType, Regarding, VolumeTarget};
use bindery_kube::{ApiClient, EventLoss, Events, PolicyObjects};
use bindery_sim::{FaultRule, Verb};
use serde_json::json;
use tokio::time::Instant;

use crate::simulated::{Cluster, claim, merged, volume};

#[tokio::test(start_paused = true)]
async fn events_of_volumes_go_to_the_default_namespace() {
    let cluster = Cluster::new();
    let reference = json!({"namespace": "default", "name": "c1", "uid": "uid-c1"});
    let spec = json!({"claimRef": reference, "persistentVolumeReclaimPolicy": "Delete"});
    cluster.add(merged(volume("v1"), json!({"spec": spec, "status": {"phase": "Bound"}})));
    let running = cluster.settled().await;
    assert_eq!(cluster.phases("c1", "v1").1, "Failed");
    let message = "error getting deleter volume plugin for volume \"v1\": no volume plugin matched";
    assert_eq!(cluster.volume("v1")["status"]["message"], message);
    running.events.flush().await;
    let told = cluster.sim.objects("events");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["reason"], "VolumeFailedDelete");
    assert_eq!((&told[0]["metadata"]["namespace"], &told[0]["type"]), (&json!("default"), &json!("Warning")));
    assert_eq!(told[0]["source"]["component"], "persistentvolume-controller");
    let (about, volume) = (&told[0]["involvedObject"], cluster.volume("v1"));
    assert_eq!((&about["kind"], &about["uid"]), (&json!("PersistentVolume"), &volume["metadata"]["uid"]));
    running.stop().await;
}

fn note(regarding: Regarding) -> Note {
    let message = "none fits".to_owned();
    Note { regarding, event_type: EventType::Normal, reason: "FailedBinding", message }
}

/// The event of a claim that no volume fits.
fn stuck(number: usize) -> Note {
    let name = &*format!("stuck-{number}");
    let (key, uid) = (ClaimKey::new("default", name), name.into());
    note(Regarding::Claim(ClaimTarget { key, uid, version: "1".into() }))
}

/// The engine names the object of an event. An invalid name must not become another path.
#[tokio::test(start_paused = true)]
async fn an_event_about_an_invalid_name_is_dropped() {
    let cluster = Cluster::new();
    let events = cluster.events();
    let claim = |namespace: &str, name: &str| {
        let key = ClaimKey::new(namespace, name);
        note(Regarding::Claim(ClaimTarget { key, uid: "u".into(), version: "1".into() }))
    };
    let volume = |name: &str| {
        note(Regarding::Volume(VolumeTarget { name: name.into(), uid: "w".into(), version: "1".into() }))
    };
    let odd = [
        claim("default/pods/p/eviction?x=", "c1"),
        claim("..", "c1"),
        claim("", "c1"),
        claim("default", "c1/../../secrets/s"),
        claim("default", "%2e%2e"),
        volume("v1/status"),
        volume(""),
    ];
    // Twice, because the second event would be counted in the first.
    for note in odd.iter().chain(&odd) {
        events.emit(note, 0);
    }
    events.flush().await;
    assert_eq!(events.dropped(EventLoss::NoObject), 2 * odd.len() as u64);
    assert!(cluster.sim.requests().is_empty(), "{:?}", cluster.sim.requests());
    events.emit(&claim("default", "c1"), 0);
    events.emit(&volume("v1"), 0);
    events.flush().await;
    assert_eq!(cluster.sim.objects("events").len(), 2);
    assert_eq!(EventLoss::ALL.map(|cause| events.dropped(cause)).iter().sum::<u64>(), 2 * odd.len() as u64);
}

/// The limit of requests for events: at once, and in each second after (kube-controller-manager's client).
const BURST: usize = 30;
const PER_SECOND: usize = 20;

/// The writes of events since the last call, in order.
fn writes(cluster: &Cluster) -> Vec<Verb> {
    let requests = cluster.sim.take_requests().into_iter();
    requests.filter(|request| request.resource == "events").map(|request| request.verb).collect()
}

#[tokio::test(start_paused = true)]
async fn five_thousand_stuck_claims_are_explained_before_any_repetition() {
    const CLAIMS: usize = 5_000;
    let cluster = Cluster::new();
    let events = cluster.events();
    events.emit(&stuck(CLAIMS), 0);
    events.flush().await;
    assert_eq!(writes(&cluster), [Verb::Create]);
    let begin = Instant::now();
    events.emit(&stuck(CLAIMS), 0);
    (0..CLAIMS).for_each(|number| events.emit(&stuck(number), 0));
    events.flush().await;
    let took = begin.elapsed();
    assert!(took <= Duration::from_secs(300), "{took:?}");
    let written = writes(&cluster);
    assert!(
        written.len() <= BURST + PER_SECOND * (took.as_secs() as usize + 1),
        "{} in {took:?}",
        written.len()
    );
    assert_eq!(written, [vec![Verb::Create; CLAIMS], vec![Verb::Patch]].concat());
}

#[tokio::test(start_paused = true)]
async fn given_five_thousand_stuck_claims_a_binder_explains_each_soon() {
    const CLAIMS: usize = 5_000;
    let cluster = Cluster::with((0..CLAIMS).map(|number| claim(&format!("c{number}"))));
    let (running, begin) = (cluster.start(), Instant::now());
    let events = || cluster.sim.map_objects("events", |_| ()).len();
    cluster.until("all are explained", || events() == CLAIMS).await;
    assert!(begin.elapsed() <= Duration::from_secs(300), "{:?}", begin.elapsed());
    let explained = cluster.sim.map_objects("events", |event| event["involvedObject"]["name"].to_string());
    assert_eq!(explained.into_iter().collect::<BTreeSet<_>>().len(), CLAIMS);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_stuck_claims_in_turn_get_one_event_each() {
    const CLAIMS: usize = 5_000;
    const ROUNDS: usize = 40;
    const SECONDS: usize = 200;
    let cluster = Cluster::new();
    let events = cluster.events();
    // Events are emitted evenly over virtual time.
    const AT_ONCE: usize = 100;
    let period = Duration::from_secs(SECONDS as u64) * AT_ONCE as u32 / (CLAIMS * ROUNDS) as u32;
    let mut ticks = tokio::time::interval(period);
    for number in 0..CLAIMS * ROUNDS {
        if number % AT_ONCE == 0 {
            ticks.tick().await;
        }
        events.emit(&stuck(number % CLAIMS), 0);
    }
    let meanwhile = writes(&cluster);
    assert!(meanwhile.len() <= BURST + PER_SECOND * SECONDS, "{}", meanwhile.len());
    events.flush().await;
    let told = cluster.sim.objects("events");
    assert_eq!(told.len(), CLAIMS);
    // Each counts all its repetitions.
    assert!(told.iter().all(|event| event["count"] == ROUNDS), "{:?}", told[0]);
    let afterwards = writes(&cluster).len();
    assert!(afterwards <= 2 * CLAIMS, "{afterwards}");
}

#[tokio::test(start_paused = true)]
async fn events_of_policies_and_of_claims_share_one_limit() {
    const EACH: usize = 200;
    let cluster = Cluster::new();
    let client = ApiClient::from(cluster.client());
    let (events, worker) = Events::new(client.clone());
    tokio::spawn(worker.run());
    let (objects, _) = PolicyObjects::new(&client);
    let begin = Instant::now();
    (0..EACH).for_each(|number| events.emit(&stuck(number), 0));
    for _ in 0..EACH {
        let object = ("MatchPolicy", "near", "u");
        objects.record(object, EventType::Warning, ("SettingsInvalid", "no such class"), 0).await.unwrap();
    }
    events.flush().await;
    assert_eq!(cluster.sim.objects("events").len(), 2 * EACH);
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(((2 * EACH - BURST) / PER_SECOND) as u64), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_event_is_counted_by_cause_and_written_later() {
    let cluster = Cluster::new();
    let events = cluster.events();
    let dropped = || EventLoss::ALL.map(|cause| (cause.name(), events.dropped(cause))).to_vec();
    for (code, reason, cause) in
        [(403, "Forbidden", "forbidden"), (422, "Invalid", "refused"), (500, "InternalError", "no_answer")]
    {
        let before = dropped();
        cluster.sim.faults().add(FaultRule::new("create", "events").always().fail(code, reason, "injected"));
        events.emit(&stuck(usize::from(code)), 0);
        events.flush().await;
        let counted = dropped().into_iter().zip(before).map(|((cause, now), (_, then))| (cause, now - then));
        assert_eq!(counted.filter(|(_, lost)| *lost > 0).collect::<Vec<_>>(), [(cause, 1)]);
        cluster.sim.faults().clear();
        events.emit(&stuck(usize::from(code)), 0);
        events.flush().await;
    }
    assert_eq!(cluster.sim.objects("events").len(), 3);
}
