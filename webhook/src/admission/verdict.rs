//! From what was found to what the author of a request is told.

use bindery_controller::Reviewed;
use bindery_core::Rule;

use super::envelope::{AdmissionResponse, Cause, Details, Status};
use super::rules::{DoorRule, Level, Levels};
use super::sentence::{Found, VALUE_MAX, clipped, sentence, warning};

/// Most warnings of one answer: more are noise.
const WARNINGS_MAX: usize = 3;
/// Most causes of one denial; the default engine finds five at most, another one may find more.
const CAUSES_MAX: usize = 16;
/// Key of the audit annotation that names the rules.
const AUDIT_KEY: &str = "rules";

/// What was found, sorted by what becomes of it.
pub(super) struct Verdict {
    pub(super) denying: Vec<Found>,
    pub(super) warning: Vec<Found>,
}

impl Verdict {
    /// Sorts what was found by the levels of its rules.
    pub(super) fn new(found: Vec<Found>, levels: &Levels) -> Self {
        let told = found.into_iter().filter(|found| levels.of(found.rule) > Level::Off);
        let (denying, warning) = told.partition(|found| levels.of(found.rule) == Level::Deny);
        Self { denying, warning }
    }

    /// What was found, with what becomes of it.
    pub(super) fn told(&self) -> impl Iterator<Item = (DoorRule, Level)> {
        let of =
            |found: &[Found], level| -> Vec<_> { found.iter().map(|found| (found.rule, level)).collect() };
        [of(&self.denying, Level::Deny), of(&self.warning, Level::Warn)].concat().into_iter()
    }

    /// The answer to the request.
    pub(super) fn response(&self, uid: &str, reviewed: &Reviewed) -> AdmissionResponse {
        let mut response = AdmissionResponse::allowed(uid);
        response.warnings = self.warnings(reviewed);
        if !self.denying.is_empty() {
            response.allowed = false;
            response.status = Some(self.status(reviewed));
        }
        let rules: Vec<_> =
            self.told().take(CAUSES_MAX).map(|(rule, level)| format!("{}={level}", rule.name())).collect();
        if !rules.is_empty() {
            response.audit_annotations.insert(AUDIT_KEY, rules.join(","));
        }
        response
    }

    fn warnings(&self, reviewed: &Reviewed) -> Vec<String> {
        self.warning.iter().take(WARNINGS_MAX).map(|found| warning(found, reviewed)).collect()
    }

    fn status(&self, reviewed: &Reviewed) -> Status {
        let denying = || self.denying.iter().take(CAUSES_MAX).map(|found| (found, sentence(found, reviewed)));
        let lines: Vec<_> = denying().map(|(_, sentence)| sentence.line()).collect();
        // 403 where what is asked for is not the author's to take, else 422 as of any field that is wrong.
        let is_forbidden = self
            .denying
            .iter()
            .all(|found| matches!(found.rule, DoorRule::Engine(Rule::VolumeOfOther | Rule::BreaksPair)));
        let (code, reason) = if is_forbidden { (403, "Forbidden") } else { (422, "Invalid") };
        let (kind, name) = match reviewed {
            Reviewed::Claim { new, .. } => ("PersistentVolumeClaim", &new.key.name),
            Reviewed::Volume { new, .. } => ("PersistentVolume", &new.name),
        };
        Status {
            status: "Failure",
            message: lines.join("; "),
            reason,
            details: Details {
                name: clipped(name, VALUE_MAX),
                kind,
                causes: denying()
                    .map(|(found, sentence)| Cause {
                        reason: found.rule.name(),
                        message: sentence.text,
                        field: sentence.field,
                    })
                    .collect(),
            },
            code,
        }
    }
}
