//! What happens between a review and a bind, and between what a replica sees and what is so: none of it
//! denies what should pass.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bindery_admission_tests::{World, claim, create, update, volume, warnings};
use bindery_webhook::{AdmissionSettings, Levels};
use serde_json::{Value, json};

fn is_allowed(response: &Value) -> bool {
    response["allowed"].as_bool().unwrap()
}

/// A claim that names volume `v`.
fn named(name: &str, storage: &str) -> Value {
    claim(name, storage, json!({"volumeName": "v"}))
}

/// The claim, bound before.
fn bound(mut claim: Value) -> Value {
    claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    claim
}

/// The object, being deleted.
fn leaving(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    object
}

fn claim_ref(name: &str, uid: &str) -> Value {
    json!({"claimRef": {"namespace": "ns", "name": name, "uid": uid}})
}

#[tokio::test]
async fn two_claims_may_name_one_volume_and_the_second_one_waits() {
    let world = World::default().having(&[volume("v", "8Gi", json!({}))]);
    for name in ["first", "second"] {
        let response = world.response(&create(&named(name, "8Gi"))).await;
        assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    }
    // Once one of them has it, the next is told.
    let world =
        world.having(&[volume("v", "8Gi", claim_ref("first", "uid-first")), bound(named("first", "8Gi"))]);
    let response = world.response(&create(&named("third", "8Gi"))).await;
    assert_eq!(response["status"]["code"], json!(403), "{response}");
    assert_eq!(
        response["status"]["message"],
        json!("spec.volumeName: volume \"v\" is bound to claim \"first\"; pick another volume")
    );
}

#[tokio::test]
async fn a_volume_that_is_gone_when_the_denial_is_confirmed_denies_nothing() {
    let small = volume("v", "1Gi", json!({}));
    let world = World::default().having(std::slice::from_ref(&small));
    assert!(!is_allowed(&world.response(&create(&named("c", "8Gi"))).await));
    world.remove(&small);
    let response = world.response(&create(&named("c", "8Gi"))).await;
    assert!(is_allowed(&response), "{response}");
    assert_eq!(
        warnings(&response),
        ["spec.volumeName: there is no volume \"v\" yet; the claim waits until somebody creates it"]
    );
}

