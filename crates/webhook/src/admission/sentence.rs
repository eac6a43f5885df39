//! The words: one sentence for each finding, with the field, both values and the remedy.

use bindery_controller::Reviewed;
use bindery_core::{ClaimKey, Finding, Rule, Text};

use super::rules::DoorRule;

/// Longest warning: the API server's clients may cut what is longer
/// (`concepts/cluster-administration/admission-webhooks-good-practices`).
pub(super) const WARNING_MAX: usize = 120;
/// Longest value in a denial: the longest name that an object can have. An engine may answer longer texts.
const VALUE_MAX: usize = 253;
/// Lengths to which values are shortened one after the other until a warning is short enough.
const SHORTENED: [usize; 5] = [VALUE_MAX, 48, 32, 24, 16];

/// What a rule found, whoever asked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) rule: DoorRule,
    /// Name of the volume that it is about; empty where there is none.
    pub(super) volume: Text,
    /// The claim that it is about, where that is another than the one reviewed.
    pub(super) claim: Option<ClaimKey>,
    /// The value of the object reviewed.
    pub(super) found: Text,
    /// The value that it is held against.
    pub(super) wanted: Text,
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Self {
        let Finding { rule, volume, claim, found, wanted } = finding;
        Self { rule: DoorRule::Engine(rule), volume, claim, found, wanted }
    }
}

/// A field and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub(super) field: &'static str,
    pub(super) text: String,
}

impl Sentence {
    /// Field and text, as one line.
    pub(super) fn line(&self) -> String {
        format!("{}: {}", self.field, self.text)
    }
}

/// The sentence of a finding, in full.
pub(super) fn sentence(found: &Found, reviewed: &Reviewed) -> Sentence {
    words(found, reviewed, VALUE_MAX)
}

/// The line of a finding, short enough for a warning.
pub(super) fn warning(found: &Found, reviewed: &Reviewed) -> String {
    let lines = SHORTENED.map(|width| words(found, reviewed, width).line());
    let short = lines.iter().find(|line| line.chars().count() <= WARNING_MAX);
    clipped(short.unwrap_or(&lines[SHORTENED.len() - 1]), WARNING_MAX)
}

/// The beginning of a text, where all of it is too long.
pub(super) fn clipped(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

fn words(found: &Found, reviewed: &Reviewed, width: usize) -> Sentence {
    let writer = Writer { found, width };
    let (field, text) = match reviewed {
        Reviewed::Claim { new, old } => {
            let is_renamed = old.as_ref().is_some_and(|old| old.volume_name != new.volume_name);
            writer.of_claim(&new.key, is_renamed)
        }
        Reviewed::Volume { .. } => writer.of_volume(),
    };
    Sentence { field, text }
}

/// Words for one finding, each of its values shortened to so many characters.
struct Writer<'a> {
    found: &'a Found,
    width: usize,
}

