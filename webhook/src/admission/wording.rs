//! The wording of findings: the field, both values and the remedy.

use bindery_controller::Reviewed;
use bindery_core::{ClaimKey, Finding, Rule, Text};

use super::rules::AdmissionRule;

/// Longest warning: clients of the API server may cut longer ones
/// (`concepts/cluster-administration/admission-webhooks-good-practices`).
pub(super) const WARNING_MAX: usize = 120;
/// Longest value in a denial: the longest name of an object. An engine may answer with longer texts.
pub(super) const VALUE_MAX: usize = 253;
/// Lengths to which values are shortened, one after the other, until a warning is short enough.
const SHORTENED: [usize; 5] = [VALUE_MAX, 48, 32, 24, 16];

/// A finding of a rule.
pub(super) struct AdmissionFinding {
    pub(super) rule: AdmissionRule,
    /// The name of the volume that it is about; empty if there is none.
    pub(super) volume: Text,
    /// The claim that it is about, if that is not the claim under review.
    pub(super) claim: Option<ClaimKey>,
    /// The value of the object under review.
    pub(super) found: Text,
    /// The value that it is compared with.
    pub(super) wanted: Text,
}

impl From<Finding> for AdmissionFinding {
    fn from(finding: Finding) -> Self {
        let Finding { rule, volume, claim, found, wanted } = finding;
        Self { rule: AdmissionRule::Engine(rule), volume, claim, found, wanted }
    }
}

/// A field and what is wrong with it.
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

/// The whole sentence of a finding.
pub(super) fn sentence(finding: &AdmissionFinding, reviewed: &Reviewed) -> Sentence {
    words(finding, reviewed, VALUE_MAX)
}

/// The line of a finding, shortened to a warning.
pub(super) fn warning(finding: &AdmissionFinding, reviewed: &Reviewed) -> String {
    let lines = SHORTENED.map(|width| words(finding, reviewed, width).line());
    let short = lines.iter().find(|line| line.chars().count() <= WARNING_MAX);
    clipped(short.unwrap_or(&lines[SHORTENED.len() - 1]), WARNING_MAX)
}

