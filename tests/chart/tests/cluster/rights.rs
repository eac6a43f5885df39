//! What the roles permit, as the API server understands them.

use bindery_chart::rendered;
use http::Method;
use serde_json::json;

use crate::serving::until_granted;
use crate::site::{As, Site};

/// The account of the release.
pub(crate) const BINDERY: As = As {
    user: "system:serviceaccount:bindery-system:bindery",
    groups: &["system:serviceaccounts", "system:serviceaccounts:bindery-system", "system:authenticated"],
};

/// A list of one object by its name (a watch begins so) is a request for the whole kind, which a role can
/// limit to the name.
#[tokio::test]
async fn one_object_may_be_listed_and_no_other() {
    let site = Site::start().await;
    let kinds = ["ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    let objects = rendered(&json!({"mode": "own"}));
    site.install(&objects, &kinds).await;
    until_granted(&site, &objects).await;
    const SECRETS: &str = "/api/v1/namespaces/bindery-system/secrets";
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "bindery-system", "name": "other"}});
    site.create(&other, "").await.unwrap();
    for (path, is_allowed) in [
        (format!("{SECRETS}/bindery-tls"), true),
        (format!("{SECRETS}?fieldSelector=metadata.name%3Dbindery-tls"), true),
        (format!("{SECRETS}/other"), false),
        (format!("{SECRETS}?fieldSelector=metadata.name%3Dother"), false),
        (SECRETS.to_owned(), false),
        ("/api/v1/namespaces/kube-system/secrets/bindery-tls".to_owned(), false),
        (format!("{CONFIGURATIONS}?fieldSelector=metadata.name%3Dbindery"), true),
        (format!("{CONFIGURATIONS}?fieldSelector=metadata.name%3Dother"), false),
        (CONFIGURATIONS.to_owned(), false),
    ] {
        let answer = site.ask(BINDERY, Method::GET, &path, None).await;
        assert_eq!(answer.is_ok(), is_allowed, "{path}: {answer:?}");
        assert!(is_allowed || answer.unwrap_err().contains("forbidden"), "{path}");
    }
}