impl Writer<'_> {
    /// What is wrong with a claim.
    fn of_claim(&self, key: &ClaimKey, is_renamed: bool) -> (&'static str, String) {
        let DoorRule::Engine(rule) = self.found.rule else { return self.of_volume() };
        let volume = self.quoted(&self.found.volume);
        let (ours, theirs) = (self.plain(&self.found.found), self.plain(&self.found.wanted));
        let (our_class, their_class) = (self.quoted(&self.found.found), self.quoted(&self.found.wanted));
        match rule {
            Rule::VolumeTooSmall => (
                "spec.volumeName",
                format!(
                    "volume {volume} offers {theirs} and the claim asks for {ours}; ask for at most {theirs} or pick another volume"
                ),
            ),
            Rule::ClassDiffers => (
                "spec.storageClassName",
                format!(
                    "volume {volume} has class {their_class} and the claim {our_class}; set {their_class} or pick another volume"
                ),
            ),
            Rule::AttributesClassDiffers => (
                "spec.volumeAttributesClassName",
                format!(
                    "volume {volume} has {their_class} and the claim {our_class}; set {their_class} or pick another volume"
                ),
            ),
            Rule::VolumeModeDiffers => (
                "spec.volumeMode",
                format!(
                    "volume {volume} is {theirs} and the claim asks for {ours}; set {theirs} or pick another volume"
                ),
            ),
            Rule::AccessModesMissing => (
                "spec.accessModes",
                format!(
                    "volume {volume} offers {theirs} and the claim asks for {ours}; ask for no others or pick another volume"
                ),
            ),
            Rule::VolumeOfOther => (
                "spec.volumeName",
                format!("volume {volume} is bound to {}; pick another volume", self.other(key)),
            ),
            Rule::BreaksPair if is_renamed => (
                "spec.volumeName",
                format!(
                    "the claim is bound to volume {volume} and the request sets {our_class}; delete the claim to give the volume up"
                ),
            ),
            Rule::BreaksPair => (
                "metadata.annotations",
                format!(
                    "the claim is bound to volume {volume} and the request has {ours}; keep it, or delete the claim"
                ),
            ),
            Rule::VolumeMissing => (
                "spec.volumeName",
                format!("there is no volume {volume} yet; the claim waits until somebody creates it"),
            ),
            Rule::VolumeReserved => (
                "spec.volumeName",
                format!(
                    "volume {volume} is reserved for {}; wait for its release or pick another",
                    self.other(key)
                ),
            ),
            Rule::VolumeLeaving => (
                "spec.volumeName",
                format!(
                    "volume {volume} is {theirs}; until somebody makes it available again the claim waits"
                ),
            ),
            Rule::VolumeOversized => (
                "spec.volumeName",
                format!(
                    "volume {volume} has {theirs} and the claim asks for {ours}; pick a smaller volume to waste less"
                ),
            ),
            Rule::ClassMissing => (
                "spec.storageClassName",
                format!("there is no class {our_class} and no free volume of it fits; create one of them"),
            ),
            Rule::ProvisionerUnknown => (
                "spec.storageClassName",
                format!("class {our_class} has provisioner {theirs}, which is not there; use another class"),
            ),
            Rule::NameDefeatsWait => (
                "spec.volumeName",
                format!(
                    "class {their_class} waits for a pod, a claim with volumeName does not; leave it out to wait"
                ),
            ),
            Rule::NameDefeatsAffinity => (
                "spec.volumeName",
                format!(
                    "volume {volume} has {theirs}, which decides where pods of the claim run; be sure it suits"
                ),
            ),
            Rule::PairMismatch => (
                "spec.volumeName",
                format!(
                    "volume {volume} has {theirs} and the claim {ours}; they point at each other and bind all the same"
                ),
            ),
            Rule::PolicyRecycle => self.of_volume(),
        }
    }

    /// What is wrong with a volume.
    fn of_volume(&self) -> (&'static str, String) {
        let (ours, theirs) = (self.plain(&self.found.found), self.plain(&self.found.wanted));
        let (our_class, their_class) = (self.quoted(&self.found.found), self.quoted(&self.found.wanted));
        let DoorRule::Engine(rule) = self.found.rule else {
            return (
                "spec.persistentVolumeReclaimPolicy",
                format!(
                    "Delete, though label {ours} marks the volume as precious; set Retain to keep its data"
                ),
            );
        };
        let claim = self
            .found
            .claim
            .as_ref()
            .map_or_else(|| "the claim".to_owned(), |key| format!("claim {}", self.quoted(&key.to_string())));
        match rule {
            Rule::VolumeTooSmall => (
                "spec.capacity.storage",
                format!(
                    "the volume offers {ours} and {claim} asks for {theirs}; offer at least {theirs} or leave out claimRef"
                ),
            ),
            Rule::AttributesClassDiffers => (
                "spec.volumeAttributesClassName",
                format!(
                    "the volume has {our_class} and {claim} {their_class}; set {their_class} or leave out claimRef"
                ),
            ),
            Rule::ClassDiffers => (
                "spec.storageClassName",
                format!(
                    "the volume has class {our_class} and {claim} {their_class}; set {their_class} or leave out claimRef"
                ),
            ),
            Rule::VolumeModeDiffers => (
                "spec.volumeMode",
                format!(
                    "the volume is {ours} and {claim} asks for {theirs}; set {theirs} or leave out claimRef"
                ),
            ),
            Rule::AccessModesMissing => (
                "spec.accessModes",
                format!(
                    "the volume offers {ours} and {claim} asks for {theirs}; offer these too or leave out claimRef"
                ),
            ),
            Rule::BreaksPair => (
                "spec.claimRef",
                format!(
                    "the volume is bound to {claim} and the request sets {our_class} for {their_class}; delete the claim to release it"
                ),
            ),
            Rule::PairMismatch => (
                "spec.claimRef",
                format!(
                    "the volume has {ours} and {claim} {theirs}; they point at each other and bind all the same"
                ),
            ),
            Rule::PolicyRecycle => (
                "spec.persistentVolumeReclaimPolicy",
                "Recycle is deprecated and erases the volume for the next claim; use Retain or Delete"
                    .to_owned(),
            ),
            // The default engine finds these of claims alone; another one may not.
            Rule::VolumeOfOther
            | Rule::VolumeMissing
            | Rule::VolumeReserved
            | Rule::VolumeLeaving
            | Rule::VolumeOversized
            | Rule::ClassMissing
            | Rule::ProvisionerUnknown
            | Rule::NameDefeatsWait
            | Rule::NameDefeatsAffinity => ("spec", format!("{}: {ours} against {theirs}", rule.name())),
        }
    }

    /// The other claim, as far as the author may know of it: tenants see their own namespace.
    fn other(&self, author: &ClaimKey) -> String {
        match &self.found.claim {
            Some(key) if key.namespace == author.namespace => format!("claim {}", self.quoted(&key.name)),
            _ => "a claim of another namespace".to_owned(),
        }
    }

    fn quoted(&self, value: &str) -> String {
        format!("\"{}\"", self.plain(value))
    }

    /// A value that cannot harm a terminal or a header, whoever's engine it comes from; shortened in its middle.
    fn plain(&self, value: &str) -> String {
        let clean: Vec<char> =
            value.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
        if clean.len() <= self.width {
            return clean.into_iter().collect();
        }
        let head = self.width / 2;
        let tail = self.width - head - 1;
        clean[..head].iter().chain(&['…']).chain(&clean[clean.len() - tail..]).collect()
    }
}
