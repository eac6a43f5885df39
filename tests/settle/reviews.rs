//! Admission and the binder agree.
//!
//! Before a calm world starts, every claim and volume is reviewed as if it were created now, and as if it
//! were updated from several earlier states. Guard and engine must agree about every finding that denies;
//! the law tells the guard what policies say. An update is denied for the same reasons as the creation of its
//! object, except for those that held before. A claim that a missing policy holds cannot be reviewed.
//!
//! After the world has settled, a pair that was denied or told to wait has not bound while the volume's spec
//! stayed the same, and a claim without findings has the volume that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_controller::{Binder, Reads, Reviewed};
use bindery_core::{
    Answer, Claim, ClaimKey, ClaimRef, Exchange, Finding, Lookup, MatchVerdict, Quantity, Question, Rule,
    Source, Text, Uid, Volume, guard,
};

use crate::law::{Api, State, is_allowed, is_held, is_pair, uid_in};

/// The predictions of the reviews at the beginning of a world for its end.
#[derive(Default)]
pub(crate) struct Predictions {
    /// Pairs that never bind: a review denies one of the two, or says that it waits.
    never: Vec<Pair>,
    /// Pairs that bind unless another claim is faster: the claim names the volume and has no findings.
    surely: Vec<Pair>,
    /// How many updates were denied because they break a pair.
    breaks: usize,
    /// How many claims were denied a free volume because a policy rejects it.
    rejected: usize,
}

struct Pair {
    claim: Arc<Claim>,
    volume: Arc<Volume>,
}

impl Predictions {
    /// Number of pairs that never bind; of pairs that surely bind; of the latter with a claim that is marked
    /// as bound and is not; of updates that break a pair; and of pairs that a policy rejects.
    pub(crate) fn counts(&self) -> [usize; 5] {
        let is_marked =
            |pair: &&Pair| pair.claim.annotations.bind_completed && !is_pair(&pair.claim, &pair.volume);
        let marked = self.surely.iter().filter(is_marked).count();
        [self.never.len(), self.surely.len(), marked, self.breaks, self.rejected]
    }
}

/// Reviews every object of a world as it is about to start. Policies that are not steady foretell nothing.
pub(crate) async fn predict(binder: &Binder<Api>, api: &Api) -> Result<Predictions, String> {
    let (volumes, claims) = {
        let state = api.objects();
        (state.volumes.clone(), state.claims.clone())
    };
    let answers = answers(volumes.values(), claims.values());
    let predictions = Predictions::default();
    let mut reviewer = Reviewer { binder, api, volumes, claims, answers, predictions };
    // Admission ignores objects that are being deleted.
    let is_reviewed = |claim: &&Arc<Claim>| !claim.deleting && !is_held(&api.objects(), claim);
    for claim in reviewer.claims.clone().values().filter(is_reviewed) {
        reviewer.review_claim(claim).await?;
    }
    for volume in reviewer.volumes.clone().values().filter(|volume| !volume.deleting) {
        reviewer.review_volume(volume).await?;
    }
    let Reviewer { predictions, .. } = reviewer;
    Ok(if api.objects().extra.policies.are_steady() { predictions } else { Predictions::default() })
}

/// Reviews the objects of a world.
struct Reviewer<'a> {
    binder: &'a Binder<Api>,
    api: &'a Api,
    volumes: BTreeMap<Text, Arc<Volume>>,
    claims: BTreeMap<ClaimKey, Arc<Claim>>,
    /// All of them, as answers of live reads, for the guard.
    answers: Vec<Exchange>,
    predictions: Predictions,
}

