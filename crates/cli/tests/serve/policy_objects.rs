//! Policies and engines that are cluster objects, on a real API server.

use std::process::Command;

use bindery_cluster::{
    Cluster, Manager, PolicyApi, Replica, Request, condition, is_bound, is_bound_to, is_event, is_in_phase,
    poll, run,
};
use bindery_journal::{Files, Swap, What};
use bindery_kit::module::Module;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::policies::is_released_with;

pub(crate) fn start(cluster: &Cluster, identity: &str) -> Replica {
    start_with(cluster, identity, &[])
}

/// Starts a replica with further arguments.
fn start_with(cluster: &Cluster, identity: &str, further: &[&str]) -> Replica {
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    // A leader that stands still for a moment keeps the Lease.
    let arguments = ["--policy-objects=true", "--policies", &shipped, "--lease-duration=15"];
    cluster.replica_with(identity, &[&arguments, further].concat())
}

/// The module of a shipped policy.
pub(crate) fn shipped(name: &str) -> Vec<u8> {
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    std::fs::read(format!("{shipped}/{name}.wasm")).unwrap()
}

/// A cluster with the kinds, and a replica that leads.
pub(crate) async fn cluster_with_kinds() -> (Cluster, PolicyApi, Replica) {
    cluster_with_kinds_and(&[]).await
}

/// As [`cluster_with_kinds`]; the replica has further arguments.
pub(crate) async fn cluster_with_kinds_and(further: &[&str]) -> (Cluster, PolicyApi, Replica) {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let policies = cluster.policies();
    policies.install().await;
    let mut replica = start_with(&cluster, "first", further);
    replica.until_leading().await;
    (cluster, policies, replica)
}

/// A ConfigMap with a module.
pub(crate) fn modules(key: &str, module: Vec<u8>) -> ConfigMap {
    let metadata = ObjectMeta { name: Some("modules".to_owned()), ..ObjectMeta::default() };
    let data = [(key.to_owned(), ByteString(module))].into();
    ConfigMap { metadata, binary_data: Some(data), ..ConfigMap::default() }
}

/// What `bindery` prints about a cluster.
pub(crate) fn print(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
    command.args(arguments).env("KUBECONFIG", cluster.kubeconfig());
    String::from_utf8(run(&mut command, "").stdout).unwrap()
}

/// What `bindery explain` prints about a claim.
fn explain(cluster: &Cluster, claim: &str) -> String {
    print(cluster, &["explain", "pvc", claim])
}

pub(crate) async fn until_rejected(cluster: &Cluster, claim: &str, told: &str) {
    let is_told = |event: &Event| event.message.as_ref().is_some_and(|message| message.ends_with(told));
    cluster.until_event(|event| is_event(claim, "FailedBinding")(event) && is_told(event)).await;
}

#[tokio::test]
async fn nothing_is_decided_before_the_kinds_are_listed() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let policies = cluster.policies();
    cluster.create_volume("v", "100Gi").await;
    cluster.create_claim("c", "1Gi").await;
    let mut replica = start(&cluster, "first");
    let told = "[-]start failed: it waits for the first list of engines.policy.bindery.dev: ";
    let (_, answer) = replica.until_answer("/readyz", told).await;
    assert!(answer.contains("404"), "{answer}");
    // It would list the kinds before there is a policy.
    replica.terminate().await;
    policies.install().await;
    policies
        .apply("MatchPolicy", "twice", json!({"module": "builtin:at-most-n-times", "settings": {"times": 2}}))
        .await;
    let mut replica = start(&cluster, "first");
    cluster.until_volume("v", is_in_phase("Available")).await;
    cluster.create_claim("d", "1Gi").await;
    until_rejected(&cluster, "d", "; 1 of 1 volumes rejected: twice 1").await;
    assert!(!is_bound(&cluster.claims.get("c").await.unwrap()));
    replica.terminate().await;
}

