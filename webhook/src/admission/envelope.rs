//! `AdmissionReview` of `admission.k8s.io/v1`: what the API server sends, and what it is answered.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The one version that is understood; it is what every API server since 1.16 sends where it is asked to.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Longest UID of a request, in bytes. It is in the answer, which nobody has to read, and takes no room of
/// the bodies'.
const UID_MAX: usize = 256;

/// Why a body is no review. Answered with status 400.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvelopeError {
    #[error("the body is no AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "the body is {kind:?} of {api_version:?}; this server answers AdmissionReview of admission.k8s.io/v1: list v1 in \
         admissionReviewVersions of the webhook configuration"
    )]
    Version { kind: String, api_version: String },
    #[error("the review has no request")]
    NoRequest,
    #[error("request.uid is missing or empty, so an answer could not name its request")]
    NoUid,
    #[error("request.uid is longer than {UID_MAX} bytes; an API server's has 36")]
    LongUid,
}

/// What a request comes in, whatever that is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, R> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    // By path: a bare `default` would ask for a default of `R`.
    #[serde(default = "Option::default")]
    request: Option<R>,
}

/// A request to review an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionRequest<'a> {
    #[serde(borrow, default)]
    pub(super) uid: Cow<'a, str>,
    /// The kind of the object as it is sent, which `matchPolicy: Equivalent` may have converted.
    #[serde(borrow, default)]
    pub(super) kind: ObjectKind<'a>,
    #[serde(borrow, default)]
    pub(super) sub_resource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) operation: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) old_object: Option<&'a RawValue>,
}

/// Group, version and kind of an object.
#[derive(Default, Deserialize)]
pub(super) struct ObjectKind<'a> {
    #[serde(borrow, default)]
    pub(super) group: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) kind: Cow<'a, str>,
}

/// Reads the body of a request.
///
/// # Errors
///
/// It is no review that could be answered.
pub(super) fn parse(body: &[u8]) -> Result<AdmissionRequest<'_>, EnvelopeError> {
    let envelope: Envelope<'_, AdmissionRequest<'_>> = serde_json::from_slice(body).map_err(|error| {
        // What is of another kind or version may have another shape, too.
        let envelope = serde_json::from_slice::<Envelope<'_, IgnoredAny>>(body);
        envelope.ok().and_then(|envelope| envelope.unknown()).unwrap_or(EnvelopeError::Json(error))
    })?;
    if let Some(error) = envelope.unknown() {
        return Err(error);
    }
    let request = envelope.request.ok_or(EnvelopeError::NoRequest)?;
    if request.uid.is_empty() {
        return Err(EnvelopeError::NoUid);
    }
    if request.uid.len() > UID_MAX {
        return Err(EnvelopeError::LongUid);
    }
    Ok(request)
}

impl<R> Envelope<'_, R> {
    /// Why a body of this kind and version is not answered.
    fn unknown(&self) -> Option<EnvelopeError> {
        let Self { api_version, kind, .. } = self;
        let is_known = api_version == API_VERSION && kind == KIND;
        (!is_known)
            .then(|| EnvelopeError::Version { kind: kind.to_string(), api_version: api_version.to_string() })
    }
}

/// What the API server is answered.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reply {
    api_version: &'static str,
    kind: &'static str,
    response: AdmissionResponse,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionResponse {
    pub(super) uid: String,
    pub(super) allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// For the API server's audit log, which puts the webhook's name before each key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) audit_annotations: BTreeMap<&'static str, String>,
}

/// `Status` of `meta/v1`: why a request is denied.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    pub(super) status: &'static str,
    pub(super) message: String,
    pub(super) reason: &'static str,
    pub(super) details: Details,
    pub(super) code: u16,
}

/// `StatusDetails` of `meta/v1`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Details {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) causes: Vec<Cause>,
}

/// `StatusCause` of `meta/v1`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cause {
    /// Name of the rule.
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) field: &'static str,
}

impl AdmissionResponse {
    /// The request may pass.
    pub(super) fn allowed(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            allowed: true,
            status: None,
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
        }
    }
}

impl From<AdmissionResponse> for Reply {
    fn from(response: AdmissionResponse) -> Self {
        Self { api_version: API_VERSION, kind: KIND, response }
    }
}
