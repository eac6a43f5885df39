//! What would change a decision about a claim.

use bindery_core::{AccessModes, Claim, Lookup, Reason, VolumeMode};

use crate::plan::candidates::CandidatePlan;
use crate::plan::outcome::{ClaimPlan, Outcome};
use crate::plan::planner::Planner;

/// What a claim asks for, as a sentence.
pub(super) fn asks_for(claim: &Claim) -> String {
    let class = match claim.class.as_deref() {
        None => "no class given".to_owned(),
        Some("") => "without class".to_owned(),
        Some(name) => format!("class {name}"),
    };
    let mut parts = vec![claim.request.to_string(), modes(claim.access_set()), class];
    parts.extend((claim.mode == VolumeMode::Block).then(|| "volumeMode Block".to_owned()));
    // The binder has written the name of a volume that it chose.
    let asked = claim.volume_name.as_ref().filter(|_| !claim.annotations.bound_by_controller);
    parts.extend(asked.map(|name| format!("volume {name}")));
    parts.join(", ")
}

/// A few sentences.
pub(super) fn of_claim(planner: &Planner, claim: &Claim, plan: &ClaimPlan) -> Vec<String> {
    let sentence = match plan.outcome {
        Outcome::Deleted => return Vec::new(),
        Outcome::Bound if !plan.changed => return Vec::new(),
        Outcome::Bound => return will_be_bound(planner, claim),
        Outcome::Provisioning => format!(
            "{} has to create a volume: see its log. Or add a volume {}.",
            plan.provisioner.as_deref().unwrap_or("Its provisioner"),
            that_fits(claim, plan)
        ),
        Outcome::WaitsForConsumer => {
            "Create a pod that uses the claim: its class waits for the first one.".into()
        }
        Outcome::WaitsForScheduler => {
            "Its pod has to be scheduled: kubectl describe pod says what it waits for.".to_owned()
        }
        Outcome::Lost => match claim.volume_name.as_deref() {
            Some(name) if planner.volume(name).is_none() => format!(
                "Create volume {name} again if its data still exist: the claim is bound to it again. Else \
                 delete the claim."
            ),
            _ => return Vec::new(),
        },
        Outcome::Pending => return pending(planner, claim, plan),
    };
    vec![sentence]
}

fn will_be_bound(planner: &Planner, claim: &Claim) -> Vec<String> {
    let (namespace, name) = (&claim.key.namespace, &claim.key.name);
    let binds = if claim.steered {
        "Bindery reserves it when it runs, and upstream's binder binds it"
    } else {
        "Bindery binds it when it runs"
    };
    let events = format!("its events say why: kubectl describe pvc {name} -n {namespace}.");
    if planner.has_policies() {
        return vec![format!("Nothing has to change: {binds}. If it stays Pending, {events}")];
    }
    vec![
        format!(
            "Nothing has to change, unless a policy rejects the volume: {binds}. If it stays Pending, \
             {events}"
        ),
        "No policy is asked here: if Bindery serves with policies, name them by --policy.".to_owned(),
    ]
}

fn pending(planner: &Planner, claim: &Claim, plan: &ClaimPlan) -> Vec<String> {
    if let Some(name) = claim.volume_name.as_deref().filter(|name| planner.volume(name).is_none()) {
        return vec![format!("Create volume {name}, or make the claim again without spec.volumeName.")];
    }
    // A volume with one obstacle is one change away.
    let near = plan.candidates.iter().find_map(|candidate| remedy(planner, candidate));
    let other = match &claim.volume_name {
        Some(_) => {
            "Make the claim again without spec.volumeName: it then gets any volume that fits.".to_owned()
        }
        None => format!("Add a volume {}.", that_fits(claim, plan)),
    };
    let class = match (claim.class.as_deref(), plan.storage_class.as_deref()) {
        (None, None) => Some(
            "No StorageClass here is the default one: a claim that names none would get it. A plan on \
             manifests needs the classes of the cluster beside them: kubectl get sc -o yaml."
                .to_owned(),
        ),
        (Some(name), _) if !name.is_empty() && matches!(planner.store().class(name), Lookup::Absent) => {
            Some(format!(
                "There is no StorageClass {name} here: create it, or ask for another one. A plan on \
                 manifests needs it beside them: kubectl get sc {name} -o yaml."
            ))
        }
        _ => None,
    };
    near.into_iter().chain([other]).chain(class).collect()
}

/// What would make a volume fit that has one obstacle.
fn remedy(planner: &Planner, candidate: &CandidatePlan) -> Option<String> {
    let [obstacle] = candidate.obstacles.as_slice() else { return None };
    let (volume, offers, asks) = (&candidate.volume, &obstacle.offers, &obstacle.asks);
    Some(match obstacle.reason {
        Reason::TooSmall => format!("Ask for at most {offers}: volume {volume} fits then."),
        Reason::ClassDiffers if offers == "none" => {
            format!("Ask for a volume without class (storageClassName: \"\"): volume {volume} fits then.")
        }
        Reason::ClassDiffers => format!("Ask for class {offers}: volume {volume} fits then."),
        Reason::VolumeModeDiffers => format!("Ask for volumeMode {offers}: volume {volume} fits then."),
        Reason::AttributesClassDiffers => {
            format!("Ask for volumeAttributesClassName {offers}: volume {volume} fits then.")
        }
        Reason::AccessModesMissing => format!("Ask for {offers} only: volume {volume} fits then."),
        Reason::SelectorDiffers => format!("Label volume {volume} so that {asks} holds."),
        // A claimRef with a UID may be that of a bound claim, which would lose its volume and its data.
        Reason::ReservedForOther if has_uid(planner, volume) => return None,
        Reason::ReservedForOther => format!(
            "Volume {volume} is reserved for claim {offers} by name: it fits if that claim does not exist, \
             and you clear spec.claimRef of the volume."
        ),
        Reason::Unreadable => format!("Correct volume {volume}: {offers}."),
        Reason::Rejected => {
            let by = candidate.policies.iter().find(|said| !said.allows)?;
            format!(
                "Policy {} keeps volume {volume} from the claim: change what its reason names.",
                by.policy
            )
        }
        Reason::Deleting | Reason::NotAvailable | Reason::InFlight | Reason::WaitsForConsumer => return None,
    })
}

fn has_uid(planner: &Planner, volume: &str) -> bool {
    planner.volume(volume).is_some_and(|volume| volume["spec"]["claimRef"]["uid"].is_string())
}

/// The volume that the claim needs.
fn that_fits(claim: &Claim, plan: &ClaimPlan) -> String {
    let class = match plan.storage_class.as_deref() {
        None | Some("") => "without class".to_owned(),
        Some(name) => format!("of class {name}"),
    };
    let mut parts = vec![format!("with at least {}", claim.request), modes(claim.access_set())];
    parts.extend((claim.mode == VolumeMode::Block).then(|| "volumeMode Block".to_owned()));
    let attributes = Some(claim.attributes_class_or_empty()).filter(|name| !name.is_empty());
    parts.extend(attributes.map(|name| format!("volumeAttributesClassName {name}")));
    parts.extend((!claim.requirements().is_empty()).then(|| "labels that its selector matches".to_owned()));
    let allowed =
        if plan.candidates.iter().any(|candidate| candidate.policies.iter().any(|said| !said.allows)) {
            " that the policies allow"
        } else {
            ""
        };
    format!("{class} {}{allowed}", parts.join(", "))
}

/// Access modes, by name.
pub(super) fn modes(modes: AccessModes) -> String {
    let names: Vec<&str> = modes.iter().map(bindery_core::AccessMode::name).collect();
    names.join(" and ")
}
