//! Reviews an object that is about to be written, for admission.
//!
//! A finding belongs to the request that introduces it: a problem that the current object also has is not
//! reported.

pub(crate) mod claim;
pub(crate) mod volume;

use bindery_core::{AccessModes, Claim, Finding, Mismatch, Rule, Text, Volume};

use crate::claim::mismatches;

/// The findings of the new object that the old one did not have.
fn introduced(new: Vec<Finding>, old: &[Finding]) -> impl Iterator<Item = Finding> {
    new.into_iter().filter(|finding| !old.iter().any(|before| same(before, finding)))
}

/// Whether two findings are about one problem, with any values.
fn same(a: &Finding, b: &Finding) -> bool {
    (a.rule, &a.volume, &a.claim, field(a)) == (b.rule, &b.volume, &b.claim, field(b))
}

/// The field of a finding: mismatches of one pair share a rule, and name their field before its value.
fn field(finding: &Finding) -> Option<&str> {
    finding.found.split(' ').next().filter(|_| finding.rule == Rule::PairMismatch)
}

/// Whether both are one complete pair; the volume is the one that the claim names.
fn is_complete_pair(claim: &Claim, volume: &Volume) -> bool {
    claim.annotations.bind_completed
        && claim.volume_name.as_ref() == Some(&volume.name)
        && volume.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.as_ref() == Some(&claim.uid))
}

/// A way in which a volume does not satisfy a claim, with both values.
struct Contrast {
    rule: Rule,
    claim: Text,
    volume: Text,
}

/// How a volume does not satisfy a claim. If each names the other they bind anyway: then one rule has all
/// mismatches, and the values name their field.
fn contrasts(claim: &Claim, volume: &Volume, name_each_other: bool) -> impl Iterator<Item = Contrast> {
    mismatches(volume, claim).filter_map(move |mismatch| {
        let (rule, field, claim, volume) = contrast(mismatch, claim, volume)?;
        if !name_each_other {
            return Some(Contrast { rule, claim, volume });
        }
        let named = |value: Text| Text::from(format!("{field} {value}"));
        Some(Contrast { rule: Rule::PairMismatch, claim: named(claim), volume: named(volume) })
    })
}

/// The rule, the field and the two values of a mismatch; `None` for a volume that is being deleted, which has
/// a rule of its own.
fn contrast(mismatch: Mismatch, claim: &Claim, volume: &Volume) -> Option<(Rule, &'static str, Text, Text)> {
    Some(match mismatch {
        Mismatch::Deleting => return None,
        Mismatch::TooSmall => (
            Rule::VolumeTooSmall,
            "storage",
            claim.request.to_string().into(),
            volume.capacity.unwrap_or_default().to_string().into(),
        ),
        Mismatch::Class => {
            (Rule::ClassDiffers, "storageClassName", claim.class_or_empty().into(), volume.class.clone())
        }
        Mismatch::AttributesClass => (
            Rule::AttributesClassDiffers,
            "volumeAttributesClassName",
            claim.attributes_class_or_empty().into(),
            volume.attributes_class_or_empty().into(),
        ),
        Mismatch::VolumeMode => {
            (Rule::VolumeModeDiffers, "volumeMode", claim.mode.name().into(), volume.mode.name().into())
        }
        Mismatch::AccessModes => (
            Rule::AccessModesMissing,
            "accessModes",
            mode_names(claim.access_set()),
            mode_names(volume.access_set()),
        ),
    })
}

fn mode_names(modes: AccessModes) -> Text {
    let names: Vec<_> = modes.iter().map(|mode| mode.name()).collect();
    names.join(",").into()
}
