//! The request of an admission review: from JSON to the claim or volume to review, by the decoder of the
//! watches.

use std::borrow::Cow;
use std::sync::Arc;

use bindery_controller::Reviewed;
use bindery_core::{Claim, Declared, named_cases};
use bindery_kube::decode::{self, DecodeError};
use bindery_store::Observed;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The version and kind of the reviews that this server answers: those of every API server since 1.16.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
pub(super) const KIND: &str = "AdmissionReview";

/// Longest UID of a request in bytes. The answer repeats it, and takes nothing of the body budget.
const UID_MAX: usize = 256;

/// Most fields and list entries of a request's objects, counted by their commas. A volume or claim has some
/// hundred; decoding one takes at least a hundred bytes for three bytes of the request.
const PARTS_MAX: usize = 100_000;

/// Why a body is not a review, answered with status 400.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the body is not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "the body is {kind:?} of {api_version:?}; this server answers AdmissionReview of \
         admission.k8s.io/v1: list v1 in admissionReviewVersions of the webhook configuration"
    )]
    Version { kind: String, api_version: String },
    #[error("the review has no request")]
    NoRequest,
    #[error("request.uid is missing or empty, so an answer could not name its request")]
    NoUid,
    #[error("request.uid is longer than {UID_MAX} bytes; an API server's has 36")]
    LongUid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a, R> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    // By path: a bare `default` would require `R: Default`.
    #[serde(default = "Option::default")]
    request: Option<R>,
}

/// `AdmissionRequest` of `admission.k8s.io/v1`, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionRequest<'a> {
    #[serde(borrow, default)]
    pub(super) uid: Cow<'a, str>,
    /// The kind of the object as sent, which `matchPolicy: Equivalent` may have converted.
    #[serde(borrow, default)]
    kind: GroupVersionKind<'a>,
    #[serde(borrow, default)]
    sub_resource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct GroupVersionKind<'a> {
    #[serde(borrow, default)]
    group: Cow<'a, str>,
    #[serde(borrow, default)]
    version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
}

named_cases! {
    /// The kind of a request's object, for metrics.
    ObjectKind {
        Claim = "claim";
        Volume = "volume";
        Other = "other";
    }
}

/// Why an object is not reviewed: its request passes with this warning.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("Bindery cannot read this object and will not bind it: {0}")]
    Object(String),
    #[error("Bindery has not checked this request: it has more than {PARTS_MAX} fields and entries of lists")]
    Parts,
    /// The new object can be read and will be bound. Which of its faults are old is unknown, and an update
    /// that repairs an unreadable object must not be denied.
    #[error("Bindery has not checked this request: it cannot read the object as it was: {0}")]
    OldObject(String),
}

