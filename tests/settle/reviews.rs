//! The door and the binder agree: before a calm world starts, every claim and volume of it is reviewed as if
//! it were created now, and as if it were an update of what it may have been before. Each time, of everything
//! that denies, the guard must say what the engine says, and an update is denied for what its content is
//! denied for, but for what was so before.
//!
//! When the world has settled, what was denied, or was said to wait, has not bound while the volume's spec
//! stayed as it was, and a claim that nothing was said of has the volume that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_controller::{Binder, Reviewed, Sight};
use bindery_core::{
    Answer, Claim, ClaimKey, ClaimRef, Exchange, Finding, Lookup, Quantity, Question, Rule, Source, Text,
    Uid, Volume, guard,
};

use crate::law::is_pair;
use crate::server::{Inner, Server};

/// What the reviews of a world's beginning say of its end.
#[derive(Default)]
pub(crate) struct Foretold {
    /// Pairs that cannot be, each because one half of it would be denied, or told to wait.
    never: Vec<Pair>,
    /// Pairs that will be, unless another claim is faster: nothing was found of a claim that names its
    /// volume.
    surely: Vec<Pair>,
    /// Updates that were denied because they break a pair.
    breaks: usize,
}

struct Pair {
    claim: Arc<Claim>,
    volume: Arc<Volume>,
}

impl Foretold {
    /// How many pairs cannot be, and how many will be; how many of these are of claims that are marked as
    /// bound and are not; and how many updates break a pair.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let is_marked =
            |pair: &&Pair| pair.claim.annotations.bind_completed && !is_pair(&pair.claim, &pair.volume);
        let marked = self.surely.iter().filter(is_marked).count();
        [self.never.len(), self.surely.len(), marked, self.breaks]
    }
}

/// Reviews every object of a world as it is about to start.
pub(crate) async fn ask(binder: &Binder<Server>, server: &Server) -> Result<Foretold, String> {
    let (volumes, claims) = {
        let inner = server.inner();
        (inner.volumes.clone(), inner.claims.clone())
    };
    let told = told(volumes.values(), claims.values());
    let mut asker = Asker { binder, volumes, claims, told, foretold: Foretold::default() };
    // What is being deleted passes the door unseen.
    for claim in asker.claims.clone().values().filter(|claim| !claim.deleting) {
        asker.ask_of_claim(claim).await?;
    }
    for volume in asker.volumes.clone().values().filter(|volume| !volume.deleting) {
        asker.ask_of_volume(volume).await?;
    }
    Ok(asker.foretold)
}

/// Who asks the door, and what there is.
struct Asker<'a> {
    binder: &'a Binder<Server>,
    volumes: BTreeMap<Text, Arc<Volume>>,
    claims: BTreeMap<ClaimKey, Arc<Claim>>,
    /// All of them, as a review is told of them.
    told: Vec<Exchange>,
    foretold: Foretold,
}

