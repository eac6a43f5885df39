//! Races between reviews and binds, and replicas that lag behind: nothing is denied that should pass.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bindery_admission_tests::{Replica, claim, create, update, volume, warnings};
use bindery_webhook::{AdmissionSettings, Levels};
use serde_json::{Value, json};

fn is_allowed(response: &Value) -> bool {
    response["allowed"].as_bool().unwrap()
}

/// The replica allows a request without a warning.
async fn passes(replica: &Replica, review: &Value) {
    let response = replica.response(review).await;
    assert!(is_allowed(&response) && warnings(&response).is_empty(), "{review}: {response}");
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
    let replica = Replica::default().having(&[volume("v", "8Gi", json!({}))]);
    for name in ["first", "second"] {
        passes(&replica, &create(&named(name, "8Gi"))).await;
    }
    // Once one of them is bound, the next claim is denied.
    let replica =
        replica.having(&[volume("v", "8Gi", claim_ref("first", "uid-first")), bound(named("first", "8Gi"))]);
    let response = replica.response(&create(&named("third", "8Gi"))).await;
    assert_eq!(response["status"]["code"], json!(403), "{response}");
    assert_eq!(
        response["status"]["message"],
        json!("spec.volumeName: volume \"v\" is bound to claim \"first\"; pick another volume")
    );
}

#[tokio::test]
async fn a_volume_that_is_gone_when_the_denial_is_confirmed_denies_nothing() {
    let small = volume("v", "1Gi", json!({}));
    let replica = Replica::default().having(std::slice::from_ref(&small));
    assert!(!is_allowed(&replica.response(&create(&named("c", "8Gi"))).await));
    replica.remove(&small);
    let response = replica.response(&create(&named("c", "8Gi"))).await;
    assert!(is_allowed(&response), "{response}");
    assert_eq!(
        warnings(&response),
        ["spec.volumeName: there is no volume \"v\" yet; the claim waits until it is created"]
    );
}

