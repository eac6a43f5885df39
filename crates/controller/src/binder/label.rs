//! Mode steer, for classes that wait for a pod: labels on the volumes among which the scheduler may choose.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::steer::{RELEASED, Reservation, SteerWrite, steering_key};
use bindery_core::{Claim, ClaimKey, Lookup, Query, Request, Selector, Source, Subject, Text, Volume};
use bindery_policy::Scored;
use bindery_store::{Fact, Revision, Wanted, WantedSets};

use super::Binder;
use crate::intake::Role;
use crate::labels::{Candidate, labels};
use crate::{Key, Port, SyncError};

/// Which volumes shall have a claim's label, and what this rests on.
struct Offer {
    volumes: Vec<Arc<Volume>>,
    since: Revision,
    facts: Vec<Fact>,
}

impl<P: Port> Binder<P> {
    /// Puts the label of a claim whose class waits on the volumes that it may get once a pod needs it, and
    /// removes it from others. Returns whether the claim is one like that.
    pub(super) async fn label(&self, key: &ClaimKey) -> Result<bool, SyncError> {
        let since = self.store.revision();
        let claim = match self.store.claim(Source::Overlay, key) {
            Lookup::Found(claim) => Some(claim).filter(|claim| claim.waits_steered()),
            Lookup::Unreadable(_) => return Ok(true),
            Lookup::Absent | Lookup::Failed(_) => None,
        };
        let labelled = self.store.volumes_labelled(key);
        let Some(claim) = claim.filter(|claim| self.store.waits_for_consumer(claim)) else {
            self.relabel(key, None, &labelled, &[]).await?;
            return Ok(false);
        };
        let of_pods = self.store.claims_of_waiting_pods(key);
        let is_needed = !labelled.is_empty() || !of_pods.is_empty();
        // The scheduler has chosen, and upstream binds. A write would only be in the way.
        let is_chosen = self.store.volumes_naming(key).iter().any(|volume| volume.is_bound_to(&claim));
        let mut facts = vec![
            Fact::Pods(key.clone()),
            Fact::UnreadablePods(key.namespace.clone()),
            Fact::ReservedFor(key.clone()),
            Fact::Class(claim.class_or_empty().into()),
        ];
        if is_chosen || !is_needed {
            self.subscribe_claim(key, since, facts);
            return Ok(true);
        }
        let offer = self.offer(&claim, of_pods, since).await?;
        facts.extend(offer.facts);
        let volumes = labelled.iter().chain(&offer.volumes);
        facts.extend(volumes.map(|volume| Fact::Volume(Source::Overlay, volume.name.clone())));
        self.subscribe_claim(key, offer.since, facts);
        self.relabel(key, Some(&claim), &labelled, &offer.volumes).await?;
        Ok(true)
    }

    /// Gives the claim a turn when one of the facts changes. Those of its last turn count no more.
    pub(super) fn subscribe_claim(&self, key: &ClaimKey, since: Revision, facts: Vec<Fact>) {
        let subscriber = (Key::Claim(key.clone()), Role::Sync);
        if self.intake.turns().subscriptions.subscribe(subscriber, since, facts) {
            self.intake.enqueue(Key::Claim(key.clone()));
        }
    }

    /// The volumes among which the scheduler may choose for a claim whose class waits.
    ///
    /// # Errors
    ///
    /// A policy does not answer.
    pub async fn offered(&self, claim: &Arc<Claim>) -> Result<Vec<Arc<Volume>>, SyncError> {
        let (since, of_pods) = (self.store.revision(), self.store.claims_of_waiting_pods(&claim.key));
        Ok(self.offer(claim, of_pods, since).await?.volumes)
    }

    /// The volumes that a claim is offered, beside those of the other claims of its pods.
    async fn offer(
        &self,
        claim: &Arc<Claim>,
        of_pods: BTreeSet<ClaimKey>,
        mut since: Revision,
    ) -> Result<Offer, SyncError> {
        let mut claims = vec![Arc::clone(claim)];
        let mut facts = Vec::new();
        for key in of_pods.into_iter().filter(|key| *key != claim.key) {
            facts.push(Fact::Claim(Source::Overlay, key.clone()));
            if let Lookup::Found(other) = self.store.claim(Source::Overlay, &key)
                && other.waits_steered()
                && self.store.waits_for_consumer(&other)
            {
                claims.push(other);
            }
        }
        // All of them get the same answer.
        claims.sort_by(|a, b| a.key.cmp(&b.key));
        let (mut candidates, mut volumes) = (Vec::new(), Vec::new());
        for other in &claims {
            let (of_claim, seen) = self.candidates(other, &mut facts).await?;
            since = since.min(seen);
            candidates.push(of_claim.iter().map(candidate).collect::<Vec<_>>());
            if other.key == claim.key {
                volumes = of_claim.into_iter().map(|(volume, _)| volume).collect();
            }
        }
        let place = claims.iter().position(|other| other.key == claim.key).unwrap_or_default();
        let chosen = labels(&candidates).swap_remove(place);
        volumes.retain(|volume| chosen.contains(&volume.name));
        Ok(Offer { volumes, since, facts })
    }

    /// The volumes that a claim may get, with their scores, and since when that is so.
    async fn candidates(
        &self,
        claim: &Arc<Claim>,
        facts: &mut Vec<Fact>,
    ) -> Result<(Vec<Scored>, Revision), SyncError> {
        if let Some(Selector::Invalid(_)) = claim.selector {
            return Ok((Vec::new(), self.store.revision()));
        }
        let allowed = self.decider.allowed(claim).await?;
        let request = Request { now: self.port.now(), subject: Subject::SyncClaim(Arc::clone(claim)) };
        facts.extend(self.decider.policies.facts(&request));
        let query = Arc::new(Query::of_claim(claim, claim.access_set()));
        facts.push(Fact::Candidates(Wanted { query, sets: WantedSets::Containing, narrowed: None }));
        let numbers = allowed.rests.rejected.into_iter();
        facts.extend(numbers.map(|(siblings, value)| Fact::Siblings(siblings.into(), value)));
        Ok((allowed.volumes, allowed.since))
    }

    /// Makes the labels of a claim those that are wanted, removals first.
    async fn relabel(
        &self,
        key: &ClaimKey,
        claim: Option<&Claim>,
        labelled: &[Arc<Volume>],
        wanted: &[Arc<Volume>],
    ) -> Result<(), SyncError> {
        let Some(label) = steering_key(key) else { return Ok(()) };
        let value = |volume: &Volume| volume.labels.get(&*label).cloned();
        let names: BTreeSet<&Text> = wanted.iter().map(|volume| &volume.name).collect();
        let stays = |volume: &Volume| match value(volume).as_deref() {
            Some("") => true,
            Some(RELEASED) => claim.is_some(),
            Some(_) | None => false,
        };
        for volume in labelled.iter().filter(|volume| !names.contains(&volume.name) && !stays(volume)) {
            let write = SteerWrite::Unlabel { volume: volume.target(), claim: key.clone() };
            self.checked(&write).await?;
        }
        let Some(claim) = claim else { return Ok(()) };
        let is_done = |volume: &Volume| stays(volume) || value(volume).as_ref() == Some(&claim.uid.0);
        for volume in wanted.iter().filter(|volume| !is_done(volume)) {
            let write = SteerWrite::Label { volume: volume.target(), reservation: Reservation::of(claim) };
            self.checked(&write).await?;
        }
        Ok(())
    }
}

fn candidate((volume, score): &Scored) -> Candidate {
    Candidate { volume: volume.name.clone(), topology: volume.topology, score: *score }
}
