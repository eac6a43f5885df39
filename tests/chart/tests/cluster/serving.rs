//! Bindery itself under the account of a release: it has the rights that it needs, and no others.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use bindery_chart::{Objects, Right, built, granted, rendered};
use bindery_cluster::{Server, free_port};
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rights::BINDERY;
use crate::site::{ADMIN, As, LOOK_EVERY, LOOKS_MAX, Site, claim, volume};

const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/c";
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bindery";
pub(crate) const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bindery";
pub(crate) const SECRET: &str = "/api/v1/namespaces/bindery-system/secrets/bindery-tls";

/// A replica with the settings of a release. Only where it listens differs: here are no pods.
pub(crate) struct Replica {
    server: Server,
    /// Where it tells of its health.
    address: String,
    _folder: TempDir,
}

impl Replica {
    /// Starts one, once the API server goes by the rights of the release.
    pub(crate) async fn start(site: &Site, objects: &Objects) -> Self {
        until_granted(site, objects).await;
        let folder = tempfile::tempdir().unwrap();
        let settings = folder.path().join("settings.yaml");
        std::fs::write(&settings, objects.settings()).unwrap();
        let kubeconfig = write_kubeconfig(site, folder.path()).await;
        let listen = || format!("127.0.0.1:{}", free_port().unwrap());
        let address = listen();
        let arguments = [
            "serve".to_owned(),
            format!("--config={}", settings.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--listen={address}"),
            format!("--webhook-listen={}", listen()),
            "--engine=native".to_owned(),
        ];
        let log = folder.path().join("log");
        let server = Server::start(&built("bindery"), arguments.map(OsString::from), &log).unwrap();
        Self { server, address, _folder: folder }
    }

    /// Waits until all first lists are complete.
    async fn until_ready(&mut self) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        for _ in 0..LOOKS_MAX {
            looks.tick().await;
            self.server.check().unwrap();
            if self.readyz().is_ok_and(|answer| answer.starts_with("HTTP/1.0 200")) {
                return;
            }
        }
        panic!("it is never ready: {:?}\n{}", self.readyz(), self.server.log().unwrap());
    }

    /// Has it end as kubelet has pods end, and waits until it has.
    pub(crate) async fn end(mut self) {
        self.server.signal(Signal::TERM).unwrap();
        let status = self.server.wait().await.unwrap();
        assert!(status.success(), "{status}\n{}", self.server.log().unwrap());
    }

    fn readyz(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(b"GET /readyz?verbose HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Waits until what is at a path is so.
    pub(crate) async fn until(&mut self, site: &Site, path: &str, holds: impl Fn(&Value) -> bool) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut last = Ok(Value::Null);
        for _ in 0..LOOKS_MAX {
            looks.tick().await;
            self.server.check().unwrap();
            last = site.ask(ADMIN, Method::GET, path, None).await;
            if last.as_ref().is_ok_and(&holds) {
                return;
            }
        }
        panic!("{path} is never as it should be: {last:?}\n{}", self.server.log().unwrap());
    }
}

/// Waits until the API server goes by the rights of a release: it learns of roles a moment after they are
/// made.
pub(crate) async fn until_granted(site: &Site, objects: &Objects) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut pending = granted(objects);
    for _ in 0..LOOKS_MAX {
        looks.tick().await;
        let mut left = BTreeSet::new();
        for right in pending {
            if !may(site, &right).await {
                left.insert(right);
            }
        }
        if left.is_empty() {
            return;
        }
        pending = left;
    }
    panic!("granted, and denied: {pending:#?}");
}

/// Waits until the API server goes by it that a release has no rights to a resource any more.
pub(crate) async fn until_denied(site: &Site, objects: &Objects, resource: &str) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut granted: Vec<_> =
        granted(objects).into_iter().filter(|right| right.resource == resource).collect();
    for _ in 0..LOOKS_MAX {
        looks.tick().await;
        let mut left = Vec::new();
        for right in granted {
            if may(site, &right).await {
                left.push(right);
            }
        }
        if left.is_empty() {
            return;
        }
        granted = left;
    }
    panic!("not granted, and allowed: {granted:#?}");
}

