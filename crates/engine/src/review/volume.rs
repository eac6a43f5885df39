//! Whether a volume may be written.

use bindery_core::{Claim, ClaimRef, Finding, ReclaimPolicy, Rule, Source, Text, Volume};

use super::{contrasts, introduced, is_complete_pair};
use crate::call::{Call, Halt};

/// Finds what is wrong with `new` and was not wrong with `old`.
pub(crate) fn review(call: &mut Call<'_>, new: &Volume, old: Option<&Volume>) -> Result<(), Halt> {
    let found = findings(call, new)?;
    let Some(old) = old else {
        call.find(found);
        return Ok(());
    };
    let broken = broken_pair(call, new, old)?;
    let before = findings(call, old)?;
    call.find(broken.into_iter().chain(introduced(found, &before)));
    Ok(())
}

fn findings(call: &mut Call<'_>, volume: &Volume) -> Result<Vec<Finding>, Halt> {
    let mut found = Vec::new();
    if volume.policy == ReclaimPolicy::Recycle {
        found.push(Finding {
            rule: Rule::PolicyRecycle,
            volume: volume.name.clone(),
            claim: None,
            found: "Recycle".into(),
            wanted: "Retain or Delete".into(),
        });
    }
    if let Some(claim_ref) = &volume.claim_ref
        && let Some(claim) = call.claim(Source::Overlay, &claim_ref.claim_key())?
        && volume.is_bound_to(&claim)
        && !claim.annotations.bind_completed
        // A claim that is being deleted may be created again with a smaller request.
        && !claim.deleting
    {
        found.extend(unsatisfied(&claim, volume));
    }
    Ok(found)
}

/// How the volume fails to satisfy the claim that it is reserved for and that is not bound yet.
fn unsatisfied(claim: &Claim, volume: &Volume) -> Vec<Finding> {
    let name_each_other = match &claim.volume_name {
        None => false,
        Some(name) if *name == volume.name => true,
        // The claim names another volume, so this volume does not matter to it.
        Some(_) => return Vec::new(),
    };
    contrasts(claim, volume, name_each_other)
        // The class of a volume that is reserved for the claim does not count.
        .filter(|contrast| contrast.rule != Rule::ClassDiffers)
        .map(|contrast| Finding {
            rule: contrast.rule,
            volume: volume.name.clone(),
            claim: Some(claim.key.clone()),
            found: contrast.volume,
            wanted: contrast.claim,
        })
        .collect()
}

/// Whether the update takes a volume out of its complete pair.
fn broken_pair(call: &mut Call<'_>, new: &Volume, old: &Volume) -> Result<Option<Finding>, Halt> {
    let Some(claim_ref) = old.claim_ref.as_ref().filter(|_| new.claim_ref != old.claim_ref) else {
        return Ok(None);
    };
    let key = claim_ref.claim_key();
    let is_pair = call.claim(Source::Overlay, &key)?.is_some_and(|claim| is_complete_pair(&claim, old));
    Ok(is_pair.then(|| Finding {
        rule: Rule::BreaksPair,
        volume: old.name.clone(),
        found: new.claim_ref.as_ref().map_or_else(|| "".into(), text),
        wanted: text(claim_ref),
        claim: Some(key),
    }))
}

/// A claimRef in words.
fn text(claim_ref: &ClaimRef) -> Text {
    let ClaimRef { namespace, name, uid } = claim_ref;
    match uid {
        None => format!("{namespace}/{name}").into(),
        Some(uid) => format!("{namespace}/{name} ({uid})").into(),
    }
}
