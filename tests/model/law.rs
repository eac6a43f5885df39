//! What no write may do, and what a cluster at rest must be.
//!
//! The laws look at the API server's own objects at the moment of a write, and share no code with the guard.
//! No API server changes two objects at once. So what a turn was told by the API server itself, by a live
//! read or by the answer to a write, may have changed since; a law is broken if the write is wrong both now
//! and by all that its turn was told.
//!
//! Most writes do no lasting harm, and may rest on a cache. Laws about these (`duty`) are broken if the write
//! is wrong by all that its replica had seen, too.

use std::collections::BTreeSet;

use bindery_controller::Write;
use bindery_core::{Action, ClaimPhase, ReclaimPolicy, Volume};
use bindery_invariants::{Rule, Snapshot, Violation};

use crate::duty;
use crate::json;
use crate::objects::{Contents, Each, Id, Seen, Stored};
use crate::replay::{PLUGIN, Request};
use crate::server;

/// Objects as they are, and as a turn was told that they are.
pub(crate) struct Told<'a> {
    pub(crate) now: &'a Each<Seen>,
    /// For each object, states that the API server told.
    pub(crate) live: &'a Each<Vec<Seen>>,
    /// For each object, these states and those that the replica's caches had.
    pub(crate) known: &'a Each<Vec<Seen>>,
}

/// A law that is broken.
#[derive(Clone, Debug)]
pub(crate) struct Break {
    /// The rule of `tests/invariants`, if it is one.
    rule: Option<Rule>,
    why: String,
}

/// What a request breaks if it is carried out: in the present world first, then in each other world that its
/// turn was told of. The second list is about [`duty`], in each world that its replica knew.
pub(crate) fn broken_by(contents: &mut Contents, told: &Told<'_>, request: &Request) -> [Vec<Vec<Break>>; 2] {
    let write = match request {
        Request::Read(_) => return Default::default(),
        Request::Destroy(id) => {
            return [vec![destroys(contents, told.now, *id).into_iter().collect()], Vec::new()];
        }
        Request::Write(write) => write,
    };
    let effect = server::write(contents, told.now, write);
    let Some((written, after)) = effect.change else { return Default::default() };
    let live = worlds(told.now, told.live, written);
    let known = worlds(told.now, told.known, written);
    [
        live.iter().map(|now| in_world(contents, now, write, (written, after))).collect(),
        known.iter().map(|now| undutiful(contents, now, write, (written, after))).collect(),
    ]
}

/// The law that is broken in every world, apart from rules that a user broke: as it is in the first one.
pub(crate) fn verdict(broken: &[Vec<Vec<Break>>], excused: &[Rule]) -> Option<String> {
    broken.iter().find_map(|worlds| in_every(worlds, excused))
}

fn in_every(worlds: &[Vec<Break>], excused: &[Rule]) -> Option<String> {
    let is_excused = |broken: &&Break| broken.rule.is_some_and(|rule| excused.contains(&rule));
    let mut firsts = worlds.iter().map(|breaks| breaks.iter().find(|broken| !is_excused(broken)));
    let first = firsts.next()??;
    firsts.all(|other| other.is_some()).then(|| first.why.clone())
}

/// The worlds that a write may have been decided for: the present one first.
fn worlds(now: &Each<Seen>, seen: &Each<Vec<Seen>>, written: Id) -> Vec<Each<Seen>> {
    let mut worlds = vec![*now];
    for id in Id::all().filter(|id| *id != written) {
        let others: BTreeSet<_> = seen[id.index()].iter().filter(|seen| **seen != now[id.index()]).collect();
        let known = worlds.clone();
        for seen in others {
            worlds.extend(known.iter().map(|world| replaced(world, id, *seen)));
        }
    }
    worlds
}

fn in_world(
    contents: &Contents,
    now: &Each<Seen>,
    write: &Write<Volume>,
    (written, after): (Id, Seen),
) -> Vec<Break> {
    let wrong = match &write.action {
        Action::DeleteVolume { .. } => destroys(contents, now, written),
        Action::SetClaimStatus { phase: ClaimPhase::Lost, .. } => loses(contents, now, written),
        Action::BindClaim { volume, set_volume_name: true, .. } => {
            misbinds(contents, now, written, Id::named(&volume.name))
        }
        _ => None,
    };
    let harms = new(contents, now, (written, after), Snapshot::harms);
    wrong.into_iter().chain(harms).collect()
}

