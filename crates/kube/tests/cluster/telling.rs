//! What users are told.

use bindery_controller::Note;
use bindery_core::{ClaimKey, ClaimTarget, EventType, Regarding, VolumeTarget};
use serde_json::{Value, json};

use crate::world::{World, claim, volume, with};

fn events(world: &World, reason: &str) -> Vec<Value> {
    world.sim.objects("events").into_iter().filter(|event| event["reason"] == reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stuck_claim_is_told_of_in_one_event_that_counts() {
    let world = World::new();
    world.add(claim("c1"));
    let running = world.start();
    world.settle().await;
    for size in 1..100 {
        let small = json!({"spec": {"capacity": {"storage": format!("{size}Mi")}}});
        world.add(with(volume(&format!("v{size}")), small));
        world
            .sim
            .put(with(world.claim("c1"), json!({"metadata": {"labels": {"touched": size.to_string()}}})));
        world.settle().await;
    }
    running.events.flush().await;
    let told = events(&world, "FailedBinding");
    assert_eq!(told.len(), 1);
    let event = &told[0];
    assert_eq!(event["metadata"]["namespace"], "default");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["source"]["component"], "persistentvolume-controller");
    assert_eq!(event["involvedObject"]["kind"], "PersistentVolumeClaim");
    assert_eq!(event["involvedObject"]["uid"], "uid-c1");
    let requests = world.sim.requests();
    let written = requests.iter().filter(|request| request.resource == "events").count();
    assert!(
        (25..=60).contains(&written),
        "{written} of 100 notes are written: 25 at once, then one in 300 s"
    );
    // Those that were not are counted when the next one is.
    let count = event["count"].as_u64().unwrap();
    assert!((90..=100).contains(&count), "{count} of 100 notes are counted");
    assert_ne!(event["firstTimestamp"], event["lastTimestamp"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_of_volumes_go_to_the_default_namespace() {
    let world = World::new();
    let reference = json!({"namespace": "default", "name": "c1", "uid": "uid-c1"});
    let change = json!({"spec": {"claimRef": reference, "persistentVolumeReclaimPolicy": "Delete"}, "status": {"phase": "Bound"}});
    world.add(with(volume("v1"), change));
    let running = world.start();
    world.settle().await;
    assert_eq!(world.phases("c1", "v1").1, "Failed");
    let message = "error getting deleter volume plugin for volume \"v1\": no volume plugin matched";
    assert_eq!(world.volume("v1")["status"]["message"], message);
    running.events.flush().await;
    let told = events(&world, "VolumeFailedDelete");
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["metadata"]["namespace"], &told[0]["type"]), (&json!("default"), &json!("Warning")));
    assert_eq!(told[0]["involvedObject"]["kind"], "PersistentVolume");
    running.stop().await;
}

/// An engine says whom an event is about. Where that cannot be an object, its name must not lead elsewhere.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_an_object_is_told_nothing() {
    let world = World::new();
    let (events, worker) = bindery_kube::Events::new(world.client());
    tokio::spawn(worker.run());
    let note = |regarding| Note {
        regarding,
        event_type: EventType::Normal,
        reason: "FailedBinding",
        message: "none fits".to_owned(),
    };
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
    // Twice, because the second of a kind is counted in the first.
    for note in odd.iter().chain(&odd) {
        events.record(note, 0);
    }
    events.flush().await;
    assert_eq!(events.dropped(), 2 * odd.len() as u64);
    assert!(world.sim.requests().is_empty(), "{:?}", world.sim.requests());
    events.record(&claim("default", "c1"), 0);
    events.record(&volume("v1"), 0);
    events.flush().await;
    assert_eq!((world.sim.objects("events").len(), events.dropped()), (2, 2 * odd.len() as u64));
}
