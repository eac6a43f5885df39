//! Which replica leads: a request that stays unanswered costs no leadership, a replica that cannot decide or
//! write does not hold the Lease, and one that stands down has ended what it wrote before the next one leads.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bindery_cluster::{Answered, Asked, Before, ControlPlane, Fair, Manager, Programs, Proxy, Weather};
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

use super::world::{PATIENCE, Replica, World, is_bound_to, until};

/// Longer than a test.
const FOR_EVER: Duration = Duration::from_secs(3_600);
/// What a replica needs: group, resource and verbs.
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

fn is_renewal(asked: &Asked) -> bool {
    asked.method == Method::PUT && asked.path.ends_with("/leases/bindery")
}

async fn plane() -> (ControlPlane, World, Proxy) {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let (world, proxy) = (World::new(&plane).await, Proxy::start(&plane).await.unwrap());
    (plane, world, proxy)
}

async fn leases(plane: &ControlPlane) -> Api<Lease> {
    Api::namespaced(plane.client().await.unwrap(), "kube-system")
}

/// Waits until the Lease has been renewed since; answers its spec.
async fn until_renewed(leases: &Api<Lease>, since: &LeaseSpec) -> LeaseSpec {
    let is_renewed = |lease: &Lease| {
        let spec = lease.spec.as_ref();
        spec.is_some_and(|spec| spec.renew_time != since.renew_time)
    };
    until(leases, "bindery", is_renewed).await.spec.unwrap()
}

/// Never answers one renewal, and tells when it came.
struct Unanswered {
    came: watch::Sender<bool>,
}

impl Weather for Unanswered {
    fn before(&self, asked: &Asked) -> Before {
        if is_renewal(asked) && !self.came.send_replace(true) {
            return Before::Delay(FOR_EVER);
        }
        Before::Pass
    }
}

