//! Generations of a policy whose first calls fail, on a real API server.

use std::process::Command;

use bindery_cluster::{Cluster, PolicyApi, condition, is_bound, is_in_phase, poll, run};
use bindery_kit::json;
use bindery_kit::module::Module;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::policy_objects::{cluster_with_kinds, modules, print, start};

/// A matcher that allows everything, and a new build of it that traps for claims that do not request 1Gi.
fn builds() -> [Vec<u8>; 2] {
    let traps = "(if (i64.ne (local.get 2) (i64.const 1073741824)) (then unreachable))";
    [Module::default(), Module { before: traps, ..Module::default() }].map(|module| module.component())
}

/// Creates a namespace, and a claim of 2Gi in it.
async fn create_claim_in(cluster: &Cluster, namespace: &str) {
    let object = json!({"metadata": {"name": namespace}});
    let object: Namespace = serde_json::from_value(object).unwrap();
    Api::all(cluster.client.clone()).create(&PostParams::default(), &object).await.unwrap();
    let spec = json!({"resources": {"requests": {"storage": "2Gi"}}});
    let claim = json::claim("c", json!({"metadata": {"namespace": namespace}, "spec": spec}));
    let claims = Api::<PersistentVolumeClaim>::namespaced(cluster.client.clone(), namespace);
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
}

/// Applies a policy, and then a generation of it that traps. Returns the statuses of both.
async fn two_generations(policies: &PolicyApi, config_maps: &Api<ConfigMap>) -> [Value; 2] {
    let [good, traps] = builds();
    let mut maps = modules("good.wasm", good);
    maps.binary_data.as_mut().unwrap().insert("traps.wasm".to_owned(), ByteString(traps));
    config_maps.create(&PostParams::default(), &maps).await.unwrap();
    policies.apply("MatchPolicy", "zone", module("good.wasm")).await;
    let good = policies.until_ready("MatchPolicy", "zone", "Loaded").await;
    policies.apply("MatchPolicy", "zone", module("traps.wasm")).await;
    [good, policies.until_ready("MatchPolicy", "zone", "Loaded").await]
}

fn module(key: &str) -> Value {
    json!({"module": format!("configmap:default/modules/{key}")})
}

/// Creates volumes, and claims at which the generation that traps fails.
async fn fail_in_three_namespaces(cluster: &Cluster) {
    for (volume, namespace) in [("v0", "one"), ("v1", "two"), ("v2", "three")] {
        cluster.create_available_volume(volume, "10Gi").await;
        create_claim_in(cluster, namespace).await;
    }
}

#[tokio::test]
async fn a_module_that_fails_in_three_namespaces_is_taken_back_and_undone() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    let [good, status] = two_generations(&policies, &config_maps).await;
    assert_eq!(status["history"], json!([good["lastGood"]]));
    // It is loaded again, and its first calls go on to count.
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "the modules are the same"}}}));
    config_maps.patch("modules", &PatchParams::default(), &note).await.unwrap();

    fail_in_three_namespaces(&cluster).await;
    let status = policies.until_ready("MatchPolicy", "zone", "RolledBack").await;
    assert_eq!(status["digest"], good["digest"]);
    assert_eq!(status["lastGood"], good["lastGood"]);
    assert_eq!(status["rolledBack"]["generation"], 2);
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    assert!(message.ends_with("; generation 1 stays in effect"), "{message}");
    for volume in ["v0", "v1", "v2"] {
        cluster.until_volume(volume, is_in_phase("Bound")).await;
    }

    let told = poll(async || {
        let zone = policies.of("MatchPolicy").get("zone").await.unwrap();
        let fault = &zone.data["status"]["lastFault"];
        fault["message"].as_str().is_some_and(|it| it.starts_with("it trapped: ")).then_some(())
    });
    told.await.expect("the fault is told although its module is not in use any more");
    // The generation stays taken back by a replica that has not seen it fail.
    replica.terminate().await;
    let mut replica = start(&cluster, "second");
    cluster.create_available_volume("v3", "10Gi").await;
    cluster.create_claim("c", "3Gi").await;
    cluster.until_volume("v3", is_in_phase("Bound")).await;
    assert_eq!(policies.until_ready("MatchPolicy", "zone", "RolledBack").await["digest"], good["digest"]);

    let history = print(&cluster, &["policy", "history", "zone"]);
    assert_eq!(history.lines().count(), 2, "{history}");
    assert!(history.contains("1           in effect  configmap:default/modules/good.wasm"), "{history}");
    let undone = print(&cluster, &["policy", "undo", "zone"]);
    assert_eq!(undone, "MatchPolicy zone: generation 3 has the spec of generation 1\n");
    let status = policies.until_ready("MatchPolicy", "zone", "Loaded").await;
    assert_eq!(status["rolledBack"], Value::Null);
    assert_eq!(status["digest"], good["digest"]);
    replica.terminate().await;
}

