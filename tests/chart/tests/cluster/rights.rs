//! The roles of a release, as the API server understands them.

use std::collections::BTreeSet;

use bindery_chart::{Objects, Right, granted, rendered};
use bindery_cluster::Cluster;
use bindery_kit::json::{merged, policy};
use http::Method;
use serde_json::{Value, json};

use crate::api_server::{Audit, User, claim, flow_schema_of, install, start, start_with, until, volume};
use crate::kinds::install_one_of_each;
use crate::replica::{CONFIGURATION, KINDS, LEASE, ReleaseReplica, SECRET, bundles};
use crate::steering::VALIDATING;

/// The service account of the release.
pub(crate) const BINDERY: User = User {
    name: "system:serviceaccount:bindery-system:bindery",
    groups: &["system:serviceaccounts", "system:serviceaccounts:bindery-system", "system:authenticated"],
};

const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/c";
const VOLUME: &str = "/api/v1/persistentvolumes/v";

/// Waits until the API server allows all these rights of the release, or denies them all. It notices a new
/// role after a moment.
pub(crate) async fn until_decided(api: &Cluster, mut rights: BTreeSet<Right>, is_allowed: bool) {
    until(&format!("allowed is {is_allowed}"), async || {
        for right in std::mem::take(&mut rights) {
            if is_permitted(api, &right).await != is_allowed {
                rights.insert(right);
            }
        }
        if rights.is_empty() { Ok(()) } else { Err(format!("{rights:#?}")) }
    })
    .await;
}

