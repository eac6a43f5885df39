//! What a running replica tells: metrics, health, and a log that programs can read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bindery_cluster::{Asked, Before, ControlPlane, Fair, Manager, Programs, Proxy, Weather};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::watch;

use super::world::{PATIENCE, Replica, World, is_bound_to, phase};

/// Names of the metrics that the guide lists, each with what it tells and what to do when it is high; those
/// of alerts begin with a capital.
fn listed() -> BTreeSet<String> {
    let path = Path::new(env!("BINDERY_CHECKOUT")).join("docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let is_metric = |name: &str| name.starts_with(|first: char| first.is_ascii_lowercase());
    let metrics = rows.filter(|(name, _)| is_metric(name));
    let told = metrics.inspect(|(name, row)| {
        let cells: Vec<_> = row.trim_end_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 2 && cells.iter().all(|cell| !cell.is_empty()), "{name}: {cells:?}");
    });
    told.map(|(name, _)| name.to_owned()).collect()
}

/// Names of the metrics of a scrape. Fails where it is not in the OpenMetrics text format.
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

#[tokio::test]
async fn every_metric_is_in_the_guide_and_every_metric_of_the_guide_is_told() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let mut replica = Replica::start(&plane, "first");
    replica.until_leading().await;
    assert_eq!(scraped(&replica.get("/metrics").await), listed());

    world.create_volume("v", "1Gi").await;
    world.create_volume("free", "1Mi").await;
    world.until_volume("v", |volume| phase(volume) == "Available").await;
    world.until_volume("free", |volume| phase(volume) == "Available").await;
    world.create_claim("c", "1Gi").await;
    world.until_claim("c", is_bound_to("v")).await;
    world.create_claim("waits", "1Ti").await;
    let labels = r#"namespace="default",storage_class="",volume_attributes_class="""#;
    for sample in [
        "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/host-path\",volume_mode=\"Filesystem\"} 2\n",
        "pv_collector_bound_pv_count{storage_class=\"\"} 1\n",
        "pv_collector_unbound_pv_count{storage_class=\"\"} 1\n",
        &format!("pv_collector_bound_pvc_count{{{labels}}} 1\n"),
        &format!("pv_collector_unbound_pvc_count{{{labels}}} 1\n"),
        "bindery_leader 1\n",
        "bindery_writes_blocked 0\n",
    ] {
        replica.until_metrics(sample).await;
    }
    assert_eq!(scraped(&replica.get("/metrics").await), listed());
}

/// The API server answers every write of volumes and claims that it is broken.
struct Broken;

impl Weather for Broken {
    fn before(&self, asked: &Asked) -> Before {
        if asked.is_write() {
            Before::Refuse { status: StatusCode::INTERNAL_SERVER_ERROR, retry_after: None }
        } else {
            Before::Pass
        }
    }
}

#[tokio::test]
async fn a_leader_whose_writes_do_not_get_through_is_not_ready() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let proxy = Proxy::start(&plane).await.unwrap();
    let mut replica = Replica::start_with(&proxy.kubeconfig(), "first", &[], &[]);
    replica.until_leading().await;
    replica.until_told("/readyz", "ok").await;
    proxy.set_weather(Broken);
    world.create_volume("a", "1Gi").await;
    world.create_volume("b", "1Gi").await;
    let (_, told) = replica.until_told("/readyz", "[+]lists ok\n[+]credentials ok\n[-]writes failed: ").await;
    assert!(told.ends_with("readyz check failed\n"), "{told}");
    // It reviews as well as before, and what refuses its writes may be about one tenant's objects: kubelet,
    // which would take it from the Service, does not count it.
    assert_eq!(replica.probe("/readyz?exclude=writes").await, (StatusCode::OK, "ok".to_owned()));
    replica.until_metrics("bindery_writes_blocked 1\n").await;
    replica.until_metrics("bindery_keys_failing 2\n").await;
    assert_eq!(replica.get("/livez").await, "ok");
    proxy.set_weather(Fair);
    replica.until_told("/readyz", "ok").await;
    world.until_volume("a", |volume| phase(volume) == "Available").await;
    replica.until_metrics("bindery_keys_failing 0\n").await;
}

