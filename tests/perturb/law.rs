//! What no write may do. The laws look at the API server's own state, at the moment of the write.

use bindery_core::steer::RESERVED_FOR;
use bindery_invariants::{Snapshot, Violation};
use bindery_kit::ZONE;
use bindery_kit::json::merged;
use bindery_sim::Sim;
use http::Method;
use serde_json::Value;

use crate::plugin::PLUGIN;
use crate::timeline::Timeline;

/// What a write of a replica breaks if the API server carries it out.
pub(crate) fn before(
    timeline: &Timeline,
    replica: usize,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Option<String> {
    let sim = &timeline.sim;
    let mut parts = path.trim_start_matches("/api/v1/").split('/');
    let first = parts.next()?;
    if first == "persistentvolumes" {
        let volume = sim.object("persistentvolumes", None, parts.next()?)?;
        return match *method {
            Method::DELETE => destroys(sim, &volume),
            _ => {
                let patch = serde_json::from_slice(body).ok()?;
                misreserves(timeline, replica, &volume, &patch)
                    .or_else(|| reserves_twice(sim, &volume, &patch))
                    .or_else(|| offers(timeline, &volume, &patch))
            }
        };
    }
    if first != "namespaces" {
        return None;
    }
    let (namespace, resource) = (parts.next()?, parts.next()?);
    let written = || serde_json::from_slice::<Value>(body).ok();
    let existing = |name: &str| sim.object(resource, Some(namespace), name);
    match (resource, method, parts.next()) {
        ("pods", &Method::POST, None) => scrubs(sim, &written()?),
        ("pods", &Method::PATCH, Some(name)) => scrubs(sim, &merged(existing(name)?, written()?)),
        ("persistentvolumeclaims", &Method::PATCH, Some(name)) => {
            let (claim, patch) = (existing(name)?, written()?);
            loses(sim, &claim, &patch).or_else(|| misbinds(sim, &claim, &patch))
        }
        _ => None,
    }
}

/// What is wrong with the state after a write, apart from what the user broke.
pub(crate) fn after(timeline: &Timeline) -> Vec<String> {
    violations(timeline, Snapshot::harms)
}

/// What is wrong with a cluster at rest, apart from what the user broke.
pub(crate) fn at_rest(timeline: &Timeline) -> Vec<String> {
    violations(timeline, Snapshot::violations)
}

/// Volumes that the plugin should have deleted.
pub(crate) fn left_volumes(sim: &Sim) -> Vec<String> {
    let is_left = |volume: &Value| {
        (volume["status"]["phase"] == "Released" || volume["status"]["phase"] == "Failed")
            && volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
            && volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == PLUGIN
    };
    let left = sim.objects("persistentvolumes").into_iter().filter(is_left);
    left.map(|volume| format!("volume {} is not deleted", volume["metadata"]["name"])).collect()
}

/// Pods that still have a scheduling gate. At rest no replica will remove it.
pub(crate) fn left_pods(sim: &Sim) -> Vec<String> {
    let pods = sim.objects("pods").into_iter().filter(is_gated);
    pods.map(|pod| format!("pod {} stays and never runs", pod["metadata"]["name"])).collect()
}

fn violations(timeline: &Timeline, found: fn(&Snapshot) -> Vec<Violation>) -> Vec<String> {
    let [volumes, claims, classes] = ["persistentvolumes", "persistentvolumeclaims", "storageclasses"]
        .map(|resource| timeline.sim.objects(resource));
    let snapshot = Snapshot::read(&volumes, &claims, &classes);
    let snapshot = snapshot.expect("the simulator stores quantities only");
    let is_allowed = |violation: &Violation| timeline.scenario.broken_by_user.contains(&violation.rule);
    found(&snapshot).iter().filter(|violation| !is_allowed(violation)).map(ToString::to_string).collect()
}

/// Why the data of a volume must be kept: its policy says so, or a claim has it.
pub(crate) fn destroys(sim: &Sim, volume: &Value) -> Option<String> {
    if volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain" {
        return Some(format!("volume {} is destroyed, and is to be kept", volume["metadata"]["name"]));
    }
    let owner = sim.objects("persistentvolumeclaims").into_iter().find(|claim| has(claim, volume))?;
    let (volume, claim) = (&volume["metadata"]["name"], &owner["metadata"]["name"]);
    Some(format!("volume {volume} is destroyed, and claim {claim} has it"))
}