impl Asker<'_> {
    async fn ask_of_claim(&mut self, claim: &Arc<Claim>) -> Result<(), String> {
        let created = self.review(Reviewed::Claim { new: claim.clone(), old: None }).await?;
        for old in self.claims_before(claim) {
            let before = self.review(Reviewed::Claim { new: old.clone(), old: None }).await?;
            let updated = Reviewed::Claim { new: claim.clone(), old: Some(old.clone()) };
            let left = self.named(&old).filter(|volume| is_pair(&old, volume)).cloned();
            let left = left.filter(|_| claim.volume_name != old.volume_name);
            self.introduces(&created, &before, updated, left.is_some()).await?;
            // One that points nowhere any more, which no API server admits, may find its volume again.
            if let Some(volume) = left.filter(|_| claim.volume_name.is_some()) {
                self.foretold.never.push(Pair { claim: claim.clone(), volume });
            }
        }
        let Some(volume) = self.named(claim).cloned() else { return Ok(()) };
        let pair = Pair { claim: claim.clone(), volume };
        let waits = |rule| matches!(rule, Rule::VolumeReserved | Rule::VolumeLeaving);
        if created.iter().any(|finding| finding.rule.denies() || waits(finding.rule)) {
            self.foretold.never.push(pair);
        } else if created.is_empty() && !pair.volume.deleting {
            // One that is marked as bound is bound to a free volume that is being deleted, unless that has
            // gone before.
            self.foretold.surely.push(pair);
        }
        Ok(())
    }

    async fn ask_of_volume(&mut self, volume: &Arc<Volume>) -> Result<(), String> {
        let created = self.review(Reviewed::Volume { new: volume.clone(), old: None }).await?;
        for old in self.volumes_before(volume) {
            let before = self.review(Reviewed::Volume { new: old.clone(), old: None }).await?;
            let updated = Reviewed::Volume { new: volume.clone(), old: Some(old.clone()) };
            let left = self.owner(&old).filter(|claim| is_pair(claim, &old)).cloned();
            let left = left.filter(|_| volume.claim_ref != old.claim_ref);
            self.introduces(&created, &before, updated, left.is_some()).await?;
            // A volume that is nobody's is its claim's again, unless another one is faster: what is denied is
            // that it may be.
            if let Some(claim) = left.filter(|_| volume.claim_ref.is_some()) {
                self.foretold.never.push(Pair { claim, volume: volume.clone() });
            }
        }
        for finding in created.iter().filter(|finding| finding.rule.denies()) {
            let claim = finding.claim.as_ref().and_then(|key| self.claims.get(key));
            let claim = claim.expect("a volume is denied for a claim that is there").clone();
            self.foretold.never.push(Pair { claim, volume: volume.clone() });
        }
        Ok(())
    }

    /// What a claim may have been: without the volume that it names, or with another, marked as bound or not;
    /// or one half of a pair with a volume that carries its UID.
    fn claims_before(&self, claim: &Arc<Claim>) -> Vec<Arc<Claim>> {
        let another = self.volumes.keys().find(|name| claim.volume_name.as_ref() != Some(*name));
        let names = [None, claim.volume_name.clone(), another.cloned()];
        let mut before: Vec<_> =
            names.into_iter().flat_map(|name| [(name.clone(), false), (name, true)]).collect();
        let own = self.volumes.values().filter(|volume| holder(volume) == Some(&claim.uid));
        before.extend(own.map(|volume| (Some(volume.name.clone()), true)));
        let before = before.into_iter().map(|(volume_name, bind_completed)| {
            let mut before = Claim { volume_name, ..Claim::clone(claim) };
            before.annotations.bind_completed = bind_completed;
            Arc::new(before)
        });
        before.filter(|before| before != claim).collect()
    }

    /// What a volume may have been: reserved for nobody, or for another claim, or large enough for all; or
    /// one half of a pair with a claim that names it.
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

    /// An update is denied for what its object would be denied for at its creation, unless it was so before;
    /// and where it breaks a pair, which no creation does.
    async fn introduces(
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
            return Err(format!("{updated:?}: breaks a pair: {is_broken}, and the door finds {found:?}"));
        }
        self.foretold.breaks += usize::from(breaks);
        let expected: BTreeSet<_> = denying(created).difference(&denying(before)).copied().collect();
        match denying(&found) {
            found if found == expected => Ok(()),
            found => Err(format!(
                "{updated:?}: the update is denied for {found:?}, and its content for {expected:?}"
            )),
        }
    }

    /// What is found of an object. In a calm world a second look finds the same, and the guard agrees.
    async fn review(&self, reviewed: Reviewed) -> Result<Vec<Finding>, String> {
        let why = |error| format!("{reviewed:?} cannot be reviewed: {error}");
        let findings = self.binder.review(reviewed.clone(), Sight::Watched).await.map_err(why)?;
        let again = self.binder.review(reviewed.clone(), Sight::Live).await.map_err(why)?;
        if findings != again {
            return Err(format!("{reviewed:?}: {findings:?}, then {again:?}"));
        }
        self.agree(reviewed, &findings)?;
        Ok(findings)
    }

    /// Of every rule that denies, the guard says the same as the engine: neither lets the other deny, or
    /// pass, alone.
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
                if guard::holds(&finding, &subject, &self.told) != is_found {
                    return Err(format!(
                        "{finding:?} of {subject:?}: the engine finds {is_found}, the guard otherwise"
                    ));
                }
            }
        }
        Ok(())
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

/// These objects, as a review is told of them.
fn told<'a>(
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

/// What was said and is not so, now that the world has settled.
pub(crate) fn belied(server: &Inner, foretold: &Foretold) -> Vec<String> {
    let bound = foretold.never.iter().filter(|pair| has_bound(server, pair));
    let bound =
        bound.map(|pair| format!("{}: would be denied or told to wait, and it has bound", pair.told()));
    let unbound = foretold.surely.iter().filter(|pair| waits_alone(server, pair));
    let unbound = unbound.map(|pair| format!("{}: the door is silent, and it does not bind", pair.told()));
    bound.chain(unbound).collect()
}

/// Whether a pair was made though the volume's spec was still as it was: the first change of its claimRef, if
/// there was one, made it.
fn has_bound(server: &Inner, Pair { claim, volume }: &Pair) -> bool {
    let mut states = server.past_volumes.iter().filter(|state| state.uid == volume.uid);
    match states.find(|state| state.claim_ref != volume.claim_ref) {
        Some(changed) => holder(changed) == Some(&claim.uid) && holder(volume) != Some(&claim.uid),
        None => is_now_pair(server, &claim.key, &claim.uid, &volume.name) && !is_pair(claim, volume),
    }
}

/// Whether a claim has not got the volume that it names, nor has anybody else who had not got it before.
fn waits_alone(server: &Inner, Pair { claim, volume }: &Pair) -> bool {
    let is_taken = server.volumes.get(&volume.name).is_some_and(|now| {
        holder(now).is_some_and(|uid| {
            let is_new = *uid == claim.uid || Some(uid) != holder(volume);
            is_new && server.claims.values().any(|claim| claim.uid == *uid && is_pair(claim, now))
        })
    });
    !is_taken
}

fn is_now_pair(server: &Inner, key: &ClaimKey, uid: &Uid, volume: &Text) -> bool {
    match (server.claims.get(key), server.volumes.get(volume)) {
        (Some(claim), Some(volume)) => claim.uid == *uid && is_pair(claim, volume),
        _ => false,
    }
}

fn holder(volume: &Volume) -> Option<&Uid> {
    volume.claim_ref.as_ref()?.uid.as_ref()
}

impl Pair {
    fn told(&self) -> String {
        format!("claim {} and volume {}", self.claim.key, self.volume.name)
    }
}