/// A text, cut at its end if it is too long.
pub(super) fn clipped(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

fn words(finding: &AdmissionFinding, reviewed: &Reviewed, width: usize) -> Sentence {
    let (field, template) = match (finding.rule, reviewed) {
        (AdmissionRule::PreciousDeleted, _) => PRECIOUS_DELETED,
        (AdmissionRule::Engine(rule), Reviewed::Claim { new, .. }) if new.annotations.bind_completed => {
            of_marked_claim(rule)
        }
        (AdmissionRule::Engine(rule), Reviewed::Claim { .. }) => of_claim(rule),
        (AdmissionRule::Engine(rule), Reviewed::Volume { .. }) => of_volume(rule),
    };
    Sentence { field, text: Writer { finding, reviewed, width }.fill(template) }
}

/// A field, and a sentence with placeholders that [`Writer::value`] fills in.
type Template = (&'static str, &'static str);

const PRECIOUS_DELETED: Template =
    ("spec.persistentVolumeReclaimPolicy", "Delete, though label {ours} marks it as precious; set Retain");

const POLICY_RECYCLE: Template = (
    "spec.persistentVolumeReclaimPolicy",
    "Recycle is deprecated and erases the volume for the next claim; use Retain or Delete",
);

/// For a claim with bind-completed, which upstream does not let wait.
const fn of_marked_claim(rule: Rule) -> Template {
    let text = match rule {
        Rule::VolumeMissing => {
            "bind-completed makes the claim Lost, as there is no volume {volume}; leave it out"
        }
        Rule::VolumeReserved => {
            "bind-completed makes the claim Lost, as volume {volume} is not bound to it; leave it out"
        }
        Rule::VolumeLeaving => {
            "bind-completed makes the claim Lost, as volume {volume} is {theirs}; leave it out"
        }
        rule => return of_claim(rule),
    };
    ("metadata.annotations", text)
}

/// For a claim: "ours" is the claim's value, "theirs" the value of the volume or class.
const fn of_claim(rule: Rule) -> Template {
    match rule {
        Rule::VolumeTooSmall => (
            "spec.volumeName",
            "volume {volume} offers {theirs} and the claim asks for {ours}; ask for at most {theirs} or pick \
             another volume",
        ),
        Rule::ClassDiffers => (
            "spec.storageClassName",
            "volume {volume} has class {'theirs'} and the claim {'ours'}; set {'theirs'} or pick another \
             volume",
        ),
        Rule::AttributesClassDiffers => (
            "spec.volumeAttributesClassName",
            "volume {volume} has {'theirs'} and the claim {'ours'}; set {'theirs'} or pick another volume",
        ),
        Rule::VolumeModeDiffers => (
            "spec.volumeMode",
            "volume {volume} is {theirs} and the claim asks for {ours}; set {theirs} or pick another volume",
        ),
        Rule::AccessModesMissing => (
            "spec.accessModes",
            "volume {volume} offers {theirs} and the claim asks for {ours}; ask for no others or pick \
             another volume",
        ),
        Rule::ClassMissing => (
            "spec.storageClassName",
            "there is no class {'ours'} and no free volume of it fits; create one of them",
        ),
        Rule::ProvisionerUnknown => (
            "spec.storageClassName",
            "class {'ours'} has provisioner {theirs}, which is not there; use another class",
        ),
        Rule::PolicyRecycle => POLICY_RECYCLE,
        rule => ("spec.volumeName", of_volume_name(rule)),
    }
}

/// For the volume that a claim names.
const fn of_volume_name(rule: Rule) -> &'static str {
    match rule {
        Rule::VolumeOfOther => "volume {volume} is bound to {other claim}; pick another volume",
        Rule::BreaksPair => {
            "the claim is bound to volume {volume} and the request sets {'ours'}; delete the claim to give \
             the volume up"
        }
        Rule::VolumeRejected => "policy {'ours'} rejects volume {volume}: {theirs}; pick another volume",
        Rule::VolumeMissing => "there is no volume {volume} yet; the claim waits until it is created",
        Rule::VolumeReserved => {
            "volume {volume} is reserved for {other claim}; wait for its release or pick another volume"
        }
        Rule::VolumeLeaving => {
            "volume {volume} is {theirs}; the claim waits until one of this name is available"
        }
        Rule::VolumeOversized => {
            "volume {volume} has {theirs} and the claim asks for {ours}; pick a smaller volume to waste less"
        }
        Rule::NameDefeatsWait => {
            "class {'theirs'} waits for a pod, a claim with volumeName does not; leave it out to wait"
        }
        Rule::NameDefeatsAffinity => {
            "volume {volume} has node affinity: pods run only where it is; leave it out to have one chosen"
        }
        Rule::PairMismatch => {
            "volume {volume} has {theirs} and the claim {ours}; they point at each other and bind anyway"
        }
        rule => unexpected(rule),
    }
}

/// For a volume: "ours" is the volume's value, "theirs" the claim's.
const fn of_volume(rule: Rule) -> Template {
    match rule {
        Rule::VolumeTooSmall => (
            "spec.capacity.storage",
            "the volume offers {ours} and {claim} asks for {theirs}; offer at least {theirs} or leave \
             out claimRef",
        ),
        Rule::ClassDiffers => (
            "spec.storageClassName",
            "the volume has class {'ours'} and {claim} {'theirs'}; set {'theirs'} or leave out claimRef",
        ),
        Rule::AttributesClassDiffers => (
            "spec.volumeAttributesClassName",
            "the volume has {'ours'} and {claim} {'theirs'}; set {'theirs'} or leave out claimRef",
        ),
        Rule::VolumeModeDiffers => (
            "spec.volumeMode",
            "the volume is {ours} and {claim} asks for {theirs}; set {theirs} or leave out claimRef",
        ),
        Rule::AccessModesMissing => (
            "spec.accessModes",
            "the volume offers {ours} and {claim} asks for {theirs}; offer these too or leave out claimRef",
        ),
        Rule::BreaksPair => (
            "spec.claimRef",
            "the volume is bound to {claim} and the request sets {'ours'} for {'theirs'}; delete the claim \
             to release the volume",
        ),
        Rule::PairMismatch => (
            "spec.claimRef",
            "the volume has {ours} and {claim} {theirs}; they point at each other and bind anyway",
        ),
        Rule::PolicyRecycle => POLICY_RECYCLE,
        rule => ("spec", unexpected(rule)),
    }
}

