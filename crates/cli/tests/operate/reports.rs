//! Metrics, health, and the log as JSON.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bindery_cluster::{
    Cluster, Manager, NoFaults, Replica, Request, RequestFault, in_time, is_bound_to, is_in_phase,
};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Names of the metrics in the guide. Each row has a meaning and an action; rows whose name begins with a
/// capital are alerts.
fn listed() -> BTreeSet<String> {
    let path = Path::new(env!("BINDERY_CHECKOUT")).join("docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let is_metric = |name: &str| name.starts_with(|first: char| first.is_ascii_lowercase());
    let metrics = rows.filter(|(name, _)| is_metric(name));
    let checked = metrics.inspect(|(name, row)| {
        let cells: Vec<_> = row.trim_end_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 2 && cells.iter().all(|cell| !cell.is_empty()), "{name}: {cells:?}");
    });
    checked.map(|(name, _)| name.to_owned()).collect()
}

/// Names of the metrics of a scrape, which must be in the OpenMetrics text format.
fn scraped(text: &str) -> BTreeSet<String> {
    let (mut names, mut families) = (BTreeSet::new(), Vec::new());
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            let suffix = if kind == "counter" { "_total" } else { "" };
            assert!(names.insert(format!("{name}{suffix}")), "{name} is there twice");
            families.push(name);
        } else if let Some(help) = line.strip_prefix("# HELP ") {
            assert!(help.contains(' '), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            let family = families.last().unwrap_or_else(|| panic!("{line}"));
            assert!(series.starts_with(family), "{line} is not of {family}");
        }
    }
    names
}

/// A policy that gives every volume the score 0, and one that is not there.
fn policies() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, module, settings) in
        [("tier", "builtin:prefer", json!({"scores": {}})), ("missing", "missing.wasm", json!({}))]
    {
        let matches = json!({"classNames": if name == "missing" { ["held"] } else { [""] }});
        let spec = json!({"module": module, "settings": settings, "match": matches});
        let document = bindery_kit::json::policy("MatchPolicy", name, &spec);
        std::fs::write(folder.path().join(format!("{name}.yaml")), document.to_string()).unwrap();
    }
    folder
}

#[tokio::test]
async fn the_guide_lists_exactly_the_metrics() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let policies = policies();
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let documents = policies.path().to_str().unwrap();
    // The other replica must not take over, however busy the machine is.
    let arguments = ["--policy", documents, "--policies", &shipped, "--lease-duration=15"];
    let mut replica = cluster.replica_with("first", &arguments);
    replica.until_leading().await;
    assert_eq!(scraped(&replica.get("/metrics").await), listed());
    let mut without = cluster.replica("second");
    without.until_listed().await;
    let metrics = scraped(&without.get("/metrics").await);
    assert!(!metrics.iter().any(|name| name.starts_with("bindery_policy_")), "{metrics:?}");

    cluster.create_volume("v", "1Gi").await;
    cluster.create_volume("free", "1Mi").await;
    cluster.until_volume("v", is_in_phase("Available")).await;
    cluster.until_volume("free", is_in_phase("Available")).await;
    cluster.create_claim("c", "1Gi").await;
    cluster.until_claim("c", is_bound_to("v")).await;
    cluster.create_claim("waits", "1Ti").await;
    let labels = r#"namespace="default",storage_class="",volume_attributes_class="""#;
    for sample in [
        "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/host-path\",volume_mode=\"Filesystem\"} 2\n",
        "pv_collector_bound_pv_count{storage_class=\"\"} 1\n",
        "pv_collector_unbound_pv_count{storage_class=\"\"} 1\n",
        &format!("pv_collector_bound_pvc_count{{{labels}}} 1\n"),
        &format!("pv_collector_unbound_pvc_count{{{labels}}} 1\n"),
        "bindery_policy_loaded{policy=\"missing\"} 0\n",
        "bindery_policy_loaded{policy=\"tier\"} 1\n",
        "bindery_policy_rows_total{policy=\"tier\"} 1\n",
        "bindery_policy_verdicts_kept{policy=\"tier\"} 1\n",
        "bindery_policy_duration_seconds_count{policy=\"tier\"} 3\n",
        "bindery_policy_faults_total{policy=\"tier\",cause=\"trapped\"} 0\n",
        "bindery_policy_waits_total{policy=\"tier\"} 0\n",
        "bindery_leader 1\n",
        "bindery_writes_blocked 0\n",
        "bindery_volumes_kept_without_policy 0\n",
    ] {
        replica.until_metrics(sample).await;
    }
    assert!(replica.metric("bindery_policy_fuel_total{policy=\"tier\"}").await > 0);
    assert_eq!(scraped(&replica.get("/metrics").await), listed());
}

const BROKEN: RequestFault =
    RequestFault::Refuse { status: StatusCode::INTERNAL_SERVER_ERROR, retry_after: None };

