//! Mode steer beside the whole controller manager of upstream, its binder included.

use std::process::Command;

use bindery_cluster::{Cluster, Manager, Replica, is_bound_to, is_event, is_in_phase, run};
use bindery_core::ClaimKey;
use bindery_core::steer::{CHOICE, RESERVED_FOR, steering_key};
use bindery_kit::json;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Creates a steered claim of 1 GiB, with these further fields of its spec.
pub(crate) async fn create_steered(cluster: &Cluster, name: &str, mut spec: Value) {
    let key = steering_key(&ClaimKey::new("default", name)).expect("the name fits");
    let mut needed = vec![json!({"key": key, "operator": "Exists"})];
    needed.extend(spec["selector"]["matchExpressions"].as_array().into_iter().flatten().cloned());
    spec["selector"] = json!({"matchExpressions": needed});
    cluster.create_claim_with(name, spec).await;
}

/// A replica in mode steer with match policies, by name and spec, and the folder of their documents.
pub(crate) fn steering_replica(cluster: &Cluster, policies: &[(&str, Value)]) -> (Replica, TempDir) {
    replica_in("steer", cluster, policies)
}

/// The same in another mode.
pub(crate) fn replica_in(mode: &str, cluster: &Cluster, policies: &[(&str, Value)]) -> (Replica, TempDir) {
    let documents = tempfile::tempdir().unwrap();
    for (name, spec) in policies {
        let file = documents.path().join(format!("{name}.yaml"));
        std::fs::write(file, json::policy("MatchPolicy", name, spec).to_string()).unwrap();
    }
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let folder = documents.path().to_str().unwrap();
    let arguments = ["--mode", mode, "--policy", folder, "--policies", &shipped];
    (cluster.replica_with("first", &arguments), documents)
}

/// A policy that allows volumes of so many times the request at most.
pub(crate) fn at_most(times: u32) -> (&'static str, Value) {
    ("limit", json!({"module": "builtin:at-most-n-times", "settings": {"times": times}}))
}

/// A policy that prefers volumes of tier gold.
pub(crate) fn prefers_gold() -> (&'static str, Value) {
    ("gold", json!({"module": "builtin:prefer", "settings": {"scores": {"gold": 100}}}))
}

/// Whether no annotation says any more that Bindery has reserved the volume.
pub(crate) fn is_forgotten(volume: &PersistentVolume) -> bool {
    !volume.annotations().contains_key(RESERVED_FOR)
}

#[tokio::test]
async fn a_steered_claim_gets_the_volume_that_its_policy_prefers_from_upstream() {
    let cluster = Cluster::start(Manager::Whole).await;
    cluster.create_available_volume("small", "1Gi").await;
    cluster.create_available_volume("large", "5Gi").await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"bindery.dev/tier": "gold"}}}));
    cluster.volumes.patch("large", &PatchParams::default(), &label).await.unwrap();
    // Its first lists have the label.
    let (mut replica, _documents) = steering_replica(&cluster, &[prefers_gold()]);
    replica.until_leading().await;

    create_steered(&cluster, "c", json!({})).await;
    let claim = cluster.until_claim("c", is_bound_to("large")).await;
    assert!(claim.annotations()[CHOICE].starts_with("large "), "{claim:?}");
    cluster.until_volume("large", is_forgotten).await;
    replica.until_metric("bindery_steer_reservations_total", |count| count == 1).await;
    assert_eq!(replica.metric("bindery_refusals_total").await, 0);
    assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0);

    // Upstream alone binds a claim that is not steered, and releases the volume of one that is gone.
    cluster.create_claim("plain", "1Gi").await;
    cluster.until_claim("plain", is_bound_to("small")).await;
    cluster.delete_claim("c").await;
    cluster.until_volume("large", is_in_phase("Released")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn claims_that_are_made_again_under_their_names_leave_no_reservation() {
    let cluster = Cluster::start(Manager::Whole).await;
    let mut replica = cluster.replica_with("first", &["--mode", "steer"]);
    replica.until_leading().await;
    for round in 0..8 {
        for volume in ["a", "b"] {
            cluster.create_available_volume(&format!("{volume}{round}"), "1Gi").await;
        }
        create_steered(&cluster, "again", json!({})).await;
        if round % 2 == 0 {
            cluster.until_claim("again", |claim| claim.annotations().contains_key(CHOICE)).await;
        }
        cluster.delete_claim("again").await;
        cluster.until_no_claim("again").await;
        create_steered(&cluster, "again", json!({})).await;
        cluster.until_claim("again", bindery_cluster::is_bound).await;
        cluster.delete_claim("again").await;
        cluster.until_no_claim("again").await;
    }
    let further = async |_: &bindery_invariants::Snapshot| {
        let volumes = cluster.volumes.list(&ListParams::default()).await.unwrap();
        let reserved = volumes.into_iter().filter(|volume| !is_forgotten(volume));
        reserved.map(|volume| format!("{} is still reserved", volume.name_any())).collect()
    };
    cluster.until_settled(further).await.unwrap();
    let volumes = cluster.volumes.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(volumes.len(), 16, "no volume is lost");
    replica.terminate().await;
}

/// The exit status and the output of `bindery steer`.
pub(crate) fn steer(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    bindery(cluster, &[&["steer"], arguments].concat())
}

/// The exit status and the output of a command about the cluster.
pub(crate) fn bindery(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
    command.args(arguments).env("KUBECONFIG", cluster.kubeconfig());
    let output = run(&mut command, "");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

#[tokio::test]
async fn claims_that_policies_hold_back_are_released_to_upstream() {
    let cluster = Cluster::start(Manager::Whole).await;
    let (mut replica, _documents) = steering_replica(&cluster, &[at_most(2)]);
    replica.until_leading().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"bindery.dev/steer": "true"}}}));
    namespaces.patch("default", &PatchParams::default(), &label).await.unwrap();
    assert_eq!(steer(&cluster, &["status"]), (Some(0), "No steered claim waits.\n".to_owned()));

    cluster.create_available_volume("large", "5Gi").await;
    create_steered(&cluster, "c", json!({})).await;
    create_steered(&cluster, "huge", json!({"resources": {"requests": {"storage": "1Ti"}}})).await;
    cluster.until_event(is_event("c", "FailedBinding")).await;
    let waits = "no volume is chosen; `bindery explain pvc";
    let list = format!(
        "CLAIM         VOLUME  WHY IT WAITS\n\
         default/c     -       {waits} c --namespace default` says why\n\
         default/huge  -       {waits} huge --namespace default` says why\n"
    );
    assert_eq!(steer(&cluster, &["status"]), (Some(0), list));
    let released = "namespace/default has no label bindery.dev/steer any more\n\
                    persistentvolumeclaim default/c: it gets volume large\n\
                    persistentvolumeclaim default/huge: no volume fits it; create it again\n";
    assert_eq!(steer(&cluster, &["release", "--namespace", "default"]), (Some(1), released.to_owned()));
    cluster.until_claim("c", is_bound_to("large")).await;
    replica.terminate().await;
}