/// For a finding that the default engine never makes about the object, but another engine may.
const fn unexpected(rule: Rule) -> &'static str {
    match rule {
        Rule::ClassMissing => "there is no class {'ours'}",
        Rule::ProvisionerUnknown => "provisioner {'theirs'} is not there",
        _ => "{ours} does not go with {theirs} of volume {volume}",
    }
}

/// Fills in the values of a finding, each shortened to `width` characters.
struct Writer<'a> {
    finding: &'a AdmissionFinding,
    reviewed: &'a Reviewed,
    width: usize,
}

impl Writer<'_> {
    /// The template with its values. Braces in a value are not placeholders.
    fn fill(&self, template: &str) -> String {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, name, after)) =
            rest.split_once('{').and_then(|(before, tail)| tail.split_once('}').map(|(n, a)| (before, n, a)))
        {
            text.push_str(before);
            text.push_str(&self.value(name));
            rest = after;
        }
        text + rest
    }

    fn value(&self, name: &str) -> String {
        let AdmissionFinding { volume, claim, found, wanted, .. } = self.finding;
        match name {
            "volume" => self.quoted(volume),
            "ours" => self.plain(found),
            "theirs" => self.plain(wanted),
            "'ours'" => self.quoted(found),
            "'theirs'" => self.quoted(wanted),
            "claim" => match claim {
                Some(key) => format!("claim {}", self.quoted(&key.to_string())),
                None => "the claim".to_owned(),
            },
            "other claim" => self.other_claim(claim.as_ref()),
            unknown => unreachable!("no template has {unknown:?}"),
        }
    }

    /// The other claim, as far as the author of this one may know it: tenants see their own namespace only.
    fn other_claim(&self, other: Option<&ClaimKey>) -> String {
        match (other, self.reviewed) {
            (Some(key), Reviewed::Claim { new, .. }) if *key == new.key => {
                "an earlier claim of this name".to_owned()
            }
            (Some(key), Reviewed::Claim { new, .. }) if key.namespace == new.key.namespace => {
                format!("claim {}", self.quoted(&key.name))
            }
            _ => "a claim of another namespace".to_owned(),
        }
    }

    fn quoted(&self, value: &str) -> String {
        format!("\"{}\"", self.plain(value))
    }

    /// A value without control characters, shortened in its middle.
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

#[cfg(test)]
mod tests {
    use bindery_core::Volume;

    use super::*;

    fn reviewed() -> [Reviewed; 2] {
        let claim = r#"{"metadata":{"name":"c","namespace":"ns"}}"#;
        let volume = r#"{"metadata":{"name":"v"}}"#;
        let read = |json: &str| -> serde_json::Value { serde_json::from_str(json).unwrap() };
        let claim = match bindery_kube::decode::claim(&read(claim), bindery_core::Declared::NONE).unwrap().1 {
            bindery_store::Observed::Readable(claim) => claim,
            bindery_store::Observed::Unreadable(why) => panic!("{why:?}"),
        };
        let volume: std::sync::Arc<Volume> =
            match bindery_kube::decode::volume(&read(volume), bindery_core::Declared::NONE).unwrap().1 {
                bindery_store::Observed::Readable(volume) => volume,
                bindery_store::Observed::Unreadable(why) => panic!("{why:?}"),
            };
        [Reviewed::Claim { new: claim, old: None }, Reviewed::Volume { new: volume, old: None }]
    }

    #[test]
    fn every_finding_fits_a_warning_whatever_its_values_are() {
        for reviewed in reviewed() {
            for rule in AdmissionRule::ALL {
                for text in ["", "8Gi", "\u{1b}[31m\n", &"n".repeat(253), &"ü{volume}".repeat(10_000)] {
                    let text = Text::from(text);
                    let finding = AdmissionFinding {
                        rule,
                        volume: text.clone(),
                        claim: Some(ClaimKey::new("ns", text.clone())),
                        found: text.clone(),
                        wanted: text,
                    };
                    let warning = warning(&finding, &reviewed);
                    assert!(warning.chars().count() <= WARNING_MAX, "{warning}");
                    assert!(!warning.contains(char::is_control), "{warning:?}");
                    let full = sentence(&finding, &reviewed).line();
                    assert!(full.len() < 6_000 && !full.contains(char::is_control), "{full:?}");
                }
            }
        }
    }
}
