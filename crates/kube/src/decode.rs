//! Decodes Kubernetes objects to core types. Fields that decisions do not need, managedFields above all, are
//! skipped while they are read.
//!
//! Objects come in JSON or in Protocol Buffers. Both are read into the same structures, whose fields have the
//! names of JSON and the numbers of the `generated.proto` files in k8s.io/api and k8s.io/apimachinery.
//!
//! An object that cannot be understood is [`Observed::Unreadable`], with a sentence that names the field; it
//! is never treated as absent, and no value is guessed. A value that upstream handles, such as an unknown
//! reclaim policy, is readable.

mod authors;
mod claim;
mod class;
mod fields;
mod meta;
mod pod;
mod selector;
#[cfg(test)]
mod tests;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{AccessMode, Claim, ClaimKey, Class, Declared, Facts, Quantity, Text, Volume, VolumeMode};
use bindery_store::{Authors, Kind, Object, ObjectKey, Observed, ObservedPod, Unreadable};
use serde_json::Value;
use serde_json::value::RawValue;

use self::fields::Amount;
pub use self::fields::Decodable;
use self::meta::Identity;

/// An encoded object. It can be read again: for its name, if reading all of it failed.
pub trait Encoded {
    /// Decodes the object.
    ///
    /// # Errors
    ///
    /// Says which field is wrong, and how.
    fn read<T: Decodable>(&self) -> Result<T, String>;
}

/// JSON.
impl Encoded for [u8] {
    fn read<T: Decodable>(&self) -> Result<T, String> {
        // Naming the field takes time, so only objects that cannot be read are read this way.
        serde_json::from_slice(self).or_else(|_| {
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(self)).map_err(explain)
        })
    }
}

impl Encoded for RawValue {
    fn read<T: Decodable>(&self) -> Result<T, String> {
        self.get().as_bytes().read()
    }
}

impl Encoded for Value {
    fn read<T: Decodable>(&self) -> Result<T, String> {
        T::deserialize(self).or_else(|_| serde_path_to_error::deserialize(self).map_err(explain))
    }
}

fn explain(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    format!("{path}: {}", error.into_inner())
}

/// The resource of volumes and claims.
const STORAGE: &str = "storage";

/// The bytes are not an object with a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Kubernetes object: {0}")]
pub struct DecodeError(String);

/// An object of a kind that is watched, with the facts that policies declare.
pub fn object<E: Encoded + ?Sized>(
    kind: Kind,
    object: &E,
    declared: &Declared,
) -> Result<Object, DecodeError> {
    Ok(match kind {
        Kind::Volume => volume(object, declared).map(|(name, volume)| Object::Volume(name, volume))?,
        Kind::Claim => claim(object, declared).map(|(key, claim)| Object::Claim(key, claim))?,
        Kind::Class => class(object, declared).map(|(name, class)| Object::Class(name, class))?,
        Kind::Pod => Object::Pod(pod(object)?),
        Kind::Node => Object::Node(name(object)?),
        Kind::Namespace => namespace(object)?,
    })
}

/// The name of an object of a kind that is watched.
pub(crate) fn object_key<E: Encoded + ?Sized>(kind: Kind, object: &E) -> Result<ObjectKey, DecodeError> {
    let ClaimKey { namespace, name } = key(object)?;
    Ok(match kind {
        Kind::Volume => ObjectKey::Volume(name),
        Kind::Claim => ObjectKey::Claim(ClaimKey { namespace, name }),
        Kind::Class => ObjectKey::Class(name),
        Kind::Pod => ObjectKey::Pod { namespace, name },
        Kind::Node => ObjectKey::Node(name),
        Kind::Namespace => ObjectKey::Namespace(name),
    })
}

/// A PersistentVolume (core/v1), with its name.
pub fn volume<E: Encoded + ?Sized>(
    object: &E,
    declared: &Declared,
) -> Result<(Text, Observed<Volume>), DecodeError> {
    decode(
        object,
        |wire| volume::decode(wire, declared),
        |volume| volume.name.clone(),
        |identity| identity.name.as_str().into(),
    )
}

/// A PersistentVolumeClaim (core/v1), with its key.
pub fn claim<E: Encoded + ?Sized>(
    object: &E,
    declared: &Declared,
) -> Result<(ClaimKey, Observed<Claim>), DecodeError> {
    decode(object, |wire| claim::decode(wire, declared), |claim| claim.key.clone(), Identity::key)
}

/// A StorageClass (storage.k8s.io/v1), with its name.
pub fn class<E: Encoded + ?Sized>(
    object: &E,
    declared: &Declared,
) -> Result<(Text, Observed<Class>), DecodeError> {
    decode(
        object,
        |wire| class::decode(wire, declared),
        |class| class.name.clone(),
        |identity| identity.name.as_str().into(),
    )
}

