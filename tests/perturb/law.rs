//! What no write may do. The laws look at the API server's own state, at the moment of the write.

use bindery_invariants::{Rule, Snapshot};
use bindery_sim::Sim;
use http::Method;
use serde_json::Value;

/// What a write breaks if the API server carries it out.
pub(crate) fn before(sim: &Sim, method: &Method, path: &str, body: &[u8]) -> Option<String> {
    let mut parts = path.trim_start_matches("/api/v1/").split('/');
    let first = parts.next()?;
    if first == "persistentvolumes" && *method == Method::DELETE {
        let volume = sim.object("persistentvolumes", None, parts.next()?)?;
        return destroys(sim, &volume);
    }
    if first != "namespaces" || *method != Method::PATCH {
        return None;
    }
    let (namespace, resource, name) = (parts.next()?, parts.next()?, parts.next()?);
    let claim =
        (resource == "persistentvolumeclaims").then(|| sim.object(resource, Some(namespace), name))??;
    let patch: Value = serde_json::from_slice(body).ok()?;
    loses(sim, &claim, &patch).or_else(|| misbinds(sim, &claim, &patch))
}

/// The violations of the state after a write.
pub(crate) fn after(sim: &Sim) -> Vec<String> {
    snapshot(sim).harms().iter().map(ToString::to_string).collect()
}

/// What is wrong with a cluster at rest.
pub(crate) fn at_rest(sim: &Sim) -> Vec<String> {
    // Claims and volumes of these scenarios have no users, so what is left is the binder's.
    snapshot(sim).violations().iter().map(ToString::to_string).collect()
}

fn snapshot(sim: &Sim) -> Snapshot {
    let [volumes, claims, classes] =
        ["persistentvolumes", "persistentvolumeclaims", "storageclasses"].map(|kind| sim.objects(kind));
    Snapshot::read(&volumes, &claims, &classes).expect("the simulator stores quantities only")
}

/// Why the data of a volume must be kept: a claim has it.
pub(crate) fn destroys(sim: &Sim, volume: &Value) -> Option<String> {
    let owner = sim.objects("persistentvolumeclaims").into_iter().find(|claim| has(claim, volume))?;
    let (volume, claim) = (&volume["metadata"]["name"], &owner["metadata"]["name"]);
    Some(format!("volume {volume} is destroyed, and claim {claim} has it"))
}

/// Whether claim and volume point at each other.
fn has(claim: &Value, volume: &Value) -> bool {
    claim["spec"]["volumeName"] == volume["metadata"]["name"]
        && claim["metadata"]["uid"] == volume["spec"]["claimRef"]["uid"]
}

/// Why a claim is not Lost: its volume exists and is its own or free.
fn loses(sim: &Sim, claim: &Value, patch: &Value) -> Option<String> {
    if patch["status"]["phase"] != "Lost" {
        return None;
    }
    let volume = sim.object("persistentvolumes", None, claim["spec"]["volumeName"].as_str()?)?;
    let is_free = volume["spec"]["claimRef"].is_null();
    (is_free || has(claim, &volume)).then(|| "the claim is written Lost, and its volume exists".to_owned())
}

/// Why a claim must not get the volume: another claim has it.
fn misbinds(sim: &Sim, claim: &Value, patch: &Value) -> Option<String> {
    let name = patch["spec"]["volumeName"].as_str()?;
    let volume = sim.object("persistentvolumes", None, name).unwrap_or_default();
    let is_own = volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"];
    (!is_own).then(|| format!("the claim gets volume {name}, which is not reserved for it"))
}

/// Rules that a user of the scenario breaks.
pub(crate) fn is_of(violation: &str, rules: &[Rule]) -> bool {
    rules.iter().any(|rule| violation.ends_with(&format!("({rule:?})")))
}