/// The API server answers lists and watches of one kind that it is broken, and counts them.
struct Withheld {
    path: &'static str,
    asked: watch::Sender<usize>,
}

impl Weather for Withheld {
    fn before(&self, asked: &Asked) -> Before {
        if asked.path != self.path {
            return Before::Pass;
        }
        self.asked.send_modify(|asked| *asked += 1);
        Before::Refuse { status: StatusCode::INTERNAL_SERVER_ERROR, retry_after: None }
    }
}

/// Lists in whose absence nothing is decided.
const LISTS: [(&str, &str); 5] = [
    ("PersistentVolume", "/api/v1/persistentvolumes"),
    ("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    ("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    ("Pod", "/api/v1/pods"),
    ("Node", "/api/v1/nodes"),
];

#[tokio::test]
async fn a_replica_that_waits_for_a_list_names_it_and_is_not_ready_and_writes_nothing() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let world = World::new(&plane).await;
    let proxy = Proxy::start(&plane).await.unwrap();
    for (kind, path) in LISTS {
        let name = kind.to_lowercase();
        world.create_volume(&name, "1Gi").await;
        world.create_claim(&name, "1Gi").await;
        let (asked, mut seen) = watch::channel(0);
        proxy.set_weather(Withheld { path, asked });
        let mut replica = Replica::start_with(&proxy.kubeconfig(), &name, &[], &[]);
        let missing = format!(
            "[-]lists failed: the first list is not complete of: {kind}\n[+]credentials ok\n\
             [-]candidate failed: this replica cannot lead: the list of {kind} is not complete\n"
        );
        replica.until_told("/readyz", &missing).await;
        // It tries again all the while, and decides nothing on what it has.
        tokio::time::timeout(PATIENCE, seen.wait_for(|asked| *asked >= 2)).await.unwrap().unwrap();
        let told = replica.until_told("/readyz", &missing).await;
        assert_eq!(told, (StatusCode::INTERNAL_SERVER_ERROR, format!("{missing}readyz check failed\n")));
        assert_eq!(replica.probe("/livez").await, (StatusCode::OK, "ok".to_owned()));
        assert_eq!(replica.metric("bindery_lists_complete").await, 0);
        // It does not even compete for the Lease.
        let asked = proxy.take_asked();
        let writes = asked.iter().filter(|asked| asked.is_write() || asked.path.contains("/leases"));
        assert_eq!(writes.count(), 0, "without the list of {kind}: {asked:#?}");

        proxy.set_weather(Fair);
        let told = replica.until_told("/readyz", "ok").await;
        assert_eq!(told, (StatusCode::OK, "ok".to_owned()));
        world.until_claim(&name, is_bound_to(&name)).await;
        replica.signal(Signal::TERM);
        assert!(replica.wait().await.success());
        proxy.take_asked();
    }
}

#[tokio::test]
async fn every_line_about_an_object_has_its_name_and_its_uid() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let log = "--log=bindery=debug,bindery_controller=debug,bindery_kube=debug".to_owned();
    let environment = [("BINDERY_LOG_FORMAT", PathBuf::from("json"))];
    let mut replica = Replica::start_with(&plane.kubeconfig(), "first", &[log], &environment);
    replica.until_leading().await;
    world.create_volume("told-volume", "1Gi").await;
    let volume = world.until_volume("told-volume", |volume| phase(volume) == "Available").await;
    world.create_claim("told-claim", "1Gi").await;
    let claim = world.until_claim("told-claim", is_bound_to("told-volume")).await;
    world.delete_claim("told-claim").await;
    world.until_volume("told-volume", |volume| phase(volume) == "Released").await;
    let objects = [
        ("persistentvolume told-volume", volume.metadata.uid.unwrap()),
        ("persistentvolumeclaim default/told-claim", claim.metadata.uid.unwrap()),
    ];
    // A line may come after what it tells of was seen; none comes after the end.
    replica.signal(Signal::TERM);
    assert!(replica.wait().await.success());
    let log = replica.log();
    let mut told = [0; 2];
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
        told[about] += 1;
    }
    assert!(told.iter().all(|lines| *lines >= 2), "{told:?} in {log}");
}
