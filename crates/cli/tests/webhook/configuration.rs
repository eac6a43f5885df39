//! Other writers of the webhook configuration.

use kube::api::PostParams;
use serde_json::{Value, json};

use super::scene::{ON_LOOPBACK, Scene, configuration};

/// The names of webhooks, and whether each trusts these authorities.
async fn trusting(scene: &Scene, authorities: &[u8]) -> Vec<(String, bool)> {
    let bundles = scene.bundles().await.into_iter();
    bundles.map(|(name, bundle)| (name, bundle == authorities)).collect()
}

fn named(names: &[&str]) -> Vec<(String, bool)> {
    names.iter().map(|name| (format!("{name}.bindery.dev"), true)).collect()
}

#[tokio::test]
async fn helm_releases_and_the_authorities_do_not_overwrite_each_other() {
    let scene = Scene::start().await;
    let webhook = scene.replica("first", &[ON_LOOPBACK]);
    let port = webhook.port;
    scene.apply(&[("claims", port), ("volumes", port)]).await.unwrap();
    let authorities = scene.until_trusted().await;

    // Bindery owns the bundles and nothing else.
    let managed = scene.configurations.get("bindery").await.unwrap().metadata.managed_fields.unwrap();
    let own = managed.into_iter().find(|managed| managed.manager.as_deref() == Some("bindery-certificates"));
    let bundle = json!({"f:clientConfig": {"f:caBundle": {}}});
    let fields = json!({"f:webhooks": {
        "k:{\"name\":\"claims.bindery.dev\"}": bundle,
        "k:{\"name\":\"volumes.bindery.dev\"}": bundle,
    }});
    assert_eq!(own.unwrap().fields_v1.unwrap().0, fields);

    // Bundles stay in a release without changes, and in one without a webhook.
    scene.apply(&[("claims", port), ("volumes", port)]).await.unwrap();
    assert_eq!(trusting(&scene, &authorities).await, named(&["claims", "volumes"]));
    scene.apply(&[("claims", port)]).await.unwrap();
    assert_eq!(trusting(&scene, &authorities).await, named(&["claims"]));

    // A new webhook, a renamed one, and a configuration that is replaced or created again.
    scene.apply(&[("claims", port), ("others", port)]).await.unwrap();
    scene.until_trusted().await;
    scene.apply(&[("renamed", port)]).await.unwrap();
    scene.until_trusted().await;
    assert_eq!(trusting(&scene, &authorities).await, named(&["renamed"]));
    let version = scene.configurations.get("bindery").await.unwrap().metadata.resource_version;
    let mut replaced: Value = configuration(&[("renamed", port)], None);
    replaced["metadata"]["resourceVersion"] = version.into();
    let replaced = serde_json::from_value(replaced).unwrap();
    scene.configurations.replace("bindery", &PostParams::default(), &replaced).await.unwrap();
    scene.until_trusted().await;
    scene.configurations.delete("bindery", &Default::default()).await.unwrap();
    scene.apply(&[("claims", port)]).await.unwrap();
    scene.until_trusted().await;
    scene.until_called(&[&webhook]).await;
    assert_eq!(scene.authorities().await.unwrap(), authorities);
    assert_eq!(webhook.replica.metric("bindery_certificate_errors_total").await, 0);
}