impl Reviewer<'_> {
    async fn review_claim(&mut self, claim: &Arc<Claim>) -> Result<(), String> {
        let created = self.review(Reviewed::Claim { new: claim.clone(), old: None }).await?;
        for old in self.claims_before(claim) {
            let before = self.review(Reviewed::Claim { new: old.clone(), old: None }).await?;
            let updated = Reviewed::Claim { new: claim.clone(), old: Some(old.clone()) };
            let left = self.named(&old).filter(|volume| is_pair(&old, volume)).cloned();
            let left = left.filter(|_| claim.volume_name != old.volume_name);
            self.review_update(&created, &before, updated, left.is_some()).await?;
            // A claim without volumeName, which no API server admits here, may find its volume again.
            if let Some(volume) = left.filter(|_| claim.volume_name.is_some()) {
                self.predictions.never.push(Pair { claim: claim.clone(), volume });
            }
        }
        let Some(volume) = self.named(claim).cloned() else { return Ok(()) };
        let pair = Pair { claim: claim.clone(), volume };
        let rejected = created.iter().filter(|finding| finding.rule == Rule::VolumeRejected);
        self.predictions.rejected += rejected.count();
        let waits = |rule| matches!(rule, Rule::VolumeReserved | Rule::VolumeLeaving);
        if created.iter().any(|finding| finding.rule.denies() || waits(finding.rule)) {
            self.predictions.never.push(pair);
        } else if created.is_empty() && !pair.volume.deleting {
            // A claim that is marked as bound gets a free volume that is being deleted, unless that is gone
            // first.
            self.predictions.surely.push(pair);
        }
        Ok(())
    }

    async fn review_volume(&mut self, volume: &Arc<Volume>) -> Result<(), String> {
        let created = self.review(Reviewed::Volume { new: volume.clone(), old: None }).await?;
        for old in self.volumes_before(volume) {
            let before = self.review(Reviewed::Volume { new: old.clone(), old: None }).await?;
            let updated = Reviewed::Volume { new: volume.clone(), old: Some(old.clone()) };
            let left = self.owner(&old).filter(|claim| is_pair(claim, &old)).cloned();
            let left = left.filter(|_| volume.claim_ref != old.claim_ref);
            self.review_update(&created, &before, updated, left.is_some()).await?;
            // Without claimRef the volume gets its claim back, unless another claim is faster.
            if let Some(claim) = left.filter(|_| volume.claim_ref.is_some()) {
                self.predictions.never.push(Pair { claim, volume: volume.clone() });
            }
        }
        for finding in created.iter().filter(|finding| finding.rule.denies()) {
            let claim = finding.claim.as_ref().and_then(|key| self.claims.get(key));
            let claim = claim.expect("a volume is denied for a claim that is there").clone();
            self.predictions.never.push(Pair { claim, volume: volume.clone() });
        }
        Ok(())
    }

    /// Earlier states of a claim: without volumeName, with the same or another one, marked as bound or not;
    /// and bound to each volume that carries its UID.
    fn claims_before(&self, claim: &Arc<Claim>) -> Vec<Arc<Claim>> {
        let another = self.volumes.keys().find(|name| claim.volume_name.as_ref() != Some(*name));
        let names = [None, claim.volume_name.clone(), another.cloned()];
        let mut before: Vec<_> =
            names.into_iter().flat_map(|name| [(name.clone(), false), (name, true)]).collect();
        let own = self.volumes.values().filter(|volume| uid_in(volume) == Some(&claim.uid));
        before.extend(own.map(|volume| (Some(volume.name.clone()), true)));
        let before = before.into_iter().map(|(volume_name, bind_completed)| {
            let mut before = Claim { volume_name, ..Claim::clone(claim) };
            before.annotations.bind_completed = bind_completed;
            Arc::new(before)
        });
        before.filter(|before| before != claim).collect()
    }

    /// Earlier states of a volume: without claimRef, reserved for another claim or for one that names it, or
    /// large enough for all.
    fn volumes_before(&self, volume: &Arc<Volume>) -> Vec<Arc<Volume>> {
        let claim_ref = |claim: &Arc<Claim>| {
            let ClaimKey { namespace, name } = claim.key.clone();
            Some(ClaimRef { namespace, name, uid: Some(claim.uid.clone()) })
        };
        let another = self.claims.values().map(claim_ref).find(|claim_ref| *claim_ref != volume.claim_ref);
        let names_it = |claim: &&Arc<Claim>| claim.volume_name.as_ref() == Some(&volume.name);
        let mut claim_refs: Vec<_> = self.claims.values().filter(names_it).map(claim_ref).collect();
        claim_refs.extend(another);
        claim_refs.push(None);
        let before = claim_refs.into_iter().map(|claim_ref| Volume { claim_ref, ..Volume::clone(volume) });
        let large = Volume { capacity: Some(Quantity::bytes(u64::MAX)), ..Volume::clone(volume) };
        before.chain([large]).map(Arc::new).filter(|before| before != volume).collect()
    }

    /// An update is denied for the reasons that would deny the creation of its object, unless they held
    /// before, and if it breaks a pair.
    async fn review_update(
        &mut self,
        created: &[Finding],
        before: &[Finding],
        updated: Reviewed,
        is_broken: bool,
    ) -> Result<(), String> {
        fn denying(findings: &[Finding]) -> BTreeSet<(&str, &Text, Option<&ClaimKey>)> {
            let denying =
                findings.iter().filter(|finding| finding.rule.denies() && finding.rule != Rule::BreaksPair);
            denying.map(|finding| (finding.rule.name(), &finding.volume, finding.claim.as_ref())).collect()
        }
        let found = self.review(updated.clone()).await?;
        let breaks = found.iter().any(|finding| finding.rule == Rule::BreaksPair);
        if breaks != is_broken {
            return Err(format!("{updated:?}: breaks a pair: {is_broken}, but the findings are {found:?}"));
        }
        self.predictions.breaks += usize::from(breaks);
        let expected: BTreeSet<_> = denying(created).difference(&denying(before)).copied().collect();
        match denying(&found) {
            found if found == expected => Ok(()),
            found => Err(format!(
                "{updated:?}: the update is denied for {found:?}, and its content for {expected:?}"
            )),
        }
    }

    /// The findings about an object. Live reads find the same as caches, and the guard agrees.
    async fn review(&self, reviewed: Reviewed) -> Result<Vec<Finding>, String> {
        let why = |error| format!("{reviewed:?} cannot be reviewed: {error}");
        let findings = self.binder.review(reviewed.clone(), Reads::Cached).await.map_err(why)?;
        let again = self.binder.review(reviewed.clone(), Reads::Live).await.map_err(why)?;
        if findings != again {
            return Err(format!("{reviewed:?}: {findings:?}, then {again:?}"));
        }
        self.agree(reviewed, &findings)?;
        Ok(findings)
    }

    /// Checks that guard and engine agree about every rule that denies.
    fn agree(&self, reviewed: Reviewed, findings: &[Finding]) -> Result<(), String> {
        let objects: BTreeSet<(Option<Text>, Option<ClaimKey>)> = match &reviewed {
            Reviewed::Claim { new, old } => [Some(new), old.as_ref()]
                .into_iter()
                .flatten()
                .map(|c| (c.volume_name.clone(), None))
                .collect(),
            Reviewed::Volume { new, old } => [Some(new), old.as_ref()]
                .into_iter()
                .flatten()
                .map(|v| (Some(v.name.clone()), v.claim_ref.as_ref().map(key)))
                .collect(),
        };
        let mut told = self.answers.clone();
        if let Reviewed::Claim { new, .. } = &reviewed {
            told.extend(self.verdicts(new));
        }
        let is_claim = matches!(reviewed, Reviewed::Claim { .. });
        let subject = reviewed.into();
        for (volume, claim) in objects {
            let Some(volume) = volume else { continue };
            for rule in Rule::ALL.into_iter().filter(|rule| rule.denies()) {
                let [found, wanted] = ["".into(), "".into()];
                let claim = claim.clone();
                let finding = Finding { rule, volume: volume.clone(), claim, found, wanted };
                let is_same = |one: &&Finding| {
                    (one.rule, &one.volume) == (rule, &volume) && (is_claim || one.claim == finding.claim)
                };
                let is_found = findings.iter().find(is_same).is_some();
                if guard::confirms(&finding, &subject, &told) != is_found {
                    return Err(format!(
                        "{finding:?} of {subject:?}: the engine finds {is_found}, the guard otherwise"
                    ));
                }
            }
        }
        Ok(())
    }

    /// What the policies say about each volume, by the rules that they are made of.
    fn verdicts(&self, claim: &Claim) -> Vec<Exchange> {
        let state = self.api.objects();
        let verdict = |volume: &Arc<Volume>| match is_allowed(&state, claim, volume) {
            true => MatchVerdict::Allowed,
            false => MatchVerdict::Rejected { policy: "".into(), reason: "".into() },
        };
        let told = |volume: &Arc<Volume>| Exchange {
            question: Question::Verdict(volume.name.clone()),
            answer: Answer::Verdict(verdict(volume)),
        };
        self.volumes.values().map(told).collect()
    }

    /// The volume that a claim names.
    fn named(&self, claim: &Claim) -> Option<&Arc<Volume>> {
        self.volumes.get(claim.volume_name.as_ref()?)
    }

    /// The claim that a volume's claimRef names.
    fn owner(&self, volume: &Volume) -> Option<&Arc<Claim>> {
        self.claims.get(&key(volume.claim_ref.as_ref()?))
    }
}

