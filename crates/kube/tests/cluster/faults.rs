//! What goes wrong between binder and API server is mended, and nothing is written twice.

use bindery_sim::FaultRule;
use serde_json::json;

use crate::world::{World, claim, volume, with};

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_of_a_bind_is_healed_by_the_next_binder() {
    for survivors in 0..4 {
        let world = World::new();
        world.add(volume("v1"));
        world.add(volume("v2"));
        world.add(claim("c1"));
        // From that write on the first binder gets no request through: it is as good as dead.
        for resource in ["persistentvolumes", "persistentvolumeclaims"] {
            let skip = if resource == "persistentvolumes" { survivors } else { survivors.max(2) - 2 };
            world.sim.faults().add(FaultRule::writes(resource).nth(skip + 1).always());
        }
        let first = world.start();
        let refused = || world.sim.requests().iter().filter(|request| request.code >= 500).count();
        world.until("it has tried again and again", || refused() > 10).await;
        assert_ne!(world.phases("c1", "v1").0, "Bound", "after {survivors} writes");
        first.kill();
        world.sim.faults().clear();
        let second = world.start();
        world.settle().await;
        world.assert_bound("c1", "v1");
        assert_eq!(world.volume("v2")["spec"]["claimRef"], json!(null), "after {survivors} writes");
        second.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_not_made_twice() {
    for (resource, nth) in [
        ("persistentvolumes", 1),
        ("persistentvolumes", 2),
        ("persistentvolumeclaims", 1),
        ("persistentvolumeclaims", 2),
    ] {
        let world = World::new();
        world.add(volume("v1"));
        world.add(volume("v2"));
        world.add(claim("c1"));
        world.sim.faults().add(FaultRule::writes(resource).nth(nth).lose_answer());
        let running = world.start();
        world.settle().await;
        world.assert_bound("c1", "v1");
        assert_eq!(world.volume("v2")["spec"]["claimRef"], json!(null), "{resource} {nth}");
        assert_eq!(running.binder.metrics().write_errors.get(), 1);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_tried_again() {
    for (code, reason) in [
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
        (403, "Forbidden"),
    ] {
        for nth in 1..=2 {
            let world = World::new();
            world.add(volume("v1"));
            world.add(claim("c1"));
            for resource in ["persistentvolumes", "persistentvolumeclaims"] {
                world.sim.faults().add(FaultRule::writes(resource).nth(nth).fail(code, reason, "injected"));
            }
            let running = world.start();
            world.settle().await;
            world.assert_bound("c1", "v1");
            let metrics = running.binder.metrics();
            assert_eq!((metrics.conflicts.get() > 0, metrics.sync_errors.get() > 1), (code == 409, true));
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_version_is_listed_again() {
    let world = World::new();
    world.add(volume("v1"));
    let running = world.start();
    world.settle().await;
    // The watches are cut, and what happens until they are back is forgotten.
    world.sim.faults().add(FaultRule::new("watch", "persistentvolumes").times(2));
    world.sim.faults().add(FaultRule::new("watch", "persistentvolumeclaims").times(2));
    world.until("both watches are cut", || world.sim.faults().pending() == 0).await;
    world.sim.remove("persistentvolumes", None, "v1");
    world.add(volume("v2"));
    world.add(claim("c1"));
    world.sim.compact();
    world.settle().await;
    world.assert_bound("c1", "v2");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_left_alone_and_told() {
    let world = World::new();
    world.add(with(volume("odd"), json!({"spec": {"accessModes": ["ReadSometimes"]}})));
    world.add(volume("v2"));
    world.add(with(claim("c1"), json!({"spec": {"volumeName": "odd"}})));
    world.add(claim("c2"));
    let running = world.start();
    world.settle().await;
    world.assert_bound("c2", "v2");
    assert_eq!(world.phases("c1", "odd").0, "Pending");
    running.events.flush().await;
    let events = world.sim.objects("events");
    let told = events.iter().find(|event| event["involvedObject"]["name"] == "odd").expect("an event");
    assert_eq!((&told["reason"], &told["type"]), (&json!("Unreadable"), &json!("Warning")));
    assert!(told["message"].as_str().unwrap().contains("ReadSometimes"));
    running.stop().await;
}
