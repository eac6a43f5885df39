//! The cells of objects that nothing runs here.

use serde_json::{Value, json};

use super::{or, phrase};
use crate::object::{self, items, number, text};

pub(super) fn deployment(deployment: &Value, age: &str) -> Value {
    let [names, images] = containers(deployment);
    let count = |pointer: &str| number(deployment, pointer);
    json!([
        object::name(deployment),
        ready(deployment),
        count("/status/updatedReplicas"),
        count("/status/availableReplicas"),
        age,
        names,
        images,
        selector(deployment, "/spec/selector/matchLabels"),
    ])
}

pub(super) fn stateful_set(set: &Value, age: &str) -> Value {
    let [names, images] = containers(set);
    json!([object::name(set), ready(set), age, names, images])
}

/// A ReplicaSet or ReplicationController.
pub(super) fn replica_set(set: &Value, labels: &str, age: &str) -> Value {
    let [names, images] = containers(set);
    let count = |pointer: &str| number(set, pointer);
    json!([
        object::name(set),
        count("/spec/replicas"),
        count("/status/replicas"),
        count("/status/readyReplicas"),
        age,
        names,
        images,
        selector(set, labels),
    ])
}

pub(super) fn daemon_set(set: &Value, age: &str) -> Value {
    let [names, images] = containers(set);
    let count = |field: &str| number(set, &format!("/status/{field}"));
    json!([
        object::name(set),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        selector(set, "/spec/template/spec/nodeSelector"),
        age,
        names,
        images,
        selector(set, "/spec/selector/matchLabels"),
    ])
}

/// A Job. It never starts here, so it has no duration.
pub(super) fn job(job: &Value, age: &str) -> Value {
    let [names, images] = containers(job);
    let completions = job.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    json!([
        object::name(job),
        if object::is_deleting(job) { "Terminating" } else { "Running" },
        format!("{}/{completions}", number(job, "/status/succeeded")),
        "",
        age,
        names,
        images,
        selector(job, "/spec/selector/matchLabels"),
    ])
}

/// A CronJob. Its schedule is never due here.
pub(super) fn cron_job(job: &Value, age: &str) -> Value {
    let [names, images] = containers(&job["spec"]["jobTemplate"]);
    let suspended = job.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
    json!([
        object::name(job),
        text(job, "/spec/schedule"),
        or(text(job, "/spec/timeZone"), "<none>"),
        if suspended { "True" } else { "False" },
        0,
        "<none>",
        age,
        names,
        images,
        selector(job, "/spec/jobTemplate/spec/selector/matchLabels"),
    ])
}

/// An Ingress. Nothing gives it an address here.
pub(super) fn ingress(ingress: &Value, age: &str) -> Value {
    let rules = items(ingress, "/spec/rules").iter().map(|rule| text(rule, "/host"));
    let hosts = rules.filter(|host| !host.is_empty()).collect::<Vec<_>>().join(",");
    json!([
        object::name(ingress),
        or(text(ingress, "/spec/ingressClassName"), "<none>"),
        or(&hosts, "*"),
        "",
        if items(ingress, "/spec/tls").is_empty() { "80" } else { "80, 443" },
        age,
    ])
}

pub(super) fn service(service: &Value, age: &str) -> Value {
    let port = |port: &Value| format!("{}/{}", port["port"], text(port, "/protocol"));
    json!([
        object::name(service),
        text(service, "/spec/type"),
        or(text(service, "/spec/clusterIP"), "<none>"),
        or(text(service, "/spec/externalName"), "<none>"),
        phrase(items(service, "/spec/ports").iter().map(port)),
        age,
        selector(service, "/spec/selector"),
    ])
}

pub(super) fn endpoints(endpoints: &Value, age: &str) -> Value {
    let addresses = items(endpoints, "/subsets").iter().flat_map(addresses);
    json!([object::name(endpoints), first_three(addresses), age])
}

/// The addresses of a subset of Endpoints, for each port.
fn addresses(subset: &Value) -> Vec<String> {
    let ips = items(subset, "/addresses").iter().map(|address| text(address, "/ip"));
    let with = |port: &Value| {
        let port = port["port"].clone();
        ips.clone()
            .map(move |ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") })
    };
    match items(subset, "/ports") {
        [] => ips.map(str::to_owned).collect(),
        ports => ports.iter().flat_map(with).collect(),
    }
}

/// The first three texts with commas between them, and how many more there are.
fn first_three(texts: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<_> = texts.collect();
    let more = texts.split_off(texts.len().min(3)).len();
    let first = phrase(texts.into_iter());
    if more > 0 { format!("{first} + {more} more...") } else { first }
}

pub(super) fn endpoint_slice(slice: &Value, age: &str) -> Value {
    let ports = items(slice, "/ports").iter().map(|port| port["port"].to_string());
    let addresses = items(slice, "/endpoints").iter().flat_map(|endpoint| items(endpoint, "/addresses"));
    let addresses = addresses.filter_map(Value::as_str).map(str::to_owned);
    json!([object::name(slice), text(slice, "/addressType"), first_three(ports), first_three(addresses), age])
}

fn ready(object: &Value) -> String {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas"))
}

/// The names and the images of the containers.
fn containers(object: &Value) -> [String; 2] {
    let all = items(object, "/spec/template/spec/containers");
    ["/name", "/image"]
        .map(|pointer| all.iter().map(|container| text(container, pointer)).collect::<Vec<_>>().join(","))
}

fn selector(object: &Value, pointer: &str) -> String {
    let labels = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    phrase(labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))))
}