/// A Pod (core/v1).
pub fn pod<E: Encoded + ?Sized>(object: &E) -> Result<ObservedPod, DecodeError> {
    object.read().map(pod::decode).or_else(|why| {
        let ClaimKey { namespace, name } = key(object)?;
        Ok(ObservedPod { namespace, name, content: Err(why.into()) })
    })
}

/// The name of an object of any kind, such as a Node, whose name alone matters.
pub fn name<E: Encoded + ?Sized>(object: &E) -> Result<Text, DecodeError> {
    identity(object).map(|identity| identity.name.into())
}

/// A Namespace (core/v1), with its labels.
fn namespace<E: Encoded + ?Sized>(object: &E) -> Result<Object, DecodeError> {
    let namespace = object.read::<fields::Namespace>().map_err(DecodeError)?.metadata;
    let labels = namespace.labels.into_iter().map(|(key, value)| (key.into(), value.into()));
    let labels: BTreeMap<Text, Text> = labels.collect();
    Ok(Object::Namespace(namespace.name.into(), labels.into()))
}

/// Namespace and name of an object of any kind.
fn key<E: Encoded + ?Sized>(object: &E) -> Result<ClaimKey, DecodeError> {
    identity(object).map(|identity| identity.key())
}

/// UID of an object of any kind; empty if it has none.
pub fn uid<E: Encoded + ?Sized>(object: &E) -> String {
    identity(object).map(|identity| identity.uid).unwrap_or_default()
}

/// The writers of the fields of a volume or claim that only binders write; unknown if the object is
/// malformed.
pub fn authors<E: Encoded + ?Sized>(object: &E) -> Authors {
    object.read().map_or_else(|_| Authors::default(), authors::decode)
}

/// Whether the managedFields of a volume say that Bindery alone has written the name in its claimRef.
pub(crate) fn has_reserved<E: Encoded + ?Sized>(object: &E) -> bool {
    object.read().is_ok_and(authors::has_reserved)
}

fn identity<E: Encoded + ?Sized>(object: &E) -> Result<Identity, DecodeError> {
    object.read::<fields::Bare>().map(|bare| bare.metadata).map_err(DecodeError)
}

/// Decodes an object, or at least what identifies it, and names it by one of them.
fn decode<E: Encoded + ?Sized, W: Decodable, T, N>(
    encoded: &E,
    convert: impl FnOnce(W) -> Result<T, String>,
    name: impl FnOnce(&T) -> N,
    name_by_identity: impl FnOnce(&Identity) -> N,
) -> Result<(N, Observed<T>), DecodeError> {
    match encoded.read().and_then(convert) {
        Ok(object) => Ok((name(&object), Observed::Readable(Arc::new(object)))),
        Err(why) => {
            let identity = identity(encoded)?;
            let (uid, version) = (identity.uid.as_str().into(), identity.version.as_str().into());
            let unreadable = Box::new(Unreadable { uid, version, why: why.into() });
            Ok((name_by_identity(&identity), Observed::Unreadable(unreadable)))
        }
    }
}

/// The longest value of a declared fact, in bytes; a longer one counts as missing. Evidence holds facts.
const FACT_BYTES_MAX: usize = 4 << 10;

/// The declared facts that have a value.
fn facts<'a, K: Ord + Clone + 'a>(
    declared: impl IntoIterator<Item = &'a K>,
    value: impl Fn(&K) -> Option<Text>,
) -> Facts<K> {
    let facts = declared.into_iter().filter_map(|fact| Some((fact.clone(), value(fact)?)));
    facts.filter(|(_, value)| value.len() <= FACT_BYTES_MAX).collect()
}

/// The storage in a list of resources; `field` names the list in errors.
fn quantity(list: &BTreeMap<String, Amount>, field: &str) -> Result<Option<Quantity>, String> {
    let parse = |amount: &Amount| {
        Quantity::parse(&amount.text).map_err(|error| format!("{field}.{STORAGE}: {error}"))
    };
    list.get(STORAGE).map(parse).transpose()
}

fn access_modes(names: &[String], field: &str) -> Result<Vec<AccessMode>, String> {
    let parse = |name: &String| named(&AccessMode::ALL, AccessMode::name, name, (field, "an access mode"));
    names.iter().map(parse).collect()
}

fn texts(strings: &[String]) -> Vec<Text> {
    strings.iter().map(|text| text.as_str().into()).collect()
}

fn volume_mode(name: Option<&str>) -> Result<VolumeMode, String> {
    let name = name.unwrap_or(VolumeMode::Filesystem.name());
    named(&VolumeMode::ALL, VolumeMode::name, name, ("spec.volumeMode", "a volume mode"))
}

/// The case with this name. An error lists the names; `""`, for an unset field, is not among them.
fn named<T: Copy>(
    all: &[T],
    name_of: fn(T) -> &'static str,
    name: &str,
    (field, what): (&str, &str),
) -> Result<T, String> {
    all.iter().copied().find(|case| name_of(*case) == name).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|case| name_of(*case)).filter(|name| !name.is_empty()).collect();
        format!("{field}: {name:?} is not {what}; one of {}", names.join(", "))
    })
}
