//! Records discovery, table columns and OpenAPI documents of a real API server, cut to the resources that
//! the simulator serves. Starts an empty server, with the programs in `BINDERY_ETCD` and
//! `BINDERY_KUBE_APISERVER`.
//!
//! ```sh
//! cargo run -p bindery-sim --example capture -- crates/sim/data
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Write;
use std::path::Path;

use bindery_cluster::{ControlPlane, Manager, Programs};
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::Client;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Group-version paths, with the resources (subresources after a slash) that are served.
const SERVED: [(&str, &[&str]); 9] = [
    (
        "api/v1",
        &[
            "configmaps",
            "endpoints",
            "events",
            "namespaces",
            "namespaces/finalize",
            "namespaces/status",
            "nodes",
            "nodes/status",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "persistentvolumes",
            "persistentvolumes/status",
            "pods",
            "pods/binding",
            "pods/eviction",
            "pods/status",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "replicationcontrollers/status",
            "secrets",
            "serviceaccounts",
            "services",
            "services/status",
        ],
    ),
    (
        "apis/apps/v1",
        &[
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
    ),
    ("apis/authorization.k8s.io/v1", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
    ("apis/batch/v1", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
    ("apis/coordination.k8s.io/v1", &["leases"]),
    ("apis/discovery.k8s.io/v1", &["endpointslices"]),
    ("apis/events.k8s.io/v1", &["events"]),
    ("apis/networking.k8s.io/v1", &["ingresses", "ingresses/status"]),
    (
        "apis/storage.k8s.io/v1",
        &[
            "csidrivers",
            "csinodes",
            "csistoragecapacities",
            "storageclasses",
            "volumeattachments",
            "volumeattachments/status",
            "volumeattributesclasses",
        ],
    ),
];

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or("usage: capture FOLDER")?;
    let folder = Path::new(&folder);
    let plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let client = plane.client_without_retries().await?;
    let discovery = discovery(&client).await?;
    std::fs::write(folder.join("discovery.json"), serde_json::to_vec(&discovery)?)?;
    let columns = columns(&client).await?;
    std::fs::write(folder.join("columns.json"), serde_json::to_vec(&columns)?)?;
    for (path, resources) in SERVED {
        let document = get(&client, &format!("/openapi/v3/{path}"), "application/json").await?;
        let document = serde_json::to_vec(&trim(document, path, resources))?;
        let name = path.rsplit_once('/').map_or(path, |(group, _)| group).replace("apis/", "");
        let mut file = GzEncoder::new(
            std::fs::File::create(folder.join(format!("openapi-{name}.json.gz")))?,
            Compression::best(),
        );
        file.write_all(&document)?;
        file.finish()?;
    }
    Ok(())
}

async fn get(client: &Client, path: &str, accept: &str) -> Result<Value> {
    let request = http::Request::get(path).header("accept", accept).body(Vec::new())?;
    Ok(serde_json::from_str(&client.request_text(request).await?)?)
}

fn is_served(group_version: &str, resource: &str) -> bool {
    SERVED.iter().any(|(path, resources)| *path == group_version && resources.contains(&resource))
}

async fn discovery(client: &Client) -> Result<Value> {
    let mut lists = BTreeMap::new();
    for (path, _) in SERVED {
        let mut list = get(client, &format!("/{path}"), "application/json").await?;
        if let Some(resources) = list["resources"].as_array_mut() {
            resources.retain(|resource| is_served(path, resource["name"].as_str().unwrap_or("")));
        }
        lists.insert(path, list);
    }
    let mut groups = get(client, "/apis", "application/json").await?;
    if let Some(groups) = groups["groups"].as_array_mut() {
        groups.retain(|group| {
            SERVED.iter().any(|(path, _)| *path == format!("apis/{}/v1", text(group, "/name")))
        });
        for group in groups {
            keep_v1(group, "/versions", "/version");
        }
    }
    Ok(json!({
        "lists": lists,
        "groups": groups,
        "aggregated": {
            "api": aggregated(client, "api").await?,
            "apis": aggregated(client, "apis").await?,
        },
    }))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn keep_v1(value: &mut Value, list: &str, field: &str) {
    if let Some(versions) = value.pointer_mut(list).and_then(Value::as_array_mut) {
        versions.retain(|version| text(version, field) == "v1");
    }
}

async fn aggregated(client: &Client, root: &str) -> Result<Value> {
    let mut document = get(client, &format!("/{root}"), AGGREGATED).await?;
    let groups = document["items"].as_array_mut().ok_or("no aggregated discovery")?;
    for group in groups.iter_mut() {
        keep_v1(group, "/versions", "/version");
        let name = text(group, "/metadata/name").to_owned();
        let path = if name.is_empty() { "api/v1".to_owned() } else { format!("apis/{name}/v1") };
        for version in group["versions"].as_array_mut().into_iter().flatten() {
            let Some(resources) = version["resources"].as_array_mut() else { continue };
            resources.retain(|resource| is_served(&path, text(resource, "/resource")));
            for resource in resources {
                let name = text(resource, "/resource").to_owned();
                if let Some(subresources) = resource["subresources"].as_array_mut() {
                    subresources
                        .retain(|sub| is_served(&path, &format!("{name}/{}", text(sub, "/subresource"))));
                }
            }
        }
    }
    groups.retain(|group| group["versions"][0]["resources"].as_array().is_some_and(|all| !all.is_empty()));
    Ok(document)
}

/// The columns of each resource's table, by group-version path and resource.
async fn columns(client: &Client) -> Result<Value> {
    let mut columns = BTreeMap::new();
    for (path, resources) in SERVED {
        for resource in
            resources.iter().filter(|resource| !resource.contains('/') && !path.contains("authorization"))
        {
            let table = get(client, &format!("/{path}/{resource}?limit=1"), TABLE).await?;
            columns.insert(format!("{path}/{resource}"), table["columnDefinitions"].clone());
        }
    }
    Ok(json!(columns))
}

/// Keeps the paths of what is served, and the definitions that these need.
fn trim(mut document: Value, group_version: &str, resources: &[&str]) -> Value {
    let base = format!("/{group_version}/");
    if let Some(paths) = document["paths"].as_object_mut() {
        paths.retain(|path, _| {
            let rest = path.strip_prefix(&base).unwrap_or("");
            let rest = rest.strip_prefix("namespaces/{namespace}/").unwrap_or(rest);
            // Deprecated watch paths and OPTIONS of proxies are of no use to clients.
            resources.contains(&rest.replace("/{name}", "").as_str())
        });
    }
    let all = document["components"]["schemas"].take();
    let mut needed = BTreeSet::new();
    references(&document["paths"], &all, &mut needed);
    let schemas: serde_json::Map<String, Value> =
        needed.into_iter().map(|name| (name.clone(), all[&name].clone())).collect();
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

fn references(value: &Value, all: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) =
                fields.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
                && found.insert(name.to_owned())
            {
                references(&all[name], all, found);
            }
            fields.values().for_each(|value| references(value, all, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, all, found)),
        _ => {}
    }
}