#[tokio::test]
async fn a_leader_whose_writes_all_fail_is_not_ready() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let proxy = cluster.proxy().await;
    let mut replica = Replica::behind(&proxy, "first", &[]);
    replica.until_leading().await;
    replica.until_ready().await;
    proxy.set_faults(|request: &Request| if request.is_write() { BROKEN } else { RequestFault::None });
    cluster.create_volume("a", "1Gi").await;
    cluster.create_volume("b", "1Gi").await;
    let (_, answer) =
        replica.until_answer("/readyz", "[+]lists ok\n[+]credentials ok\n[-]writes failed: ").await;
    assert!(answer.ends_with("readyz check failed\n"), "{answer}");
    // Kubelet's probe excludes this check: the replica still answers reviews, and the failures may concern
    // one tenant's objects.
    let answer = replica.until_answer("/readyz?exclude=writes", "ok").await;
    assert_eq!(answer, (StatusCode::OK, "ok".to_owned()));
    replica.until_metrics("bindery_writes_blocked 1\n").await;
    replica.until_metrics("bindery_keys_failing 2\n").await;
    assert_eq!(replica.get("/livez").await, "ok");
    proxy.set_faults(NoFaults);
    replica.until_ready().await;
    cluster.until_volume("a", is_in_phase("Available")).await;
    replica.until_metrics("bindery_keys_failing 0\n").await;
}

/// The lists without which nothing is decided.
const LISTS: [(&str, &str); 5] = [
    ("PersistentVolume", "/api/v1/persistentvolumes"),
    ("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    ("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    ("Pod", "/api/v1/pods"),
    ("Node", "/api/v1/nodes"),
];

#[tokio::test]
async fn a_replica_without_a_list_names_it_is_not_ready_and_writes_nothing() {
    let cluster = Cluster::start(Manager::Off).await;
    let proxy = cluster.proxy().await;
    for (kind, path) in LISTS {
        let name = kind.to_lowercase();
        cluster.create_pair(&name).await;
        let (lists, mut lists_seen) = watch::channel(0);
        proxy.set_faults(move |request: &Request| {
            if request.path != path {
                return RequestFault::None;
            }
            lists.send_modify(|lists| *lists += 1);
            BROKEN
        });
        let mut replica = Replica::behind(&proxy, &name, &[]);
        let missing = format!(
            "[-]lists failed: the first list is not complete of: {kind}\n[+]credentials ok\n\
             [-]eligibility failed: this replica cannot lead: the list of {kind} is not complete\n"
        );
        replica.until_answer("/readyz", &missing).await;
        // It retries, and decides nothing meanwhile.
        in_time("a retry", lists_seen.wait_for(|lists| *lists >= 2)).await.unwrap();
        let answer = replica.until_answer("/readyz", &missing).await;
        assert_eq!(answer, (StatusCode::INTERNAL_SERVER_ERROR, format!("{missing}readyz check failed\n")));
        assert_eq!(replica.probe("/livez").await, (StatusCode::OK, "ok".to_owned()));
        assert_eq!(replica.metric("bindery_lists_complete").await, 0);
        // It does not compete for the Lease.
        let requests = proxy.take_requests();
        let writes = requests.iter().filter(|request| request.is_write() || request.path.contains("/leases"));
        assert_eq!(writes.count(), 0, "without the list of {kind}: {requests:#?}");

        proxy.set_faults(NoFaults);
        replica.until_ready().await;
        cluster.until_claim(&name, is_bound_to(&name)).await;
        replica.terminate().await;
        proxy.take_requests();
    }
}

#[tokio::test]
async fn every_log_line_about_an_object_has_its_name_and_uid() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let log = "--log=bindery=debug,bindery_controller=debug,bindery_kube=debug";
    let environment = [("BINDERY_LOG_FORMAT", PathBuf::from("json"))];
    let mut replica = Replica::start(&cluster.kubeconfig(), "first", &[log], &environment);
    replica.until_leading().await;
    cluster.create_volume("told-volume", "1Gi").await;
    let volume = cluster.until_volume("told-volume", is_in_phase("Available")).await;
    cluster.create_claim("told-claim", "1Gi").await;
    let claim = cluster.until_claim("told-claim", is_bound_to("told-volume")).await;
    cluster.delete_claim("told-claim").await;
    cluster.until_volume("told-volume", is_in_phase("Released")).await;
    let objects = [
        ("persistentvolume told-volume", volume.metadata.uid.unwrap()),
        ("persistentvolumeclaim default/told-claim", claim.metadata.uid.unwrap()),
    ];
    // Lines may come late; none comes after the end.
    replica.terminate().await;
    let log = replica.log();
    let mut lines = [0; 2];
    for line in log.lines() {
        let parsed: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(parsed[field].is_string(), "no {field} in {line}");
        }
        if !line.contains("told-") {
            continue;
        }
        let field = |name: &str| parsed[name].as_str().or_else(|| parsed["span"][name].as_str());
        let about = objects.iter().position(|(object, _)| field("object") == Some(object));
        let about = about.unwrap_or_else(|| panic!("it does not say what it is about: {line}"));
        assert_eq!(field("uid"), Some(objects[about].1.as_str()), "{line}");
        lines[about] += 1;
    }
    assert!(lines.iter().all(|count| *count >= 2), "{lines:?} in {log}");
}
