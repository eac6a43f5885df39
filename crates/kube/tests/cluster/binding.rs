//! Claims bind.

use serde_json::json;

use crate::world::{World, claim, volume, with};

#[tokio::test(start_paused = true)]
async fn a_claim_binds_in_four_writes() {
    let world = World::new();
    world.add(volume("v1"));
    world.add(claim("c1"));
    let running = world.start();
    world.settle().await;
    world.assert_bound("c1", "v1");
    assert_eq!(
        world.writes(),
        [
            "patch persistentvolumes v1 200",
            "patch persistentvolumes/status v1 200",
            "patch persistentvolumeclaims c1 200",
            "patch persistentvolumeclaims/status c1 200",
        ]
    );
    let bound_by = |object: serde_json::Value| {
        object["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].clone()
    };
    assert_eq!((bound_by(world.claim("c1")), bound_by(world.volume("v1"))), (json!("yes"), json!("yes")));
    let reference = &world.volume("v1")["spec"]["claimRef"];
    assert_eq!(
        (&reference["kind"], &reference["apiVersion"]),
        (&json!("PersistentVolumeClaim"), &json!("v1"))
    );
    assert!(reference["resourceVersion"].is_string());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_later_wakes_who_waits_for_it() {
    let world = World::new();
    let running = world.start();
    world.settle().await;
    world.add(claim("c1"));
    world.settle().await;
    assert_eq!(world.phases("c1", "v1").0, "Pending");
    world.add(with(volume("v1"), json!({"status": {"phase": "Pending"}})));
    world.settle().await;
    world.assert_bound("c1", "v1");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_user_may_choose_on_either_side() {
    let world = World::new();
    world.add(with(claim("names-volume"), json!({"spec": {"volumeName": "named"}})));
    world.add(volume("named"));
    world.add(claim("is-named"));
    let reference = json!({"namespace": "default", "name": "is-named"});
    world.add(with(
        volume("names-claim"),
        json!({"spec": {"claimRef": reference, "capacity": {"storage": "9Gi"}}}),
    ));
    let running = world.start();
    world.settle().await;
    world.assert_bound("names-volume", "named");
    world.assert_bound("is-named", "names-claim");
    let marked = |object: serde_json::Value| {
        !object["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].is_null()
    };
    assert!(marked(world.volume("named")) && !marked(world.claim("names-volume")));
    assert!(!marked(world.volume("names-claim")) && marked(world.claim("is-named")));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_claims_bind_side_by_side_and_none_twice() {
    let world = World::new();
    for number in 0..200 {
        world.add(volume(&format!("v{number:03}")));
        world.add(claim(&format!("c{number:03}")));
    }
    let running = world.start();
    world.settle().await;
    let mut taken = std::collections::BTreeSet::new();
    for number in 0..200 {
        let name = format!("c{number:03}");
        let volume = world.claim(&name)["spec"]["volumeName"].as_str().unwrap_or_default().to_owned();
        world.assert_bound(&name, &volume);
        assert!(taken.insert(volume));
    }
    assert_eq!(running.binder.metrics().conflicts.get(), 0);
    assert_eq!(world.writes().len(), 800);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_appears_is_given_to_who_has_none_and_provisions() {
    let world = World::new();
    world.add(claim("c1"));
    let running = world.start();
    world.settle().await;
    world.add(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "gold", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "vendor.example/csi",
        "volumeBindingMode": "Immediate",
    }));
    world.settle().await;
    let claim = world.claim("c1");
    assert_eq!(claim["spec"]["storageClassName"], "gold");
    let annotations = &claim["metadata"]["annotations"];
    assert_eq!(annotations["volume.kubernetes.io/storage-provisioner"], "vendor.example/csi");
    assert_eq!(annotations["volume.beta.kubernetes.io/storage-provisioner"], "vendor.example/csi");
    // The provisioner has made a volume and reserved it.
    let reference = json!({"namespace": "default", "name": "c1", "uid": claim["metadata"]["uid"]});
    let change =
        json!({"spec": {"claimRef": reference, "storageClassName": "gold"}, "status": {"phase": "Pending"}});
    world.add(with(volume("pvc-1"), change));
    world.settle().await;
    world.assert_bound("c1", "pvc-1");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_at_rest_costs_no_request_but_watches_and_the_events_of_claims_that_wait() {
    let world = World::new();
    world.add(volume("v1"));
    world.add(claim("c1"));
    world.add(claim("waits"));
    let running = world.start();
    world.settle().await;
    let decisions = running.binder.metrics().decisions.get();
    world.sim.take_requests();
    // Watches are made anew every few minutes, and go on from where they were.
    world.until("watches are made anew", || world.sim.requests().len() >= 20).await;
    // The claim that waits is decided again before its event expires, and told of once more.
    let mut requests = world.sim.take_requests();
    requests.retain(|request| request.verb != bindery_sim::Verb::Watch);
    assert!(requests.iter().all(|request| request.resource == "events"), "{requests:?}");
    let decided = running.binder.metrics().decisions.get() - decisions;
    assert_eq!(requests.len() as u64, decided, "{requests:?}");
    running.stop().await;
}
