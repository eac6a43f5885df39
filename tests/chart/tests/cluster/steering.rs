//! Steering of new claims, by the API server's own policy and by Bindery's webhook: both do the same.

use bindery_chart::{Objects, Operator, rendered};
use bindery_cluster::Cluster;
use bindery_kit::json;
use http::Method;
use serde_json::{Value, json};

use crate::api_server::{ADMIN, User, create_namespace, install, start, until};
use crate::replica::{KINDS, ReleaseReplica};

const MUTATING: [&str; 2] = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];
pub(crate) const VALIDATING: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
const UNSTEERED: &str = "Bindery does not steer this claim";
const STEERING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/bindery-steer";

/// Values by which claims of some classes are steered.
fn values(admission: &str) -> Value {
    json!({"mode": "steer", "steer": {
        "admission": admission,
        "classes": ["", "local", "csi", "waits", "gone"],
        "staticClasses": ["manual", "csi-static"],
    }})
}

/// The key that steers a claim of namespace `shop`.
pub(crate) fn key(name: &str) -> String {
    format!("{name}.shop.steer.bindery.dev/claim")
}

fn claim(namespace: &str, name: &str, spec: Value) -> Value {
    json::claim(name, json!({"metadata": {"namespace": namespace}, "spec": spec}))
}

fn local(name: &str) -> Value {
    claim("shop", name, json!({"storageClassName": "local"}))
}

/// Whether the selector of a claim requires its key.
fn is_steered(claim: &Value) -> bool {
    let name = claim["metadata"]["name"].as_str().unwrap();
    let needed = claim["spec"]["selector"]["matchExpressions"].as_array();
    needed.is_some_and(|needed| needed.contains(&json!({"key": key(name), "operator": "Exists"})))
}

/// An API server with classes, and a namespace whose claims are steered.
async fn prepared() -> Cluster {
    let api = start().await;
    create_namespace(&api, "shop").await;
    let label = json!({"metadata": {"labels": {"bindery.dev/steer": "true"}}});
    api.patch("/api/v1/namespaces/shop", &label).await.unwrap();
    let none = "kubernetes.io/no-provisioner";
    for (name, provisioner, mode) in [
        ("local", none, "Immediate"),
        ("other", none, "Immediate"),
        ("waits", none, "WaitForFirstConsumer"),
        ("csi", "csi.example.com", "Immediate"),
        ("csi-static", "csi.example.com", "Immediate"),
    ] {
        let class = json::class(name, provisioner, json!({"volumeBindingMode": mode}));
        api.create(&class, "").await.unwrap();
    }
    api
}

async fn until_steered(api: &Cluster) {
    // The API server reads each policy and each binding on its own.
    for class in ["local", "csi-static"] {
        until("claims are steered", async || {
            let probe = claim("shop", "probe", json!({"storageClassName": class}));
            let created = api.create(&probe, "dryRun=All").await?;
            if is_steered(&created) { Ok(()) } else { Err(created.to_string()) }
        })
        .await;
    }
    until("the author of a claim that is not steered is told", async || {
        let told = warning(api, &local(&"a".repeat(231)));
        if told.contains(UNSTEERED) { Ok(()) } else { Err(told) }
    })
    .await;
}

/// What kubectl says of a claim that the API server would take.
fn warning(api: &Cluster, claim: &Value) -> String {
    let output = api.kubectl(&["create", "--dry-run=server", "--filename=-"], &claim.to_string());
    String::from_utf8(output.stderr).unwrap()
}

