//! The chart on a real API server: it takes every object, asks Bindery only what may matter, and grants what the roles say.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod door;
mod guides;
mod release;
mod rights;
mod serving;
mod site;

use bindery_chart::{NAMESPACE, rendered, sets};
use serde_json::Value;

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

/// The pod that a deployment would make: Pod Security judges pods only.
fn pod_of(object: &Value) -> Option<Value> {
    let mut pod = object["spec"].get("template").filter(|_| object["kind"] == "Deployment")?.clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "replica".into();
    pod["metadata"]["namespace"] = NAMESPACE.into();
    Some(pod)
}