fn key(claim_ref: &ClaimRef) -> ClaimKey {
    ClaimKey { namespace: claim_ref.namespace.clone(), name: claim_ref.name.clone() }
}

/// The objects as answers of live reads.
fn answers<'a>(
    volumes: impl Iterator<Item = &'a Arc<Volume>>,
    claims: impl Iterator<Item = &'a Arc<Claim>>,
) -> Vec<Exchange> {
    let volumes = volumes.map(|volume| Exchange {
        question: Question::Volume(Source::Live, volume.name.clone()),
        answer: Answer::Volume(Lookup::Found(volume.clone())),
    });
    let claims = claims.map(|claim| Exchange {
        question: Question::Claim(Source::Live, claim.key.clone()),
        answer: Answer::Claim(Lookup::Found(claim.clone())),
    });
    volumes.chain(claims).collect()
}

/// The predictions that the settled world refutes.
pub(crate) fn refuted(state: &State, predictions: &Predictions) -> Vec<String> {
    let bound = predictions.never.iter().filter(|pair| has_bound(state, pair));
    let bound = bound.map(|pair| format!("{}: denied or told to wait, and it has bound", pair.names()));
    let unbound = predictions.surely.iter().filter(|pair| waits_alone(state, pair));
    let unbound = unbound.map(|pair| format!("{}: no findings, and it does not bind", pair.names()));
    bound.chain(unbound).collect()
}

