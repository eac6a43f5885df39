//! The chart on a real API server: it takes every object, asks Bindery only what may matter, and grants what
//! the roles say.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod door;
mod guides;
mod release;
mod rights;
mod serving;
mod site;
mod stopping;
mod upgrading;

use bindery_chart::{NAMESPACE, rendered, sets};
use serde_json::{Value, json};

use self::site::Site;

/// Every field is known, every value valid, every expression compiles: more than a schema can say.
#[tokio::test]
async fn the_api_server_takes_every_object() {
    let site = Site::start().await;
    site.define().await;
    for (name, values) in sets() {
        for (object, content) in rendered(&values).iter() {
            for content in [content.clone()].into_iter().chain(pod_of(content)) {
                let answer = site.create(&content, "dryRun=All&fieldValidation=Strict").await;
                answer.unwrap_or_else(|why| panic!("{name}: {object}: {why}"));
            }
        }
    }
}

/// Ports of the node are more than Pod Security allows, as the README says.
#[tokio::test]
async fn pods_in_the_nodes_network_are_refused_where_they_are_restricted() {
    let site = Site::start().await;
    site.install(&rendered(&json!({})), &["ServiceAccount"]).await;
    for (values, is_refused) in [(json!({}), false), (json!({"hostNetwork": true}), true)] {
        let objects = rendered(&values);
        let mut pod = pod_of(objects.get("Deployment/bindery").unwrap()).unwrap();
        // Its class is admitted by a quota that a controller must have counted.
        pod["spec"].as_object_mut().unwrap().remove("priorityClassName");
        let answer = site.create(&pod, "dryRun=All").await;
        let refused = answer
            .err()
            .is_some_and(|why| why.contains("violates PodSecurity") && why.contains("host namespaces"));
        assert_eq!(refused, is_refused, "{values}");
    }
}

/// The pod that a deployment would make: Pod Security judges pods only.
fn pod_of(object: &Value) -> Option<Value> {
    let mut pod = object["spec"].get("template").filter(|_| object["kind"] == "Deployment")?.clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "replica".into();
    pod["metadata"]["namespace"] = NAMESPACE.into();
    Some(pod)
}