/// What a write breaks that does no lasting harm.
fn undutiful(
    contents: &Contents,
    now: &Each<Seen>,
    write: &Write<Volume>,
    (written, after): (Id, Seen),
) -> Vec<Break> {
    let wrong = duty::neglected(contents, now, &write.action, (written, after)).map(broken);
    let rules = duty::rules(&write.action);
    let mut left = new(contents, now, (written, after), Snapshot::violations);
    left.retain(|broken| broken.rule.is_some_and(|rule| rules.contains(&rule)));
    wrong.into_iter().chain(left).collect()
}

/// What is wrong after a write and was not before.
fn new(
    contents: &Contents,
    now: &Each<Seen>,
    (written, after): (Id, Seen),
    violations: fn(&Snapshot) -> Vec<Violation>,
) -> Vec<Break> {
    let before = violations(&snapshot(contents, now));
    let after = violations(&snapshot(contents, &replaced(now, written, after)));
    let is_new = |found: &Violation| {
        !before.iter().any(|known| (known.rule, &known.object) == (found.rule, &found.object))
    };
    let new = after.into_iter().filter(is_new);
    new.map(|found| Break { rule: Some(found.rule), why: found.to_string() }).collect()
}

fn replaced(now: &Each<Seen>, id: Id, seen: Seen) -> Each<Seen> {
    let mut now = *now;
    now[id.index()] = seen;
    now
}

/// Why Bindery must not destroy the data of a volume: a claim has it, its policy is Retain, or another
/// provisioner deletes it.
fn destroys(contents: &Contents, now: &Each<Seen>, id: Id) -> Option<Break> {
    if let Some(owner) = Id::claims().find(|claim| has(contents, now, *claim, id)) {
        return Some(broken(format!("volume {id} is destroyed, and claim {owner} has it")));
    }
    let volume = contents.get(now[id.index()].content).volume()?;
    let annotations = &volume.annotations;
    let is_kept = volume.policy == ReclaimPolicy::Retain;
    let is_others = annotations.migrated_to.is_some()
        || annotations.provisioned_by.as_deref().is_some_and(|provisioner| provisioner != PLUGIN);
    (is_kept || is_others)
        .then(|| broken(format!("volume {id} is destroyed, and is not the binder's to delete")))
}

/// Whether claim and volume point at each other.
fn has(contents: &Contents, now: &Each<Seen>, claim: Id, volume: Id) -> bool {
    let Some(owner) = contents.get(now[claim.index()].content).claim() else { return false };
    owner.volume_name.as_deref() == Some(volume.name()) && is_reserved_for(contents, now, claim, volume)
}

/// Whether the volume's claimRef has the UID of the claim.
fn is_reserved_for(contents: &Contents, now: &Each<Seen>, claim: Id, volume: Id) -> bool {
    let [claim, volume] = [claim, volume].map(|id| contents.get(now[id.index()].content));
    let (Some(claim), Some(volume)) = (claim.claim(), volume.volume()) else { return false };
    volume.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.as_ref() == Some(&claim.uid))
}

/// Why a claim is not Lost: its volume exists and is its own or free.
fn loses(contents: &Contents, now: &Each<Seen>, claim: Id) -> Option<Break> {
    let name = contents.get(now[claim.index()].content).claim()?.volume_name.clone()?;
    let id = Id::named(&name);
    let volume = contents.get(now[id.index()].content).volume()?;
    let is_kept = volume.claim_ref.is_none() || is_reserved_for(contents, now, claim, id);
    is_kept.then(|| broken(format!("claim {claim} is written Lost, and volume {name} exists")))
}

/// Why a claim must not get the volume: the volume is not reserved for it.
fn misbinds(contents: &Contents, now: &Each<Seen>, claim: Id, volume: Id) -> Option<Break> {
    let is_own = is_reserved_for(contents, now, claim, volume);
    (!is_own).then(|| broken(format!("claim {claim} gets volume {volume}, which is not reserved for it")))
}

fn broken(why: String) -> Break {
    Break { rule: None, why }
}

/// What is wrong with a cluster at rest.
pub(crate) fn at_rest(contents: &Contents, now: &Each<Seen>) -> Vec<Violation> {
    snapshot(contents, now).violations()
}

fn snapshot(contents: &Contents, now: &Each<Seen>) -> Snapshot {
    let (mut volumes, mut claims) = (Vec::new(), Vec::new());
    for seen in now {
        match contents.get(seen.content) {
            Stored::Absent => {}
            Stored::Volume(volume) => volumes.push(json::volume(volume)),
            Stored::Claim(claim) => claims.push(json::claim(claim)),
        }
    }
    Snapshot::read(&volumes, &claims, &[]).expect("the model has valid quantities")
}
