//! Alerts and dashboard: the metrics and runbooks that they name exist.

use std::collections::BTreeSet;

use bindery_chart::{Objects, Row, read, rendered, table};
use serde_json::{Value, json};

/// Prefixes of metrics.
const FAMILIES: [&str; 5] =
    ["bindery_", "pv_collector_", "volume_operation_", "storage_operation_", "retroactive_storageclass_"];
/// Metrics of kube-apiserver (`k8s.io/apiserver/pkg/admission/metrics`) that alerts use.
const OF_OTHERS: [&str; 1] = ["apiserver_admission_webhook_fail_open_count"];
/// The modes of a release.
const MODES: [&str; 3] = ["observe", "own", "steer"];
/// Suffixes of a histogram's series.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

fn documented() -> BTreeSet<String> {
    let guide = read("docs/metrics.md");
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// The metrics in an expression: its words that are neither labels nor functions.
fn metrics(expression: &str) -> BTreeSet<String> {
    // Strings are values of labels.
    let outside: String = expression.split('"').step_by(2).collect();
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = outside.split(|letter| !is_part(letter));
    let is_own = |word: &str| FAMILIES.iter().any(|family| word.starts_with(family)) && word.contains('_');
    let is_metric = |word: &&str| is_own(word) || OF_OTHERS.contains(word);
    words.filter(is_metric).map(str::to_owned).collect()
}

fn assert_documented(expression: &str, place: &str) {
    let documented = documented();
    let found = metrics(expression);
    assert!(!found.is_empty(), "{place} uses no metric: {expression}");
    for name in found {
        let family = PARTS.iter().find_map(|part| name.strip_suffix(part));
        let is_documented = documented.contains(&name)
            || family.is_some_and(|family| documented.contains(family))
            || OF_OTHERS.contains(&name.as_str());
        assert!(is_documented, "{place}: docs/metrics.md has no {name}");
    }
}

/// A release with alerts, dashboard and service monitor.
fn monitored(mode: &str) -> Objects {
    let on = json!({"enabled": true});
    rendered(&json!({"mode": mode, "prometheusRule": on, "dashboard": on, "serviceMonitor": on}))
}

fn alerts(mode: &str) -> Vec<Value> {
    let objects = monitored(mode);
    objects.at("PrometheusRule/bindery /spec/groups/bindery/rules").unwrap().as_array().unwrap().clone()
}

#[test]
fn alerts_use_documented_metrics() {
    for alert in MODES.into_iter().flat_map(alerts) {
        assert_documented(alert["expr"].as_str().unwrap(), alert["alert"].as_str().unwrap());
    }
}

#[test]
fn every_alert_has_a_runbook_and_a_row_in_the_guide() {
    let runbooks = read("docs/runbooks.md");
    let sections: BTreeSet<_> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts: Vec<_> = MODES.into_iter().flat_map(alerts).collect();
    let named: BTreeSet<_> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    assert_eq!(named, sections);
    let guide = read("docs/metrics.md");
    let rows: Vec<Row> = table(&guide, "# Metrics");
    assert_eq!(rows.iter().map(|row| row[0].trim_matches('`')).collect::<BTreeSet<_>>(), named);
    for alert in &alerts {
        let name = alert["alert"].as_str().unwrap();
        let url = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert!(url.ends_with(&format!("/docs/runbooks.md#{}", name.to_lowercase())), "{url}");
        assert!(
            ["critical", "warning"].iter().any(|severity| alert["labels"]["severity"] == *severity),
            "{name}"
        );
        for text in ["summary", "description"] {
            assert!(
                alert["annotations"][text].as_str().is_some_and(|text| text.len() > 20),
                "{name}: {text}"
            );
        }
        let row = rows.iter().find(|row| row[0].trim_matches('`') == name).unwrap();
        assert_eq!(row[1].trim_matches('`'), alert["expr"].as_str().unwrap(), "{name}");
        assert_eq!(row[2], alert["for"].as_str().unwrap_or("at once"), "{name}");
    }
}

#[test]
fn given_a_cause_that_alerts_when_reviews_fail_then_the_runbook_has_it() {
    let rows = table(&read("docs/metrics.md"), "## Admission");
    let row = rows.iter().find(|row| row[0] == "`bindery_admission_faults_total`").unwrap();
    let (_, causes) = row[1].split_once("by `cause`: ").unwrap();
    let runbooks = read("docs/runbooks.md");
    let (_, section) = runbooks.split_once("## BinderyAdmissionFails").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for cause in causes.split(", ").filter(|cause| *cause != "`not_ready`") {
        assert!(section.contains(cause), "{cause}");
    }
}

#[test]
fn the_alerts_depend_on_the_mode() {
    let modes = MODES.map(alerts);
    for (name, expected) in [
        ("BinderyNoLeader", [false, true, true]),
        ("BinderyOperationsFail", [false, true, false]),
        ("BinderyObservedDifferently", [true, false, false]),
        ("BinderyUpstreamDoesNotBind", [false, false, true]),
        ("BinderyReservationsRemoved", [false, true, true]),
        ("BinderyAbsent", [true, true, true]),
    ] {
        let has = |alerts: &Vec<Value>| alerts.iter().any(|alert| alert["alert"] == name);
        assert_eq!(modes.each_ref().map(has), expected, "{name}");
    }
    // Without a replica claims wait only in modes own and steer.
    let [observe, own, steer] = &modes;
    for (alerts, severity, says_so) in
        [(observe, "warning", false), (own, "critical", true), (steer, "critical", false)]
    {
        let absent = alerts.iter().find(|alert| alert["alert"] == "BinderyAbsent").unwrap();
        assert_eq!(absent["labels"]["severity"], severity);
        let description = absent["annotations"]["description"].as_str().unwrap();
        assert_eq!(description.contains("No claim is bound"), says_so, "{description}");
    }
}

/// The alert's threshold is below the lifetime that is left at the renewal.
#[test]
fn a_certificate_that_is_renewed_in_time_does_not_alert() {
    const DAY: u64 = 24 * 60 * 60;
    let issued = |left: &str| json!({"source": "cert-manager", "certManager": {"renewBefore": left}});
    for (certificates, renewed_at, least) in [
        (json!({"lifetime": "90d"}), 30 * DAY, 7 * DAY),
        (json!({"lifetime": "21d"}), 7 * DAY, 7 * DAY / 2),
        (json!({"lifetime": "36h"}), DAY / 2, DAY / 4),
        (json!({"lifetime": "3600s"}), 1200, 600),
        (issued("720h"), 30 * DAY, 7 * DAY),
        (issued("1h30m"), 5400, 2700),
    ] {
        let values = json!({"prometheusRule": {"enabled": true}, "certificates": certificates});
        let expression = "PrometheusRule/bindery /spec/groups/bindery/rules/BinderyCertificateExpires/expr";
        let objects = rendered(&values);
        let (_, limit) = objects.at(expression).unwrap().as_str().unwrap().split_once(" < ").unwrap();
        let limit: u64 = limit.parse().unwrap();
        assert!(limit == least && limit < renewed_at, "{values}: {limit}");
    }
}

/// In mode observe every replica counts the same claims, so their sum would be wrong.
#[test]
fn counts_that_all_replicas_share_are_not_summed() {
    let objects = monitored("observe");
    let dashboard = objects.at("ConfigMap/bindery-dashboard /data/bindery.json").unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let shown = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let alerts = alerts("observe").into_iter().map(|alert| alert["expr"].as_str().unwrap().to_owned());
    let observed = |expression: &String| expression.contains("bindery_observed_");
    let observed: Vec<_> = shown.chain(alerts).filter(observed).collect();
    assert_eq!(observed.len(), 5, "{observed:?}");
    for expression in observed {
        assert!(!expression.contains("sum"), "{expression}");
    }
}

#[test]
fn the_dashboard_uses_documented_metrics_and_fits_the_grid() {
    let objects = monitored("own");
    let dashboard = objects.at("ConfigMap/bindery-dashboard /data/bindery.json").unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    let mut asked = 0;
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            assert_documented(target["expr"].as_str().unwrap(), title);
            asked += 1;
        }
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{title} is too wide");
    }
    assert!(asked > 0);
}

#[test]
fn the_dashboard_shows_every_metric_of_bindery() {
    let dashboard: Value = serde_json::from_str(&read("charts/bindery/files/dashboard.json")).unwrap();
    let targets = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let shown: BTreeSet<_> = targets.flat_map(|target| metrics(target["expr"].as_str().unwrap())).collect();
    for name in documented().iter().filter(|name| name.starts_with("bindery_")) {
        let is_shown =
            shown.contains(name) || PARTS.iter().any(|part| shown.contains(&format!("{name}{part}")));
        assert!(is_shown, "the dashboard has no {name}");
    }
}
