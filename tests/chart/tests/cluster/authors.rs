//! Who may write policies and put them into effect, as the API server decides it.

use bindery_chart::rendered;
use bindery_cluster::Cluster;
use bindery_kit::json;
use http::Method;
use serde_json::{Value, json};

use crate::api_server::{ADMIN, User, start, until};
use crate::kinds::install_one_of_each;

const POLICIES: &str = "/apis/policy.bindery.dev/v1alpha1/matchpolicies";
const RECLAIMERS: &str = "/apis/policy.bindery.dev/v1alpha1/reclaimpolicies";
const ENGINES: &str = "/apis/policy.bindery.dev/v1alpha1/engines";
const AUTHOR: User = User { name: "author", groups: &["system:authenticated"] };
const OPERATOR: User = User { name: "operator", groups: &["system:authenticated"] };
const VIEWER: User = User { name: "viewer", groups: &["system:authenticated"] };

/// An API server with an object of each kind, and a user of each role of the chart.
async fn with_users() -> Cluster {
    let api = start().await;
    let objects = rendered(&json!({"policies": {"objects": true}}));
    install_one_of_each(&api, &objects).await;
    for (name, object) in objects.iter() {
        if name.contains("/bindery-policy-") || name.ends_with("/bindery-enforce") {
            api.create(object, "").await.unwrap();
        }
    }
    for (user, roles) in
        [("author", &["view", "author"][..]), ("operator", &["operator"]), ("viewer", &["view"])]
    {
        for role in roles {
            api.create(&binding(user, role), "").await.unwrap();
        }
    }
    // Roles and bindings count after a moment.
    until("authors may apply only what has no effect", async || {
        let is_refused = async |user: User, mode: &str| {
            let body = policy("awaited", json!({"mode": mode}));
            api.send(user.request(Method::POST, &format!("{POLICIES}?dryRun=All"), &body)).await.is_err()
        };
        let refused = [
            is_refused(AUTHOR, "off").await,
            is_refused(AUTHOR, "enforce").await,
            is_refused(OPERATOR, "enforce").await,
        ];
        if refused == [false, true, false] { Ok(()) } else { Err(format!("{refused:?}")) }
    })
    .await;
    api
}

fn binding(user: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": format!("bindery-policy-{role}"),
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

fn policy(name: &str, spec: Value) -> Value {
    json::policy("MatchPolicy", name, &json::merged(json!({"module": "builtin:prefer"}), spec))
}

#[tokio::test]
async fn an_author_applies_policies_without_effect_an_operator_all() {
    let api = with_users().await;
    let send = async |user: User, method: &Method, path: &str, body: &Value| {
        api.send(user.request(method.clone(), path, body)).await
    };
    let (post, patch, delete) = (Method::POST, Method::PATCH, Method::DELETE);
    let enforced = format!("{POLICIES}/enforced");
    send(ADMIN, &post, POLICIES, &policy("enforced", json!({}))).await.unwrap();
    let own = format!("{POLICIES}/own");
    send(AUTHOR, &post, POLICIES, &policy("own", json!({"mode": "off"}))).await.unwrap();

    let deleting = json!({"module": "builtin:keep-labelled", "mode": "off", "allow": ["Delete"]});
    let engine = json!({"module": "configmap:bindery-system/missing/engine.wasm", "mode": "off"});
    let mode = |mode: &str| json!({"spec": {"mode": mode}});
    for (method, path, body, said) in [
        (&post, POLICIES, policy("new", json!({"mode": "enforce"})), "verb enforce on matchpolicies"),
        // The mode is enforce by default.
        (&post, POLICIES, policy("new", json!({})), "bindery-policy-operator"),
        (&patch, &own, mode("enforce"), "verb enforce on matchpolicies"),
        (&patch, &enforced, mode("off"), "verb enforce on matchpolicies"),
        (&patch, &enforced, json!({"spec": {"order": 1}}), "verb enforce on matchpolicies"),
        (&delete, &enforced, Value::Null, "verb enforce on matchpolicies"),
        (
            &post,
            RECLAIMERS,
            json::policy("ReclaimPolicy", "new", &deleting),
            "verb enforce on reclaimpolicies",
        ),
        (&post, ENGINES, json::policy("Engine", "new", &engine), "cannot create resource"),
    ] {
        let why = send(AUTHOR, method, path, &body).await.expect_err(&format!("{method} {path} {body}"));
        assert!(why.contains(said), "{method} {path} {body}: {why}");
        let dry = format!("{path}?dryRun=All");
        send(OPERATOR, method, &dry, &body).await.unwrap_or_else(|why| panic!("{path} {body}: {why}"));
    }
    // A label has no effect on decisions.
    send(AUTHOR, &patch, &enforced, &json!({"metadata": {"labels": {"team": "a"}}})).await.unwrap();
    send(AUTHOR, &patch, &own, &json!({"spec": {"order": 1}})).await.unwrap();
    send(VIEWER, &Method::GET, &own, &Value::Null).await.unwrap();
    send(VIEWER, &patch, &own, &mode("off")).await.unwrap_err();
    send(AUTHOR, &delete, &own, &Value::Null).await.unwrap();
}