/// Whether the pair has bound while the volume's spec was unchanged: the first change of its claimRef, if
/// any, bound it.
fn has_bound(state: &State, Pair { claim, volume }: &Pair) -> bool {
    let mut states = state.past_volumes.iter().filter(|state| state.uid == volume.uid);
    match states.find(|state| state.claim_ref != volume.claim_ref) {
        Some(changed) => uid_in(changed) == Some(&claim.uid) && uid_in(volume) != Some(&claim.uid),
        None => is_now_pair(state, &claim.key, &claim.uid, &volume.name) && !is_pair(claim, volume),
    }
}

/// Whether neither the claim nor another claim that did not have the volume before has got it.
fn waits_alone(state: &State, Pair { claim, volume }: &Pair) -> bool {
    let is_taken = state.volumes.get(&volume.name).is_some_and(|now| {
        uid_in(now).is_some_and(|uid| {
            let is_new = *uid == claim.uid || Some(uid) != uid_in(volume);
            is_new && state.claims.values().any(|claim| claim.uid == *uid && is_pair(claim, now))
        })
    });
    !is_taken
}

fn is_now_pair(state: &State, key: &ClaimKey, uid: &Uid, volume: &Text) -> bool {
    match (state.claims.get(key), state.volumes.get(volume)) {
        (Some(claim), Some(volume)) => claim.uid == *uid && is_pair(claim, volume),
        _ => false,
    }
}

impl Pair {
    fn names(&self) -> String {
        format!("claim {} and volume {}", self.claim.key, self.volume.name)
    }
}