async fn may(site: &Site, right: &Right) -> bool {
    let (resource, group) = right.resource.split_once(" (").unwrap_or((&right.resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": BINDERY.user,
            "groups": BINDERY.groups,
            "resourceAttributes": {
                "namespace": right.namespace.as_deref().unwrap_or_default(),
                "group": group.trim_end_matches(')'),
                "resource": resource,
                "subresource": subresource,
                "name": right.name.as_deref().unwrap_or_default(),
                "verb": right.verb,
            },
        },
    });
    site.create(&review, "").await.unwrap()["status"]["allowed"] == true
}

/// A kubeconfig with the token that pods of the release have.
async fn write_kubeconfig(site: &Site, folder: &Path) -> PathBuf {
    let path = "/api/v1/namespaces/bindery-system/serviceaccounts/bindery/token";
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let answer = site.ask(ADMIN, Method::POST, path, Some(&request)).await.unwrap();
    let mut kubeconfig = site.kubeconfig();
    kubeconfig["users"][0]["user"] = json!({"token": answer["status"]["token"]});
    let file = folder.join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

pub(crate) fn bundles(configuration: &Value) -> Vec<&str> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks.filter_map(|webhook| webhook["clientConfig"]["caBundle"].as_str()).collect()
}

/// Everything but pods: the namespace, the account and its rights, what Bindery fills.
const KINDS: [&str; 7] = [
    "ServiceAccount",
    "Secret",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingWebhookConfiguration",
];

/// Whether a request of the audit log is one that this right permits.
fn permits(right: &Right, event: &Value) -> bool {
    let asked = &event["objectRef"];
    let text = |field: &str| asked[field].as_str().unwrap_or_default();
    let resource = [text("resource"), text("subresource")].join("/");
    let resource = resource.trim_end_matches('/');
    let resource = match text("apiGroup") {
        "" => resource.to_owned(),
        group => format!("{resource} ({group})"),
    };
    right.verb == event["verb"].as_str().unwrap_or_default()
        && right.resource == resource
        && right.namespace.as_ref().is_none_or(|namespace| namespace == text("namespace"))
        && right.name.as_ref().is_none_or(|name| name == text("name"))
}

