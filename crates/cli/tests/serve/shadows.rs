//! Policies and engines that decide beside those in effect, on a real API server.

#[path = "../../../../tests/faulty.rs"]
mod faulty;

use bindery_cluster::{PolicyApi, condition, is_bound_to, poll};
use bindery_kit::json;
use serde_json::{Value, json};

use super::policies::{create_bound, is_released_with};
use super::policy_objects::{cluster_with_kinds, print, until_rejected};

/// Waits until the status of a shadow has a difference, and returns what it has shown.
async fn until_different(policies: &PolicyApi, kind: &str, name: &str) -> Value {
    let shown = poll(async || {
        let object = policies.of(kind).get(name).await.unwrap();
        let shown = object.data["status"]["shadow"].clone();
        shown["latest"].is_array().then_some(shown)
    });
    shown.await.unwrap_or_else(|| panic!("{kind} {name} shows no difference"))
}

#[tokio::test]
async fn a_policy_in_shadow_shows_what_it_changes_once_enforced() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let at_most = |times: u32, mode: &str| {
        let settings = json!({"times": times});
        json!({"module": "builtin:at-most-n-times", "settings": settings, "mode": mode})
    };
    policies.apply("MatchPolicy", "size", at_most(2, "shadow")).await;
    let status = policies.until_ready("MatchPolicy", "size", "Loaded").await;
    let effective = condition(&status, "Effective");
    assert_eq!((&effective["status"], &effective["reason"]), (&json!("False"), &json!("Shadow")));
    assert_eq!(status["shadow"]["compared"], 0);

    cluster.create_available_volume("large", "9Gi").await;
    cluster.create_claim("c", "1Gi").await;
    cluster.until_claim("c", is_bound_to("large")).await;
    let shown = until_different(&policies, "MatchPolicy", "size").await;
    assert_eq!(shown["differences"]["binds-none"], 1, "{shown}");
    let latest = &shown["latest"][0];
    assert_eq!((&latest["object"], &latest["kind"]), (&json!("pvc default/c"), &json!("binds-none")));
    assert_eq!(latest["active"]["answer"], "binds volume large");
    let printed = print(&cluster, &["diff", "size"]);
    assert!(printed.starts_with("MatchPolicy size: "), "{printed}");
    let line = printed.lines().find(|line| line.contains("  binds-none  pvc default/c: ")).unwrap();
    assert!(line.contains("binds volume large (its policies allow the volume); shadow: "), "{line}");
    assert!(line.contains("policy size rejects volume large: "), "{line}");
    let labels = "kind=\"MatchPolicy\",name=\"size\",difference=\"binds-none\"";
    assert_eq!(replica.metric(&format!("bindery_shadow_differences_total{{{labels}}}")).await, 1);

    policies.apply("MatchPolicy", "size", at_most(2, "enforce")).await;
    let status = policies.until_ready("MatchPolicy", "size", "Loaded").await;
    assert_eq!(condition(&status, "Effective")["status"], "True");
    assert!(status["shadow"].is_null(), "{status}");
    assert_eq!(print(&cluster, &["diff"]), "No policy or engine is in mode shadow.\n");
    cluster.create_available_volume("wide", "8Gi").await;
    cluster.create_claim("d", "1Gi").await;
    until_rejected(&cluster, "d", "; 1 of 1 volumes rejected: size 1").await;

    // What another number would change now, before it is applied.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("size.json");
    let document = json::policy("MatchPolicy", "size", &at_most(8, "enforce"));
    std::fs::write(&file, document.to_string()).unwrap();
    let preview = print(&cluster, &["policy", "preview", file.to_str().unwrap()]);
    let now = "pvc default/d: without the change: pending (policy size rejects wide: ";
    assert!(preview.starts_with(now), "{preview}");
    assert!(preview.ends_with("; with it: bound to wide\n"), "{preview}");

    cluster.create_volume("fits", "2Gi").await;
    cluster.until_claim("d", is_bound_to("fits")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn a_shadow_that_cannot_be_loaded_holds_nothing_until_enforced() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let spec = |mode: &str| {
        let settings = json!({"times": "many"});
        json!({"module": "builtin:at-most-n-times", "settings": settings, "mode": mode})
    };
    policies.apply("MatchPolicy", "size", spec("shadow")).await;
    let status = policies.until_ready("MatchPolicy", "size", "SettingsInvalid").await;
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    assert!(message.ends_with("; it decides nothing"), "{message}");
    cluster.create_available_volume("v", "1Gi").await;
    cluster.create_claim("c", "1Gi").await;
    cluster.until_claim("c", is_bound_to("v")).await;

    let (module, settings) = ("builtin:at-most-n-times", json!({"times": 2}));
    let good = json!({"module": module, "settings": settings, "mode": "shadow", "samplePercent": 25});
    policies.apply("MatchPolicy", "size", good).await;
    let status = policies.until_ready("MatchPolicy", "size", "Loaded").await;
    assert_eq!(status["shadow"]["samplePercent"], 25);
    // That it worked as a shadow does not let claims go without it.
    policies.apply("MatchPolicy", "size", spec("enforce")).await;
    let status = policies.until_ready("MatchPolicy", "size", "SettingsInvalid").await;
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    assert!(message.ends_with("; what it matches waits"), "{message}");
    replica.terminate().await;
}

