//! Others who write the webhook configuration too.

use std::slice;

use kube::api::PostParams;
use serde_json::{Value, json};

use super::site::{Site, configuration};

/// The names of webhooks, and whether each trusts these authorities.
async fn trusting(site: &Site, authorities: &[u8]) -> Vec<(String, bool)> {
    let bundles = site.bundles().await.into_iter();
    bundles.map(|(name, bundle)| (name, bundle == authorities)).collect()
}

fn named(names: &[&str]) -> Vec<(String, bool)> {
    names.iter().map(|name| (format!("{name}.bindery.dev"), true)).collect()
}

#[tokio::test]
async fn releases_of_a_chart_and_whom_to_trust_do_not_fight() {
    let site = Site::start().await;
    let doorkeeper = site.open("first", &["--certificate-name=127.0.0.1"]);
    let port = doorkeeper.port;
    site.apply(&[("claims", port), ("volumes", port)]).await.unwrap();
    let authorities = site.until_trusted().await;

    // Nothing but the bundles is Bindery's.
    let managed = site.configurations.get("bindery").await.unwrap().metadata.managed_fields.unwrap();
    let own = managed.into_iter().find(|managed| managed.manager.as_deref() == Some("bindery-certificates"));
    let bundle = json!({"f:clientConfig": {"f:caBundle": {}}});
    let fields = json!({"f:webhooks": {
        "k:{\"name\":\"claims.bindery.dev\"}": bundle,
        "k:{\"name\":\"volumes.bindery.dev\"}": bundle,
    }});
    assert_eq!(own.unwrap().fields_v1.unwrap().0, fields);

    // A release that changes nothing leaves everything as it is; so does one that drops a webhook, of what is
    // left.
    site.apply(&[("claims", port), ("volumes", port)]).await.unwrap();
    assert_eq!(trusting(&site, &authorities).await, named(&["claims", "volumes"]));
    site.apply(&[("claims", port)]).await.unwrap();
    assert_eq!(trusting(&site, &authorities).await, named(&["claims"]));

    // A webhook that is new, one that has another name, and a configuration that is put back or made anew.
    site.apply(&[("claims", port), ("others", port)]).await.unwrap();
    site.until_trusted().await;
    site.apply(&[("renamed", port)]).await.unwrap();
    site.until_trusted().await;
    assert_eq!(trusting(&site, &authorities).await, named(&["renamed"]));
    let version = site.configurations.get("bindery").await.unwrap().metadata.resource_version;
    let mut replaced: Value = configuration(&[("renamed", port)], None);
    replaced["metadata"]["resourceVersion"] = version.into();
    let replaced = serde_json::from_value(replaced).unwrap();
    site.configurations.replace("bindery", &PostParams::default(), &replaced).await.unwrap();
    site.until_trusted().await;
    site.configurations.delete("bindery", &Default::default()).await.unwrap();
    site.apply(&[("claims", port)]).await.unwrap();
    site.until_trusted().await;
    site.until_asked(slice::from_ref(&doorkeeper)).await;
    assert_eq!(site.authorities().await.unwrap(), authorities);
    assert_eq!(doorkeeper.replica.metric("bindery_certificate_errors_total").await, 0);
}
