//! Kubernetes JSON to core types, lean: only what decisions need is kept, everything else (managedFields
//! above all) is skipped while it is read.
//!
//! What cannot be understood is [`Observed::Unreadable`] with a sentence that names the field, never absent
//! and never guessed (G7 of the design). A value that upstream knows how to treat, such as an unknown reclaim
//! policy, is a value.

mod authors;
mod claim;
mod class;
mod meta;
mod pod;
mod selector;
#[cfg(test)]
mod tests;
mod volume;

use std::sync::Arc;

use bindery_controller::{Author, Authors};
use bindery_core::{AccessMode, Claim, ClaimKey, Class, Quantity, Text, Volume, VolumeMode};
use bindery_store::{Observed, PodRecord, Unreadable};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::meta::Meta;

/// JSON that can be read more than once: first for the object, and once more for its name where the object
/// makes no sense.
pub trait Json {
    /// Reads it as `T`.
    ///
    /// # Errors
    ///
    /// It is no `T`; says which field is wrong, and how.
    fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, String>;
}

impl Json for [u8] {
    fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, String> {
        // Naming the field costs time on every object, so it is done for those that make no sense only.
        serde_json::from_slice(self).or_else(|_| {
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(self)).map_err(explain)
        })
    }
}

impl Json for RawValue {
    fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, String> {
        self.get().as_bytes().read()
    }
}

impl Json for Value {
    fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, String> {
        T::deserialize(self).or_else(|_| serde_path_to_error::deserialize(self).map_err(explain))
    }
}

fn explain(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    format!("{path}: {}", error.into_inner())
}

/// An object without a name: there is nothing that could be said about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Kubernetes object: {0}")]
pub struct DecodeError(String);

/// A PersistentVolume (core/v1), with its name.
///
/// # Errors
///
/// The JSON is no object with a name.
pub fn volume<J: Json + ?Sized>(json: &J) -> Result<(Text, Observed<Volume>), DecodeError> {
    decode(json, volume::decode, |meta| meta.name.clone())
}

/// A PersistentVolumeClaim (core/v1), with its key.
///
/// # Errors
///
/// The JSON is no object with a name.
pub fn claim<J: Json + ?Sized>(json: &J) -> Result<(ClaimKey, Observed<Claim>), DecodeError> {
    decode(json, claim::decode, Meta::key)
}

/// A StorageClass (storage.k8s.io/v1), with its name.
///
/// # Errors
///
/// The JSON is no object with a name.
pub fn class<J: Json + ?Sized>(json: &J) -> Result<(Text, Observed<Class>), DecodeError> {
    decode(json, class::decode, |meta| meta.name.clone())
}

/// A Pod (core/v1).
///
/// # Errors
///
/// The JSON is no pod.
pub fn pod<J: Json + ?Sized>(json: &J) -> Result<PodRecord, DecodeError> {
    json.read().map(pod::decode).map_err(DecodeError)
}

/// The name of an object of any kind, such as a Node: all that is asked of nodes is whether they exist.
///
/// # Errors
///
/// The JSON is no object with a name.
pub fn name<J: Json + ?Sized>(json: &J) -> Result<Text, DecodeError> {
    meta(json).map(|meta| meta.name)
}

/// Namespace and name of an object of any kind.
///
/// # Errors
///
/// The JSON is no object with a name.
pub fn key<J: Json + ?Sized>(json: &J) -> Result<ClaimKey, DecodeError> {
    meta(json).map(|meta| meta.key())
}

/// Who wrote what of a volume or claim that only binders write. Nobody is known where the object makes no sense.
pub fn authors<J: Json + ?Sized>(json: &J) -> Authors {
    let unknown = Authors { phase: Author::Unknown, bind_completed: Author::Unknown };
    json.read().map_or(unknown, authors::decode)
}

#[derive(Deserialize)]
struct Bare {
    metadata: Meta,
}

fn meta<J: Json + ?Sized>(json: &J) -> Result<Meta, DecodeError> {
    json.read::<Bare>().map(|bare| bare.metadata).map_err(DecodeError)
}

/// Reads an object; where it makes no sense, at least its metadata.
fn decode<'a, J: Json + ?Sized, W: Deserialize<'a>, T, N>(
    json: &'a J,
    convert: impl FnOnce(W) -> Result<T, String>,
    name: impl FnOnce(&Meta) -> N,
) -> Result<(N, Observed<T>), DecodeError>
where
    T: Named<N>,
{
    match json.read().and_then(convert) {
        Ok(object) => Ok((object.named(), Observed::Readable(Arc::new(object)))),
        Err(why) => {
            let meta = meta(json)?;
            let (uid, version) = (meta.uid.as_ref().into(), meta.version.as_ref().into());
            Ok((name(&meta), Observed::Unreadable(Unreadable { uid, version, why: why.into() })))
        }
    }
}

/// What names an object.
trait Named<N> {
    fn named(&self) -> N;
}

impl Named<Text> for Volume {
    fn named(&self) -> Text {
        self.name.clone()
    }
}

impl Named<ClaimKey> for Claim {
    fn named(&self) -> ClaimKey {
        self.key.clone()
    }
}

impl Named<Text> for Class {
    fn named(&self) -> Text {
        self.name.clone()
    }
}

/// `storage` of a resource list.
#[derive(Default, Deserialize)]
struct Resources {
    storage: Option<Amount>,
}

/// A quantity as it is written: the API server writes text, people also write numbers.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a quantity is a text or a number, such as 10Gi")]
enum Amount {
    Text(String),
    Number(serde_json::Number),
}

impl Amount {
    fn parse(&self, field: &str) -> Result<Quantity, String> {
        match self {
            Self::Text(text) => Quantity::parse(text),
            Self::Number(number) => Quantity::parse(&number.to_string()),
        }
        .map_err(|error| format!("{field}: {error}"))
    }
}

fn quantity(amount: Option<&Amount>, field: &str) -> Result<Option<Quantity>, String> {
    amount.map(|amount| amount.parse(field)).transpose()
}

fn access_modes(names: Option<Vec<String>>, field: &str) -> Result<Vec<AccessMode>, String> {
    let known = || AccessMode::ALL.map(AccessMode::name).join(", ");
    names
        .unwrap_or_default()
        .iter()
        .map(|name| {
            AccessMode::parse(name)
                .ok_or_else(|| format!("{field}: {name:?} is not an access mode; one of {}", known()))
        })
        .collect()
}

fn volume_mode(name: Option<&str>) -> Result<VolumeMode, String> {
    match name {
        None | Some("" | "Filesystem") => Ok(VolumeMode::Filesystem),
        Some("Block") => Ok(VolumeMode::Block),
        Some(other) => {
            Err(format!("spec.volumeMode: {other:?} is not a volume mode; one of Filesystem, Block"))
        }
    }
}
