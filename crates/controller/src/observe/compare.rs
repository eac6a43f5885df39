//! Compares upstream's choice with Bindery's.

use std::fmt;
use std::sync::{Arc, Weak};

use bindery_core::steer::steering_key;
use bindery_core::{Claim, ClaimKey, Key, Lookup, NO_PROVISIONER, Source, Text, Uid, Version, Volume};
use bindery_store::{Author, Authors, Delivered, Delivery, Object, Observed, Store, is_newer};

use super::{Compared, Observation, State, Steerable, Via};
use crate::{Binder, Port, intake};

/// The decision that Bindery would make about a claim, on the current store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Foreseen {
    /// Bind it to this volume.
    Binds(Text),
    /// Bind it to none: why.
    Waits(String),
    /// There is no decision: why.
    Unknown(String),
}

/// Compares upstream's binds with what the binder would do. The binder owns it.
pub(crate) struct BinderObserver<P: Port>(pub(crate) Weak<Binder<P>>);

/// An outcome, with a reason if there is one.
struct Comparison {
    outcome: Compared,
    bindery: Option<Text>,
    why: String,
}

impl<P: Port> intake::Observer for BinderObserver<P> {
    fn before(&self, delivery: &Delivery) {
        let Some(binder) = self.0.upgrade() else { return };
        let via = if matches!(delivery, Delivery::Listed { .. }) { Via::List } else { Via::Watch };
        for Delivered { object, authors } in delivery.objects() {
            let by_bindery = |author: fn(Authors) -> Author| {
                authors.as_ref().is_some_and(|authors| author(authors.read()) == Author::Bindery)
            };
            match object {
                Object::Volume(name, Observed::Readable(after)) => {
                    if let Lookup::Found(before) = binder.store().volume(Source::Cache, name)
                        && before.uid == after.uid
                    {
                        let is_own = || by_bindery(|authors| authors.claim_ref);
                        binder.before_volume(&before, after, is_own, via);
                    }
                }
                Object::Claim(key, Observed::Readable(after)) => {
                    if let Lookup::Found(before) = binder.store().claim(Source::Cache, key)
                        && before.uid == after.uid
                    {
                        let is_own = || by_bindery(|authors| authors.bind_completed);
                        binder.before_claim(&before, after, is_own, via);
                    }
                }
                _ => {}
            }
        }
    }

    fn gone(&self, key: &ClaimKey, uid: &Uid) {
        let Some(binder) = self.0.upgrade() else { return };
        let mut state = binder.observation().state.lock();
        state.awaited.remove(key);
        if state.awaiting_volume.remove(uid).is_some() {
            binder.observation().outcomes[Compared::NotComparable as usize].inc();
        }
        state.counted.remove(uid);
    }
}

impl<P: Port> Binder<P> {
    /// A volume is about to change; `is_own` if a replica of Bindery reserved it.
    fn before_volume(&self, before: &Volume, after: &Volume, is_own: impl FnOnce() -> bool, via: Via) {
        let uid_of = |volume: &Volume| volume.claim_ref.as_ref()?.uid.clone();
        let (Some(uid), Some(claim_ref)) = (uid_of(after), &after.claim_ref) else { return };
        // A free volume that does not get bound-by-controller was not chosen by a binder: a user has reserved
        // it.
        let by_user = before.claim_ref.is_none() && !after.annotations.bound_by_controller;
        if uid_of(before).as_ref() == Some(&uid) || by_user {
            return;
        }
        let mut state = self.observation().state.lock();
        if state.counted.contains(&uid) {
            return;
        }
        if is_own() {
            state.not_compared(uid);
            return;
        }
        let key = claim_ref.claim_key();
        let seen = state.awaiting_volume.remove(&uid);
        let claim = match seen.map_or_else(|| self.store().claim(Source::Cache, &key), Lookup::Found) {
            Lookup::Found(claim) if claim.uid == uid => claim,
            _ => {
                let comparison = Comparison::unknown("the claim was not seen before its bind");
                return self.observation().count_in(&mut state, &key, &uid, after, comparison);
            }
        };
        // The scheduler reserves volumes for claims that wait for their first consumer; and a claim that was
        // bound before only gets its own volume back.
        if claim.annotations.bind_completed || waits_for_consumer(self.store(), &claim) {
            return;
        }
        let comparison = compare(self, &state, &claim, before, via);
        self.count_steerable(&claim, before, &comparison);
        state.last_choice = Some(after.version.clone());
        self.observation().count_in(&mut state, &key, &uid, before, comparison);
    }

