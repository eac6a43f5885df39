//! An upgrade from a chart with fewer values.

use std::fs;
use std::path::Path;
use std::process::Command;

use bindery_chart::{Operator, RELEASE, chart, run, yaml};

use crate::api_server::start;

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