/// Why a volume must not be scrubbed: a pod uses it by the name of the claim that has left it. A replica that
/// learns late of pods cannot know.
pub(crate) fn scrubs_under_a_pod(timeline: &Timeline, name: &str) -> Option<String> {
    if timeline.delays("pods") {
        return None;
    }
    let volume = timeline.sim.object("persistentvolumes", None, name)?;
    let (namespace, claim) = (&volume["spec"]["claimRef"]["namespace"], &volume["spec"]["claimRef"]["name"]);
    let is_claim = |used: &Value| used["persistentVolumeClaim"]["claimName"] == *claim;
    let uses = |pod: &Value| pod["spec"]["volumes"].as_array().is_some_and(|used| used.iter().any(is_claim));
    let pods = timeline.sim.objects("pods");
    let pod = pods.iter().find(|pod| pod["metadata"]["namespace"] == *namespace && uses(pod))?;
    Some(format!("volume {name} is scrubbed, and pod {} uses it", pod["metadata"]["name"]))
}

/// Why a pod must not run as it is written: it destroys the data of a volume that must be kept.
fn scrubs(sim: &Sim, pod: &Value) -> Option<String> {
    let scrubbed = if is_gated(pod) { Vec::new() } else { scrubbed_by(sim, pod) };
    scrubbed.iter().find_map(|volume| destroys(sim, volume))
}

/// The volumes of NFS that a recycler pod scrubs.
pub(crate) fn scrubbed_by(sim: &Sim, pod: &Value) -> Vec<Value> {
    let source = &pod["spec"]["volumes"][0]["nfs"];
    let mut volumes = sim.objects("persistentvolumes");
    volumes.retain(|volume| !source.is_null() && volume["spec"]["nfs"] == *source);
    volumes
}

/// Whether a scheduling gate keeps a pod from running.
pub(crate) fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
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

/// Why a volume must not be reserved: the policy of these scenarios rejects it for the claim. A replica that
/// has not noticed a restore cannot know that it took back the claim's label.
fn misreserves(timeline: &Timeline, replica: usize, volume: &Value, patch: &Value) -> Option<String> {
    if timeline.misses_restore(replica) {
        return None;
    }
    let (namespace, name) =
        (patch["spec"]["claimRef"]["namespace"].as_str()?, patch["spec"]["claimRef"]["name"].as_str()?);
    // What a person has reserved for the claim no policy rejects, but mode steer reserves nothing on top.
    let is_marked = patch["metadata"]["annotations"][RESERVED_FOR].is_string();
    if volume["spec"]["claimRef"]["name"] == name && !is_marked {
        return None;
    }
    let claim = timeline.sim.object("persistentvolumeclaims", Some(namespace), name)?;
    let [wanted, zone] = [&claim, volume].map(|object| &object["metadata"]["labels"][ZONE]);
    let is_rejected = !wanted.is_null() && wanted != zone;
    is_rejected.then(|| format!("a volume of zone {zone} is reserved for a claim of zone {wanted}"))
}

/// Why a volume must not be reserved: the binder has reserved another one for the claim. One that was
/// provisioned meanwhile does not count: it is deleted if it is not needed.
fn reserves_twice(sim: &Sim, volume: &Value, patch: &Value) -> Option<String> {
    let uid = patch["spec"]["claimRef"]["uid"].as_str()?;
    if volume["spec"]["claimRef"]["uid"] == uid {
        return None;
    }
    let is_other = |other: &Value| {
        let annotations = &other["metadata"]["annotations"];
        other["spec"]["claimRef"]["uid"] == uid
            && !annotations["pv.kubernetes.io/bound-by-controller"].is_null()
            && annotations["pv.kubernetes.io/provisioned-by"].is_null()
    };
    let other = sim.objects("persistentvolumes").into_iter().find(is_other)?;
    let [second, first] = [volume, &other].map(|volume| &volume["metadata"]["name"]);
    Some(format!("volume {second} is reserved for a claim for which volume {first} is reserved"))
}

/// Why a volume must not leave a claim that is gone: it was not scrubbed.
fn offers(timeline: &Timeline, volume: &Value, patch: &Value) -> Option<String> {
    let uid = |volume: &Value| volume["spec"]["claimRef"]["uid"].clone();
    let owner = uid(volume);
    let is_recycled = volume["spec"]["persistentVolumeReclaimPolicy"] == "Recycle";
    let leaves = !owner.is_null() && uid(&merged(volume.clone(), patch.clone())) != owner;
    let is_owner = |claim: &Value| claim["metadata"]["uid"] == owner;
    let lives = timeline.sim.map_objects("persistentvolumeclaims", is_owner).contains(&true);
    let is_wrong = is_recycled && leaves && !lives && !timeline.is_scrubbed(volume);
    is_wrong.then(|| format!("volume {} is offered again, and was not scrubbed", volume["metadata"]["name"]))
}

/// Why a claim must not get the volume: another claim has it.
fn misbinds(sim: &Sim, claim: &Value, patch: &Value) -> Option<String> {
    let name = patch["spec"]["volumeName"].as_str()?;
    let volume = sim.object("persistentvolumes", None, name).unwrap_or_default();
    let is_own = volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"];
    (!is_own).then(|| format!("the claim gets volume {name}, which is not reserved for it"))
}