#[tokio::test]
async fn a_replica_that_lags_behind_denies_nothing_that_should_pass() {
    // The replica has not seen yet that the volume has grown, was released, or was replaced.
    let replica = Replica::default();
    replica.see(&volume("v", "1Gi", json!({})));
    replica.put(&volume("v", "8Gi", json!({})));
    assert!(is_allowed(&replica.response(&create(&named("c", "8Gi"))).await));
    assert_eq!(replica.reads(), 1);

    let replica = Replica::default();
    replica.see(&volume("v", "8Gi", claim_ref("d", "uid-d")));
    replica.see(&bound(named("d", "8Gi")));
    replica.put(&volume("v", "8Gi", json!({})));
    assert!(is_allowed(&replica.response(&create(&named("c", "8Gi"))).await));

    // The replica has not seen that the claim of a volume was replaced by a smaller one.
    let replica = Replica::default();
    replica.see(&claim("c", "8Gi", json!({})));
    replica.put(&claim("c", "1Gi", json!({})));
    let reserved = volume("v", "1Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    assert!(is_allowed(&replica.response(&create(&reserved)).await));

    // A review that passes reads nothing live.
    let replica = Replica::default().having(&[volume("v", "8Gi", json!({}))]);
    assert!(is_allowed(&replica.response(&create(&named("c", "8Gi"))).await));
    assert_eq!(replica.reads(), 0);
}

#[tokio::test]
async fn a_volume_that_no_watch_has_told_of_yet_counts() {
    // Volume and claim in one manifest: the API server has the volume, but this replica has not seen it.
    let replica = Replica::default();
    replica.put(&volume("v", "8Gi", json!({})));
    passes(&replica, &create(&named("c", "8Gi"))).await;
    assert_eq!(replica.reads(), 1);
    let response = replica.response(&create(&named("c", "10Gi"))).await;
    assert_eq!(response["status"]["code"], json!(422), "{response}");

    // Also with the rule for missing volumes off.
    let levels = Levels::new(["volume-missing=off".parse().unwrap()]);
    let replica = Replica::default().with(AdmissionSettings { levels, ..AdmissionSettings::default() });
    replica.put(&volume("v", "8Gi", json!({})));
    assert!(!is_allowed(&replica.response(&create(&named("c", "10Gi"))).await));
}

#[tokio::test]
async fn where_a_denial_cannot_be_confirmed_the_request_passes() {
    let replica = Replica::default().having(&[volume("v", "1Gi", json!({}))]);
    replica.fail_reads();
    let response = replica.response(&create(&named("c", "8Gi"))).await;
    assert!(is_allowed(&response), "{response}");
    assert_eq!(
        warnings(&response),
        ["Bindery has not checked this request: it could not read an object that the request names"]
    );
    assert!(
        replica.scrape().contains("bindery_admission_faults_total{cause=\"read\"} 1\n"),
        "{}",
        replica.scrape()
    );
}

#[tokio::test]
async fn a_dry_run_is_answered_alike_and_leaves_nothing_behind() {
    let replica = Replica::default().having(&[volume("v", "1Gi", json!({}))]);
    for claim in [named("c", "8Gi"), named("c", "1Gi")] {
        let review = create(&claim);
        let mut dry = review.clone();
        dry["request"]["dryRun"] = json!(true);
        assert_eq!(replica.response(&dry).await, replica.response(&review).await);
    }
    assert_eq!(replica.effects(), Vec::<String>::new());
}

#[tokio::test]
async fn a_bound_claim_may_be_updated_whatever_its_volume_is_like() {
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let replica = Replica::default().having(&pair);
    let mut grown = bound(named("c", "100Gi"));
    grown["metadata"]["labels"] = json!({"app": "db"});
    passes(&replica, &update(&grown, &pair[1])).await;
    // Also without the annotation: both still name each other, and are bound again.
    passes(&replica, &update(&named("c", "1Gi"), &pair[1])).await;
    let response = replica.response(&update(&named("c", "2Gi"), &pair[1])).await;
    assert!(is_allowed(&response), "{response}");
    let said = "spec.volumeName: volume \"v\" has storage 1Gi and the claim storage 2Gi; they point at each \
                other and bind anyway";
    assert_eq!(warnings(&response), [said]);
    // Another volume is denied.
    let elsewhere = bound(claim("c", "1Gi", json!({"volumeName": "w"})));
    let response = replica.response(&update(&elsewhere, &pair[1])).await;
    assert_eq!(response["status"]["code"], json!(403), "{response}");
    // Its metadata may change without its volume too.
    for volumes in [vec![], vec![volume("v", "1Gi", claim_ref("d", "uid-d")), bound(named("d", "1Gi"))]] {
        let replica = Replica::default().having(&volumes);
        passes(&replica, &update(&grown, &pair[1])).await;
    }
}

#[tokio::test]
async fn a_copy_of_a_bound_claim_is_told_that_its_volume_is_anothers() {
    // `kubectl get pvc db -o yaml`, applied in another namespace with annotation and volumeName.
    let pair = [volume("v", "1Gi", claim_ref("db", "uid-db")), bound(named("db", "1Gi"))];
    let mut copy = bound(named("db", "1Gi"));
    copy["metadata"]["namespace"] = "other".into();
    copy["metadata"]["uid"] = "uid-other".into();
    let replica = Replica::default().having(&pair);
    let response = replica.response(&create(&copy)).await;
    assert_eq!(response["status"]["code"], json!(403), "{response}");
    let said = "spec.volumeName: volume \"v\" is bound to a claim of another namespace; pick another volume";
    assert_eq!(response["status"]["message"], json!(said));
    // Without an owner of the volume, the warning says that the claim becomes Lost.
    let lost = "metadata.annotations: bind-completed makes the claim Lost, as";
    let gone = claim_ref("gone", "uid-gone");
    let mut released = volume("v", "1Gi", gone.clone());
    released["status"] = json!({"phase": "Released"});
    for (objects, why) in [
        (vec![], "there is no volume \"v\""),
        (vec![volume("v", "1Gi", gone)], "volume \"v\" is not bound to it"),
        (vec![released], "volume \"v\" is Released"),
    ] {
        let replica = Replica::default().having(&objects);
        let response = replica.response(&create(&copy)).await;
        assert!(is_allowed(&response), "{response}");
        assert_eq!(warnings(&response), [format!("{lost} {why}; leave it out")]);
    }
}

#[tokio::test]
async fn an_object_that_is_being_deleted_passes() {
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let replica = Replica::default().having(&pair);
    let updates = [
        update(&leaving(named("c", "1Gi")), &pair[1]),
        update(&leaving(volume("v", "1Gi", json!({}))), &pair[0]),
    ];
    for review in updates {
        passes(&replica, &review).await;
    }
    // So does the deletion itself, whose object is in oldObject.
    let mut deletion = update(&Value::Null, &pair[1]);
    deletion["request"]["operation"] = "DELETE".into();
    deletion["request"]["kind"]["kind"] = "PersistentVolumeClaim".into();
    assert!(is_allowed(&replica.response(&deletion).await));
}

#[tokio::test]
async fn a_name_that_the_api_server_still_has_to_generate_is_not_denied() {
    let replica = Replica::default().having(&[volume("v", "1Gi", json!({}))]);
    let mut unnamed = named("c", "8Gi");
    unnamed["metadata"] = json!({"generateName": "data-", "namespace": "ns"});
    passes(&replica, &create(&unnamed)).await;
    unnamed["metadata"]["name"] = "".into();
    assert!(is_allowed(&replica.response(&create(&unnamed)).await));
    // A real API server makes the name before it asks.
    unnamed["metadata"]["name"] = "data-x7k2p".into();
    assert!(!is_allowed(&replica.response(&create(&unnamed)).await));
}

#[tokio::test]
async fn a_claim_may_take_the_place_of_one_of_its_name() {
    // The replica has not seen the deletion of the earlier claim. If that still exists, the API server
    // refuses the request itself, in the words that tools expect.
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let replica = Replica::default().having(&pair);
    let mut again = named("c", "1Gi");
    again["metadata"]["uid"] = "uid-c-again".into();
    let response = replica.response(&create(&again)).await;
    assert!(is_allowed(&response), "{response}");
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_left_alone() {
    // Its claims may lose their finalizers, and volumes may be reserved for their successors.
    let waiting = leaving(claim("c", "8Gi", json!({})));
    let replica = Replica::default().having(std::slice::from_ref(&waiting));
    let mut released = waiting.clone();
    released["metadata"]["finalizers"] = json!([]);
    assert!(is_allowed(&replica.response(&update(&released, &waiting)).await));
    let reserved = volume("v", "1Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    assert!(is_allowed(&replica.response(&create(&reserved)).await));
    // A recycled volume is made available while this replica still sees its claim.
    let pair = [volume("v", "1Gi", claim_ref("c", "uid-c")), bound(named("c", "1Gi"))];
    let replica = Replica::default();
    pair.iter().for_each(|object| replica.see(object));
    replica.put(&pair[0]);
    let response = replica.response(&update(&volume("v", "1Gi", json!({})), &pair[0])).await;
    assert!(is_allowed(&response), "{response}");
}

#[tokio::test]
async fn a_request_is_answered_for_what_it_introduces() {
    let replica = Replica::default().having(&[volume("v", "1Gi", json!({}))]);
    let mut labelled = named("c", "8Gi");
    labelled["metadata"]["labels"] = json!({"app": "db"});
    passes(&replica, &update(&labelled, &named("c", "8Gi"))).await;
    let response = replica.response(&update(&named("c", "8Gi"), &claim("c", "8Gi", json!({})))).await;
    assert_eq!(response["status"]["code"], json!(422), "{response}");
}
