//! Steered claims of classes that wait for a pod, in modes steer and own: labels on the volumes among which
//! the scheduler may choose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bindery_core::steer::{Reservation, SteerWrite, released_label, steered_to, steering_key};
use bindery_core::{
    Claim, ClaimKey, Counted, Key, Lookup, Query, Regarding, Request, Selector, Source, Subject, Text, Volume,
};
use bindery_policy::{AllowedVolumes, Rejections};
use bindery_store::{Fact, Revision, Wanted, WantedSets};

use super::decide::Asked;
use super::repeats::{LONG, Repeated};
use super::{Binder, Mode, Policies, Synced};
use crate::intake::Role;
use crate::labels::{ClaimCandidates, are_enough, labels};
use crate::queue::KeyLock;
use crate::shadow::{Active, Made, Offered};
use crate::{Port, Shadow, SyncError};

/// The volumes that shall have a claim's label, and what this rests on.
struct LabelProposal {
    volumes: Vec<Arc<Volume>>,
    /// Where there are none because the policies reject them.
    rejections: Option<Rejections>,
    since: Revision,
    facts: Vec<Fact>,
    /// Its claims, for shadows to make it again.
    claims: Vec<Arc<Claim>>,
    place: usize,
    policies: Arc<Policies>,
    counted: Vec<Counted>,
    /// The store that all claims were looked up in; `None` if it has changed in between.
    at: Option<Revision>,
}

/// What a turn has done about the labels of a claim.
#[derive(Default)]
struct Labelled {
    /// Whether the scheduler chooses the volume of the claim.
    waits: bool,
    /// Whether the user was told why no volume can be chosen.
    is_told: bool,
    /// When a label is written that others change again and again.
    again: Option<Duration>,
}

impl<P: Port> Binder<P> {
    /// Takes the turn of a key in modes own and steer, the labels of a claim first.
    pub(super) async fn sync_with_labels(&self, lock: &mut KeyLock) -> Synced {
        // Dropped when the turn has ended, whether or not it has asked for volumes in both roles.
        let _asked = [Role::Sync, Role::Label]
            .map(|role| Asked { intake: &self.intake, subscriber: (lock.key().clone(), role) });
        let (labelled, enqueue) = match lock.key().clone() {
            Key::Claim(key) => (self.label(&key).await, Vec::new()),
            // A label that was left needs a turn of its claim, which may be gone.
            Key::Volume(name) => (Ok(Labelled::default()), self.labels_of(&name)),
        };
        let mut synced = match (self.settings.mode, &labelled) {
            (Mode::Steer, Err(_)) => Synced::ended(Ok(())),
            // Upstream's binder binds what the scheduler takes, so nothing is chosen for the claim, although
            // it may have been before its class was there.
            (Mode::Steer, Ok(Labelled { waits: true, .. })) => {
                self.intake.turns().subscriptions.unsubscribe(&(lock.key().clone(), Role::Sync));
                Synced::ended(Ok(()))
            }
            (Mode::Steer, Ok(_)) => self.steer(lock).await,
            (Mode::Own | Mode::Observe, _) => self.sync_inner(lock).await,
        };
        synced.enqueue.extend(enqueue);
        match labelled {
            Ok(Labelled { again, is_told, .. }) => {
                synced.requeue_after = soonest(synced.requeue_after, again);
                let refresh_after = is_told.then_some(self.settings.event_refresh);
                synced.refresh_after = soonest(synced.refresh_after, refresh_after);
            }
            Err(error) => {
                if let Key::Claim(key) = lock.key() {
                    self.report_refused_write(key, &error);
                }
                synced.result = synced.result.and(Err(error));
            }
        }
        synced
    }

    /// The claims whose labels a volume has.
    fn labels_of(&self, volume: &Text) -> Vec<Key> {
        let volume = self.store.volume(Source::Overlay, volume).found();
        volume.iter().flat_map(|volume| steered_to(volume)).map(|(claim, _)| Key::Claim(claim)).collect()
    }