/// An API server that limits what is written, and steers nothing.
pub(crate) async fn limited() -> Cluster {
    let api = prepared().await;
    install(&api, &rendered(&values("policy")), &VALIDATING).await;
    let of_other = json!({"matchExpressions": [{"key": key("d"), "operator": "Exists"}]});
    let object = claim("shop", "c", json!({"storageClassName": "local", "selector": of_other}));
    until("a key of another claim is refused", async || {
        let answer = api.create(&object, "dryRun=All").await;
        if answer.is_err() { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    api
}

/// An API server that has a replica steer.
async fn steered_by_webhook() -> (Cluster, ReleaseReplica) {
    let api = prepared().await;
    let objects = rendered(&values("webhook"));
    install(&api, &objects, &KINDS).await;
    let mut replica = ReleaseReplica::start(&api, &objects).await;
    replica.replica.until_ready().await;
    api.create(&steering_on_loopback(&objects, replica.port), "").await.unwrap();
    let trusts = |webhook: &Value| webhook["clientConfig"]["caBundle"].is_string();
    replica.until(&api, STEERING, |found| found["webhooks"].as_array().unwrap().iter().all(trusts)).await;
    until_steered(&api).await;
    (api, replica)
}

/// The chart's configuration, for a replica that runs beside the API server.
fn steering_on_loopback(objects: &Objects, port: u16) -> Value {
    let mut steering = objects.get("MutatingWebhookConfiguration/bindery-steer").unwrap().clone();
    for webhook in steering["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/mutate")});
    }
    steering
}

async fn check_scope(api: &Cluster) {
    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    for (namespace, spec, expected) in [
        ("shop", json!({"storageClassName": "local"}), true),
        ("shop", json!({"storageClassName": ""}), true),
        ("shop", json!({"storageClassName": "manual"}), true),
        ("shop", json!({"storageClassName": "csi-static"}), true),
        ("shop", json!({"storageClassName": "other"}), false),
        ("shop", json!({"storageClassName": "csi"}), false),
        ("shop", json!({"storageClassName": "waits"}), true),
        ("shop", json!({"storageClassName": "gone"}), false),
        ("shop", json!({"storageClassName": null}), false),
        ("shop", json!({"storageClassName": "local", "volumeName": "v"}), false),
        ("shop", json!({"storageClassName": "local", "dataSource": source}), false),
        ("default", json!({"storageClassName": "local"}), false),
        ("kube-system", json!({"storageClassName": "local"}), false),
    ] {
        let created = api.create(&claim(namespace, "c", spec.clone()), "dryRun=All").await.unwrap();
        assert_eq!(is_steered(&created), expected, "{namespace}: {spec}");
        assert!(expected || created["spec"]["selector"].is_null(), "{created}");
    }
    let beta = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "other"}}});
    let created = api.create(&json::merged(local("c"), beta), "dryRun=All").await.unwrap();
    assert!(!is_steered(&created), "{created}");
}

