//! Objects that cannot be put into effect hold the claims that they match, and no others, on a real API
//! server.

use bindery_cluster::{condition, is_bound_to, is_event};
use bindery_kit::json;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::policy_objects::{cluster_with_kinds, cluster_with_kinds_and, until_rejected};

#[tokio::test]
async fn an_object_with_the_name_of_a_file_holds_while_the_file_decides() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("size.yaml");
    let at_most = |times: u32| json!({"module": "builtin:at-most-n-times", "settings": {"times": times}});
    std::fs::write(&file, json::policy("MatchPolicy", "size", &at_most(2)).to_string()).unwrap();
    let file = format!("--policy={}", file.display());
    let (cluster, policies, mut replica) = cluster_with_kinds_and(&[&file]).await;
    let spec = json::merged(at_most(9), json!({"match": {"classNames": ["held"]}}));
    policies.apply("MatchPolicy", "size", spec).await;
    let status = policies.until_ready("MatchPolicy", "size", "NameTaken").await;
    assert_eq!(condition(&status, "Effective")["reason"], "NameTaken");
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    let told = "another policy has its name: give it another name; what it matches waits";
    assert_eq!(message, told);

    // Both allow the volume of the held claim.
    cluster.create_class("held").await;
    cluster.create_volume_of("held", "fits", json!(null)).await;
    cluster.create_claim_of("held", "held", None).await;
    let told = "it waits for policy size.matchpolicy: another policy has its name";
    let is_told = |event: &Event| event.message.as_ref().is_some_and(|message| message.contains(told));
    cluster.until_event(|event| is_event("held", "PolicyFailed")(event) && is_told(event)).await;
    cluster.create_available_volume("large", "9Gi").await;
    cluster.create_claim("c", "1Gi").await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: size 1").await;
    replica.terminate().await;
}

#[tokio::test]
async fn given_settings_that_are_too_large_what_they_match_waits_until_off() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    cluster.create_class("held").await;
    let settings = json!({"times": 2, "note": "n".repeat(300 << 10)});
    let matches = json!({"classNames": ["held"]});
    let spec = json!({"module": "builtin:at-most-n-times", "settings": settings, "match": matches});
    policies.apply("MatchPolicy", "size", spec).await;
    let status = policies.until_ready("MatchPolicy", "size", "Invalid").await;
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    let told =
        "spec: MatchPolicy \"size\": spec.settings has 307221 bytes as JSON; at most 262144 are allowed";
    assert!(message.starts_with(told) && message.ends_with("; what it matches waits"), "{message}");
    cluster.create_volume_of("held", "held", json!(null)).await;
    cluster.create_claim_of("held", "held", None).await;
    cluster.until_event(is_event("held", "PolicyFailed")).await;
    cluster.bind_pair("other").await;

    let off = Patch::Merge(json!({"spec": {"mode": "off"}}));
    policies.of("MatchPolicy").patch("size", &PatchParams::default(), &off).await.unwrap();
    cluster.until_claim("held", is_bound_to("held")).await;
    replica.terminate().await;
}