    /// Puts the label of a claim whose class waits on the volumes that it may get once a pod needs it, and
    /// removes it from others.
    async fn label(&self, key: &ClaimKey) -> Result<Labelled, SyncError> {
        let since = self.store.revision();
        let claim = match self.store.claim(Source::Overlay, key) {
            Lookup::Found(claim) => Some(claim),
            Lookup::Unreadable(_) => return Ok(Labelled { waits: true, ..Labelled::default() }),
            Lookup::Absent | Lookup::Failed(_) => None,
        };
        let labelled = self.store.volumes_labelled(key);
        let subscriber = (Key::Claim(key.clone()), Role::Label);
        let Some(claim) = claim.filter(|claim| self.waits_for_scheduler(claim)) else {
            self.intake.turns().subscriptions.unsubscribe(&subscriber);
            let again = self.unlabel(key, None, &labelled).await?;
            return Ok(Labelled { again, ..Labelled::default() });
        };
        let of_pods = self.store.claims_of_waiting_pods(key);
        let is_needed = !labelled.is_empty() || !of_pods.is_empty();
        // The scheduler has chosen, and upstream binds. A write would only be in the way.
        let naming = self.store.volumes_naming(key);
        let is_chosen = naming.iter().any(|volume| volume.is_bound_to(&claim));
        let mut facts = vec![
            Fact::Pods(key.clone()),
            Fact::UnreadablePods(key.namespace.clone()),
            Fact::ReservedFor(key.clone()),
            Fact::Class(claim.class_or_empty().into()),
        ];
        if is_chosen || !is_needed {
            self.subscribe(&subscriber, since, facts);
            let is_told = is_chosen && self.report_unfit(&claim, &naming);
            return Ok(Labelled { waits: true, is_told, again: None });
        }
        let proposal = self.propose(&claim, of_pods, since).await.inspect_err(|error| {
            if let SyncError::Policy { policy, .. } = error {
                self.report_policy(&self.request_of(&claim), policy, error);
            }
        })?;
        self.offer_to_shadows(&claim, &proposal);
        facts.extend(proposal.facts);
        let volumes = labelled.iter().chain(&proposal.volumes);
        facts.extend(volumes.map(|volume| Fact::Volume(Source::Overlay, volume.name.clone())));
        self.subscribe(&subscriber, proposal.since, facts);
        let unwanted =
            |volume: &&Arc<Volume>| !proposal.volumes.iter().any(|wanted| wanted.name == volume.name);
        let unwanted: Vec<_> = labelled.iter().filter(unwanted).cloned().collect();
        let removed = self.unlabel(key, Some(&claim), &unwanted).await;
        // A volume whose label stays keeps the claim from no other one.
        let put = match removed {
            Err(error) if !error.is_refused_write() => return Err(error),
            removed => {
                self.label_all(&claim, &proposal.volumes).await.and_then(|again| removed.map(|_| again))
            }
        };
        if matches!(put, Err(SyncError::Refused(_))) && !self.is_still_offered(key, &proposal.volumes).await {
            let why = "the volumes that it may get have changed".to_owned();
            return Err(SyncError::Stale { attempts: 1, why });
        }
        let again = put?;
        if let Some(rejections) = &proposal.rejections {
            self.tell_rejections(Regarding::Claim(claim.target()), rejections);
        }
        Ok(Labelled { waits: true, is_told: proposal.rejections.is_some(), again })
    }

    /// Asks the shadows for their own proposals.
    fn offer_to_shadows(&self, claim: &Arc<Claim>, proposal: &LabelProposal) {
        let LabelProposal { volumes, claims, place, policies, counted, at: Some(at), .. } = proposal else {
            return;
        };
        let labels = Shadow::looks_at_labels;
        self.shadows.offer(policies, &claim.uid, labels, || Made {
            engine: self.decider.engine(),
            policies: Arc::clone(policies),
            request: self.request_of(claim),
            exchanges: Vec::new(),
            active: Active::Offered(Offered {
                claims: claims.clone(),
                place: *place,
                volumes: names(volumes),
            }),
            at: *at,
            counted: counted.clone(),
            rejections: None,
        });
    }

    /// Whether the scheduler chooses the volume of a claim among those with its label.
    fn waits_for_scheduler(&self, claim: &Claim) -> bool {
        claim.waits_steered() && self.store.waits_for_consumer(claim)
    }

    fn request_of(&self, claim: &Arc<Claim>) -> Request {
        Request { now: self.port.now(), subject: Subject::SyncClaim(Arc::clone(claim)) }
    }