/// The API server generates a name only after requests have been changed.
async fn check_names(api: &Cluster) {
    let mut generated = local("");
    generated["metadata"] = json!({"namespace": "shop", "generateName": "g-"});
    for (object, expected) in
        [(generated, false), (local(&"a".repeat(230)), true), (local(&"a".repeat(231)), false)]
    {
        let created = api.create(&object, "dryRun=All").await.unwrap();
        assert!(created["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty()));
        assert_eq!(is_steered(&created), expected, "{created}");
        let told = warning(api, &object);
        assert_eq!(told.contains(UNSTEERED), !expected, "{told}");
    }
}

/// A selector with a hundred requirements gets one more, and gets it back.
fn check_large_selector(operator: &Operator) {
    let requirement = |n: usize| json!({"key": format!("example.com/{n}"), "operator": "DoesNotExist"});
    let hundred: Vec<_> = (0..100).map(requirement).collect();
    let selector = json!({"matchExpressions": hundred});
    let object = claim("shop", "hundred", json!({"storageClassName": "local", "selector": selector}));
    for command in ["create", "replace"] {
        let printed = operator.kubectl(&[command, "--filename=-", "--output=json"], &object.to_string());
        let written: Value = serde_json::from_str(&printed.unwrap()).unwrap();
        assert!(is_steered(&written), "{command}");
        assert_eq!(written["spec"]["selector"]["matchExpressions"].as_array().unwrap().len(), 101);
    }
}

/// A claim that ends without the requirement is a plain one: here because the policy that adds it is gone.
/// Its author is told, and the API server counts it. Policies run in no fixed order, so another one that
/// drops the requirement would not always come last.
async fn check_unsteered(api: &Cluster) {
    let source = json!({"kind": "PersistentVolumeClaim", "name": "s"});
    let filled = claim("shop", "filled", json!({"storageClassName": "local", "dataSource": source}));
    let told = warning(api, &filled);
    assert!(told.contains(UNSTEERED), "{told}");
    api.kubectl(&["delete", "mutatingadmissionpolicybindings", "--all"], "");
    until("nothing adds the requirement", async || {
        let created = api.create(&local("plain"), "dryRun=All").await?;
        if is_steered(&created) { Err(created.to_string()) } else { Ok(()) }
    })
    .await;
    let counted = || {
        let metrics = api.kubectl(&["get", "--raw", "/metrics"], "").stdout;
        let metrics = String::from_utf8(metrics).unwrap();
        let is_ours = |line: &&str| {
            line.starts_with("apiserver_validating_admission_policy_check_total")
                && line.contains("unsteered")
        };
        let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        metrics.lines().filter(is_ours).filter_map(count).sum::<f64>()
    };
    let before = counted();
    let output = api.kubectl(&["create", "--filename=-"], &local("plain").to_string());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(UNSTEERED), "{told}");
    assert!(counted() > before);
    let path = "/api/v1/namespaces/shop/persistentvolumeclaims/plain";
    assert!(api.get(path).await.unwrap()["spec"]["selector"].is_null());
}

/// The rest of a selector stays, and the requirement outlives what people and GitOps tools do.
fn check_tools(operator: &Operator) {
    let kubectl = |arguments: &[&str], object: &Value| {
        let arguments = [arguments, &["--filename=-", "--output=json"][..]].concat();
        let printed = operator.kubectl(&arguments, &object.to_string());
        printed.map(|printed| serde_json::from_str::<Value>(&printed).unwrap())
    };
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let selector = json!({"matchLabels": {"disk": "ssd"}, "matchExpressions": [zone]});
    let with = |name| claim("shop", name, json!({"storageClassName": "local", "selector": selector}));
    let expected = |name| {
        let needed = json!({"key": key(name), "operator": "Exists"});
        json!({"matchLabels": {"disk": "ssd"}, "matchExpressions": [zone, needed]})
    };
    for (name, apply) in [("client", &["apply"][..]), ("server", &["apply", "--server-side"])] {
        for _ in 0..2 {
            let applied = kubectl(apply, &with(name)).unwrap();
            assert_eq!(applied["spec"]["selector"], expected(name), "{apply:?}");
        }
        let replaced = kubectl(&["replace"], &with(name)).unwrap();
        assert_eq!(replaced["spec"]["selector"], expected(name));
        // The rest cannot change, as without Bindery.
        let mut changed = with(name);
        changed["spec"]["selector"]["matchLabels"]["disk"] = "hdd".into();
        let why = kubectl(&["replace"], &changed).unwrap_err();
        assert!(why.contains("spec is immutable"), "{why}");
    }
    // What is steered stays so in a namespace that is out of scope now.
    operator.kubectl(&["label", "namespace", "shop", "bindery.dev/steer-"], "").unwrap();
    let replaced = kubectl(&["replace"], &with("server")).unwrap();
    assert_eq!(replaced["spec"]["selector"], expected("server"));
    operator.kubectl(&["label", "namespace", "shop", "bindery.dev/steer=true"], "").unwrap();
}

#[tokio::test]
async fn the_api_servers_own_policy_steers_as_documented() {
    let api = prepared().await;
    if !api.has_mutating_policies().await {
        return;
    }
    let objects = rendered(&values("policy"));
    install(&api, &objects, &MUTATING).await;
    install(&api, &objects, &VALIDATING).await;
    until_steered(&api).await;
    check_scope(&api).await;
    check_names(&api).await;
    check_large_selector(&Operator::new(api.kubeconfig()));
    check_tools(&Operator::new(api.kubeconfig()));
    check_unsteered(&api).await;
}

#[tokio::test]
async fn claims_that_cannot_be_steered_are_refused_on_demand() {
    const LATE: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/late";
    const UPSTREAM: User = User {
        name: "system:serviceaccount:kube-system:persistent-volume-binder",
        groups: &["system:masters"],
    };
    let api = prepared().await;
    let without_class = |name| claim("shop", name, json!({"storageClassName": null}));
    api.create(&without_class("late"), "").await.unwrap();
    let denying = json!({"steer": {"unsteered": "Deny"}});
    install(&api, &rendered(&json::merged(values("policy"), denying)), &VALIDATING).await;
    let source = json!({"kind": "PersistentVolumeClaim", "name": "s"});
    let of_static = json!({"storageClassName": "manual", "dataSource": source});
    let get_class = |user: User| {
        let request = user.request(Method::PATCH, LATE, &json!({"spec": {"storageClassName": "local"}}));
        api.send(request)
    };
    let is_refused = |answer: Result<Value, String>| match answer {
        Err(why) if why.contains(UNSTEERED) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    // The API server reads each policy and each binding on its own.
    for refused in [local("plain"), claim("shop", "filled", of_static), without_class("plain")] {
        until("it is refused", async || is_refused(api.create(&refused, "dryRun=All").await)).await;
    }
    is_refused(get_class(ADMIN).await).unwrap();
    let label = json!({"metadata": {"labels": {"team": "a"}}});
    api.patch(LATE, &label).await.unwrap();
    let given = get_class(UPSTREAM).await.unwrap();
    assert_eq!(given["spec"]["storageClassName"], "local");
    api.patch(LATE, &json!({"metadata": {"labels": {"team": "b"}}})).await.unwrap();
}

#[tokio::test]
async fn bindery_steers_where_the_api_server_has_no_such_policy() {
    let (api, replica) = steered_by_webhook().await;
    check_scope(&api).await;
    check_names(&api).await;
    check_large_selector(&Operator::new(api.kubeconfig()));
    check_tools(&Operator::new(api.kubeconfig()));
    let of_other = json!({"matchExpressions": [{"key": key("d"), "operator": "Exists"}]});
    let object = claim("shop", "c", json!({"storageClassName": "local", "selector": of_other}));
    // kubectl has just set the label of the namespace, which the API server may not have seen.
    until("a key of another claim is refused", async || {
        let answer = api.create(&object, "dryRun=All").await;
        let is_refused = answer.as_ref().is_err_and(|why| why.contains("steers a claim of another name"));
        if is_refused { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    for (outcome, least) in [("unfit", 2), ("restored", 2), ("denied", 1)] {
        let metric = format!("bindery_admission_steering_total{{outcome=\"{outcome}\"}}");
        let counted = replica.replica.metric(&metric);
        assert!(counted.await >= least, "{outcome}");
    }
}

#[tokio::test]
async fn a_key_of_another_claim_is_refused_in_every_namespace() {
    let api = limited().await;
    let expression =
        |key: String, operator: &str| json!({"matchExpressions": [{"key": key, "operator": operator}]});
    for (selector, is_refused) in [
        (expression(key("c"), "Exists"), false),
        (expression("team".to_owned(), "DoesNotExist"), false),
        (expression(key("d"), "Exists"), true),
        (expression(key("c"), "DoesNotExist"), true),
        (json!({"matchLabels": {key("c"): "uid"}}), true),
    ] {
        // A class that is out of scope.
        let object = claim("shop", "c", json!({"storageClassName": "other", "selector": selector}));
        let answer = api.create(&object, "dryRun=All").await;
        assert_eq!(answer.is_err(), is_refused, "{selector}: {answer:?}");
        assert!(!is_refused || answer.unwrap_err().contains("leave it out"), "{selector}");
    }
    // A backup that is restored into another namespace.
    let object = claim("default", "c", json!({"selector": expression(key("c"), "Exists")}));
    assert!(api.create(&object, "dryRun=All").await.is_err());
}
