//! The door and the binder agree: before a calm world starts, every claim and volume of it is reviewed as if it were
//! created now, and of everything that denies the guard must say what the engine says. As if it were an update of what it
//! may have been before, the same is denied, but for what was so before. When the world has settled, what was
//! denied has not bound while the volume's spec stayed as it was, and a claim that nothing was said of has the volume that
//! it names.

use std::collections::BTreeSet;
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
    /// Pairs that cannot be, each because one half of it would be denied.
    never: Vec<Pair>,
    /// Pairs that will be, unless another claim is faster: nothing was found of a claim that names its volume.
    surely: Vec<Pair>,
}

struct Pair {
    claim: Arc<Claim>,
    volume: Arc<Volume>,
}

impl Foretold {
    /// How many pairs cannot be, and how many will be.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.never.len(), self.surely.len()]
    }
}

/// Reviews every object of a world as it is about to start.
pub(crate) async fn ask(binder: &Binder<Server>, server: &Server) -> Result<Foretold, String> {
    let (volumes, claims) = {
        let inner = server.inner();
        (inner.volumes.clone(), inner.claims.clone())
    };
    let denies = |finding: &Finding| finding.rule.denies();
    let mut foretold = Foretold::default();
    // What is being deleted passes the door unseen.
    for claim in claims.values().filter(|claim| !claim.deleting) {
        let Some(volume) = claim.volume_name.as_ref().and_then(|name| volumes.get(name)) else { continue };
        let pair = || Pair { claim: claim.clone(), volume: volume.clone() };
        let reviewed = Reviewed::Claim { new: claim.clone(), old: None };
        let findings = review(binder, reviewed.clone()).await?;
        let owner = volume.claim_ref.as_ref().and_then(|claim_ref| claims.get(&key(claim_ref)));
        agree(reviewed, &findings, &volume.name, None, &told(Some(volume), owner))?;
        for old in claims_before(claim, volumes.keys()) {
            let created = Reviewed::Claim { new: old.clone(), old: None };
            let updated = Reviewed::Claim { new: claim.clone(), old: Some(old) };
            introduced(&findings, &review(binder, created).await?, updated, binder).await?;
        }
        if findings.iter().any(denies) {
            foretold.never.push(pair());
        } else if findings.is_empty() && !claim.annotations.bind_completed {
            foretold.surely.push(pair());
        }
    }
    for volume in volumes.values().filter(|volume| !volume.deleting) {
        let reviewed = Reviewed::Volume { new: volume.clone(), old: None };
        let findings = review(binder, reviewed.clone()).await?;
        let claim = volume.claim_ref.as_ref().map(key);
        let owner = claim.as_ref().and_then(|key| claims.get(key));
        agree(reviewed, &findings, &volume.name, claim.clone(), &told(None, owner))?;
        for old in volumes_before(volume, claims.values()) {
            let created = Reviewed::Volume { new: old.clone(), old: None };
            let updated = Reviewed::Volume { new: volume.clone(), old: Some(old) };
            introduced(&findings, &review(binder, created).await?, updated, binder).await?;
        }
        let denying = findings.iter().filter(|finding| denies(finding));
        foretold.never.extend(denying.map(|finding| {
            let claim = finding.claim.as_ref().and_then(|key| claims.get(key));
            let claim = claim.expect("a volume is denied for a claim that is there");
            Pair { claim: claim.clone(), volume: volume.clone() }
        }));
    }
    Ok(foretold)
}

/// What a claim may have been: without the volume that it names, or with another.
fn claims_before<'a>(claim: &Claim, volumes: impl Iterator<Item = &'a Text>) -> Vec<Arc<Claim>> {
    let another = volumes.filter(|name| claim.volume_name.as_ref() != Some(*name)).take(1).cloned();
    let names = another.map(Some).chain([None]);
    names.map(|volume_name| Arc::new(Claim { volume_name, ..claim.clone() })).collect()
}

/// What a volume may have been: reserved for nobody, or for another claim, or large enough for all.
fn volumes_before<'a>(volume: &Volume, claims: impl Iterator<Item = &'a Arc<Claim>>) -> Vec<Arc<Volume>> {
    let claim_refs = claims.map(|claim| {
        let ClaimKey { namespace, name } = claim.key.clone();
        Some(ClaimRef { namespace, name, uid: Some(claim.uid.clone()) })
    });
    let another = claim_refs.filter(|claim_ref| *claim_ref != volume.claim_ref).take(1);
    let mut before: Vec<_> =
        another.chain([None]).map(|claim_ref| Volume { claim_ref, ..volume.clone() }).collect();
    before.push(Volume { capacity: Some(Quantity::bytes(u64::MAX)), ..volume.clone() });
    before.into_iter().map(Arc::new).collect()
}