#[tokio::test]
async fn a_change_takes_effect_and_a_bad_one_leaves_the_last_good_one() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let twice = |times: Value| json!({"module": "builtin:at-most-n-times", "settings": {"times": times}});
    // A policy that matches nothing has no effect.
    cluster.create_claim("early", "1Gi").await;
    cluster.until_event(is_event("early", "FailedBinding")).await;
    policies.apply("MatchPolicy", "size", twice(json!(2))).await;
    let status = policies.until_ready("MatchPolicy", "size", "Loaded").await;
    assert_eq!(condition(&status, "Effective")["status"], "True");
    assert_eq!(status["lastGood"]["generation"], 1);
    cluster.create_available_volume("v", "10Gi").await;
    cluster.create_claim("c", "1Gi").await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: size 1").await;
    let explained = explain(&cluster, "c");
    assert!(explained.contains("v  policy size rejects it: "), "{explained}");

    policies.apply("MatchPolicy", "size", twice(json!("many"))).await;
    let status = policies.until_ready("MatchPolicy", "size", "SettingsInvalid").await;
    assert_eq!(condition(&status, "SettingsValid")["status"], "False");
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    assert!(message.contains("times") && message.ends_with("; generation 1 stays in effect"), "{message}");
    cluster.until_event(is_event("size", "SettingsInvalid")).await;
    cluster.create_claim("d", "1Gi").await;
    until_rejected(&cluster, "d", "; 1 of 1 volumes rejected: size 1").await;

    // No replica has the last good one in memory.
    replica.terminate().await;
    let mut replica = start(&cluster, "second");
    cluster.create_claim("e", "1Gi").await;
    until_rejected(&cluster, "e", "; 1 of 1 volumes rejected: size 1").await;

    policies.apply("MatchPolicy", "size", twice(json!(10))).await;
    policies.until_ready("MatchPolicy", "size", "Loaded").await;
    cluster.until_volume("v", is_in_phase("Bound")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn a_policy_reads_labels_of_older_claims_and_lets_them_go_when_deleted() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    // Labels of claims are not decoded before a policy reads them.
    let key = "topology.kubernetes.io/zone";
    for name in ["c", "d"] {
        let labelled = json!({"name": name, "labels": {key: "z"}});
        cluster.try_claim(labelled, json!({}), &PostParams::default()).await.unwrap();
        cluster.until_event(is_event(name, "FailedBinding")).await;
    }
    let zone = json!({"module": "builtin:same-zone", "settings": {"zone": "Label"}, "otherwise": "Wait"});
    policies.apply("MatchPolicy", "zone", zone).await;
    policies.until_ready("MatchPolicy", "zone", "Loaded").await;
    let in_zone = async |name: &str, zone: &str| {
        cluster.create_volume(name, "1Gi").await;
        let label = Patch::Merge(json!({"metadata": {"labels": {key: zone}}}));
        cluster.volumes.patch(name, &PatchParams::default(), &label).await.unwrap();
    };
    in_zone("elsewhere", "y").await;
    in_zone("here", "z").await;
    let bound = poll(async || {
        let claims = cluster.claims.list(&ListParams::default()).await.unwrap().items;
        claims.into_iter().find(is_bound_to("here")).map(|claim| claim.name_any())
    });
    let bound = bound.await.expect("a claim gets the volume of its zone");
    let other = if bound == "c" { "d" } else { "c" };
    policies.of("MatchPolicy").delete("zone", &DeleteParams::default()).await.unwrap();
    cluster.until_claim(other, is_bound_to("elsewhere")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn modules_come_from_config_maps_and_an_engine_is_swapped_in_and_out() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    for (name, size) in [("small", "1Gi"), ("medium", "5Gi"), ("large", "9Gi")] {
        cluster.create_available_volume(name, size).await;
    }
    let module = json!({"module": "configmap:default/modules/size.wasm", "settings": {"times": 5}});
    policies.apply("MatchPolicy", "size", module).await;
    policies.until_ready("MatchPolicy", "size", "ModuleUnavailable").await;
    // The ConfigMap has no such key.
    let missing = json!({"module": "configmap:kube-system/kube-root-ca.crt/none.wasm"});
    policies.apply("ReclaimPolicy", "none", missing).await;
    policies.until_ready("ReclaimPolicy", "none", "ModuleUnavailable").await;
    cluster.create_claim("c", "1Gi").await;
    cluster.until_event(is_event("c", "PolicyFailed")).await;

    let modules = modules("size.wasm", shipped("at-most-n-times"));
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    config_maps.create(&PostParams::default(), &modules).await.unwrap();
    policies.until_ready("MatchPolicy", "size", "Loaded").await;
    cluster.until_claim("c", is_bound_to("small")).await;

    let module = std::env::var("BINDERY_EXAMPLE_ENGINE").expect("`cargo xtask test` builds the engine");
    policies.apply("Engine", "worst-fit", json!({"module": module})).await;
    policies.apply("Engine", "zz", json!({"module": module})).await;
    let status = policies.until_ready("Engine", "worst-fit", "Loaded").await;
    // It may have been loaded first.
    let is_passed_over = poll(async || {
        let status = policies.until_ready("Engine", "zz", "Loaded").await;
        (condition(&status, "Effective")["reason"] == "AnotherEngine").then_some(())
    });
    is_passed_over.await.expect("one engine alone is in effect");
    policies.of("MatchPolicy").delete("size", &DeleteParams::default()).await.unwrap();
    let is_gone = async |replica: &Replica| {
        let metrics = replica.try_get("/metrics").await?;
        (!metrics.contains("policy=\"size\"")).then_some(())
    };
    replica.until("the policy is gone", is_gone).await;
    cluster.create_claim("d", "1Gi").await;
    cluster.until_claim("d", is_bound_to("large")).await;

    for name in ["worst-fit", "zz"] {
        policies.apply("Engine", name, json!({"module": module, "mode": "off"})).await;
        policies.until_ready("Engine", name, "Off").await;
    }
    cluster.create_available_volume("larger", "99Gi").await;
    cluster.create_claim("e", "1Gi").await;
    cluster.until_claim("e", is_bound_to("medium")).await;
    replica.terminate().await;
    let entries = Files::open(&replica.journal()).unwrap().map(|entry| entry.unwrap().what);
    let (mut of_engine, mut of_policies) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            What::Swap(Swap::Engine { from, to }) => of_engine.push([from, to]),
            What::Swap(Swap::Policies { from, to }) => of_policies.push([from, to]),
            _ => {}
        }
    }
    let [[usual, new], back] = &of_engine[..] else { panic!("{of_engine:?}") };
    assert_eq!((status["digest"].as_str(), back), (Some(&**new), &[new.clone(), usual.clone()]));
    // Held, loaded and deleted.
    assert!(of_policies.len() >= 3, "{of_policies:?}");
    assert!(of_policies.windows(2).all(|swaps| swaps[0][1] == swaps[1][0]), "{of_policies:?}");
}

