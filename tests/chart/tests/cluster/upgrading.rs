//! Upgrades from a chart with fewer values, and from a release without the kinds of policies and back.

use std::fs;
use std::path::Path;
use std::process::Command;

use bindery_chart::{Operator, RELEASE, chart, rendered, run, yaml};
use bindery_cluster::Cluster;
use bindery_kit::json;
use serde_json::{Value, json};

use crate::api_server::start;
use crate::kinds::until_served;
use crate::replica::ReleaseReplica;

/// Makes a copy of the chart without its quota.
fn copy_without_quota(folder: &Path) {
    run(Command::new("cp").arg("--recursive").arg(chart()).arg(folder), "").unwrap();
    fs::remove_file(folder.join("templates/resourcequota.yaml")).unwrap();
    let file = folder.join("values.yaml");
    let mut values = yaml(&fs::read_to_string(&file).unwrap());
    assert!(values.as_object_mut().unwrap().remove("resourceQuota").is_some());
    fs::write(&file, values.to_string()).unwrap();
}

#[tokio::test]
async fn an_upgrade_keeps_given_values_and_takes_the_defaults_of_new_ones() {
    const QUOTA: &str = "/api/v1/namespaces/bindery-system/resourcequotas/bindery";
    const BUDGET: &str = "/apis/policy/v1/namespaces/bindery-system/poddisruptionbudgets/bindery";
    let api = start().await;
    let folder = tempfile::tempdir().unwrap();
    let operator = Operator::new(api.kubeconfig());
    let before = folder.path().join("bindery");
    copy_without_quota(&before);
    operator.helm(&["install", RELEASE, before.to_str().unwrap(), "--set", "replicas=3,mode=own"]);
    assert!(api.get(QUOTA).await.is_err());

    let chart = chart();
    let upgrade = |flag| {
        let set = ["--set", "podDisruptionBudget.maxUnavailable=2"];
        operator.try_helm(&[&["upgrade", RELEASE, chart.to_str().unwrap(), flag], &set[..]].concat())
    };
    // No guide uses this flag, because it takes all defaults of the previous chart.
    let why = upgrade("--reuse-values").unwrap_err();
    assert!(why.contains("nil pointer"), "{why}");
    upgrade("--reset-then-reuse-values").unwrap();
    api.get(QUOTA).await.unwrap();
    assert_eq!(api.get(BUDGET).await.unwrap()["spec"]["maxUnavailable"], 2);
    let values = operator.helm(&["get", "values", RELEASE, "--output", "json"]);
    assert_eq!(yaml(&values)["replicas"], 3, "{values}");
}

/// Starts a replica with the chart's settings for these values, and creates a claim that two volumes fit.
/// Returns the name of the volume that it gets.
async fn bound_by(api: &Cluster, values: &Value, class: &str) -> Value {
    let mut replica = ReleaseReplica::start(api, &rendered(values)).await;
    for (name, storage, labels) in
        [("small", "1Gi", json!({})), ("large", "2Gi", json!({"bindery.dev/tier": "fast"}))]
    {
        let spec = json!({"storageClassName": class, "capacity": {"storage": storage}});
        let change = json!({"metadata": {"labels": labels}, "spec": spec});
        api.create(&json::volume(&format!("{name}-{class}"), change), "").await.unwrap();
    }
    for name in ["small", "large"] {
        let path = format!("/api/v1/persistentvolumes/{name}-{class}");
        replica.until(api, &path, |volume| volume["status"]["phase"] == "Available").await;
    }
    let claim = json::claim(class, json!({"spec": {"storageClassName": class}}));
    api.create(&claim, "").await.unwrap();
    let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{class}");
    replica.until(api, &path, |claim| claim["status"]["phase"] == "Bound").await;
    replica.replica.terminate().await;
    api.get(&path).await.unwrap()["spec"]["volumeName"].clone()
}

/// A release without the kinds stands for the one before they came.
#[tokio::test]
async fn policies_outlive_a_rollback_to_a_release_without_their_kinds() {
    const POLICY: &str = "/apis/policy.bindery.dev/v1alpha1/matchpolicies/fast";
    let api = start().await;
    let operator = Operator::new(api.kubeconfig());
    let chart = chart();
    let set = "mode=own,crds.install=false";
    operator.helm(&["install", RELEASE, chart.to_str().unwrap(), "--set", set]);
    let upgrade = || {
        let set = "crds.install=true,policies.objects=true";
        let flags = ["--reset-then-reuse-values", "--set", set];
        operator.helm(&[&["upgrade", RELEASE, chart.to_str().unwrap()], &flags[..]].concat());
        let kind = "crd/matchpolicies.policy.bindery.dev";
        operator.kubectl(&["wait", "--for=condition=Established", kind], "").unwrap();
    };
    upgrade();
    until_served(&api).await;
    let spec = json!({"module": "builtin:prefer", "settings": {"scores": {"fast": 100}}});
    let policy = json::policy("MatchPolicy", "fast", &spec);
    operator.kubectl(&["apply", "--filename=-"], &policy.to_string()).unwrap();
    let applied = api.get(POLICY).await.unwrap();
    let (before, after) = (json!({"mode": "own"}), json!({"mode": "own", "policies": {"objects": true}}));
    assert_eq!(bound_by(&api, &after, "upgraded").await, "large-upgraded");
    operator.helm(&["rollback", RELEASE, "1"]);
    assert_eq!(bound_by(&api, &before, "rolled-back").await, "small-rolled-back");
    upgrade();
    assert_eq!(bound_by(&api, &after, "upgraded-again").await, "large-upgraded-again");
    assert_eq!(api.get(POLICY).await.unwrap()["metadata"]["uid"], applied["metadata"]["uid"]);
}