    /// The volumes among which the scheduler may choose for each of these claims whose class waits. If some
    /// nodes reach enough for all, no claim can take the last one of another, as if one pod used them all.
    ///
    /// # Errors
    ///
    /// A policy does not answer.
    pub async fn offered(
        &self,
        claims: &[Arc<Claim>],
    ) -> Result<BTreeMap<ClaimKey, BTreeSet<Text>>, SyncError> {
        let policies = self.decider.policies.get();
        let waiting: Vec<_> = claims.iter().filter(|claim| self.waits_for_scheduler(claim)).collect();
        let mut candidates = Vec::new();
        for claim in &waiting {
            let (allowed, _) = self.candidates(&policies, claim, &mut Vec::new()).await?;
            candidates.push(ClaimCandidates::of(claim, &allowed.volumes));
        }
        if are_enough(&candidates) {
            let keys = waiting.iter().map(|claim| claim.key.clone());
            return Ok(keys.zip(labels(&candidates)).collect());
        }
        let mut offered = BTreeMap::new();
        for claim in waiting {
            let of_pods = self.store.claims_of_waiting_pods(&claim.key);
            let volumes = self.propose(claim, of_pods, self.store.revision()).await?.volumes;
            offered.insert(claim.key.clone(), names(&volumes));
        }
        Ok(offered)
    }

    /// The volumes that a claim is offered, beside those of the other claims of its pods.
    async fn propose(
        &self,
        claim: &Arc<Claim>,
        of_pods: BTreeSet<ClaimKey>,
        mut since: Revision,
    ) -> Result<LabelProposal, SyncError> {
        let policies = self.decider.policies.get();
        let mut claims = vec![Arc::clone(claim)];
        let (mut facts, mut counted, mut revisions) = (Vec::new(), Vec::new(), BTreeSet::new());
        for key in of_pods.into_iter().filter(|key| *key != claim.key) {
            facts.push(Fact::Claim(Source::Overlay, key.clone()));
            if let Lookup::Found(other) = self.store.claim(Source::Overlay, &key)
                && self.waits_for_scheduler(&other)
            {
                claims.push(other);
            }
        }
        // All of them get the same answer.
        claims.sort_by(|a, b| a.key.cmp(&b.key));
        let (mut candidates, mut own) = (Vec::new(), (0, AllowedVolumes::default()));
        for (place, other) in claims.iter().enumerate() {
            let (allowed, seen) = self.candidates(&policies, other, &mut facts).await?;
            since = since.min(seen);
            revisions.insert(seen);
            counted.extend(allowed.spread_counts.counted.iter().cloned());
            candidates.push(ClaimCandidates::of(other, &allowed.volumes));
            if other.key == claim.key {
                own = (place, allowed);
            }
        }
        let (place, AllowedVolumes { volumes, rejections, .. }) = own;
        let chosen = labels(&candidates).swap_remove(place);
        let volumes = volumes.into_iter().map(|(volume, _)| volume);
        let volumes = volumes.filter(|volume| chosen.contains(&volume.name)).collect();
        let at = revisions.first().copied().filter(|_| revisions.len() == 1);
        Ok(LabelProposal { volumes, rejections, since, facts, claims, place, policies, counted, at })
    }

    /// Whether a claim is offered the same volumes as before. If not, the guard has refused a label because
    /// of what changed meanwhile, such as the number of siblings' volumes, and nothing is wrong.
    async fn is_still_offered(&self, key: &ClaimKey, volumes: &[Arc<Volume>]) -> bool {
        let claim = self.store.claim(Source::Overlay, key).found();
        let Some(claim) = claim.filter(|claim| self.waits_for_scheduler(claim)) else { return false };
        let of_pods = self.store.claims_of_waiting_pods(key);
        let proposal = self.propose(&claim, of_pods, self.store.revision()).await;
        proposal.is_ok_and(|proposal| names(&proposal.volumes) == names(volumes))
    }