    /// A claim is about to change; `is_own` if a replica of Bindery completed its bind.
    fn before_claim(&self, before: &Arc<Claim>, after: &Claim, is_own: impl FnOnce() -> bool, via: Via) {
        if before.annotations.bind_completed || !after.annotations.bind_completed {
            return;
        }
        let Some(name) = &after.volume_name else { return };
        let mut state = self.observation().state.lock();
        state.awaited.remove(&after.key);
        if state.counted.contains(&after.uid) {
            return;
        }
        if is_own() {
            state.not_compared(after.uid.clone());
            return;
        }
        match self.store().volume(Source::Cache, name) {
            Lookup::Found(volume) if is_reserved_for(&volume, &after.uid) => {
                let comparison = compare(self, &state, before, &volume, via);
                self.count_steerable(before, &volume, &comparison);
                self.observation().count_in(&mut state, &after.key, &after.uid, &volume, comparison);
            }
            // The watch of volumes, which shows the order of the choices, lags behind.
            _ => drop(state.awaiting_volume.insert(after.uid.clone(), before.clone())),
        }
    }

    /// Counts a claim that mode steer could have steered, by what it would have got there.
    fn count_steerable(&self, claim: &Arc<Claim>, upstream: &Volume, comparison: &Comparison) {
        if !is_steerable(self.store(), claim) {
            return;
        }
        let chosen = match comparison.outcome {
            Compared::NotComparable => Foreseen::Unknown(String::new()),
            Compared::Policy => self.foresee(claim),
            Compared::Same | Compared::Tie | Compared::Different => match &comparison.bindery {
                Some(volume) => Foreseen::Binds(volume.clone()),
                None => Foreseen::Waits(String::new()),
            },
        };
        let steerable = match chosen {
            Foreseen::Binds(volume) if volume == upstream.name => Steerable::Same,
            Foreseen::Binds(_) => Steerable::Other,
            Foreseen::Waits(_) => Steerable::Nothing,
            Foreseen::Unknown(_) => Steerable::Unknown,
        };
        self.observation().steerable[steerable as usize].inc();
    }
}

impl State {
    /// Bindery bound the claim itself, so upstream made no choice to compare with.
    fn not_compared(&mut self, uid: Uid) {
        self.awaiting_volume.remove(&uid);
        self.counted.insert(uid);
    }
}

impl Observation {
    fn count_in(
        &self,
        state: &mut State,
        key: &ClaimKey,
        uid: &Uid,
        upstream: &Volume,
        comparison: Comparison,
    ) {
        // Each claim is told: a field `why` or `error` would be logged once a second, for one of them.
        let Comparison { outcome, bindery, why: reason } = comparison;
        state.counted.insert(uid.clone());
        let (upstream, bindery) = (&upstream.name, bindery.as_deref().unwrap_or_default());
        let object = Key::Claim(key.clone());
        match outcome {
            Compared::Same | Compared::Tie => {
                let outcome = outcome.name();
                tracing::debug!(%object, %uid, %upstream, bindery, outcome, reason, "compared");
            }
            Compared::Different => {
                tracing::warn!(
                    %object, %uid, %upstream, bindery, reason,
                    "upstream bound the claim otherwise"
                );
            }
            Compared::Policy => {
                tracing::info!(%object, %uid, %upstream, reason, "upstream bound a claim of a policy");
            }
            Compared::NotComparable => {
                tracing::info!(
                    %object, %uid, %upstream, bindery, reason,
                    "upstream's choice cannot be compared"
                );
            }
        }
        // Afterwards, so that the log line exists when the counter changes.
        self.outcomes[outcome as usize].inc();
    }
}

