//! The claims that controllers will make: those of a StatefulSet, from its templates, and those of a pod,
//! from its generic ephemeral volumes.

use anyhow::{Result, bail};
use serde_json::{Value, json};

/// Most claims of one StatefulSet that are planned.
const CLAIMS_MAX: u64 = 10_000;

/// The workloads whose pods have random names.
const OF_RANDOM_PODS: [(&str, &str); 6] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];

/// The claims that will be made for an object, named and labelled as its controller does.
///
/// Upstream: `getPersistentVolumeClaims` in pkg/controller/statefulset/stateful_set_utils.go, and
/// `ephemeral.VolumeClaimName` in component-helpers/storage/ephemeral.
///
/// # Errors
///
/// A template is incomplete, or there are too many claims. The text names the field.
pub(super) fn claims(object: &Value) -> Result<Vec<Value>> {
    match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some("apps/v1"), Some("StatefulSet")) => of_stateful_set(object),
        (Some("v1"), Some("Pod")) => {
            let pod = object["metadata"]["name"].as_str().unwrap_or_default();
            of_pod(object, pod, &object["spec"])
        }
        _ => Ok(Vec::new()),
    }
}

/// Whether an object makes pods whose ephemeral claims have names that are not known before.
pub(super) fn makes_unnamed_claims(object: &Value) -> bool {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let spec = if kind == Some("CronJob") { &object["spec"]["jobTemplate"]["spec"] } else { &object["spec"] };
    OF_RANDOM_PODS.iter().any(|(v, k)| version == Some(*v) && kind == Some(*k))
        && ephemeral(&spec["template"]["spec"]).next().is_some()
}

fn of_stateful_set(set: &Value) -> Result<Vec<Value>> {
    let spec = &set["spec"];
    let Some(name) = set["metadata"]["name"].as_str() else {
        bail!("it has no metadata.name: give it one");
    };
    let number = |field: &str, value: &Value, default: u64| match value {
        Value::Null => Ok(default),
        value => value.as_u64().ok_or_else(|| anyhow::anyhow!("{field}: {value} is not a number from 0")),
    };
    let first = number("spec.ordinals.start", &spec["ordinals"]["start"], 0)?;
    let replicas = number("spec.replicas", &spec["replicas"], 1)?;
    let templates = list(&spec["volumeClaimTemplates"]);
    let count = replicas.saturating_mul(u64::try_from(templates.len().max(1))?);
    if count > CLAIMS_MAX {
        bail!("spec.replicas: {count} claims are more than the {CLAIMS_MAX} that a plan shows; lower it");
    }
    let mut claims = Vec::new();
    for ordinal in (first..).take(usize::try_from(replicas)?) {
        let pod = format!("{name}-{ordinal}");
        for (number, template) in templates.iter().enumerate() {
            let Some(template_name) = template["metadata"]["name"].as_str() else {
                bail!("spec.volumeClaimTemplates[{number}].metadata.name: give the template a name");
            };
            let mut claim = claim(set, &format!("{template_name}-{pod}"), template);
            for (label, value) in spec["selector"]["matchLabels"].as_object().into_iter().flatten() {
                claim["metadata"]["labels"][label] = value.clone();
            }
            claims.push(claim);
        }
        claims.extend(of_pod(set, &pod, &spec["template"]["spec"])?);
    }
    Ok(claims)
}

/// The claims of a pod of that name, which `owner` makes or is.
fn of_pod(owner: &Value, pod: &str, spec: &Value) -> Result<Vec<Value>> {
    let claim = |(volume, template): (&Value, &Value)| match volume["name"].as_str() {
        Some(volume) => Ok(claim(owner, &format!("{pod}-{volume}"), template)),
        None => bail!("spec.volumes: an ephemeral volume has no name: give it one"),
    };
    ephemeral(spec).map(claim).collect()
}

/// The generic ephemeral volumes of the spec of a pod, and their templates.
fn ephemeral(spec: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let template = |volume: &'_ Value| volume["ephemeral"]["volumeClaimTemplate"].is_object();
    let volumes = list(&spec["volumes"]).iter().filter(move |volume| template(volume));
    volumes.map(|volume| (volume, &volume["ephemeral"]["volumeClaimTemplate"]))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn claim(owner: &Value, name: &str, template: &Value) -> Value {
    let metadata = &template["metadata"];
    let or_empty = |value: &Value| if value.is_object() { value.clone() } else { json!({}) };
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": or_empty(&metadata["labels"]),
            "annotations": or_empty(&metadata["annotations"]),
        },
        "spec": template["spec"],
    })
}
