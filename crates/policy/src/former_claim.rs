//! What is known of a claim that is gone.
//!
//! A volume is released when its claim is gone, so what reclaimers read of claims is noted on the volume, in
//! the annotation [`CLAIM_FACTS`], while the claim is bound. The claim as a replica saw it last outranks the
//! note.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::{CLAIM_FACTS, Claim, ClaimFact, ClaimRef, Class, Lookup, Text, Uid, Volume, VolumeFact};
use serde::{Deserialize, Serialize};

use crate::view::claim_fact;
use crate::{Chain, NamespaceLabels, ReclaimRule};

/// The longest note, in bytes, as of any declared annotation. Nothing is known of a claim with more facts.
const NOTE_BYTES_MAX: usize = 4 << 10;

/// What is known of a claim that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerClaim {
    namespace: Text,
    name: Text,
    facts: BTreeMap<String, Text>,
}

/// The value of [`CLAIM_FACTS`], in JSON.
#[derive(Serialize, Deserialize)]
struct Note {
    /// UID of the claim. A claim of the same name that is created later inherits nothing.
    uid: Text,
    /// The facts that the claim has, such as `label:tier`.
    facts: BTreeMap<String, Text>,
}

impl FormerClaim {
    /// What is known of the claim that the claimRef of a volume names: from the claim itself as it was last
    /// seen, else from the note on the volume.
    pub fn of_volume(
        chain: &Chain,
        volume: &Volume,
        claim: Option<&Claim>,
        namespace_labels: &NamespaceLabels,
        class: &Lookup<Arc<Class>>,
    ) -> Option<Self> {
        let ClaimRef { namespace, name, uid } = volume.claim_ref.as_ref()?;
        let noted = noted(volume, uid.as_ref()?);
        let facts = match claim {
            None => noted?,
            Some(claim) => {
                let mut facts =
                    facts(chain, claim, &volume.class, namespace_labels, class).unwrap_or_default();
                // The namespace may be gone with its claims.
                if !matches!(namespace_labels, Lookup::Found(_)) {
                    let of_namespace = |key: &String| key.starts_with(NAMESPACE_LABEL);
                    facts.extend(noted.unwrap_or_default().into_iter().filter(|(key, _)| of_namespace(key)));
                }
                facts
            }
        };
        Some(Self { namespace: namespace.clone(), name: name.clone(), facts })
    }

    /// The value of a fact.
    pub fn fact(&self, fact: &ClaimFact) -> Option<Text> {
        match fact {
            ClaimFact::Namespace => Some(self.namespace.clone()),
            ClaimFact::Name => Some(self.name.clone()),
            _ => self.facts.get(&key(fact)).cloned(),
        }
    }
}

impl Chain {
    /// What is to be noted of a bound claim on its volume of that class; `None` where reclaimers read nothing
    /// of it.
    pub fn note(
        &self,
        claim: &Claim,
        class_name: &str,
        namespace: &NamespaceLabels,
        class: &Lookup<Arc<Class>>,
    ) -> Option<Text> {
        let (uid, facts) = (claim.uid.0.clone(), facts(self, claim, class_name, namespace, class)?);
        let note = serde_json::to_string(&Note { uid, facts }).ok()?;
        (note.len() <= NOTE_BYTES_MAX).then(|| note.into())
    }
}

/// The facts that a claim has, of those that reclaimers of volumes of that class read; `None` where they read
/// nothing.
fn facts(
    chain: &Chain,
    claim: &Claim,
    class_name: &str,
    namespace: &NamespaceLabels,
    class: &Lookup<Arc<Class>>,
) -> Option<BTreeMap<String, Text>> {
    let rules = chain.reclaimers().iter().filter(|rule| rule.matches.has_class(class_name));
    let read: BTreeSet<ClaimFact> = rules.flat_map(ReclaimRule::claim_facts).collect();
    let value = |fact: &ClaimFact| Some((key(fact), claim_fact(fact, claim, namespace, class)?));
    (!read.is_empty()).then(|| read.iter().filter_map(value).collect())
}

/// The facts that are noted on a volume of the claim of that UID.
fn noted(volume: &Volume, uid: &Uid) -> Option<BTreeMap<String, Text>> {
    let note = volume.facts.get(&VolumeFact::Annotation(CLAIM_FACTS.into()))?;
    let note: Note = serde_json::from_str(note).ok()?;
    (note.uid == uid.0).then_some(note.facts)
}

/// What the keys of labels of namespaces begin with.
const NAMESPACE_LABEL: &str = "namespaceLabel:";

/// The key of a fact in a note.
fn key(fact: &ClaimFact) -> String {
    match fact {
        ClaimFact::Namespace => "namespace".to_owned(),
        ClaimFact::Name => "name".to_owned(),
        ClaimFact::Label(key) => format!("label:{key}"),
        ClaimFact::Annotation(key) => format!("annotation:{key}"),
        ClaimFact::NamespaceLabel(key) => format!("{NAMESPACE_LABEL}{key}"),
        ClaimFact::ClassParameter(name) => format!("classParameter:{name}"),
        ClaimFact::OwnerName => "ownerName".to_owned(),
        ClaimFact::OwnerOrdinal => "ownerOrdinal".to_owned(),
    }
}
