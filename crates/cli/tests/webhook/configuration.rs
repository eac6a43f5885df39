//! Other writers of the webhook configuration.

use kube::api::PostParams;
use serde_json::{Value, json};

use super::webhooks::{ON_LOOPBACK, Webhooks, configuration};

/// The names of webhooks, and whether each trusts these authorities.
async fn trusting(webhooks: &Webhooks, authorities: &[u8]) -> Vec<(String, bool)> {
    let bundles = webhooks.bundles().await.into_iter();
    bundles.map(|(name, bundle)| (name, bundle == authorities)).collect()
}

fn named(names: &[&str]) -> Vec<(String, bool)> {
    names.iter().map(|name| (format!("{name}.bindery.dev"), true)).collect()
}

#[tokio::test]
async fn helm_releases_and_the_authorities_do_not_overwrite_each_other() {
    let webhooks = Webhooks::start().await;
    let webhook = webhooks.replica("first", &[ON_LOOPBACK]);
    let port = webhook.port;
    webhooks.apply(&[("claims", port), ("volumes", port)]).await.unwrap();
    let authorities = webhooks.until_trusted().await;

    // Bindery owns the bundles and nothing else.
    let managed = webhooks.configurations.get("bindery").await.unwrap().metadata.managed_fields.unwrap();
    let own = managed.into_iter().find(|managed| managed.manager.as_deref() == Some("bindery-certificates"));
    let bundle = json!({"f:clientConfig": {"f:caBundle": {}}});
    let fields = json!({"f:webhooks": {
        "k:{\"name\":\"claims.bindery.dev\"}": bundle,
        "k:{\"name\":\"volumes.bindery.dev\"}": bundle,
    }});
    assert_eq!(own.unwrap().fields_v1.unwrap().0, fields);

    // Bundles stay in a release without changes, and in one without a webhook.
    webhooks.apply(&[("claims", port), ("volumes", port)]).await.unwrap();
    assert_eq!(trusting(&webhooks, &authorities).await, named(&["claims", "volumes"]));
    webhooks.apply(&[("claims", port)]).await.unwrap();
    assert_eq!(trusting(&webhooks, &authorities).await, named(&["claims"]));

    // A new webhook, a renamed one, and a configuration that is replaced or created again.
    webhooks.apply(&[("claims", port), ("others", port)]).await.unwrap();
    webhooks.until_trusted().await;
    webhooks.apply(&[("renamed", port)]).await.unwrap();
    webhooks.until_trusted().await;
    assert_eq!(trusting(&webhooks, &authorities).await, named(&["renamed"]));
    let version = webhooks.configurations.get("bindery").await.unwrap().metadata.resource_version;
    let mut replaced: Value = configuration(&[("renamed", port)], None);
    replaced["metadata"]["resourceVersion"] = version.into();
    let replaced = serde_json::from_value(replaced).unwrap();
    webhooks.configurations.replace("bindery", &PostParams::default(), &replaced).await.unwrap();
    webhooks.until_trusted().await;
    webhooks.configurations.delete("bindery", &Default::default()).await.unwrap();
    webhooks.apply(&[("claims", port)]).await.unwrap();
    webhooks.until_trusted().await;
    webhooks.until_called(&[&webhook]).await;
    assert_eq!(webhooks.authorities().await.unwrap(), authorities);
    assert_eq!(webhook.replica.metric("bindery_certificate_errors_total").await, 0);
}