impl<'a> AdmissionRequest<'a> {
    /// Reads the body of an HTTP request.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, RequestError> {
        let review: AdmissionReview<'_, Self> = serde_json::from_slice(body).map_err(|error| {
            // Another kind or version may have another shape.
            let review = serde_json::from_slice::<AdmissionReview<'_, IgnoredAny>>(body);
            review.ok().and_then(|review| review.wrong_version()).unwrap_or(RequestError::Json(error))
        })?;
        if let Some(error) = review.wrong_version() {
            return Err(error);
        }
        let request = review.request.ok_or(RequestError::NoRequest)?;
        match request.uid.len() {
            0 => Err(RequestError::NoUid),
            1..=UID_MAX => Ok(request),
            _ => Err(RequestError::LongUid),
        }
    }

    /// `kind` of the object as sent.
    pub(super) fn kind_name(&self) -> &str {
        &self.kind.kind
    }

    pub(super) fn kind(&self) -> ObjectKind {
        match (&*self.kind.group, &*self.kind.version, &*self.kind.kind) {
            ("", "v1", "PersistentVolumeClaim") => ObjectKind::Claim,
            ("", "v1", "PersistentVolume") => ObjectKind::Volume,
            _ => ObjectKind::Other,
        }
    }

    /// Whether the request updates an object or creates it; `None` for another operation or a subresource.
    pub(super) fn is_update(&self) -> Option<bool> {
        let is_whole = self.sub_resource.as_ref().is_none_or(|name| name.is_empty());
        match &*self.operation {
            "CREATE" if is_whole => Some(false),
            "UPDATE" if is_whole => Some(true),
            _ => None,
        }
    }

    /// The namespace of the object; empty for a volume.
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// Fails if decoding the objects would take too much memory.
    pub(super) fn check_parts(&self) -> Result<(), Unreadable> {
        let objects = [self.object, self.old_object].into_iter().flatten();
        let commas = objects.map(|object| object.get().bytes().filter(|byte| *byte == b',').count());
        if commas.sum::<usize>() > PARTS_MAX { Err(Unreadable::Parts) } else { Ok(()) }
    }

    /// The new object, read as this type.
    pub(super) fn new_as<T: Deserialize<'a>>(&self) -> Result<T, String> {
        read_as("object", self.object)
    }

    /// The old object, read as this type.
    pub(super) fn old_as<T: Deserialize<'a>>(&self) -> Result<T, String> {
        read_as("oldObject", self.old_object)
    }

    /// The object to review; `None` if nothing in it can matter, so that the request passes.
    pub(super) fn reviewed(&self, declared: &Declared) -> Result<Option<Reviewed>, Unreadable> {
        let Some(is_update) = self.is_update() else { return Ok(None) };
        match self.kind() {
            ObjectKind::Other => Ok(None),
            ObjectKind::Claim => self.claim(is_update, declared),
            ObjectKind::Volume => self.volume(is_update, declared),
        }
    }

    fn claim(&self, is_update: bool, declared: &Declared) -> Result<Option<Reviewed>, Unreadable> {
        let Some((new, old)) = self.objects(is_update, |object| decode::claim(object, declared))? else {
            return Ok(None);
        };
        if new.deleting || new.key.name.is_empty() {
            return Ok(None);
        }
        let with_namespace = |mut claim: Arc<Claim>| {
            if let (true, Some(namespace)) = (claim.key.namespace.is_empty(), &self.namespace) {
                Arc::make_mut(&mut claim).key.namespace = (&**namespace).into();
            }
            claim
        };
        Ok(Some(Reviewed::Claim { new: with_namespace(new), old: old.map(with_namespace) }))
    }

    fn volume(&self, is_update: bool, declared: &Declared) -> Result<Option<Reviewed>, Unreadable> {
        let Some((new, old)) = self.objects(is_update, |object| decode::volume(object, declared))? else {
            return Ok(None);
        };
        let can_matter = !new.deleting && !new.name.is_empty();
        Ok(can_matter.then_some(Reviewed::Volume { new, old }))
    }

    /// The new object and, for an update, the old one; `None` if the new one has no name yet.
    fn objects<N, T>(
        &self,
        is_update: bool,
        decode: impl Fn(&RawValue) -> Decoded<N, T>,
    ) -> Result<Option<NewAndOld<T>>, Unreadable> {
        self.check_parts()?;
        let Some(new) = object("object", self.object, &decode).map_err(Unreadable::Object)? else {
            return Ok(None);
        };
        let old = is_update.then(|| object("oldObject", self.old_object, &decode)).transpose();
        Ok(Some((new, old.map_err(Unreadable::OldObject)?.flatten())))
    }
}

impl<R> AdmissionReview<'_, R> {
    fn wrong_version(&self) -> Option<RequestError> {
        let Self { api_version, kind, .. } = self;
        (api_version != API_VERSION || kind != KIND)
            .then(|| RequestError::Version { kind: kind.to_string(), api_version: api_version.to_string() })
    }
}

type NewAndOld<T> = (Arc<T>, Option<Arc<T>>);

type Decoded<N, T> = Result<(N, Observed<T>), DecodeError>;

/// The object in a field of the request, read as this type.
fn read_as<'a, T: Deserialize<'a>>(field: &str, json: Option<&'a RawValue>) -> Result<T, String> {
    let json = json.ok_or_else(|| missing(field))?;
    serde_json::from_str(json.get()).map_err(|error| format!("request.{field}: {error}"))
}

/// The object in a field of the request; `None` if the API server has yet to generate its name.
fn object<N, T>(
    field: &str,
    json: Option<&RawValue>,
    decode: impl Fn(&RawValue) -> Decoded<N, T>,
) -> Result<Option<Arc<T>>, String> {
    let json = json.ok_or_else(|| missing(field))?;
    match decode(json) {
        Ok((_, Observed::Readable(object))) => Ok(Some(object)),
        Ok((_, Observed::Unreadable(unreadable))) => Err(unreadable.why.to_string()),
        Err(_) if awaits_name(json) => Ok(None),
        Err(error) => Err(format!("request.{field}: {error}")),
    }
}

fn missing(field: &str) -> String {
    format!("request.{field} is missing")
}

/// Whether the name is still to be made from `generateName`.
fn awaits_name(json: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct ReviewedObject {
        metadata: ObjectMeta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ObjectMeta {
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        generate_name: Option<String>,
    }
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let object = serde_json::from_str::<ReviewedObject>(json.get());
    object.is_ok_and(|ReviewedObject { metadata }| !is_set(&metadata.name) && is_set(&metadata.generate_name))
}