/// One verb too few and something is forbidden; one too many and it is never used.
#[tokio::test]
async fn a_release_has_the_rights_that_it_uses_and_no_others() {
    // An API server that streams no lists, as by default before 1.34, so that they are fetched.
    let site = Site::start_with(&["--feature-gates=WatchList=false"]).await;
    let objects = rendered(&json!({"mode": "own", "recycling": {"enabled": true}}));
    site.install(&objects, &KINDS).await;
    let mut replica = Replica::start(&site, &objects).await;
    // Its certificates, into what the chart has made for them.
    replica.until(&site, CONFIGURATION, |configuration| bundles(configuration).len() == 2).await;
    replica
        .until(&site, SECRET, |secret| secret["data"].as_object().is_some_and(|data| !data.is_empty()))
        .await;

    // Nobody answers reviews here, so objects pass by the failure policy.
    for object in [volume("v", "Recycle"), claim("default", "c", "1Gi"), claim("default", "waits", "1Ti")] {
        site.create(&object, "").await.unwrap();
    }
    replica.until(&site, CLAIM, |claim| claim["status"]["phase"] == "Bound").await;
    // Why the other one is not bound; again and again, in one event.
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dwaits";
    replica.until(&site, events, |events| !items(events).is_empty()).await;
    let waits = CLAIM.replace("claims/c", "claims/waits");
    site.patch(&waits, &json!({"metadata": {"labels": {"again": "yes"}}})).await.unwrap();
    replica
        .until(&site, events, |events| items(events).iter().any(|event| event["count"].as_u64() > Some(1)))
        .await;

    // Its volume is released, scrubbed and free again. There is no kubelet: the pod's end is told in its
    // place.
    site.ask(ADMIN, Method::DELETE, CLAIM, None).await.unwrap();
    site.patch(CLAIM, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    let pod = "/api/v1/namespaces/default/pods/recycler-for-v";
    replica.until(&site, pod, |pod| pod["spec"]["schedulingGates"].is_null()).await;
    site.patch(&format!("{pod}/status"), &json!({"status": {"phase": "Succeeded"}})).await.unwrap();
    replica
        .until(&site, "/api/v1/persistentvolumes/v", |volume| volume["status"]["phase"] == "Available")
        .await;

    // Somebody else does its work: an alarm.
    let foreign = json!({"status": {"phase": "Released"}});
    site.patch("/api/v1/persistentvolumes/v/status", &foreign).await.unwrap();
    replica.until(&site, LEASE, |lease| lease["metadata"]["annotations"].is_object()).await;

    until_used(&site, granted(&objects)).await;
}

/// Waits until every right has been used; nothing was forbidden until then.
async fn until_used(site: &Site, rights: BTreeSet<Right>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut unused = rights;
    for _ in 0..LOOKS_MAX {
        looks.tick().await;
        let asked = site.asked_by(BINDERY.user);
        let forbidden = asked.iter().find(|event| event["responseStatus"]["code"] == 403);
        assert_eq!(forbidden, None);
        unused.retain(|right| !asked.iter().any(|event| permits(right, event)));
        if unused.is_empty() {
            return;
        }
    }
    panic!("granted and never used: {unused:#?}");
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Who looks on may only read, but for its certificates.
#[tokio::test]
async fn a_release_that_looks_on_has_the_rights_that_it_uses_and_no_others() {
    let site = Site::start_with(&["--feature-gates=WatchList=false"]).await;
    let objects = rendered(&json!({"mode": "observe"}));
    site.install(&objects, &KINDS).await;
    let mut replica = Replica::start(&site, &objects).await;
    replica.until_ready().await;
    replica.until(&site, CONFIGURATION, |configuration| bundles(configuration).len() == 2).await;
    // What it would do with a volume whose claim is gone rests on that being so.
    let mut released = volume("v", "Recycle");
    released["spec"]["claimRef"] = json!({"namespace": "default", "name": "gone", "uid": "gone"});
    site.create(&released, "").await.unwrap();
    let phase = json!({"status": {"phase": "Released"}});
    site.patch("/api/v1/persistentvolumes/v/status", &phase).await.unwrap();
    until_used(&site, granted(&objects)).await;
}

/// The chart makes the Secret, and no replica may.
#[tokio::test]
async fn a_release_whose_secret_is_gone_binds_and_is_trusted_when_it_is_back() {
    let site = Site::start().await;
    let objects = rendered(&json!({"mode": "own"}));
    site.install(&objects, &KINDS).await;
    site.ask(ADMIN, Method::DELETE, SECRET, None).await.unwrap();
    let mut replica = Replica::start(&site, &objects).await;
    for object in [volume("v", "Retain"), claim("default", "c", "1Gi")] {
        site.create(&object, "").await.unwrap();
    }
    replica.until(&site, CLAIM, |claim| claim["status"]["phase"] == "Bound").await;
    let configuration = site.ask(ADMIN, Method::GET, CONFIGURATION, None).await.unwrap();
    assert_eq!(bundles(&configuration), [""; 0]);
    site.install(&objects, &["Secret"]).await;
    replica.until(&site, CONFIGURATION, |configuration| bundles(configuration).len() == 2).await;
}

/// What Bindery asks has seats of its own, and its Lease goes with those of all leaders.
#[tokio::test]
async fn requests_of_a_release_are_of_its_own_priority_level() {
    let site = Site::start().await;
    let objects = rendered(&json!({"mode": "own"}));
    site.install(&objects, &["PriorityLevelConfiguration", "FlowSchema"]).await;
    let another = As { user: "system:serviceaccount:bindery-system:another", ..BINDERY };
    for (who, path, schema) in [
        (BINDERY, "/api/v1/persistentvolumes", "bindery"),
        (BINDERY, CLAIM, "bindery"),
        (BINDERY, LEASE, "bindery-leases"),
        (another, "/api/v1/persistentvolumes", "service-accounts"),
    ] {
        let schema = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}");
        let schema = site.ask(ADMIN, Method::GET, &schema, None).await.unwrap();
        // An API server goes by it a moment after it was made.
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut flow = String::new();
        for _ in 0..LOOKS_MAX {
            looks.tick().await;
            flow = site.flow_of(who, path).await;
            if schema["metadata"]["uid"] == *flow {
                break;
            }
        }
        assert_eq!(schema["metadata"]["uid"], *flow, "{} at {path}", who.user);
    }
}
