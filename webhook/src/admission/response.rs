//! The answer to an admission review: from findings to the text for the author of the request.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bindery_controller::Reviewed;
use bindery_core::Rule;
use kube::core::response::{Status, StatusCause, StatusDetails};
use serde::Serialize;

use super::request::{API_VERSION, KIND};
use super::rules::{AdmissionRule, Level, Levels};
use super::wording::{AdmissionFinding, Sentence, VALUE_MAX, WARNING_MAX, clipped, sentence, warning};

/// Most warnings of one answer; more would be noise.
const WARNINGS_MAX: usize = 3;
/// Most causes of one denial. The default engine finds at most five; another one may find more.
const CAUSES_MAX: usize = 16;
/// Code and reason of a denial because a field is wrong.
const INVALID: (u16, &str) = (422, "Invalid");
/// Code and reason of a denial because the author is not entitled to the request.
const FORBIDDEN: (u16, &str) = (403, "Forbidden");
/// The kind of claims.
pub(super) const CLAIM: &str = "PersistentVolumeClaim";
/// Key of the audit annotation that names the rules.
const AUDIT_KEY: &str = "rules";

/// `AdmissionReview` of `admission.k8s.io/v1` with an answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnsweredReview {
    api_version: &'static str,
    kind: &'static str,
    response: AdmissionResponse,
}

/// `AdmissionResponse` of `admission.k8s.io/v1`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionResponse {
    uid: String,
    pub(super) allowed: bool,
    /// Why a request is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// The type of `patch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// A JSON patch in base64, which the API server applies to the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    /// For the audit log of the API server, which puts the webhook's name before each key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
}

/// Findings by the level of their rules, without those of rules that are off.
pub(super) struct Findings {
    pub(super) denying: Vec<AdmissionFinding>,
    warning: Vec<AdmissionFinding>,
}

impl Findings {
    pub(super) fn by_level(findings: Vec<AdmissionFinding>, levels: &Levels) -> Self {
        let told = findings.into_iter().filter(|finding| levels.of(finding.rule) > Level::Off);
        let (denying, warning) = told.partition(|finding| levels.of(finding.rule) == Level::Deny);
        Self { denying, warning }
    }

    /// The rule and level of each.
    pub(super) fn rules(&self) -> impl Iterator<Item = (AdmissionRule, Level)> {
        let denying = self.denying.iter().map(|finding| (finding.rule, Level::Deny));
        denying.chain(self.warning.iter().map(|finding| (finding.rule, Level::Warn)))
    }

    /// The answer to the request.
    pub(super) fn response(&self, uid: &str, reviewed: &Reviewed) -> AdmissionResponse {
        let mut response = AdmissionResponse::allowed(uid);
        let warnings = self.warning.iter().take(WARNINGS_MAX);
        response.warnings = warnings.map(|finding| warning(finding, reviewed)).collect();
        if !self.denying.is_empty() {
            response.allowed = false;
            response.status = Some(self.status(reviewed));
        }
        let rules = self.rules().take(CAUSES_MAX).map(|(rule, level)| format!("{}={level}", rule.name()));
        let rules = rules.collect::<Vec<_>>().join(",");
        if !rules.is_empty() {
            response.audit_annotations.insert(AUDIT_KEY, rules);
        }
        response
    }

    fn status(&self, reviewed: &Reviewed) -> Status {
        let denying = self.denying.iter().take(CAUSES_MAX);
        let denying: Vec<_> = denying.map(|finding| (finding, sentence(finding, reviewed))).collect();
        let lines: Vec<_> = denying.iter().map(|(_, sentence)| sentence.line()).collect();
        // 403 if the author is not entitled to the request, else 422 as for any invalid field.
        let is_forbidden = self.denying.iter().all(|finding| {
            matches!(finding.rule, AdmissionRule::Engine(Rule::VolumeOfOther | Rule::BreaksPair))
        });
        let code = if is_forbidden { FORBIDDEN } else { INVALID };
        let (kind, name) = match reviewed {
            Reviewed::Claim { new, .. } => (CLAIM, &new.key.name),
            Reviewed::Volume { new, .. } => ("PersistentVolume", &new.name),
        };
        let causes = denying.into_iter().map(|(finding, sentence)| cause(finding.rule.name(), sentence));
        failure(code, kind, name, &lines.join("; "), causes.collect())
    }
}

fn cause(reason: &str, Sentence { field, text }: Sentence) -> StatusCause {
    StatusCause { reason: reason.to_owned(), message: text, field: field.to_owned() }
}

/// The status of a denial: its code with the reason, and the object.
fn failure(
    (code, reason): (u16, &str),
    kind: &str,
    name: &str,
    message: &str,
    causes: Vec<StatusCause>,
) -> Status {
    let details = StatusDetails {
        name: clipped(name, VALUE_MAX),
        kind: kind.to_owned(),
        causes,
        group: String::new(),
        uid: String::new(),
        retry_after_seconds: 0,
    };
    Status::failure(message, reason).with_code(code).with_details(details)
}

impl AdmissionResponse {
    /// The request passes.
    pub(super) fn allowed(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            allowed: true,
            status: None,
            warnings: Vec::new(),
            patch_type: None,
            patch: None,
            audit_annotations: BTreeMap::new(),
        }
    }

    /// The same answer, with a JSON patch of the object.
    pub(super) fn with_patch(self, operations: &[impl Serialize]) -> Self {
        // Texts and lists always become JSON.
        let patch = serde_json::to_vec(operations).unwrap_or_default();
        Self { patch_type: Some("JSONPatch"), patch: Some(BASE64_STANDARD.encode(patch)), ..self }
    }

    /// The object of this kind and name has an invalid field. `reason` is that of the cause.
    pub(super) fn invalid(uid: &str, kind: &str, name: &str, reason: &str, sentence: Sentence) -> Self {
        let message = sentence.line();
        // kubectl prints the causes and no message.
        let status = failure(INVALID, kind, name, &message, vec![cause(reason, sentence)]);
        Self { allowed: false, status: Some(status), ..Self::allowed(uid) }
    }

    /// The request passes with this warning.
    pub(super) fn warned(uid: &str, why: &str) -> Self {
        let clean: String = why.chars().filter(|c| !c.is_control()).collect();
        Self { warnings: vec![clipped(&clean, WARNING_MAX)], ..Self::allowed(uid) }
    }
}

impl From<AdmissionResponse> for AnsweredReview {
    fn from(response: AdmissionResponse) -> Self {
        Self { api_version: API_VERSION, kind: KIND, response }
    }
}
