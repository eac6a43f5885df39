//! Leader election: a request without an answer costs no leadership, a replica that cannot decide or write
//! does not hold the Lease, and one that steps down has ended its writes before the next one leads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bindery_cluster::{
    Cluster, Manager, NoFaults, Proxy, Replica, Request, RequestFault, in_time, kubeconfig, poll,
};
use bindery_kit::json::merged;
use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::credentials::exec;
use super::idle::until_renewed;
use super::policy_objects::until_rejected;

const RBAC: &str = "rbac.authorization.k8s.io";
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

/// Starts a leader behind the proxy, and a ready replica that does not need the proxy.
async fn leader_and_next(cluster: &Cluster, proxy: &Proxy, further: &[&str]) -> (Replica, Replica) {
    let mut leader = Replica::behind(proxy, "first", further);
    leader.until_leading().await;
    let next = cluster.replica_with("second", further);
    next.until_ready().await;
    (leader, next)
}

/// Waits until the leader reports why it cannot lead, and the next replica leads.
async fn until_handed_over(leader: &mut Replica, next: &mut Replica, cause: &str) {
    leader.until_metrics(&format!("bindery_cannot_lead{{cause=\"{cause}\"}} 1\n")).await;
    leader.until_following().await;
    next.until_leading().await;
}

#[tokio::test]
async fn an_unanswered_renewal_or_dead_connections_cost_no_leadership() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let leases = leases(&cluster);
    // Long enough that no pause of the machine costs the leadership.
    let (mut leader, mut next) = leader_and_next(&cluster, &proxy, &["--lease-duration=15"]).await;
    let spec = async || leases.get("bindery").await.unwrap().spec.unwrap();
    let before = spec().await;

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
        until_renewed(&leases, 2).await;
        let LeaseSpec { holder_identity, lease_transitions, .. } = spec().await;
        assert_eq!(holder_identity.as_deref(), Some("first"), "{are_dead}: {}", leader.log());
        assert_eq!(lease_transitions, before.lease_transitions, "{are_dead}");
    }
    assert!(!leader.log().contains("this replica no longer leads"), "{}", leader.log());
    leader.check();
    next.check();
}