#[tokio::test]
async fn a_replica_that_lags_behind_denies_nothing_that_should_pass() {
    // It has not seen yet that the volume has grown, was released, or is another one.
    let world = World::default();
    world.see(&volume("v", "1Gi", json!({})));
    world.put(&volume("v", "8Gi", json!({})));
    assert!(is_allowed(&world.response(&create(&named("c", "8Gi"))).await));
    assert_eq!(world.reads(), 1);

    let world = World::default();
    world.see(&volume("v", "8Gi", claim_ref("d", "uid-d")));
    world.see(&bound(named("d", "8Gi")));
    world.put(&volume("v", "8Gi", json!({})));
    assert!(is_allowed(&world.response(&create(&named("c", "8Gi"))).await));

    // Nor that the claim which a volume is for has made room for a smaller one.
    let world = World::default();
    world.see(&claim("c", "8Gi", json!({})));
    world.put(&claim("c", "1Gi", json!({})));
    let reserved = volume("v", "1Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    assert!(is_allowed(&world.response(&create(&reserved)).await));

    // What passes at first sight costs no request.
    let world = World::default().having(&[volume("v", "8Gi", json!({}))]);
    assert!(is_allowed(&world.response(&create(&named("c", "8Gi"))).await));
    assert_eq!(world.reads(), 0);
}

#[tokio::test]
async fn a_volume_that_no_watch_has_told_of_yet_counts() {
    // Both in one manifest: the API server has the volume, and this replica has not seen it.
    let world = World::default();
    world.put(&volume("v", "8Gi", json!({})));
    let response = world.response(&create(&named("c", "8Gi"))).await;
    assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    assert_eq!(world.reads(), 1);
    let response = world.response(&create(&named("c", "10Gi"))).await;
    assert_eq!(response["status"]["code"], json!(422), "{response}");

    // Whether or not anybody wants to hear of volumes that are missing.
    let levels = Levels::new(["volume-missing=off".parse().unwrap()]);
    let world = World::default().with(AdmissionSettings { levels, ..AdmissionSettings::default() });
    world.put(&volume("v", "8Gi", json!({})));
    assert!(!is_allowed(&world.response(&create(&named("c", "10Gi"))).await));
}

#[tokio::test]
async fn where_a_denial_cannot_be_confirmed_the_request_passes() {
    let world = World::default().having(&[volume("v", "1Gi", json!({}))]);
    world.goes_down();
    let response = world.response(&create(&named("c", "8Gi"))).await;
    assert!(is_allowed(&response), "{response}");
    assert_eq!(
        warnings(&response),
        ["Bindery has not checked this request: it could not read an object that the request names"]
    );
    assert!(
        world.scrape().contains("bindery_admission_faults_total{cause=\"read\"} 1\n"),
        "{}",
        world.scrape()
    );
}

#[tokio::test]
async fn a_dry_run_is_answered_alike_and_leaves_nothing_behind() {
    let world = World::default().having(&[volume("v", "1Gi", json!({}))]);
    for claim in [named("c", "8Gi"), named("c", "1Gi")] {
        let review = create(&claim);
        let mut dry = review.clone();
        dry["request"]["dryRun"] = json!(true);
        assert_eq!(world.response(&dry).await, world.response(&review).await);
    }
    assert_eq!(world.deeds(), Vec::<String>::new());
}

#[tokio::test]
async fn a_bound_claim_may_be_updated_whatever_its_volume_is_like() {
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let world = World::default().having(&pair);
    let mut grown = bound(named("c", "100Gi"));
    grown["metadata"]["labels"] = json!({"app": "db"});
    let response = world.response(&update(&grown, &pair[1])).await;
    assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    // Even without the annotation: both still point at each other, and are bound again.
    let response = world.response(&update(&named("c", "1Gi"), &pair[1])).await;
    assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    let response = world.response(&update(&named("c", "2Gi"), &pair[1])).await;
    assert!(is_allowed(&response), "{response}");
    let said = "spec.volumeName: volume \"v\" has storage 1Gi and the claim storage 2Gi; they point at each other and bind anyway";
    assert_eq!(warnings(&response), [said]);
    // But not with another volume.
    let elsewhere = bound(claim("c", "1Gi", json!({"volumeName": "w"})));
    let response = world.response(&update(&elsewhere, &pair[1])).await;
    assert_eq!(response["status"]["code"], json!(403), "{response}");
    // And whatever became of its volume, its metadata may change.
    for volumes in [vec![], vec![volume("v", "1Gi", claim_ref("d", "uid-d")), bound(named("d", "1Gi"))]] {
        let world = World::default().having(&volumes);
        let response = world.response(&update(&grown, &pair[1])).await;
        assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    }
}

#[tokio::test]
async fn a_copy_of_a_bound_claim_is_told_that_its_volume_is_anothers() {
    // `kubectl get pvc db -o yaml`, applied in another namespace: annotation and volumeName come along.
    let pair = [volume("v", "1Gi", claim_ref("db", "uid-db")), bound(named("db", "1Gi"))];
    let mut copy = bound(named("db", "1Gi"));
    copy["metadata"]["namespace"] = "other".into();
    copy["metadata"]["uid"] = "uid-other".into();
    let world = World::default().having(&pair);
    let response = world.response(&create(&copy)).await;
    assert_eq!(response["status"]["code"], json!(403), "{response}");
    let said = "spec.volumeName: volume \"v\" is bound to a claim of another namespace; pick another volume";
    assert_eq!(response["status"]["message"], json!(said));
    // Where the volume is nobody's half, it is told what becomes of it: it does not wait.
    let lost = "metadata.annotations: bind-completed makes the claim Lost, as";
    let gone = claim_ref("gone", "uid-gone");
    let mut released = volume("v", "1Gi", gone.clone());
    released["status"] = json!({"phase": "Released"});
    for (objects, why) in [
        (vec![], "there is no volume \"v\""),
        (vec![volume("v", "1Gi", gone)], "volume \"v\" is not bound to it"),
        (vec![released], "volume \"v\" is Released"),
    ] {
        let world = World::default().having(&objects);
        let response = world.response(&create(&copy)).await;
        assert!(is_allowed(&response), "{response}");
        assert_eq!(warnings(&response), [format!("{lost} {why}; leave it out")]);
    }
}

#[tokio::test]
async fn an_object_that_is_being_deleted_passes() {
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let world = World::default().having(&pair);
    let updates = [
        update(&leaving(named("c", "1Gi")), &pair[1]),
        update(&leaving(volume("v", "1Gi", json!({}))), &pair[0]),
    ];
    for review in updates {
        let response = world.response(&review).await;
        assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    }
    // So does a deletion itself, whose object is in oldObject.
    let mut deletion = update(&Value::Null, &pair[1]);
    deletion["request"]["operation"] = "DELETE".into();
    deletion["request"]["kind"]["kind"] = "PersistentVolumeClaim".into();
    assert!(is_allowed(&world.response(&deletion).await));
}

#[tokio::test]
async fn a_name_that_the_api_server_has_still_to_make_is_no_reason_to_deny() {
    let world = World::default().having(&[volume("v", "1Gi", json!({}))]);
    let mut unnamed = named("c", "8Gi");
    unnamed["metadata"] = json!({"generateName": "data-", "namespace": "ns"});
    let response = world.response(&create(&unnamed)).await;
    assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    unnamed["metadata"]["name"] = "".into();
    assert!(is_allowed(&world.response(&create(&unnamed)).await));
    // A real API server makes it before it asks.
    unnamed["metadata"]["name"] = "data-x7k2p".into();
    assert!(!is_allowed(&world.response(&create(&unnamed)).await));
}

#[tokio::test]
async fn a_claim_may_take_the_place_of_one_of_its_name() {
    // Made again before this replica, or anybody, has seen the earlier one go: if it is still there, the API
    // server itself says so, in the words that tools wait for.
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let world = World::default().having(&pair);
    let mut again = named("c", "1Gi");
    again["metadata"]["uid"] = "uid-c-again".into();
    let response = world.response(&create(&again)).await;
    assert!(is_allowed(&response), "{response}");
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_left_alone() {
    // Its claims are being deleted: they may lose their finalizers, and volumes may be given to whoever comes
    // next.
    let waiting = leaving(claim("c", "8Gi", json!({})));
    let world = World::default().having(std::slice::from_ref(&waiting));
    let mut released = waiting.clone();
    released["metadata"]["finalizers"] = json!([]);
    assert!(is_allowed(&world.response(&update(&released, &waiting)).await));
    let reserved = volume("v", "1Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    assert!(is_allowed(&world.response(&create(&reserved)).await));
    // The recycler's own release of a volume, whose claim this replica still sees.
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let world = World::default();
    pair.iter().for_each(|object| world.see(object));
    world.put(&pair[0]);
    let response = world.response(&update(&volume("v", "1Gi", json!({})), &pair[0])).await;
    assert!(is_allowed(&response), "{response}");
}

#[tokio::test]
async fn a_request_is_answered_for_what_it_introduces() {
    let world = World::default().having(&[volume("v", "1Gi", json!({}))]);
    let mut labelled = named("c", "8Gi");
    labelled["metadata"]["labels"] = json!({"app": "db"});
    let response = world.response(&update(&labelled, &named("c", "8Gi"))).await;
    assert!(is_allowed(&response) && warnings(&response).is_empty(), "{response}");
    let response = world.response(&update(&named("c", "8Gi"), &claim("c", "8Gi", json!({})))).await;
    assert_eq!(response["status"]["code"], json!(422), "{response}");
}