#[tokio::test]
async fn a_replaced_config_map_takes_effect_and_a_taken_name_holds() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let modules = |bytes| modules("m.wasm", bytes);
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    config_maps.create(&PostParams::default(), &modules(shipped("prefer"))).await.unwrap();
    let spec = json!({"module": "configmap:default/modules/m.wasm"});
    policies.apply("MatchPolicy", "size", spec).await;
    // The settings are not those of this module.
    policies.until_ready("MatchPolicy", "size", "SettingsInvalid").await;
    let replace = async |bytes: Vec<u8>| {
        config_maps.replace("modules", &PostParams::default(), &modules(bytes)).await.unwrap();
    };
    replace(shipped("at-most-n-times")).await;
    let spec = json!({"module": "configmap:default/modules/m.wasm", "settings": {"times": 2}});
    policies.apply("MatchPolicy", "size", spec).await;
    let good = policies.until_ready("MatchPolicy", "size", "Loaded").await;
    replace(b"no component".to_vec()).await;
    let bad = policies.until_ready("MatchPolicy", "size", "ModuleInvalid").await;
    assert_eq!(bad["lastGood"], good["lastGood"]);
    assert!(bad["wantedDigest"].is_string() && bad["wantedDigest"] != bad["digest"], "{bad}");
    cluster.create_available_volume("large", "9Gi").await;
    cluster.create_claim("c", "1Gi").await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: size 1").await;

    let keep = json!({"module": "builtin:keep-labelled"});
    policies.apply("ReclaimPolicy", "size", keep.clone()).await;
    let taken = policies.until_ready("ReclaimPolicy", "size", "NameTaken").await;
    assert_eq!(condition(&taken, "Effective")["reason"], "NameTaken");
    cluster.delete_claim("c").await;
    cluster.until_no_claim("c").await;
    cluster.bind_pair("held").await;
    cluster.delete_claim("held").await;
    cluster.until_event(is_event("held", "PolicyFailed")).await;
    policies.of("MatchPolicy").delete("size", &DeleteParams::default()).await.unwrap();
    policies.until_ready("ReclaimPolicy", "size", "Loaded").await;
    cluster.until_volume("held", is_in_phase("Released")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn a_new_leader_decides_nothing_without_the_policies_of_the_api_server() {
    let (cluster, policies, mut leader) = cluster_with_kinds().await;
    let csi = json!({"driver": "disks.example.com", "volumeHandle": "v"});
    let spec = json!({"hostPath": null, "csi": csi, "persistentVolumeReclaimPolicy": "Delete"});
    cluster.create_volume_with("v", spec).await;
    let labelled = json!({"name": "c", "labels": {"bindery.dev/keep": "true"}});
    cluster.try_claim(labelled, json!({"volumeName": "v"}), &PostParams::default()).await.unwrap();
    cluster.until_claim("c", is_bound_to("v")).await;
    let proxy = cluster.proxy().await;
    let shipped = std::env::var("BINDERY_POLICIES").unwrap();
    let arguments = ["--policy-objects=true", "--policies", &shipped, "--lease-duration=15"];
    let mut next = Replica::behind(&proxy, "next", &arguments);
    next.until_following().await;
    let path = "/apis/policy.bindery.dev/v1alpha1/reclaimpolicies";
    // Only watches that are open can be stalled.
    let is_watched = |request: &Request| request.is_watch() && request.path == path;
    let watched = poll(async || proxy.take_requests().iter().any(is_watched).then_some(()));
    watched.await.expect("it watches the kind");
    proxy.stall_watches_of(path);
    policies.apply("ReclaimPolicy", "keep", json!({"module": "builtin:keep-labelled"})).await;
    policies.until_ready("ReclaimPolicy", "keep", "Loaded").await;
    let is_noted = |volume: &PersistentVolume| volume.annotations().contains_key("bindery.dev/claim-facts");
    cluster.until_volume("v", is_noted).await;

    leader.signal(Signal::KILL);
    leader.wait().await;
    next.until_logged("this replica has not loaded the newest policies").await;
    cluster.delete_claim("c").await;
    cluster.until_no_claim("c").await;
    next.signal(Signal::KILL);
    next.wait().await;
    let mut third = start(&cluster, "third");
    // The leader between would have released it with policy Delete.
    cluster.until_volume("v", is_released_with("Retain")).await;
    third.terminate().await;
}

#[tokio::test]
async fn a_policy_over_the_limit_holds_its_claims_until_there_is_room() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let skipped = json!({"module": "builtin:missing", "onFailure": "Skip"});
    for number in 0..256 {
        policies.apply("MatchPolicy", &format!("s{number}"), skipped.clone()).await;
    }
    let last = json!({"module": "builtin:at-most-n-times", "settings": {"times": 9}});
    for name in ["y", "z"] {
        policies.apply("MatchPolicy", name, last.clone()).await;
        policies.until_ready("MatchPolicy", name, "TooMany").await;
    }
    let metrics = replica.get("/metrics").await;
    let series = metrics.lines().filter(|line| line.starts_with("bindery_policy_object_ready{"));
    assert_eq!(series.count(), 256 + 1, "{metrics}");
    let status = policies.until_ready("MatchPolicy", "z", "TooMany").await;
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    assert!(message.starts_with("spec.mode: more than 256 objects "), "{message}");
    assert!(message.ends_with("set them to off; what it matches waits"), "{message}");
    cluster.create_available_volume("v", "1Gi").await;
    cluster.create_claim("c", "1Gi").await;
    cluster.until_event(is_event("c", "PolicyFailed")).await;
    assert!(!is_bound(&cluster.claims.get("c").await.unwrap()));
    for name in ["s0", "s1"] {
        policies.of("MatchPolicy").delete(name, &DeleteParams::default()).await.unwrap();
    }
    policies.until_ready("MatchPolicy", "z", "Loaded").await;
    cluster.until_claim("c", is_bound_to("v")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn status_counts_rejections_by_reason_and_has_no_replica_that_is_gone() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let modules = modules("m.wasm", Module::default().component());
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    config_maps.create(&PostParams::default(), &modules).await.unwrap();
    policies.apply("MatchPolicy", "zone", json!({"module": "configmap:default/modules/m.wasm"})).await;
    let loaded = policies.until_ready("MatchPolicy", "zone", "Loaded").await;
    let renewed = [("gone", "2026-01-01T00:00:00Z".to_owned()), ("other", Timestamp::now().to_string())];
    for (name, renewed) in &renewed {
        let entry = json!({
            "name": name, "observedGeneration": 1, "ready": "False", "reason": "ModuleUnavailable",
            "message": "spec.module: no file", "renewTime": renewed,
        });
        // As a replica writes its own.
        let object = json!({
            "apiVersion": "policy.bindery.dev/v1alpha1", "kind": "MatchPolicy", "metadata": {"name": "zone"},
            "status": {"replicas": [entry]},
        });
        let apply = PatchParams::apply(&format!("bindery-{name}")).force();
        policies.of("MatchPolicy").patch_status("zone", &apply, &Patch::Apply(&object)).await.unwrap();
    }
    let zone = json!({"key": "zone", "operator": "In", "values": ["b"]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
    cluster.create_volume_with("far", json!({"nodeAffinity": affinity})).await;
    cluster.until_volume("far", is_in_phase("Available")).await;
    cluster.create_claim("c", "1Gi").await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: zone 1").await;

    let mut status = Value::Null;
    let counted = poll(async || {
        status = policies.of("MatchPolicy").get("zone").await.unwrap().data["status"].clone();
        let entries = status["replicas"].as_array().map_or(0, Vec::len);
        (status["rejections"].is_object() && entries == 1).then_some(())
    });
    assert!(counted.await.is_some(), "{status}");
    assert_eq!(status["replicas"][0]["name"], "other");
    // The volume is rejected at each decision, which takes two calls.
    let [far, calls] = [&status["rejections"]["far"], &status["calls"]].map(|count| count.as_u64().unwrap());
    assert!(far > 0 && calls == 2 * far, "{status}");
    assert_eq!(status["rejections"].as_object().unwrap().len(), 1, "{status}");
    assert_eq!((&status["faults"], &status["lastGood"]), (&json!(0), &loaded["lastGood"]));
    replica.terminate().await;
}