async fn is_permitted(api: &Cluster, right: &Right) -> bool {
    let (resource, group) = right.resource.split_once(" (").unwrap_or((&right.resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": BINDERY.name,
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
    api.create(&review, "").await.unwrap()["status"]["allowed"] == true
}

/// Waits until every right was used. No request may be forbidden until then.
async fn until_used(audit: &Audit, objects: &Objects) {
    let mut unused = granted(objects);
    until("every right is used", async || {
        let requests = audit.events_of(BINDERY.name);
        let forbidden = requests.iter().find(|event| event["responseStatus"]["code"] == 403);
        assert_eq!(forbidden, None);
        unused.retain(|right| !requests.iter().any(|event| permits(right, event)));
        if unused.is_empty() { Ok(()) } else { Err(format!("{unused:#?}")) }
    })
    .await;
}

fn permits(right: &Right, event: &Value) -> bool {
    let object = &event["objectRef"];
    let text = |field: &str| object[field].as_str().unwrap_or_default();
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

/// An API server with an audit log. Before 1.34 an API server does not stream lists by default, so they are
/// fetched.
async fn audited() -> (Cluster, Audit) {
    let audit = Audit::new();
    let [policy, log] = audit.arguments();
    (start_with(&["--feature-gates=WatchList=false", &policy, &log]).await, audit)
}

/// A policy that reads namespaces, and rejects nothing here; and the cluster's policies.
fn policies() -> Value {
    let tenants = policy("MatchPolicy", "tenants", &json!({"module": "builtin:reserved"}));
    json!({"documents": {"tenants": tenants.to_string()}, "objects": true})
}

/// Waits until a replica has written its certificates into the Secret and the webhook configuration of the
/// chart.
async fn until_certified(replica: &mut ReleaseReplica, api: &Cluster) {
    replica.until_trusted(api).await;
    let has_data = |secret: &Value| secret["data"].as_object().is_some_and(|data| !data.is_empty());
    replica.until(api, SECRET, has_data).await;
}

/// Waits until an event says why claim `waits` waits, and the next decision increases its count.
async fn until_told_twice(replica: &mut ReleaseReplica, api: &Cluster) {
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dwaits";
    let counts_to = |count: u64| {
        move |events: &Value| {
            let mut events = events["items"].as_array().into_iter().flatten();
            events.any(|event| event["count"].as_u64() >= Some(count))
        }
    };
    replica.until(api, events, counts_to(1)).await;
    let waits = CLAIM.replace("claims/c", "claims/waits");
    api.patch(&waits, &json!({"metadata": {"labels": {"again": "yes"}}})).await.unwrap();
    replica.until(api, events, counts_to(2)).await;
}

/// A missing verb shows as a forbidden request, a superfluous one is never used.
#[tokio::test]
async fn a_release_in_mode_own_uses_every_right_and_needs_no_other() {
    let (api, audit) = audited().await;
    let values = json!({"mode": "own", "recycling": {"enabled": true}, "policies": policies()});
    let objects = rendered(&values);
    install(&api, &objects, &KINDS).await;
    install_one_of_each(&api, &objects).await;
    let mut replica = ReleaseReplica::start(&api, &objects).await;
    until_certified(&mut replica, &api).await;

    // No review reaches the replica, so the failure policy admits these objects.
    for object in [volume("v", "Recycle"), claim("default", "c", "1Gi"), claim("default", "waits", "1Ti")] {
        api.create(&object, "").await.unwrap();
    }
    replica.until(&api, CLAIM, |claim| claim["status"]["phase"] == "Bound").await;
    until_told_twice(&mut replica, &api).await;

    // The volume is released, scrubbed and available again. Without a kubelet the test ends the pod.
    api.delete(CLAIM).await.unwrap();
    api.patch(CLAIM, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    let pod = "/api/v1/namespaces/default/pods/recycler-for-v";
    replica.until(&api, pod, |pod| pod["spec"]["schedulingGates"].is_null()).await;
    api.patch(&format!("{pod}/status"), &json!({"status": {"phase": "Succeeded"}})).await.unwrap();
    replica.until(&api, VOLUME, |volume| volume["status"]["phase"] == "Available").await;

    // A write of another binder makes the replica annotate the Lease.
    let foreign = json!({"status": {"phase": "Released"}});
    api.patch(&format!("{VOLUME}/status"), &foreign).await.unwrap();
    replica.until(&api, LEASE, |lease| lease["metadata"]["annotations"].is_object()).await;

    until_used(&audit, &objects).await;
}

#[tokio::test]
async fn a_release_in_mode_observe_uses_every_right_and_needs_no_other() {
    let (api, audit) = audited().await;
    let objects = rendered(&json!({"mode": "observe", "policies": {"objects": true}}));
    install(&api, &objects, &KINDS).await;
    install_one_of_each(&api, &objects).await;
    let mut replica = ReleaseReplica::start(&api, &objects).await;
    replica.replica.until_ready().await;
    replica.until_trusted(&api).await;
    // For a released volume it reads the claim live.
    let mut released = volume("v", "Recycle");
    released["spec"]["claimRef"] = json!({"namespace": "default", "name": "gone", "uid": "gone"});
    api.create(&released, "").await.unwrap();
    api.patch(&format!("{VOLUME}/status"), &json!({"status": {"phase": "Released"}})).await.unwrap();
    // For a bound claim without its volume it reads the volume live.
    let mut lost = claim("default", "c", "1Gi");
    lost["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    lost["spec"]["volumeName"] = "gone".into();
    api.create(&lost, "").await.unwrap();
    until_used(&audit, &objects).await;
}

/// The policy of the account, which limits what the rights allow, denies no write either.
#[tokio::test]
async fn a_release_in_mode_steer_uses_every_right_and_needs_no_other() {
    let (api, audit) = audited().await;
    let steer = json!({"admission": "webhook", "classes": [""]});
    let objects = rendered(&json!({"mode": "steer", "steer": steer, "policies": policies()}));
    install(&api, &objects, &KINDS).await;
    install_one_of_each(&api, &objects).await;
    install(&api, &objects, &VALIDATING).await;
    install(&api, &objects, &["MutatingWebhookConfiguration"]).await;
    let mut replica = ReleaseReplica::start(&api, &objects).await;
    until_certified(&mut replica, &api).await;

    // No request for steering reaches the replica, so the claims are steered as they are created.
    let steered = |name: &str, storage: &str| {
        let needed = json!({"key": format!("{name}.default.steer.bindery.dev/claim"), "operator": "Exists"});
        merged(claim("default", name, storage), json!({"spec": {"selector": {"matchExpressions": [needed]}}}))
    };
    let mut unfit = volume("unfit", "Retain");
    unfit["spec"]["claimRef"] = json!({"namespace": "default", "name": "waits"});
    for object in [volume("v", "Retain"), unfit, steered("c", "1Gi"), steered("waits", "1Ti")] {
        api.create(&object, "").await.unwrap();
    }
    let available = json!({"status": {"phase": "Available"}});
    api.patch(&format!("{VOLUME}/status"), &available).await.unwrap();
    replica.until(&api, VOLUME, |volume| volume["spec"]["claimRef"]["name"] == "c").await;
    until_told_twice(&mut replica, &api).await;
    // After its last touch no write for the claim is on its way when it is gone.
    replica.replica.until_metric("bindery_steer_touches_total", |touches| touches >= 4).await;
    // A reservation that nothing needs is removed.
    api.delete(CLAIM).await.unwrap();
    api.patch(CLAIM, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    replica.until(&api, VOLUME, |volume| volume["spec"]["claimRef"].is_null()).await;
    assert_eq!(replica.replica.metric("bindery_write_errors_total").await, 0);
    until_used(&audit, &objects).await;
}

/// No replica may create the Secret, which belongs to the chart.
#[tokio::test]
async fn a_release_without_its_secret_binds_and_is_trusted_once_it_is_back() {
    let api = start().await;
    let objects = rendered(&json!({"mode": "own"}));
    install(&api, &objects, &KINDS).await;
    api.delete(SECRET).await.unwrap();
    let mut replica = ReleaseReplica::start(&api, &objects).await;
    for object in [volume("v", "Retain"), claim("default", "c", "1Gi")] {
        api.create(&object, "").await.unwrap();
    }
    replica.until(&api, CLAIM, |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(bundles(&api.get(CONFIGURATION).await.unwrap()), [""; 0]);
    install(&api, &objects, &["Secret"]).await;
    replica.until_trusted(&api).await;
}

/// Bindery's requests have seats of their own, and its Lease shares those of all leaders.
#[tokio::test]
async fn requests_of_a_release_have_their_own_priority_level() {
    let api = start().await;
    let objects = rendered(&json!({"mode": "own"}));
    install(&api, &objects, &["PriorityLevelConfiguration", "FlowSchema"]).await;
    let another = User { name: "system:serviceaccount:bindery-system:another", ..BINDERY };
    for (user, path, schema) in [
        (BINDERY, "/api/v1/persistentvolumes", "bindery"),
        (BINDERY, CLAIM, "bindery"),
        (BINDERY, LEASE, "bindery-leases"),
        (another, "/api/v1/persistentvolumes", "service-accounts"),
    ] {
        let schema = api.get(&format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}")).await;
        let uid = schema.unwrap()["metadata"]["uid"].clone();
        // An API server uses a new flow schema after a moment.
        until(&format!("{} has the flow schema {uid} at {path}", user.name), async || {
            let found = flow_schema_of(&api, user, path).await;
            if uid == *found { Ok(()) } else { Err(found) }
        })
        .await;
    }
}

/// To list or watch one object by its name is a request for the whole kind, which a role can limit to the
/// name.
#[tokio::test]
async fn a_release_may_list_its_own_objects_by_name_and_no_others() {
    const SECRETS: &str = "/api/v1/namespaces/bindery-system/secrets";
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let api = start().await;
    let objects = rendered(&json!({"mode": "own"}));
    install(&api, &objects, &KINDS).await;
    until_decided(&api, granted(&objects), true).await;
    let metadata = json!({"namespace": "bindery-system", "name": "other"});
    api.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}), "").await.unwrap();
    for (path, is_allowed) in [
        (SECRET.to_owned(), true),
        (format!("{SECRETS}?fieldSelector=metadata.name%3Dbindery-tls"), true),
        (format!("{SECRETS}/other"), false),
        (format!("{SECRETS}?fieldSelector=metadata.name%3Dother"), false),
        (SECRETS.to_owned(), false),
        ("/api/v1/namespaces/kube-system/secrets/bindery-tls".to_owned(), false),
        (format!("{CONFIGURATIONS}?fieldSelector=metadata.name%3Dbindery"), true),
        (format!("{CONFIGURATIONS}?fieldSelector=metadata.name%3Dother"), false),
        (CONFIGURATIONS.to_owned(), false),
    ] {
        let answer = api.send(BINDERY.request(Method::GET, &path, &Value::Null)).await;
        assert_eq!(answer.is_ok(), is_allowed, "{path}: {answer:?}");
        assert!(is_allowed || answer.unwrap_err().contains("forbidden"), "{path}");
    }
}
