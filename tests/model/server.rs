//! The API server of the model.

use bindery_controller::Write;
use bindery_core::{Action, Claim, ClaimTarget, Volume, VolumeTarget};
use bindery_kit::{write_claim, write_volume};

use crate::objects::{Contents, Each, Id, Seen, Stored, number_of};
use crate::turns::Answer;

/// The effect of a write: the object and its new state, and the answer.
pub(crate) struct Effect {
    pub(crate) answer: Answer,
    /// `None`: nothing changes.
    pub(crate) change: Option<(Id, Seen)>,
}

/// What a write does.
pub(crate) fn write(contents: &mut Contents, now: &Each<Seen>, write: &Write<Volume>) -> Effect {
    let result = match &write.action {
        Action::DeleteVolume { volume } => delete(contents, now, volume),
        Action::ReserveVolume { volume, .. }
        | Action::SetVolumePhase { volume, .. }
        | Action::AnnotateVolume { volume, .. }
        | Action::SetReclaimPolicy { volume, .. }
        | Action::UnbindVolume { volume, .. } => change_volume(contents, now, volume, write),
        Action::BindClaim { claim, .. }
        | Action::SetClaimStatus { claim, .. }
        | Action::SetClaimClass { claim, .. }
        | Action::AnnotateClaim { claim, .. }
        | Action::RemoveSelectedNode { claim } => change_claim(contents, now, claim, write),
        _ => Err(Answer::Invalid),
    };
    result.unwrap_or_else(|answer| Effect { answer, change: None })
}

fn change_volume(
    contents: &mut Contents,
    now: &Each<Seen>,
    target: &VolumeTarget,
    write: &Write<Volume>,
) -> Result<Effect, Answer> {
    let (id, seen) = (Id::named(&target.name), now[Id::named(&target.name).index()]);
    let before = volume_at(contents, seen, target)?;
    let mut after = before.clone();
    write_volume(&mut after, &write.action);
    // Of finalizers the request has all, as the binder has edited them.
    after.finalizers = write.finalizers.as_ref().unwrap_or(&before.finalizers).clone();
    if before.deleting && after.finalizers.iter().any(|finalizer| !before.finalizers.contains(finalizer)) {
        return Err(Answer::Invalid);
    }
    if after == before {
        return Ok(Effect { answer: Answer::Written(id, seen), change: None });
    }
    let written = seen.next(contents.number(&Stored::Volume(after.clone().into())));
    let stored = seen.next(contents.number(&after.into()));
    Ok(Effect { answer: Answer::Written(id, written), change: Some((id, stored)) })
}

fn change_claim(
    contents: &mut Contents,
    now: &Each<Seen>,
    target: &ClaimTarget,
    write: &Write<Volume>,
) -> Result<Effect, Answer> {
    let (id, seen) = (Id::named(&target.key.name), now[Id::named(&target.key.name).index()]);
    let before = claim_at(contents, seen, target)?;
    let mut after = before.clone();
    write_claim(&mut after, &write.action);
    // `spec` cannot be changed once volumeName is set.
    if before.volume_name.is_some() && after.volume_name != before.volume_name {
        return Err(Answer::Invalid);
    }
    if after == before {
        return Ok(Effect { answer: Answer::Written(id, seen), change: None });
    }
    let written = seen.next(contents.number(&after.into()));
    Ok(Effect { answer: Answer::Written(id, written), change: Some((id, written)) })
}

/// A deleted volume stays until its last finalizer is removed.
fn delete(contents: &mut Contents, now: &Each<Seen>, target: &VolumeTarget) -> Result<Effect, Answer> {
    let (id, seen) = (Id::named(&target.name), now[Id::named(&target.name).index()]);
    let before = volume_at(contents, seen, target)?;
    let answer = Answer::Deleted(id);
    if before.deleting {
        return Ok(Effect { answer, change: None });
    }
    let after = Volume { deleting: true, ..before };
    Ok(Effect { answer, change: Some((id, seen.next(contents.number(&after.into())))) })
}

fn volume_at(contents: &Contents, seen: Seen, target: &VolumeTarget) -> Result<Volume, Answer> {
    let volume = contents.get(seen.content).volume().ok_or(Answer::NotFound)?;
    let is_it = volume.uid == target.uid && number_of(&target.version) == seen.version;
    if is_it { Ok(Volume::clone(volume)) } else { Err(Answer::Conflict) }
}

fn claim_at(contents: &Contents, seen: Seen, target: &ClaimTarget) -> Result<Claim, Answer> {
    let claim = contents.get(seen.content).claim().ok_or(Answer::NotFound)?;
    let is_it = claim.uid == target.uid && number_of(&target.version) == seen.version;
    if is_it { Ok(Claim::clone(claim)) } else { Err(Answer::Conflict) }
}