/// An update is denied for what its object would be denied for at its creation, unless it was so before; and where it
/// breaks a pair, which no creation does.
async fn introduced(
    created: &[Finding],
    before: &[Finding],
    updated: Reviewed,
    binder: &Binder<Server>,
) -> Result<(), String> {
    fn denying(findings: &[Finding]) -> BTreeSet<(&str, &Text, Option<&ClaimKey>)> {
        let denying =
            findings.iter().filter(|finding| finding.rule.denies() && finding.rule != Rule::BreaksPair);
        denying.map(|finding| (finding.rule.name(), &finding.volume, finding.claim.as_ref())).collect()
    }
    let found = review(binder, updated.clone()).await?;
    let expected: BTreeSet<_> = denying(created).difference(&denying(before)).copied().collect();
    match denying(&found) {
        found if found == expected => Ok(()),
        found => {
            Err(format!("{updated:?}: the update is denied for {found:?}, and its content for {expected:?}"))
        }
    }
}

/// What is found of an object. In a calm world a second look finds the same, and the guard agrees.
async fn review(binder: &Binder<Server>, reviewed: Reviewed) -> Result<Vec<Finding>, String> {
    let why = |error| format!("{reviewed:?} cannot be reviewed: {error}");
    let findings = binder.review(reviewed.clone(), Sight::Watched).await.map_err(why)?;
    let again = binder.review(reviewed.clone(), Sight::Live).await.map_err(why)?;
    if findings == again { Ok(findings) } else { Err(format!("{reviewed:?}: {findings:?}, then {again:?}")) }
}

fn key(claim_ref: &ClaimRef) -> ClaimKey {
    ClaimKey { namespace: claim_ref.namespace.clone(), name: claim_ref.name.clone() }
}

/// These objects, as a review is told of them.
fn told(volume: Option<&Arc<Volume>>, claim: Option<&Arc<Claim>>) -> Vec<Exchange> {
    let volume = volume.cloned().map(|volume| Exchange {
        question: Question::Volume(Source::Live, volume.name.clone()),
        answer: Answer::Volume(Lookup::Found(volume)),
    });
    let claim = claim.cloned().map(|claim| Exchange {
        question: Question::Claim(Source::Live, claim.key.clone()),
        answer: Answer::Claim(Lookup::Found(claim)),
    });
    volume.into_iter().chain(claim).collect()
}

/// Of every rule that denies, the guard says the same as the engine: neither lets the other deny, or pass, alone.
fn agree(
    reviewed: Reviewed,
    findings: &[Finding],
    volume: &Text,
    claim: Option<ClaimKey>,
    told: &[Exchange],
) -> Result<(), String> {
    let subject = reviewed.into();
    for rule in Rule::ALL.into_iter().filter(|rule| rule.denies()) {
        let [found, wanted] = ["".into(), "".into()];
        let finding = Finding { rule, volume: volume.clone(), claim: claim.clone(), found, wanted };
        let is_found = findings.iter().any(|finding| finding.rule == rule);
        if guard::holds(&finding, &subject, told) != is_found {
            return Err(format!(
                "{rule:?} of {subject:?}: the engine finds {is_found}, the guard otherwise: {told:?}"
            ));
        }
    }
    Ok(())
}

/// What was said and is not so, now that the world has settled.
pub(crate) fn belied(server: &Inner, foretold: &Foretold) -> Vec<String> {
    let bound = foretold.never.iter().filter(|pair| has_bound(server, pair));
    let bound = bound.map(|pair| format!("{}: would be denied, and it has bound", pair.told()));
    let unbound = foretold.surely.iter().filter(|pair| waits_alone(server, pair));
    let unbound = unbound.map(|pair| format!("{}: the door is silent, and it does not bind", pair.told()));
    bound.chain(unbound).collect()
}

/// Whether a pair was made though the volume's spec was still as it was: the first change of its claimRef, if there
/// was one, made it.
fn has_bound(server: &Inner, Pair { claim, volume }: &Pair) -> bool {
    let mut states = server.past_volumes.iter().filter(|state| state.uid == volume.uid);
    match states.find(|state| state.claim_ref != volume.claim_ref) {
        Some(changed) => holder(changed) == Some(&claim.uid) && holder(volume) != Some(&claim.uid),
        None => is_now_pair(server, &claim.key, &claim.uid, &volume.name) && !is_pair(claim, volume),
    }
}

/// Whether a claim has not got the volume that it names, nor has anybody else.
fn waits_alone(server: &Inner, Pair { volume, .. }: &Pair) -> bool {
    let is_taken = server.volumes.get(&volume.name).is_some_and(|now| {
        holder(now)
            .is_some_and(|uid| server.claims.values().any(|claim| claim.uid == *uid && is_pair(claim, now)))
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