/// Compares upstream's choice of `volume` with Bindery's decision about `claim`; both as they were before the
/// bind.
fn compare<P: Port>(
    binder: &Binder<P>,
    state: &State,
    claim: &Arc<Claim>,
    volume: &Volume,
    via: Via,
) -> Comparison {
    if !binder.store().synced() {
        return Comparison::unknown("the first lists were not complete");
    }
    if via == Via::List {
        return Comparison::unknown("the watch was interrupted meanwhile");
    }
    match binder.policy_of(claim) {
        Ok(None) => {}
        Ok(Some(policy)) => {
            let why = format!("policy {policy} applies to the claim");
            return Comparison { outcome: Compared::Policy, bindery: None, why };
        }
        Err(waits) => return Comparison::unknown(&waits.to_string()),
    }
    let ours = match binder.foresee(claim) {
        Foreseen::Binds(name) if name == volume.name => {
            return Comparison { outcome: Compared::Same, bindery: Some(name), why: String::new() };
        }
        Foreseen::Binds(name) => name,
        Foreseen::Waits(why) => {
            let obstacles = binder.store().obstacles(claim, &volume.name).unwrap_or_default();
            let why = if obstacles.is_empty() { why } else { list(&obstacles) };
            return Comparison { outcome: Compared::Different, bindery: None, why };
        }
        Foreseen::Unknown(why) => return Comparison::unknown(&why),
    };
    let Lookup::Found(other) = binder.store().volume(Source::Cache, &ours) else {
        return Comparison::unknown("the volume that Bindery prefers cannot be read");
    };
    let known = [Some(&claim.version), Some(&volume.version), state.last_choice.as_ref()];
    if known.into_iter().flatten().all(|version: &Version| is_newer(&other.version, version)) {
        let why = "the volume that Bindery prefers changed while upstream was choosing".to_owned();
        return Comparison { outcome: Compared::NotComparable, bindery: Some(ours), why };
    }
    let obstacles = binder.store().obstacles(claim, &volume.name).unwrap_or_default();
    let (outcome, why) = rank(volume, &other, &list(&obstacles));
    Comparison { outcome, bindery: Some(ours), why }
}

/// Compares upstream's volume with Bindery's by upstream's order: reserved for the claim, fewest access
/// modes, smallest.
fn rank(upstream: &Volume, bindery: &Volume, obstacles: &str) -> (Compared, String) {
    let (modes, capacity) =
        (|volume: &Volume| volume.access_set().len(), |volume: &Volume| volume.capacity.unwrap_or_default());
    let why = if !obstacles.is_empty() {
        format!("upstream's volume does not fit: {obstacles}")
    } else if upstream.claim_ref.is_some() != bindery.claim_ref.is_some() {
        "one of the volumes is reserved for the claim".to_owned()
    } else if modes(upstream) != modes(bindery) {
        format!("upstream's volume has {} access modes, Bindery's {}", modes(upstream), modes(bindery))
    } else if capacity(upstream) != capacity(bindery) {
        format!("upstream's volume has {}, Bindery's {}", capacity(upstream), capacity(bindery))
    } else {
        return (Compared::Tie, "the volumes are equally good".to_owned());
    };
    (Compared::Different, why)
}

fn is_reserved_for(volume: &Volume, uid: &Uid) -> bool {
    volume.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.as_ref() == Some(uid))
}

fn waits_for_consumer(store: &Store, claim: &Claim) -> bool {
    claim.volume_name.is_none() && store.waits_for_consumer(claim)
}

/// Whether a claim that upstream has bound could have been steered, if its namespace and class were in scope.
fn is_steerable(store: &Store, claim: &Claim) -> bool {
    let is_static = match store.class(claim.class_or_empty()) {
        Lookup::Found(class) => *class.provisioner == *NO_PROVISIONER,
        Lookup::Absent => true,
        Lookup::Unreadable(_) | Lookup::Failed(_) => false,
    };
    let is_free = claim.volume_name.is_none() && !claim.data_source;
    claim.class.is_some() && is_static && is_free && steering_key(&claim.key).is_some()
}

fn list(obstacles: &[impl fmt::Display]) -> String {
    obstacles.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Comparison {
    fn unknown(why: &str) -> Self {
        Self { outcome: Compared::NotComparable, bindery: None, why: why.to_owned() }
    }
}
