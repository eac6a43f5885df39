//! Leader election: a request without an answer costs no leadership, a replica that cannot decide or write
//! does not hold the Lease, and one that steps down has ended its writes before the next one leads.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bindery_cluster::{
    Cluster, Manager, NoFaults, Proxy, Replica, Request, RequestFault, in_time, poll, until,
};
use http::{Method, StatusCode};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Longer than a test.
const FOREVER: Duration = Duration::from_secs(3_600);
/// The rights of a replica: group, resource and verbs.
const RIGHTS: [(&str, &str, &[&str]); 9] = [
    ("", "persistentvolumes", &["get", "list", "watch", "patch"]),
    ("", "persistentvolumeclaims", &["get", "list", "watch", "patch"]),
    ("", "persistentvolumes/status", &["patch"]),
    ("", "persistentvolumeclaims/status", &["patch"]),
    ("", "nodes", &["list", "watch"]),
    ("", "pods", &["list", "watch"]),
    ("storage.k8s.io", "storageclasses", &["list", "watch"]),
    ("", "events", &["create", "patch"]),
    ("coordination.k8s.io", "leases", &["get", "create", "update", "patch"]),
];

fn is_renewal(request: &Request) -> bool {
    request.method == Method::PUT && request.path.ends_with("/leases/bindery")
}

async fn cluster_and_proxy() -> (Cluster, Proxy) {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let proxy = cluster.proxy().await;
    (cluster, proxy)
}

fn leases(cluster: &Cluster) -> Api<Lease> {
    Api::namespaced(cluster.client.clone(), "kube-system")
}

/// Waits until the Lease has been renewed since then; returns its spec.
async fn until_renewed(leases: &Api<Lease>, since: &LeaseSpec) -> LeaseSpec {
    let is_renewed = |lease: &Lease| {
        let spec = lease.spec.as_ref();
        spec.is_some_and(|spec| spec.renew_time != since.renew_time)
    };
    until(leases, "bindery", is_renewed).await.spec.unwrap()
}

#[tokio::test]
async fn an_unanswered_renewal_or_dead_connections_cost_no_leadership() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let leases = leases(&cluster);
    // Long enough that no pause of the machine costs the leadership.
    let lease = ["--lease-duration=15"];
    let mut leader = Replica::behind(&proxy, "first", &lease);
    leader.until_leading().await;
    let mut next = cluster.replica_with("second", &lease);
    next.until_ready().await;
    let mut spec = until(&leases, "bindery", |_| true).await.spec.unwrap();
    let transitions = spec.lease_transitions;

    let (came, mut has_come) = watch::channel(false);
    // One renewal stays unanswered.
    proxy.set_faults(move |request: &Request| {
        let is_first = is_renewal(request) && !came.send_replace(true);
        if is_first { RequestFault::Delay(FOREVER) } else { RequestFault::None }
    });
    in_time("a renewal", has_come.wait_for(|come| *come)).await.unwrap();
    for are_dead in [false, true] {
        if are_dead {
            proxy.forget_connections();
        }
        for _ in 0..2 {
            spec = until_renewed(&leases, &spec).await;
        }
        assert_eq!(spec.holder_identity.as_deref(), Some("first"), "{are_dead}: {}", leader.log());
        assert_eq!(spec.lease_transitions, transitions, "{are_dead}");
    }
    assert!(!leader.log().contains("this replica no longer leads"), "{}", leader.log());
    leader.check();
    next.check();
}

