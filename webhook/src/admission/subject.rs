//! From the JSON of a request to the object that is reviewed, by the decoder that the watches use.

use std::sync::Arc;

use bindery_controller::Reviewed;
use bindery_core::{Claim, Regarding, Volume};
use bindery_kube::decode::{self, DecodeError};
use bindery_store::Observed;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::AdmissionRequest;

/// Most fields and entries of lists of the objects of a request, told by their commas. A volume or claim has
/// some hundred, most of which nobody reads; one that is made to cost memory costs a hundred bytes and more
/// for each of three that are sent.
const PARTS_MAX: usize = 100_000;

/// A kind of object, as metrics tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Claim,
    Volume,
    Other,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Subject {
    /// It is reviewed.
    Review(Reviewed),
    /// It cannot matter, and passes.
    Pass,
    /// It cannot be read: it passes with this as a warning.
    Unreadable(Unreadable),
}

/// Why a request cannot be reviewed, as its author is told.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("Bindery cannot read this object and will not bind it: {0}")]
    Object(String),
    #[error("Bindery has not checked this request: it has more than {PARTS_MAX} fields and entries of lists")]
    Parts,
    /// The object that is to be written can be read, and will be bound. What of it was so before, and is not
    /// held against the request, cannot be told; an update that mends what could not be read is the last that
    /// should be denied.
    #[error("Bindery has not checked this request: it cannot read the object as it was: {0}")]
    OldObject(String),
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Claim, Self::Volume, Self::Other];

    /// The kind that a request is about.
    pub(super) fn of(request: &AdmissionRequest<'_>) -> Self {
        let kind = &request.kind;
        match (&*kind.group, &*kind.version, &*kind.kind) {
            ("", "v1", "PersistentVolumeClaim") => Self::Claim,
            ("", "v1", "PersistentVolume") => Self::Volume,
            _ => Self::Other,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Volume => "volume",
            Self::Other => "other",
        }
    }
}

/// What a request asks to review.
pub(super) fn subject(request: &AdmissionRequest<'_>) -> Subject {
    let is_update = match &*request.operation {
        "CREATE" => false,
        "UPDATE" => true,
        // Nothing of what is deleted or connected to can bind.
        _ => return Subject::Pass,
    };
    if request.sub_resource.as_ref().is_some_and(|name| !name.is_empty()) {
        return Subject::Pass;
    }
    let objects = [request.object, request.old_object].into_iter().flatten();
    let parts: usize = objects.map(|object| object.get().bytes().filter(|byte| *byte == b',').count()).sum();
    let read = match Kind::of(request) {
        Kind::Claim | Kind::Volume if parts > PARTS_MAX => Err(Unreadable::Parts),
        Kind::Claim => claim(request, is_update),
        Kind::Volume => volume(request, is_update),
        Kind::Other => return Subject::Pass,
    };
    match read {
        Ok(Some(reviewed)) => Subject::Review(reviewed),
        Ok(None) => Subject::Pass,
        Err(why) => Subject::Unreadable(why),
    }
}

/// The object of a review, as events and the log name it.
pub(super) fn regarding(reviewed: &Reviewed) -> Regarding {
    match reviewed {
        Reviewed::Claim { new, .. } => Regarding::Claim(new.target()),
        Reviewed::Volume { new, .. } => Regarding::Volume(new.target()),
    }
}

/// The claim of a request; `None` where it passes whatever is in it.
fn claim(request: &AdmissionRequest<'_>, is_update: bool) -> Result<Option<Reviewed>, Unreadable> {
    let new = object("object", request.object, decode::claim).map_err(Unreadable::Object)?;
    let Some(new) = new else { return Ok(None) };
    if new.deleting || new.key.name.is_empty() {
        return Ok(None);
    }
    let old = is_update.then(|| object("oldObject", request.old_object, decode::claim)).transpose();
    let old = old.map_err(Unreadable::OldObject)?.flatten();
    let at_home = |mut claim: Arc<Claim>| {
        if let (true, Some(namespace)) = (claim.key.namespace.is_empty(), &request.namespace) {
            Arc::make_mut(&mut claim).key.namespace = (&**namespace).into();
        }
        claim
    };
    Ok(Some(Reviewed::Claim { new: at_home(new), old: old.map(at_home) }))
}

/// The volume of a request; `None` where it passes whatever is in it.
fn volume(request: &AdmissionRequest<'_>, is_update: bool) -> Result<Option<Reviewed>, Unreadable> {
    let new = object("object", request.object, decode::volume).map_err(Unreadable::Object)?;
    let Some(new) = new else { return Ok(None) };
    if new.deleting || new.name.is_empty() {
        return Ok(None);
    }
    let old = is_update.then(|| object("oldObject", request.old_object, decode::volume)).transpose();
    let old = old.map_err(Unreadable::OldObject)?.flatten();
    Ok(Some(Reviewed::Volume { new, old }))
}

type Decode<N, T> = fn(&RawValue) -> Result<(N, Observed<T>), DecodeError>;

/// The object of a field of the request; `None` where the API server has still to give it a name.
fn object<N, T>(
    field: &str,
    json: Option<&RawValue>,
    decode: Decode<N, T>,
) -> Result<Option<Arc<T>>, String> {
    let json = json.ok_or_else(|| format!("request.{field} is missing"))?;
    match decode(json) {
        Ok((_, Observed::Readable(object))) => Ok(Some(object)),
        Ok((_, Observed::Unreadable(unreadable))) => Err(unreadable.why.to_string()),
        Err(_) if is_to_be_named(json) => Ok(None),
        Err(error) => Err(format!("request.{field}: {error}")),
    }
}

/// Whether the name of an object is still to be made from `generateName`.
fn is_to_be_named(json: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Bare {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        generate_name: Option<String>,
    }
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let bare = serde_json::from_str::<Bare>(json.get());
    bare.is_ok_and(|Bare { metadata }| !is_set(&metadata.name) && is_set(&metadata.generate_name))
}

/// What the door itself finds of a volume: policy Delete on what carries this label, unless it was so before.
pub(super) fn is_newly_precious(reviewed: &Reviewed, is_precious: impl Fn(&Volume) -> bool) -> bool {
    match reviewed {
        Reviewed::Volume { new, old } => {
            is_precious(new) && !old.as_ref().is_some_and(|old| is_precious(old))
        }
        Reviewed::Claim { .. } => false,
    }
}
