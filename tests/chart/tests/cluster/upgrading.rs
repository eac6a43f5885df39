//! An upgrade from a chart that had fewer values.

use std::fs;
use std::path::Path;

use bindery_chart::{RELEASE, chart, yaml};
use http::Method;

use crate::release::operator;
use crate::site::{ADMIN, Site};

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

/// The chart as it would be before it had a quota, in a folder.
fn earlier(folder: &Path) {
    copy(&chart(), folder);
    fs::remove_file(folder.join("templates/resourcequota.yaml")).unwrap();
    let file = folder.join("values.yaml");
    let mut values = yaml(&fs::read_to_string(&file).unwrap());
    assert!(values.as_object_mut().unwrap().remove("resourceQuota").is_some());
    fs::write(&file, values.to_string()).unwrap();
}

/// What was given stays given, and a value that is new has its default.
#[tokio::test]
async fn a_release_of_a_chart_with_fewer_values_is_upgraded() {
    const QUOTA: &str = "/api/v1/namespaces/bindery-system/resourcequotas/bindery";
    const BUDGET: &str = "/apis/policy/v1/namespaces/bindery-system/poddisruptionbudgets/bindery";
    let site = Site::start().await;
    let folder = tempfile::tempdir().unwrap();
    let operator = operator(&site, folder.path());
    let before = folder.path().join("bindery");
    earlier(&before);
    operator.helm(&["install", RELEASE, before.to_str().unwrap(), "--set", "replicas=3,mode=own"]);
    assert!(site.ask(ADMIN, Method::GET, QUOTA, None).await.is_err());

    let chart = chart();
    let upgrade = |how| {
        let set = ["--set", "podDisruptionBudget.maxUnavailable=2"];
        operator.try_helm(&[&["upgrade", RELEASE, chart.to_str().unwrap(), how], &set[..]].concat())
    };
    // Why no guide tells of it: all defaults are those of before.
    let why = upgrade("--reuse-values").unwrap_err();
    assert!(why.contains("nil pointer"), "{why}");
    upgrade("--reset-then-reuse-values").unwrap();
    site.ask(ADMIN, Method::GET, QUOTA, None).await.unwrap();
    let budget = site.ask(ADMIN, Method::GET, BUDGET, None).await.unwrap();
    assert_eq!(budget["spec"]["maxUnavailable"], 2);
    let told = operator.helm(&["get", "values", RELEASE, "--output", "json"]);
    assert_eq!(yaml(&told)["replicas"], 3, "{told}");
}