#[tokio::test]
async fn neither_one_unanswered_renewal_nor_dead_connections_cost_the_leadership() {
    let (plane, _, proxy) = plane().await;
    let leases = leases(&plane).await;
    // So long that no pause of the machine costs it either.
    let lease = ["--lease-duration=15".to_owned()];
    let mut leader = Replica::start_with(&proxy.kubeconfig(), "first", &lease, &[]);
    leader.until_leading().await;
    let mut next = Replica::start_with(&plane.kubeconfig(), "second", &lease, &[]);
    next.until_told("/readyz", "ok").await;
    let mut spec = until(&leases, "bindery", |_| true).await.spec.unwrap();
    let transitions = spec.lease_transitions;

    let (came, mut has_come) = watch::channel(false);
    proxy.set_weather(Unanswered { came });
    tokio::time::timeout(PATIENCE, has_come.wait_for(|come| *come)).await.unwrap().unwrap();
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
    plane: kube::Client,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl User {
    /// One that asks as a kubeconfig says, but under a name of its own.
    async fn new(plane: &ControlPlane, kubeconfig: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        let mut changed: Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
        changed["users"][0]["user"]["as"] = "weak".into();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, changed.to_string()).unwrap();
        let user = Self { plane: plane.client().await.unwrap(), kubeconfig, _folder: folder };
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
        Api::all(self.plane.clone()).create(&PostParams::default(), &object).await.unwrap()
    }

    /// Gives the user every right but one, or all; ends when the API server goes by that.
    async fn lacks(&self, lacking: Option<(&str, &str)>) {
        let rules = RIGHTS.iter().map(|&(group, resource, verbs)| {
            let verbs: Vec<_> = verbs.iter().filter(|&&verb| lacking != Some((resource, verb))).collect();
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
        });
        let rules: Vec<_> = rules.filter(|rule| rule["verbs"] != json!([])).collect();
        let roles = Api::<ClusterRole>::all(self.plane.clone());
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
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let reviewed = async {
            loop {
                ticks.tick().await;
                let answer: SubjectAccessReview = self.create(review.clone()).await;
                if answer.status.unwrap().allowed == allowed {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reviewed).await.expect("the API server hears of the role");
    }
}

/// Waits until a replica tells that this right keeps it from leading.
async fn until_lacking(replica: &mut Replica, right: &str) {
    replica.until_metrics(&format!("bindery_cannot_lead{{cause=\"it may not {right}\"}} 1\n")).await;
    let (status, told) = replica.probe("/readyz").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{told}");
    let failed = format!("[-]candidate failed: this replica cannot lead: it may not {right}");
    assert!(told.contains(&failed), "no {failed:?} in {told}");
}

#[tokio::test]
async fn a_replica_that_cannot_decide_or_write_leaves_the_lease_to_one_that_can() {
    let (plane, world, proxy) = plane().await;
    let user = User::new(&plane, &proxy.kubeconfig()).await;
    user.lacks(Some(("persistentvolumes", "watch"))).await;
    let mut weak = Replica::start_with(&user.kubeconfig, "weak", &[], &[]);
    until_lacking(&mut weak, "watch persistentvolumes").await;
    assert!(leases(&plane).await.get_opt("bindery").await.unwrap().is_none(), "it has touched the Lease");

    for (resource, verb) in [("persistentvolumeclaims", "patch"), ("persistentvolumes", "watch")] {
        user.lacks(None).await;
        weak.until_leading().await;
        weak.until_told("/readyz", "ok").await;
        let mut healthy = Replica::start(&plane, "healthy");
        healthy.until_told("/readyz", "ok").await;

        user.lacks(Some((resource, verb))).await;
        if verb == "watch" {
            // The API server ends no watch that is open.
            proxy.cut();
        }
        world.create_volume(resource, "1Gi").await;
        world.create_claim(resource, "1Gi").await;
        world.until_claim(resource, is_bound_to(resource)).await;
        healthy.until_leading().await;
        until_lacking(&mut weak, &format!("{verb} {resource}")).await;
        weak.until_following().await;
        healthy.signal(Signal::TERM);
        assert!(healthy.wait().await.success());
    }
    // Where no other replica could lead, the Lease is taken again by this one once it could.
    user.lacks(None).await;
    weak.until_leading().await;
    user.lacks(Some(("leases", "update"))).await;
    until_lacking(&mut weak, "update leases kube-system/bindery").await;
    weak.until_following().await;
}

/// What becomes of reviews of rights.
struct Reviews(Before);

impl Weather for Reviews {
    fn before(&self, asked: &Asked) -> Before {
        if asked.path.ends_with("/selfsubjectaccessreviews") { self.0.clone() } else { Before::Pass }
    }
}

#[tokio::test]
async fn where_rights_are_not_reviewed_a_replica_leads_all_the_same() {
    let (_plane, _, proxy) = plane().await;
    let answer = |status: StatusCode| {
        let body = json!({"kind": "Status", "code": status.as_u16(), "message": "no reviews here"});
        Before::Answer(Answered { status, body: body.to_string().into() })
    };
    let refusals = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE];
    for review in refusals.map(answer).into_iter().chain([Before::Delay(FOR_EVER)]) {
        proxy.set_weather(Reviews(review));
        let mut replica = Replica::start_with(&proxy.kubeconfig(), "first", &[], &[]);
        replica.until_leading().await;
        replica.until_told("/readyz", "ok").await;
        replica.signal(Signal::TERM);
        assert!(replica.wait().await.success());
    }
}

/// From the first write of a claim or a volume on, neither it nor any renewal is answered.
struct Stuck {
    is_stuck: AtomicBool,
}

impl Weather for Stuck {
    fn before(&self, asked: &Asked) -> Before {
        if asked.is_write() {
            self.is_stuck.store(true, Ordering::Relaxed);
            return Before::Delay(FOR_EVER);
        }
        if is_renewal(asked) && self.is_stuck.load(Ordering::Relaxed) {
            return Before::Delay(FOR_EVER);
        }
        Before::Pass
    }
}

#[tokio::test]
async fn a_leader_that_stands_down_ends_what_it_writes_before_the_next_one_leads() {
    let (plane, world, proxy) = plane().await;
    // Between standing down and the takeover there are three seconds.
    let lease = ["--lease-duration=8".to_owned()];
    let mut leader = Replica::start_with(&proxy.kubeconfig(), "first", &lease, &[]);
    leader.until_leading().await;
    let mut next = Replica::start_with(&plane.kubeconfig(), "second", &lease, &[]);
    next.until_told("/readyz", "ok").await;
    proxy.set_weather(Stuck { is_stuck: AtomicBool::new(false) });
    world.create_volume("v", "1Gi").await;
    next.until_leading().await;
    assert!(leader.log().contains("this replica no longer leads"), "{}", leader.log());
    proxy.set_weather(Fair);
}

/// The kubeconfig of a server and a user, in a folder.
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
async fn a_blocked_start_is_alive_tells_what_it_waits_for_and_ends_by_a_signal() {
    // The system takes connections for it, and nothing answers them.
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
            let mut replica = Replica::start_with(&kubeconfig, "first", &[mode.to_owned()], &[]);
            assert_eq!(replica.until_told("/readyz", told).await.0, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(replica.probe("/livez").await, (StatusCode::OK, "ok".to_owned()));
            replica.signal(Signal::TERM);
            assert!(replica.wait().await.success(), "{mode}: {}", replica.log());
        }
    }
}

#[tokio::test]
async fn a_start_without_an_api_server_waits_for_it() {
    let (mut plane, ..) = plane().await;
    plane.api_server().kill().unwrap();
    let mut replica = Replica::start(&plane, "first");
    replica.until_told("/readyz", "[-]lists failed").await;
    plane.restart_api_server().await.unwrap();
    replica.until_leading().await;
}