struct User<'a> {
    cluster: &'a Cluster,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl<'a> User<'a> {
    /// A user with a name of its own, by impersonation in this kubeconfig.
    async fn new(cluster: &'a Cluster, kubeconfig: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        let mut changed: Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
        changed["users"][0]["user"]["as"] = "weak".into();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, changed.to_string()).unwrap();
        let user = Self { cluster, kubeconfig, _folder: folder };
        user.bind("weak", &json!([])).await;
        user
    }

    /// Gives the user rights by a role of this name, and by its binding.
    async fn bind(&self, name: &str, rules: &Value) {
        for object in [
            json!({"kind": "ClusterRole", "rules": rules}),
            json!({
                "kind": "ClusterRoleBinding",
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "weak"}],
            }),
        ] {
            let named = json!({"apiVersion": format!("{RBAC}/v1"), "metadata": {"name": name}});
            self.cluster.create(&merged(object, named), "").await.unwrap();
        }
    }

    /// Gives the user every right, or every right but one; waits until that is in force.
    async fn lacks(&self, lacking: Option<(&str, &str)>) {
        let rules = RIGHTS.iter().map(|&(group, resource, verbs)| {
            let verbs: Vec<_> = verbs.iter().filter(|&&verb| lacking != Some((resource, verb))).collect();
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
        });
        let rules: Vec<_> = rules.filter(|rule| rule["verbs"] != json!([])).collect();
        let role = format!("/apis/{RBAC}/v1/clusterroles/weak");
        self.cluster.patch(&role, &json!({"rules": rules})).await.unwrap();
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
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "weak", "resourceAttributes": attributes},
        });
        let reviewed = poll(async || {
            let answer = self.cluster.create(&review, "").await.unwrap();
            (answer["status"]["allowed"] == allowed).then_some(())
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
    // A replica that stands still for a moment keeps the Lease.
    let lease = ["--lease-duration=15"];
    let mut weak = Replica::start(&user.kubeconfig, "weak", &lease, &[]);
    until_lacking(&mut weak, "watch persistentvolumes").await;
    assert!(leases(&cluster).get_opt("bindery").await.unwrap().is_none(), "it has touched the Lease");

    for (resource, verb) in [("persistentvolumeclaims", "patch"), ("persistentvolumes", "watch")] {
        user.lacks(None).await;
        weak.until_leading().await;
        weak.until_ready().await;
        let mut healthy = cluster.replica_with("healthy", &lease);
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
async fn a_replica_that_may_not_list_policies_decides_nothing() {
    let (cluster, proxy) = cluster_and_proxy().await;
    cluster.policies().install().await;
    let user = User::new(&cluster, &proxy.kubeconfig()).await;
    user.lacks(None).await;
    cluster.create_pair("waiting").await;
    let mut weak = Replica::start(&user.kubeconfig, "weak", &["--policy-objects=true"], &[]);
    let told = "[-]start failed: it waits for the first list of engines.policy.bindery.dev: ";
    let (_, answer) = weak.until_answer("/readyz", told).await;
    assert!(answer.contains("403"), "{answer}");
    assert!(leases(&cluster).get_opt("bindery").await.unwrap().is_none(), "it has touched the Lease");
    weak.terminate().await;
}

#[tokio::test]
async fn given_a_lost_right_to_list_policies_nothing_is_decided_by_old_ones() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let policies = cluster.policies();
    policies.install().await;
    let user = User::new(&cluster, &proxy.kubeconfig()).await;
    user.lacks(None).await;
    let (group, verbs) = ("policy.bindery.dev", ["list", "watch", "patch"]);
    let rules = |group: &str| json!([{"apiGroups": [group], "resources": ["*"], "verbs": verbs}]);
    user.bind("namespaces", &rules("")).await;
    user.bind("policies", &rules(group)).await;
    user.until_reviewed(group, "engines", "list", true).await;
    let at_most = |times: u32| json!({"module": "builtin:at-most-n-times", "settings": {"times": times}});
    policies.apply("MatchPolicy", "size", at_most(9)).await;
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let arguments = ["--policy-objects=true", "--policies", &shipped, "--lease-duration=15"];
    let mut weak = Replica::start(&user.kubeconfig, "weak", &arguments, &[]);
    weak.until_leading().await;
    policies.until_ready("MatchPolicy", "size", "Loaded").await;
    cluster.create_available_volume("v", "5Gi").await;

    let binding = format!("/apis/{RBAC}/v1/clusterrolebindings/policies");
    cluster.delete(&binding).await.unwrap();
    user.until_reviewed(group, "engines", "list", false).await;
    // The API server ends no watch that is open.
    proxy.cut();
    until_lacking(&mut weak, "list engines").await;
    weak.until_following().await;
    policies.apply("MatchPolicy", "size", at_most(2)).await;
    cluster.create_claim("c", "1Gi").await;
    user.bind("policies-again", &rules(group)).await;
    weak.until_leading().await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: size 1").await;
    weak.terminate().await;
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
    let (mut leader, mut next) = leader_and_next(&cluster, &proxy, &[]).await;
    proxy.set_faults(|_: &Request| refuse(StatusCode::UNAUTHORIZED));
    proxy.cut();
    let cause = "its credentials are refused";
    until_handed_over(&mut leader, &mut next, cause).await;
    let (status, answer) = leader.until_answer("/readyz", "[+]lists ok\n[-]credentials failed: ").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert!(answer.contains(&format!("this replica cannot lead: {cause}")), "{answer}");
    proxy.set_faults(NoFaults);
    leader.until_ready().await;
}

#[tokio::test]
async fn a_leader_whose_list_stays_incomplete_hands_over() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let (mut leader, mut next) = leader_and_next(&cluster, &proxy, &[]).await;
    // The watches of volumes expire, and their lists fail.
    proxy.set_faults(|request: &Request| {
        if request.method != Method::GET || request.path != "/api/v1/persistentvolumes" {
            return RequestFault::None;
        }
        let is_list = !request.is_watch() || request.query.contains("sendInitialEvents=true");
        refuse(if is_list { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::GONE })
    });
    proxy.cut();
    until_handed_over(&mut leader, &mut next, "the list of PersistentVolume is not complete").await;
    cluster.bind_pair("later").await;
    proxy.set_faults(NoFaults);
    leader.until_ready().await;
}

#[tokio::test]
async fn a_leader_that_cannot_begin_to_decide_hands_over() {
    let (cluster, proxy) = cluster_and_proxy().await;
    // A new leader reads the newest version of each kind.
    proxy.set_faults(|request: &Request| match &*request.query {
        "limit=1" => refuse(StatusCode::INTERNAL_SERVER_ERROR),
        _ => RequestFault::None,
    });
    let (mut leader, mut next) = leader_and_next(&cluster, &proxy, &[]).await;
    until_handed_over(&mut leader, &mut next, "it led for 20 s and did not begin to decide").await;
    cluster.bind_pair("later").await;
}

#[tokio::test]
async fn a_leader_whose_writes_alone_fail_hands_over() {
    let (cluster, proxy) = cluster_and_proxy().await;
    let (mut leader, mut next) = leader_and_next(&cluster, &proxy, &["--lease-duration=15"]).await;
    proxy.set_faults(
        |request: &Request| {
            if request.is_write() { refuse(StatusCode::BAD_GATEWAY) } else { RequestFault::None }
        },
    );
    // A failure of one object says nothing about the others.
    cluster.create_pairs("waiting", 2).await;
    until_handed_over(&mut leader, &mut next, "its writes failed, and another replica could lead").await;
    cluster.until_pairs_are_bound("waiting", 2).await;
    next.check();
}

#[tokio::test]
async fn a_leader_that_steps_down_ends_its_writes_before_the_next_one_leads() {
    let (cluster, proxy) = cluster_and_proxy().await;
    // The takeover comes six seconds after the last write has ended.
    let (leader, mut next) = leader_and_next(&cluster, &proxy, &["--lease-duration=30"]).await;
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

#[tokio::test]
async fn a_blocked_start_is_live_names_its_cause_and_ends_by_a_signal() {
    // The kernel accepts connections, but no program answers.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = json!({"server": format!("https://{}", silent.local_addr().unwrap())});
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("kubeconfig");
    // The policies cannot be loaded while this pipe has no writer.
    let pipe = folder.path().join("policy.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = format!("--policy={}", pipe.display());
    let token = json!({"token": "t"});
    for (user, option, told) in [
        (&token, "--in-flight=1", "[-]lists failed: the first list is not complete of: PersistentVolume, "),
        (&exec("sleep", &["3600"]), "--in-flight=1", "[-]start failed: it waits for the credentials"),
        (&token, &pipe, "[-]start failed: it waits for the compilation of the engine and the policies"),
    ] {
        for mode in ["--mode=own", "--mode=observe"] {
            std::fs::write(&path, kubeconfig(&server, user).to_string()).unwrap();
            let mut replica = Replica::start(&path, "first", &[mode, option], &[]);
            assert_eq!(replica.until_answer("/readyz", told).await.0, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(replica.probe("/livez").await, (StatusCode::OK, "ok".to_owned()));
            replica.terminate().await;
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