    /// The volumes that a claim may get, and since when that is so.
    async fn candidates(
        &self,
        policies: &Policies,
        claim: &Arc<Claim>,
        facts: &mut Vec<Fact>,
    ) -> Result<(AllowedVolumes, Revision), SyncError> {
        if let Some(Selector::Invalid(_)) = claim.selector {
            return Ok((AllowedVolumes::default(), self.store.revision()));
        }
        let (allowed, since) = self.decider.allowed(policies, claim).await?;
        facts.extend(policies.facts(&self.request_of(claim)));
        let query = Arc::new(Query::of_claim(claim, claim.access_set()));
        facts.push(Fact::Candidates(Wanted { query, sets: WantedSets::Containing, narrowed: None }));
        // Labels stay, so what was counted for volumes that are allowed has to stay true.
        for Counted { siblings, counts } in &allowed.spread_counts.counted {
            let siblings = Arc::new(siblings.clone());
            let of_value = |value: &Option<Text>| Fact::Siblings(Arc::clone(&siblings), value.clone());
            let of_allowed = allowed.volumes.iter().map(|(volume, _)| volume.fact(&siblings.spread.by));
            let values: BTreeSet<_> = counts.keys().cloned().chain(of_allowed).collect();
            facts.extend(values.iter().map(of_value));
        }
        let rejected = allowed.spread_counts.rejected.iter().cloned();
        facts.extend(rejected.map(|(siblings, value)| Fact::Siblings(siblings.into(), value)));
        Ok((allowed, since))
    }

    /// Removes the label of a claim from volumes, except where `bindery steer release` or a person put it.
    /// Returns when to try again where others put it back again and again for a claim that does not wait.
    /// While the claim waits, its label is removed at once: a policy may have come to reject the volume.
    /// Where the API server refuses one of these writes, the others are made all the same.
    async fn unlabel(
        &self,
        key: &ClaimKey,
        claim: Option<&Claim>,
        volumes: &[Arc<Volume>],
    ) -> Result<Option<Duration>, SyncError> {
        let (mut again, mut refused) = (None, None);
        for volume in volumes {
            let Some(value) = value_of_label(key, volume) else { continue };
            if value.is_empty() || claim.is_some_and(|claim| *value == *released_label(claim)) {
                continue;
            }
            let removal = Repeated::Unlabel(key.clone(), volume.name.clone());
            if let Some(left) = self.repeats.due(&removal).filter(|_| claim.is_none()) {
                again = soonest(again, Some(left));
                continue;
            }
            match self.checked(&SteerWrite::Unlabel { volume: volume.target(), claim: key.clone() }).await {
                Err(error) if error.is_refused_write() => {
                    refused = Some(error);
                    continue;
                }
                written => written?,
            }
            if let Some(claim) = claim {
                self.repeats.undone(&label_of(claim, volume));
            }
            self.repeats.made(removal);
        }
        refused.map_or(Ok(again), Err)
    }

    /// Puts the label of a claim on volumes. Returns when to try again where others remove it all the time.
    /// Where the API server refuses one of these writes, the others are made all the same.
    async fn label_all(&self, claim: &Claim, volumes: &[Arc<Volume>]) -> Result<Option<Duration>, SyncError> {
        let (mut again, mut refused, uid) = (None, None, &claim.uid.0);
        let is_there = |value: Text| value.is_empty() || value == *uid || *value == *released_label(claim);
        for volume in volumes {
            if value_of_label(&claim.key, volume).is_some_and(is_there) {
                continue;
            }
            let label = label_of(claim, volume);
            if let Some(left) = self.repeats.due(&label) {
                if left >= LONG {
                    self.report_unlabelled(claim, &volume.name);
                }
                again = soonest(again, Some(left));
                continue;
            }
            let write = SteerWrite::Label { volume: volume.target(), reservation: Reservation::of(claim) };
            match self.checked(&write).await {
                Err(error) if error.is_refused_write() => {
                    refused = Some(error);
                    continue;
                }
                written => written?,
            }
            self.repeats.undone(&Repeated::Unlabel(claim.key.clone(), volume.name.clone()));
            self.repeats.made(label);
        }
        refused.map_or(Ok(again), Err)
    }
}

fn names(volumes: &[Arc<Volume>]) -> BTreeSet<Text> {
    volumes.iter().map(|volume| volume.name.clone()).collect()
}

fn soonest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

/// The write that puts the label of a claim on a volume.
fn label_of(claim: &Claim, volume: &Volume) -> Repeated {
    Repeated::Label(claim.key.clone(), claim.uid.clone(), volume.name.clone())
}

/// The value of a claim's label on a volume.
fn value_of_label(claim: &ClaimKey, volume: &Volume) -> Option<Text> {
    volume.labels.get(&*steering_key(claim)?).cloned()
}
