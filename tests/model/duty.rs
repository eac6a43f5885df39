//! Laws whose breach does no lasting harm: what a write must be by what its replica knew.
//!
//! They are written down from the guarantees G1 to G3, G9 and G11, and share no code with the guard.

use bindery_core::{Action, Claim, Clear, Edit, FinalizerEdit, Volume, VolumePhase};
use bindery_invariants::{Rule, Snapshot};

use crate::json;
use crate::objects::{Contents, Each, Id, Seen};

/// Rules of a cluster at rest that an action must not newly break.
pub(crate) fn rules(action: &Action) -> &'static [Rule] {
    match action {
        Action::ReserveVolume { .. } => &[Rule::Reservation],
        Action::SetVolumePhase { .. } => &[Rule::VolumePhase],
        Action::SetClaimStatus { .. } => &[Rule::Marked, Rule::ClaimPhase, Rule::ClaimStatus],
        Action::AnnotateVolume { .. } => &[Rule::Finalizer],
        _ => &[],
    }
}

/// Why an action should not be taken.
pub(crate) fn neglected(
    contents: &Contents,
    now: &Each<Seen>,
    action: &Action,
    (written, after): (Id, Seen),
) -> Option<String> {
    let before = contents.get(now[written.index()].content).volume();
    let claim = |id: Id| contents.get(now[id.index()].content).claim();
    let why = match (action, before) {
        (Action::ReserveVolume { claim: target, mark, .. }, Some(before)) => {
            let claim = claim(Id::named(&target.key.name)).filter(|claim| claim.uid == target.uid);
            let after = contents.get(after.content).volume()?;
            claim.map_or(Some("no such claim"), |claim| unfit(before, claim, *mark, after))
        }
        (Action::UnbindVolume { clear, .. }, Some(before)) => {
            let uid = before.claim_ref.as_ref()?.uid.as_ref();
            let is_gone = !Id::claims().filter_map(claim).any(|claim| Some(&claim.uid) == uid);
            let is_users = *clear == Clear::Whole && !before.annotations.bound_by_controller;
            let gone = is_gone.then_some("its data would be offered to the next claim");
            gone.or_else(|| is_users.then_some("a user has reserved it"))
        }
        (Action::SetReclaimPolicy { .. }, _) => Some("there is no reclaimer"),
        (Action::SetClaimClass { .. }, _) => Some("there is no default class"),
        (Action::AnnotateClaim { .. }, _) => Some("nothing is provisioned or migrated for it"),
        (Action::AnnotateVolume { migrated_to: Edit::Set(_), .. }, _) => Some("no plugin has migrated"),
        (Action::AnnotateVolume { external_finalizer: FinalizerEdit::Add, .. }, _) => {
            Some("no external provisioner deletes it")
        }
        _ => None,
    };
    why.map(|why| format!("{written}: {why}"))
}

/// Why a volume should not be reserved for a claim, with this mark.
fn unfit(before: &Volume, claim: &Claim, mark: bool, after: &Volume) -> Option<&'static str> {
    let names = before
        .claim_ref
        .as_ref()
        .map(|it| *it.name == *claim.key.name && it.uid.as_ref().is_none_or(|uid| *uid == claim.uid));
    let has_uid = before.claim_ref.as_ref().is_some_and(|it| it.uid.is_some());
    let is_named = claim.volume_name.as_ref() == Some(&before.name);
    let is_chosen = names.is_none() && !is_named;
    if names == Some(false) {
        Some("it is another claim's")
    } else if mark == (names == Some(true)) && !before.annotations.bound_by_controller {
        Some("the mark does not say who chose")
    } else if claim.annotations.bind_completed {
        let is_namesakes = names == Some(true) && !has_uid;
        let lost = (!is_named).then_some("the claim was bound to another volume");
        lost.or_else(|| is_namesakes.then_some("it may be a namesake's"))
    } else if before.deleting && !(is_named && names == Some(true)) {
        Some("it is being deleted")
    } else if is_chosen && before.phase != VolumePhase::Available {
        Some("it is not offered")
    } else {
        (!fits(after, claim)).then_some("it does not fit")
    }
}

/// Whether the two would fit if the claim got the volume.
fn fits(volume: &Volume, claim: &Claim) -> bool {
    let mut claim = claim.clone();
    claim.annotations.bound_by_controller |= claim.volume_name.is_none();
    claim.annotations.bind_completed = true;
    claim.volume_name = Some(volume.name.clone());
    let pair = Snapshot::read(&[json::volume(volume)], &[json::claim(&claim)], &[]);
    !pair.expect("the model has valid quantities").harms().iter().any(|harm| harm.rule == Rule::Fits)
}
