//! What no write may do, and what a cluster at rest must be.
//!
//! The laws look at the API server's own objects at the moment of a write, and share no code with the guard.
//! No API server changes two objects at once. So what a turn was told by the API server itself, by a live
//! read or by the answer to a write, may have changed since; a law is broken if the write is wrong both now
//! and by all that its turn was told.

use bindery_controller::Write;
use bindery_core::{Action, ClaimPhase, Volume};
use bindery_invariants::{Rule, Snapshot, Violation};

use crate::json;
use crate::objects::{Contents, Each, Id, Seen, Stored};
use crate::replay::Request;
use crate::server;

/// Objects as they are, and as a turn was told that they are.
pub(crate) struct Told<'a> {
    pub(crate) now: &'a Each<Seen>,
    /// For each object, states that the API server told.
    pub(crate) live: &'a Each<Vec<Seen>>,
}

/// A law that is broken.
#[derive(Clone, Debug)]
pub(crate) struct Break {
    /// The rule of `tests/invariants`, if it is one.
    rule: Option<Rule>,
    why: String,
}

/// What a request breaks if it is carried out: in the present world first, then in each other world that its
/// turn was told of.
pub(crate) fn broken_by(contents: &mut Contents, told: &Told<'_>, request: &Request) -> Vec<Vec<Break>> {
    let write = match request {
        Request::Read(_) => return Vec::new(),
        Request::Destroy(id) => return vec![destroys(contents, told.now, *id).into_iter().collect()],
        Request::Write(write) => write,
    };
    let effect = server::write(contents, told.now, write);
    let Some((written, after)) = effect.change else { return Vec::new() };
    let worlds = worlds(told, written);
    worlds.iter().map(|now| in_world(contents, now, write, (written, after))).collect()
}

/// The law that is broken in every world, apart from rules that a user broke: as it is in the first one.
pub(crate) fn verdict(worlds: &[Vec<Break>], excused: &[Rule]) -> Option<String> {
    let is_excused = |broken: &&Break| broken.rule.is_some_and(|rule| excused.contains(&rule));
    let mut firsts = worlds.iter().map(|breaks| breaks.iter().find(|broken| !is_excused(broken)));
    let first = firsts.next()??;
    firsts.all(|other| other.is_some()).then(|| first.why.clone())
}

/// The worlds that a write may have been decided for: the present one first.
fn worlds(told: &Told<'_>, written: Id) -> Vec<Each<Seen>> {
    let mut worlds = vec![*told.now];
    for id in Id::all().filter(|id| *id != written) {
        let known = worlds.clone();
        for seen in &told.live[id.index()] {
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
    let before = snapshot(contents, now).harms();
    let after = snapshot(contents, &replaced(now, written, after)).harms();
    let is_new = |harm: &Violation| {
        !before.iter().any(|known| (known.rule, &known.object) == (harm.rule, &harm.object))
    };
    let new = after.into_iter().filter(is_new);
    wrong.into_iter().chain(new.map(|harm| Break { rule: Some(harm.rule), why: harm.to_string() })).collect()
}

fn replaced(now: &Each<Seen>, id: Id, seen: Seen) -> Each<Seen> {
    let mut now = *now;
    now[id.index()] = seen;
    now
}

/// Why the data of a volume must be kept: a claim has it.
fn destroys(contents: &Contents, now: &Each<Seen>, volume: Id) -> Option<Break> {
    let owner = Id::claims().find(|claim| has(contents, now, *claim, volume))?;
    Some(broken(format!("volume {volume} is destroyed, and claim {owner} has it")))
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
