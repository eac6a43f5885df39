//! The objects of the model: two volumes and two claims, as numbers.
//!
//! Each content that an object ever has gets a number, so that a state of the model is a few numbers, and two
//! states are equal if their numbers are.

use std::fmt;
use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Key, Text, Version, Volume};
use bindery_kit::VOLUME_PROTECTION;
use bindery_store::{Delivery, Kind, Object, ObjectKey};
use rustc_hash::FxHashMap;

/// The namespace of the claims.
pub(crate) const NAMESPACE: &str = "ns";
/// Names of the objects, by their [`Id`].
const NAMES: [&str; 4] = ["v1", "v2", "c1", "c2"];
/// How many of them are volumes.
const VOLUMES: u8 = 2;

/// Names an object: its place in [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u8);

/// A content of an object, without its version: a place in [`Contents`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Content(pub(crate) u16);

/// The content that means that the object does not exist.
pub(crate) const ABSENT: Content = Content(0);

/// A content of an object with its version. Versions count the writes of one name, so that writes of two
/// objects have the same result in either order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) content: Content,
    pub(crate) version: u16,
}

/// One value for each object.
pub(crate) type Each<T> = [T; NAMES.len()];

/// A volume or a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Absent,
    Volume(Arc<Volume>),
    Claim(Arc<Claim>),
}

/// Every content that an object had.
pub(crate) struct Contents {
    all: Vec<Stored>,
    versioned: FxHashMap<Seen, Stored>,
}

impl Id {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..NAMES.len() as u8).map(Self)
    }

    pub(crate) fn claims() -> impl Iterator<Item = Self> {
        Self::all().filter(|id| !id.is_volume())
    }

    /// The object of that name, which the model has.
    pub(crate) fn named(name: &str) -> Self {
        let at = NAMES.iter().position(|known| *known == name);
        Self(at.expect("no other object is named") as u8)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES[self.index()]
    }

    pub(crate) fn is_volume(self) -> bool {
        self.0 < VOLUMES
    }

    pub(crate) fn kind(self) -> Kind {
        if self.is_volume() { Kind::Volume } else { Kind::Claim }
    }

    pub(crate) fn claim_key(self) -> ClaimKey {
        ClaimKey::new(NAMESPACE, self.name())
    }

    pub(crate) fn key(self) -> Key {
        if self.is_volume() { Key::Volume(self.name().into()) } else { Key::Claim(self.claim_key()) }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Seen {
    pub(crate) fn exists(self) -> bool {
        self.content != ABSENT
    }

    /// The next state of the object.
    pub(crate) fn next(self, content: Content) -> Self {
        Self { content, version: self.version + 1 }
    }
}

impl Stored {
    pub(crate) fn volume(&self) -> Option<&Arc<Volume>> {
        if let Self::Volume(volume) = self { Some(volume) } else { None }
    }

    pub(crate) fn claim(&self) -> Option<&Arc<Claim>> {
        if let Self::Claim(claim) = self { Some(claim) } else { None }
    }

    fn with_version(&self, version: Version) -> Self {
        match self {
            Self::Absent => Self::Absent,
            Self::Volume(volume) => Self::Volume(Arc::new(Volume { version, ..Volume::clone(volume) })),
            Self::Claim(claim) => Self::Claim(Arc::new(Claim { version, ..Claim::clone(claim) })),
        }
    }
}

impl From<Volume> for Stored {
    /// A volume without finalizers whose deletion was accepted is gone.
    fn from(volume: Volume) -> Self {
        if volume.deleting && volume.finalizers.is_empty() {
            Self::Absent
        } else {
            Self::Volume(Arc::new(volume))
        }
    }
}

impl From<Claim> for Stored {
    fn from(claim: Claim) -> Self {
        Self::Claim(Arc::new(claim))
    }
}

impl Contents {
    pub(crate) fn new() -> Self {
        Self { all: vec![Stored::Absent], versioned: FxHashMap::default() }
    }

    /// The number of a content.
    pub(crate) fn number(&mut self, stored: &Stored) -> Content {
        let stored = stored.with_version("".into());
        let known = self.all.iter().position(|known| *known == stored);
        let at = known.unwrap_or_else(|| {
            self.all.push(stored);
            self.all.len() - 1
        });
        Content(u16::try_from(at).expect("there are few contents"))
    }

    pub(crate) fn get(&self, content: Content) -> &Stored {
        &self.all[usize::from(content.0)]
    }

    /// The object with its version.
    pub(crate) fn versioned(&mut self, seen: Seen) -> Stored {
        let Self { all, versioned } = self;
        let content = &all[usize::from(seen.content.0)];
        versioned.entry(seen).or_insert_with(|| content.with_version(version(seen.version))).clone()
    }

    /// What a watch delivers when the object has this content.
    pub(crate) fn delivery(&mut self, id: Id, seen: Seen) -> Delivery {
        match self.versioned(seen) {
            Stored::Absent if id.is_volume() => Delivery::Gone(ObjectKey::Volume(id.name().into())),
            Stored::Absent => Delivery::Gone(ObjectKey::Claim(id.claim_key())),
            stored => Delivery::applied(object(&stored).expect("it is not absent")),
        }
    }

    /// A complete list of a kind.
    pub(crate) fn list(&mut self, kind: Kind, seen: &Each<Seen>) -> Delivery {
        let of_kind = Id::all().filter(|id| id.kind() == kind).map(|id| seen[id.index()]);
        let objects: Vec<Object> = of_kind.filter_map(|seen| object(&self.versioned(seen))).collect();
        Delivery::listed(kind, objects, "1")
    }

    /// One line about an object, for traces.
    pub(crate) fn describe(&self, id: Id, seen: Seen) -> String {
        match self.get(seen.content) {
            Stored::Absent => format!("{id} absent"),
            Stored::Volume(volume) => {
                let claim_ref = volume.claim_ref.as_ref();
                let claim = claim_ref.map_or("-".to_owned(), |claim_ref| {
                    format!("{}/{}", claim_ref.name, claim_ref.uid.as_ref().map_or("", |uid| &uid.0))
                });
                let mark = if volume.annotations.bound_by_controller { " marked" } else { "" };
                let deleting = if volume.deleting { " deleting" } else { "" };
                format!("{id}@{} {:?} for {claim}{mark}{deleting}", seen.version, volume.phase)
            }
            Stored::Claim(claim) => {
                let volume = claim.volume_name.as_deref().unwrap_or("-");
                let complete = if claim.annotations.bind_completed { " completed" } else { "" };
                let deleting = if claim.deleting { " deleting" } else { "" };
                let (version, uid, phase) = (seen.version, &claim.uid, claim.status.phase);
                format!("{id}@{version} {uid} {phase:?} with {volume}{complete}{deleting}")
            }
        }
    }
}

fn object(stored: &Stored) -> Option<Object> {
    match stored {
        Stored::Absent => None,
        Stored::Volume(volume) => Some(volume.clone().into()),
        Stored::Claim(claim) => Some(claim.clone().into()),
    }
}

/// The version of that number, as the API has it.
pub(crate) fn version(number: u16) -> Version {
    Version(number.to_string().into())
}

/// The number of a version.
pub(crate) fn number_of(version: &Version) -> u16 {
    version.0.parse().expect("the model gave out this version")
}

/// The finalizers of a volume that the controller of `kubernetes.io/pv-protection` has not released.
pub(crate) fn is_protection(finalizer: &Text) -> bool {
    **finalizer == *VOLUME_PROTECTION
}