/// The status with which `bindery policy` ends, what it prints, and what it tells on standard error.
fn policy(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
    command.arg("policy").args(arguments).env("KUBECONFIG", cluster.kubeconfig());
    let output = run(&mut command, "");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn history_and_undo_tell_of_a_module_that_was_replaced() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    let [good, traps] = two_generations(&policies, &config_maps).await;
    let [_, other] = builds();
    let replaced = Patch::Merge(json!({"binaryData": {"good.wasm": ByteString(other)}}));
    config_maps.patch("modules", &PatchParams::default(), &replaced).await.unwrap();

    let (status, undone, told) = policy(&cluster, &["undo", "zone"]);
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(undone, "MatchPolicy zone: generation 3 has the spec of generation 1\n");
    let [good, traps] = [good, traps].map(|status| status["digest"].as_str().unwrap().to_owned());
    let note = format!(
        "note: configmap:default/modules/good.wasm has another module now, {traps}; the module of generation \
         1, {good}, comes back only if it is there\n"
    );
    assert!(told.ends_with(&note), "{told}");

    assert_eq!(policies.until_ready("MatchPolicy", "zone", "Loaded").await["digest"], traps);
    let (_, history, _) = policy(&cluster, &["history", "zone"]);
    let mut rows = Vec::new();
    for line in history.lines().skip(1) {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        rows.push(cells.collect::<Vec<_>>());
    }
    let [in_good, in_traps] = ["good", "traps"].map(|key| format!("configmap:default/modules/{key}.wasm"));
    let expected = [
        ["3", "in effect", &in_good, &traps],
        ["2", "earlier", &in_traps, &traps],
        ["1", "replaced", &in_good, &good],
    ];
    assert_eq!(rows, expected, "{history}");

    // No spec that is kept brings the first module back.
    let (status, _, told) = policy(&cluster, &["undo", "zone"]);
    assert!(status == Some(2) && told.contains("put the earlier module back into its ConfigMap"), "{told}");
    let (status, _, told) = policy(&cluster, &["undo", "zone", "--to", "2"]);
    let noted = "generation 2 has the module and settings that are in effect";
    assert!(status == Some(0) && told.contains(noted), "{told}");
    replica.terminate().await;
}

#[tokio::test]
async fn a_generation_that_fails_stays_where_the_one_before_is_gone() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    let [_, traps] = two_generations(&policies, &config_maps).await;
    // The next replica has never loaded the first generation.
    replica.terminate().await;
    let gone = Patch::Merge(json!({"binaryData": {"good.wasm": null}}));
    config_maps.patch("modules", &PatchParams::default(), &gone).await.unwrap();
    let mut replica = start(&cluster, "second");
    fail_in_three_namespaces(&cluster).await;
    let status = policies.until_ready("MatchPolicy", "zone", "ProbationFailed").await;
    let [calls, faults] = ["calls", "faults"].map(|count| status[count].as_u64().unwrap());
    assert!(faults >= 5 && calls >= faults, "{status}");
    assert_eq!((&status["digest"], &status["lastGood"]), (&traps["digest"], &traps["lastGood"]));
    assert_eq!(status["rolledBack"], Value::Null);
    // It fails at other sizes only.
    cluster.create_claim("c", "1Gi").await;
    cluster.until_claim("c", is_bound).await;
    replica.terminate().await;
}

#[tokio::test]
async fn why_a_fix_cannot_be_loaded_is_told_after_a_rollback_too() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    let [good, _] = two_generations(&policies, &config_maps).await;
    policies.apply("MatchPolicy", "zone", module("fix.wasm")).await;
    policies.until_ready("MatchPolicy", "zone", "ModuleUnavailable").await;
    fail_in_three_namespaces(&cluster).await;
    for volume in ["v0", "v1", "v2"] {
        cluster.until_volume(volume, is_in_phase("Bound")).await;
    }
    let rolled_back = poll(async || {
        let zone = policies.of("MatchPolicy").get("zone").await.unwrap();
        (zone.data["status"]["rolledBack"]["generation"] == 2).then_some(zone.data["status"].clone())
    });
    let status = rolled_back.await.expect("the second generation is taken back");
    assert_eq!(status["digest"], good["digest"]);
    assert_eq!(condition(&status, "Ready")["reason"], "ModuleUnavailable");
    replica.terminate().await;
}