#[tokio::test]
async fn an_engine_is_tried_in_shadow_swapped_in_and_outlasts_one_that_traps() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let module = std::env::var("BINDERY_EXAMPLE_ENGINE").expect("`cargo xtask test` builds the engine");
    policies.apply("Engine", "worst-fit", json!({"module": module, "mode": "shadow"})).await;
    policies.until_ready("Engine", "worst-fit", "Loaded").await;
    for (name, size) in [("small", "1Gi"), ("medium", "5Gi"), ("large", "9Gi")] {
        cluster.create_available_volume(name, size).await;
    }
    cluster.create_claim("c", "1Gi").await;
    cluster.until_claim("c", is_bound_to("small")).await;
    let shown = until_different(&policies, "Engine", "worst-fit").await;
    let latest = shown["latest"].as_array().unwrap().iter().find(|it| it["kind"] == "other-volume").unwrap();
    assert_eq!(latest["active"]["answer"], "binds volume small");
    assert_eq!(latest["shadow"]["answer"], "binds volume large");
    policies.apply("Engine", "worst-fit", json!({"module": module})).await;
    let good = policies.until_ready("Engine", "worst-fit", "Loaded").await;

    // A build that traps stays out.
    let folder = tempfile::tempdir().unwrap();
    let traps = folder.path().join("traps.wasm");
    std::fs::write(&traps, faulty::built("traps")).unwrap();
    policies.apply("Engine", "worst-fit", json!({"module": traps})).await;
    let bad = policies.until_ready("Engine", "worst-fit", "TrialFailed").await;
    assert_eq!((&bad["digest"], &bad["lastGood"]), (&good["digest"], &good["lastGood"]));
    assert_eq!(condition(&bad, "Effective")["status"], "True");
    let message = condition(&bad, "Ready")["message"].as_str().unwrap();
    assert!(message.contains("the engine trapped: wasm trap: wasm `unreachable` instruction"), "{message}");
    assert!(message.ends_with("; generation 2 stays in effect"), "{message}");
    cluster.create_claim("d", "1Gi").await;
    cluster.until_claim("d", is_bound_to("large")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn given_a_reclaimer_in_shadow_released_volumes_count_and_stay_untouched() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let spec = json!({"module": "builtin:delete-after", "settings": {"days": 1}, "mode": "shadow"});
    policies.apply("ReclaimPolicy", "later", spec).await;
    policies.until_ready("ReclaimPolicy", "later", "Loaded").await;
    create_bound(&cluster, "v").await;
    cluster.delete_claim("v").await;
    let released = cluster.until_volume("v", is_released_with("Delete")).await;
    let counted = poll(async || {
        let object = policies.of("ReclaimPolicy").get("later").await.unwrap();
        let counts = object.data["status"]["shadow"]["released"].clone();
        (counts["later"] == 1).then_some(counts)
    });
    let counts = counted.await.expect("the released volume is counted");
    assert_eq!(counts, json!({"kept": 0, "later": 1, "due": 0, "offered": 0}));
    let metric = |fate: &str| {
        format!("bindery_shadow_released_volumes{{kind=\"ReclaimPolicy\",name=\"later\",fate=\"{fate}\"}}")
    };
    assert_eq!((replica.metric(&metric("later")).await, replica.metric(&metric("kept")).await), (1, 0));
    let told = "\n  of the released volumes 0 would be kept, 1 kept and deleted later, 0 deleted by now, and \
                0 offered again\n";
    let printed = print(&cluster, &["diff", "later"]);
    assert!(printed.contains(told), "{printed}");
    let now = cluster.volumes.get("v").await.unwrap();
    assert_eq!(now.metadata.resource_version, released.metadata.resource_version, "{now:?}");
    replica.terminate().await;
}
