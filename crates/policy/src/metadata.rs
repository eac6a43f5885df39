//! What a policy says about itself.

use bindery_core::{ClaimFact, Declared, Spread, Text, VolumeFact, is_dns_label};

/// What a policy says about itself. The same for every call, whatever the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its name, a DNS label such as `same-zone`.
    pub name: Text,
    /// Its version, by semantic versioning.
    pub version: Text,
    /// One sentence for people.
    pub description: Text,
    /// The facts of a claim that it is shown, in this order.
    pub claim_facts: Vec<ClaimFact>,
    /// The columns of the volumes that it is shown, in this order.
    pub columns: Vec<VolumeFact>,
    /// How volumes are to be spread, if they are.
    pub spread: Option<Spread>,
    /// Its reasons. An answer names a reason by its place in this list.
    pub reasons: Vec<Reason>,
    /// Whether it scores volumes. If not, the first volume that it allows is taken.
    pub scores: bool,
    /// JSON Schema of its settings, as text.
    pub settings_schema: String,
}

/// A reason for which a policy rejects a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its name, a DNS label such as `other-zone`; counted in events and metrics.
    pub name: Text,
    /// The sentence for people. `{claim.N}` and `{volume.N}` stand for the declared facts number N, from 0.
    pub text: Text,
}

/// The most facts of a claim.
const CLAIM_FACTS_MAX: usize = 64;
/// The most columns.
const COLUMNS_MAX: usize = 16;
/// The most reasons.
pub(crate) const REASONS_MAX: usize = 64;
/// The longest name, in bytes, as of a DNS label.
const NAME_BYTES_MAX: usize = 63;
/// The longest description or text of a reason, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 10;
/// The largest schema, in bytes.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

impl Metadata {
    /// Adds what the policy reads.
    pub fn declare(&self, declared: &mut Declared) {
        declared.claims.extend(self.claim_facts.iter().cloned());
        declared.volumes.extend(self.columns.iter().cloned());
        if let Some(spread) = &self.spread {
            declared.claims.extend(spread.among.iter().cloned());
            declared.volumes.insert(spread.by.clone());
            declared.spreads.insert(spread.clone());
        }
    }

    /// Checks what a policy says about itself.
    ///
    /// # Errors
    ///
    /// A sentence that names the field, the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        check_name("its name", &self.name)?;
        for (what, found, max) in [
            ("facts of claims", self.claim_facts.len(), CLAIM_FACTS_MAX),
            ("columns", self.columns.len(), COLUMNS_MAX),
            ("reasons", self.reasons.len(), REASONS_MAX),
            ("bytes in its description", self.description.len(), TEXT_BYTES_MAX),
            ("bytes in its settings-schema", self.settings_schema.len(), SCHEMA_BYTES_MAX),
        ] {
            if found > max {
                return Err(format!("it has {found} {what}; the limit is {max}"));
            }
        }
        if let Some(spread) = &self.spread {
            check_spread(spread)?;
        }
        for (place, reason) in self.reasons.iter().enumerate() {
            check_name("the name of a reason", &reason.name)?;
            if reason.text.len() > TEXT_BYTES_MAX {
                let name = &reason.name;
                return Err(format!("the text of reason {name:?} has more than {TEXT_BYTES_MAX} bytes"));
            }
            if self.reasons[..place].iter().any(|other| other.name == reason.name) {
                return Err(format!("it has two reasons of name {:?}", reason.name));
            }
        }
        crate::SettingsSchema::parse(&self.settings_schema)
            .map(drop)
            .map_err(|why| format!("its settings-schema: {why}"))
    }
}

/// Claims of one namespace have the same labels of it, and a parameter of a class changes with the class.
fn check_spread(Spread { among, .. }: &Spread) -> Result<(), String> {
    if among.len() > CLAIM_FACTS_MAX {
        let found = among.len();
        return Err(format!("its spread has {found} facts among siblings; the limit is {CLAIM_FACTS_MAX}"));
    }
    match among
        .iter()
        .find(|fact| matches!(fact, ClaimFact::NamespaceLabel(_) | ClaimFact::ClassParameter(_)))
    {
        Some(fact) => Err(format!(
            "its spread is among claims of equal {fact:?}; name labels, annotations or the owner of the claim"
        )),
        None => Ok(()),
    }
}

/// Events, metrics and files have the names of policies and reasons.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(format!(
        "{what} is {name:?}; use at most {NAME_BYTES_MAX} lower case letters, digits and hyphens, with no \
         hyphen at the ends"
    ))
}