/// A user whose rights can be taken away.
struct User {
    client: kube::Client,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl User {
    /// A user with a name of its own, by impersonation in this kubeconfig.
    async fn new(cluster: &Cluster, kubeconfig: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        let mut changed: Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
        changed["users"][0]["user"]["as"] = "weak".into();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, changed.to_string()).unwrap();
        let user = Self { client: cluster.client.clone(), kubeconfig, _folder: folder };
        user.create::<ClusterRole>(json!({"metadata": {"name": "weak"}, "rules": []})).await;
        let binding = json!({
            "metadata": {"name": "weak"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "weak"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "weak"}],
        });
        user.create::<ClusterRoleBinding>(binding).await;
        user
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType: Default> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let object = serde_json::from_value(object).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap()
    }

    /// Gives the user every right, or every right but one; waits until that is in force.
    async fn lacks(&self, lacking: Option<(&str, &str)>) {
        let rules = RIGHTS.iter().map(|&(group, resource, verbs)| {
            let verbs: Vec<_> = verbs.iter().filter(|&&verb| lacking != Some((resource, verb))).collect();
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
        });
        let rules: Vec<_> = rules.filter(|rule| rule["verbs"] != json!([])).collect();
        let roles = Api::<ClusterRole>::all(self.client.clone());
        let mut role = roles.get("weak").await.unwrap();
        role.rules = serde_json::from_value(json!(rules)).unwrap();
        roles.replace("weak", &PostParams::default(), &role).await.unwrap();
        for (group, resource, verbs) in RIGHTS {
            for &verb in verbs {
                self.until_reviewed(group, resource, verb, lacking != Some((resource, verb))).await;
            }
        }
    }

    async fn until_reviewed(&self, group: &str, resource: &str, verb: &str, allowed: bool) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes =
            json!({"group": group, "resource": resource, "subresource": subresource, "verb": verb});
        let review = json!({"metadata": {}, "spec": {"user": "weak", "resourceAttributes": attributes}});
        let reviewed = poll(async || {
            let answer: SubjectAccessReview = self.create(review.clone()).await;
            (answer.status.unwrap().allowed == allowed).then_some(())
        });
        assert!(reviewed.await.is_some(), "{verb} {resource} is never reviewed as {allowed}");
    }
}

/// Waits until a replica reports that it lacks this right to lead.
async fn until_lacking(replica: &mut Replica, right: &str) {
    replica.until_metrics(&format!("bindery_cannot_lead{{cause=\"it may not {right}\"}} 1\n")).await;
    let (status, told) = replica.probe("/readyz").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{told}");
    let failed = format!("[-]eligibility failed: this replica cannot lead: it may not {right}");
    assert!(told.contains(&failed), "no {failed:?} in {told}");
}

#[tokio::test]
async fn a_replica_that_lacks_a_right_leaves_the_lease_to_another() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let user = User::new(&cluster, &proxy.kubeconfig()).await;
    user.lacks(Some(("persistentvolumes", "watch"))).await;
    let mut weak = Replica::start(&user.kubeconfig, "weak", &[], &[]);
    until_lacking(&mut weak, "watch persistentvolumes").await;
    assert!(leases(&cluster).get_opt("bindery").await.unwrap().is_none(), "it has touched the Lease");

    for (resource, verb) in [("persistentvolumeclaims", "patch"), ("persistentvolumes", "watch")] {
        user.lacks(None).await;
        weak.until_leading().await;
        weak.until_ready().await;
        let mut healthy = cluster.replica("healthy");
        healthy.until_ready().await;

        user.lacks(Some((resource, verb))).await;
        if verb == "watch" {
            // The API server ends no watch that is open.
            proxy.cut();
        }
        cluster.bind_pair(resource).await;
        healthy.until_leading().await;
        until_lacking(&mut weak, &format!("{verb} {resource}")).await;
        weak.until_following().await;
        healthy.terminate().await;
    }
    // Without another replica, this one leads again when it has all rights.
    user.lacks(None).await;
    weak.until_leading().await;
    user.lacks(Some(("leases", "update"))).await;
    until_lacking(&mut weak, "update leases kube-system/bindery").await;
    weak.until_following().await;
}

#[tokio::test]
async fn a_replica_leads_where_rights_cannot_be_reviewed() {
    let (_cluster, proxy) = cluster_and_proxy().await;
    let refusals = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE];
    for fault in refusals.map(refuse).into_iter().chain([RequestFault::Delay(FOREVER)]) {
        proxy.set_faults(move |request: &Request| {
            let is_review = request.path.ends_with("/selfsubjectaccessreviews");
            if is_review { fault.clone() } else { RequestFault::None }
        });
        let mut replica = Replica::behind(&proxy, "first", &[]);
        replica.until_leading().await;
        replica.until_ready().await;
        replica.terminate().await;
    }
}

fn refuse(status: StatusCode) -> RequestFault {
    RequestFault::Refuse { status, retry_after: None }
}

