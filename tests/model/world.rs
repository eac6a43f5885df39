//! The worlds that are searched.

use bindery_core::{ReclaimPolicy, Volume};
use bindery_kit::VOLUME_PROTECTION;

use crate::objects::{Each, Id, Stored};
use crate::user::Edit;

/// How often things may happen that are bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) edits: u8,
    /// Deletions of claims.
    pub(crate) deletions: u8,
    /// Claims that are made again.
    pub(crate) creations: u8,
    pub(crate) crashes: u8,
    /// Writes whose answer is lost, or that arrive late.
    pub(crate) lost: u8,
}

/// Where a search begins, and what may happen in it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) objects: Each<Stored>,
    pub(crate) edits: Vec<Edit>,
    pub(crate) budget: Budget,
    /// Whether the engine is one that finishes its work.
    pub(crate) comes_to_rest: bool,
}

pub(crate) const V1: Id = Id(0);
pub(crate) const V2: Id = Id(1);
pub(crate) const C1: Id = Id(2);
pub(crate) const C2: Id = Id(3);

/// A volume: v1 is deleted with its claim, v2 is kept.
pub(crate) fn volume(id: Id) -> Volume {
    let policy = if id == V1 { ReclaimPolicy::Delete } else { ReclaimPolicy::Retain };
    Volume { policy, finalizers: vec![VOLUME_PROTECTION.into()], ..bindery_kit::volume(id.name()) }
}

fn with(ids: &[Id]) -> Each<Stored> {
    [0, 1, 2, 3].map(Id).map(|id| match () {
        () if !ids.contains(&id) => Stored::Absent,
        () if id.is_volume() => volume(id).into(),
        () => bindery_kit::claim(id.claim_key()).into(),
    })
}

/// The edits of pointers that concern these objects.
fn edits(ids: &[Id]) -> Vec<Edit> {
    let volumes = || ids.iter().copied().filter(|id| id.is_volume());
    let claims = || ids.iter().copied().filter(|id| !id.is_volume());
    let mut edits = Vec::new();
    for volume in volumes() {
        edits.push(Edit::ClearClaimRef(volume));
        for claim in claims() {
            edits.extend([Edit::ReserveByName(volume, claim), Edit::ReserveByUid(volume, claim)]);
            edits.push(Edit::NameVolume(claim, volume));
        }
    }
    for claim in claims() {
        edits.extend([Edit::Unmark(claim), Edit::Complete(claim)]);
    }
    edits
}

/// A world of these objects. A user edits their pointers if the budget allows that.
fn world(name: &'static str, ids: &[Id], budget: Budget) -> World {
    let edits = if budget.edits > 0 { edits(ids) } else { Vec::new() };
    World { name, objects: with(ids), edits, budget, comes_to_rest: true }
}

/// Worlds that are searched whole for every change.
pub(crate) fn small() -> Vec<World> {
    let again = Budget { deletions: 1, creations: 1, ..Budget::default() };
    let crash = Budget { crashes: 1, ..Budget::default() };
    let lost = Budget { lost: 1, ..Budget::default() };
    let edit = Budget { edits: 1, ..Budget::default() };
    vec![
        world("a claim is deleted and made again", &[V2, C1], again),
        world("a replica crashes, and an answer is lost", &[V1, C1], Budget { lost: 1, ..crash }),
        world("a user edits a pair", &[V1, C1], edit),
        world("two claims want one volume, and an answer is lost", &[V1, C1, C2], lost),
        world("a claim has a choice, and a replica crashes", &[V1, V2, C1], crash),
    ]
}

/// Worlds that are searched up to a number of states.
pub(crate) fn large() -> Vec<World> {
    let all = Budget { edits: 1, deletions: 1, creations: 1, crashes: 1, lost: 1 };
    let again = Budget { deletions: 1, creations: 1, ..Budget::default() };
    let edit = Budget { edits: 1, ..Budget::default() };
    vec![
        world("everything", &[V1, V2, C1, C2], all),
        world("a volume is deleted with its claim, which is made again", &[V1, C1], again),
        world("two claims want one volume, and a user edits", &[V1, C1, C2], edit),
        world("a claim has a choice, and a user edits", &[V1, V2, C1], edit),
    ]
}
