//! Claims that wait in a settled world.

use std::sync::Arc;

use bindery_core::{Claim, Selector, Volume};

use crate::law::{State, is_allowed, is_crowded_out, is_held, may_meet};

/// The claims that wait, each with the free volumes and those reserved for it that it could have without
/// policies.
fn waiting(state: &State) -> impl Iterator<Item = (&Arc<Claim>, Vec<&Arc<Volume>>)> {
    // An invalid selector or a class without binding mode is reported before any volume is looked at.
    let is_faulty = |claim: &Claim| {
        let class = claim.class.as_ref().and_then(|name| state.extra.classes.get(name));
        matches!(claim.selector, Some(Selector::Invalid(_)))
            || class.is_some_and(|class| class.binding_mode.is_none())
    };
    let waiting =
        state.claims.values().filter(move |claim| !claim.annotations.bind_completed && !is_faulty(claim));
    waiting.map(|claim| {
        let fits = |volume: &&Arc<Volume>| may_meet(&state.extra.classes, claim, volume);
        (claim, state.volumes.values().filter(fits).collect())
    })
}

/// Claims that wait although they may have a volume.
pub(crate) fn left_waiting(state: &State) -> Vec<String> {
    let waiting = waiting(state).filter(|(claim, _)| !is_held(state, claim));
    waiting
        .filter_map(|(claim, volumes)| {
            let may_have =
                |volume: &&&Arc<Volume>| volume.claim_ref.is_some() || is_allowed(state, claim, volume);
            let volume = volumes.iter().find(may_have)?;
            Some(format!("{} waits though it may have {}", claim.key, volume.name))
        })
        .collect()
}

/// How many claims wait although they could have a volume without policies.
pub(crate) fn held_back(state: &State) -> usize {
    waiting(state).filter(|(_, volumes)| !volumes.is_empty()).count()
}

/// How many claims wait for a volume that only a policy that spreads rejects.
pub(crate) fn crowded_out(state: &State) -> usize {
    let is_crowded_out = |(claim, volumes): &(&Arc<Claim>, Vec<&Arc<Volume>>)| {
        volumes.iter().any(|volume| volume.claim_ref.is_none() && is_crowded_out(state, claim, volume))
    };
    waiting(state).filter(is_crowded_out).count()
}