#[tokio::test]
async fn a_leader_whose_credentials_are_refused_hands_over() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let mut leader = Replica::behind(&proxy, "first", &[]);
    leader.until_leading().await;
    let mut next = cluster.replica("second");
    next.until_ready().await;
    proxy.set_faults(|_: &Request| refuse(StatusCode::UNAUTHORIZED));
    proxy.cut();
    let cause = "its credentials are refused";
    leader.until_metrics(&format!("bindery_cannot_lead{{cause=\"{cause}\"}} 1\n")).await;
    let (status, answer) = leader.until_answer("/readyz", "[+]lists ok\n[-]credentials failed: ").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert!(answer.contains(&format!("this replica cannot lead: {cause}")), "{answer}");
    leader.until_following().await;
    next.until_leading().await;
    proxy.set_faults(NoFaults);
    leader.until_ready().await;
}

#[tokio::test]
async fn a_leader_whose_list_stays_incomplete_hands_over() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let mut leader = Replica::behind(&proxy, "first", &[]);
    leader.until_leading().await;
    let mut next = cluster.replica("second");
    next.until_ready().await;
    // The watches of volumes expire, and their lists fail.
    proxy.set_faults(|request: &Request| {
        if request.method != Method::GET || request.path != "/api/v1/persistentvolumes" {
            return RequestFault::None;
        }
        let is_list = !request.is_watch() || request.query.contains("sendInitialEvents=true");
        refuse(if is_list { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::GONE })
    });
    proxy.cut();
    let cause = "the list of PersistentVolume is not complete";
    leader.until_metrics(&format!("bindery_cannot_lead{{cause=\"{cause}\"}} 1\n")).await;
    leader.until_following().await;
    next.until_leading().await;
    cluster.bind_pair("later").await;
    proxy.set_faults(NoFaults);
    leader.until_ready().await;
}

#[tokio::test]
async fn a_leader_that_steps_down_ends_its_writes_before_the_next_one_leads() {
    let (cluster, proxy) = cluster_and_proxy().await;
    // The takeover comes three seconds after the step down.
    let lease = ["--lease-duration=8"];
    let mut leader = Replica::behind(&proxy, "first", &lease);
    leader.until_leading().await;
    let mut next = cluster.replica_with("second", &lease);
    next.until_ready().await;
    // Writes stay unanswered, and so do the renewals after the first write.
    let has_written = AtomicBool::new(false);
    proxy.set_faults(move |request: &Request| {
        has_written.fetch_or(request.is_write(), Ordering::Relaxed);
        let is_stuck = request.is_write() || is_renewal(request) && has_written.load(Ordering::Relaxed);
        if is_stuck { RequestFault::Delay(FOREVER) } else { RequestFault::None }
    });
    cluster.create_volume("v", "1Gi").await;
    next.until_leading().await;
    assert!(leader.log().contains("this replica no longer leads"), "{}", leader.log());
    proxy.set_faults(NoFaults);
}

/// Writes the kubeconfig of a server and a user.
fn kubeconfig(folder: &TempDir, server: &str, user: &Value) -> PathBuf {
    let path = folder.path().join("kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

#[tokio::test]
async fn a_blocked_start_is_live_names_its_cause_and_ends_by_a_signal() {
    // The kernel accepts connections, but no program answers.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sleep",
        "args": ["3600"],
        "interactiveMode": "Never",
    }});
    for (user, told) in [
        (json!({"token": "t"}), "[-]lists failed: the first list is not complete of: PersistentVolume, "),
        (plugin, "[-]start failed: it waits for the credentials"),
    ] {
        for mode in ["--mode=own", "--mode=observe"] {
            let folder = TempDir::new().unwrap();
            let kubeconfig = kubeconfig(&folder, &server, &user);
            let mut replica = Replica::start(&kubeconfig, "first", &[mode], &[]);
            assert_eq!(replica.until_answer("/readyz", told).await.0, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(replica.probe("/livez").await, (StatusCode::OK, "ok".to_owned()));
            replica.signal(Signal::TERM);
            assert!(replica.wait().await.success(), "{mode}: {}", replica.log());
        }
    }
}

#[tokio::test]
async fn a_start_without_an_api_server_waits_for_it() {
    let mut cluster = Cluster::start(Manager::WithoutBinder).await;
    cluster.plane.api_server().kill().unwrap();
    let mut replica = cluster.replica("first");
    replica.until_answer("/readyz", "[-]lists failed").await;
    cluster.plane.restart_api_server().await.unwrap();
    replica.until_leading().await;
}
