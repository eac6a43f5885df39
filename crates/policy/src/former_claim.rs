//! What is known of a claim that is gone.
//!
//! A volume is released when its claim is gone, so what reclaimers read of claims is noted on the volume, in
//! the annotation [`CLAIM_FACTS`], while the claim is bound. The claim as a replica saw it last outranks the
//! note.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::{
    CLAIM_FACTS, Claim, ClaimFact, ClaimRef, Class, Lookup, RelatedLookup, Text, Uid, Volume, VolumeFact,
    VolumePhase,
};
use serde::{Deserialize, Serialize};

use crate::{Chain, NamespaceLabels, ReclaimRule};

/// The longest note, in bytes, as of any declared annotation. Nothing is known of a claim with more facts.
const NOTE_BYTES_MAX: usize = 4 << 10;

/// What is known of a claim that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerClaim {
    namespace: Text,
    name: Text,
    facts: KnownFacts,
}

/// The facts that are known, by their keys in a note: the value, or `None` where the claim has none.
type KnownFacts = BTreeMap<String, Option<Text>>;

/// The value of [`CLAIM_FACTS`], in JSON.
#[derive(Serialize, Deserialize)]
struct Note {
    /// UID of the claim. A claim of the same name that is created later inherits nothing.
    uid: Text,
    /// The facts that reclaimers read, such as `label:tier`, also those that the claim does not have: a
    /// reclaimer that is loaded later may read others.
    facts: KnownFacts,
}

impl FormerClaim {
    /// What is known of the claim that the claimRef of a volume names: from the claim itself as it was last
    /// seen, else from the note on the volume. `None` where the claimRef has no UID.
    pub fn of_volume(chain: &Chain, volume: &Volume, lookup: &(impl RelatedLookup + ?Sized)) -> Option<Self> {
        let claim_ref = volume.claim_ref.as_ref()?;
        let claim = lookup.last_claim(claim_ref);
        let (labels, class) = (lookup.namespace_labels(&claim_ref.namespace), lookup.class_of(&volume.class));
        let ClaimRef { namespace, name, uid } = claim_ref;
        let facts = facts(chain, volume, uid.as_ref()?, claim.as_deref(), &labels, &class);
        Some(Self { namespace: namespace.clone(), name: name.clone(), facts })
    }

    /// The value of a fact, `Some(None)` where the claim had none; `None` where that is not known.
    #[allow(clippy::option_option, reason = "not known is not the same as absent")]
    pub fn fact(&self, fact: &ClaimFact) -> Option<Option<Text>> {
        match fact {
            ClaimFact::Namespace => Some(Some(self.namespace.clone())),
            ClaimFact::Name => Some(Some(self.name.clone())),
            _ => self.facts.get(&key(fact)).cloned(),
        }
    }
}

impl Chain {
    /// What is to be noted of a bound claim on its volume; `None` where reclaimers read nothing of it.
    pub fn note(
        &self,
        claim: &Claim,
        volume: &Volume,
        namespace: &NamespaceLabels,
        class: &Lookup<Arc<Class>>,
    ) -> Option<Text> {
        let facts = facts(self, volume, &claim.uid, Some(claim), namespace, class);
        if facts.is_empty() {
            return None;
        }
        let note = serde_json::to_string(&Note { uid: claim.uid.0.clone(), facts }).ok()?;
        (note.len() <= NOTE_BYTES_MAX).then(|| note.into())
    }
}

/// What is known of the facts that reclaimers of the volume read. A namespace or class that the cache does
/// not have any more may be gone before its claims, so what was noted of it stays. So does all of a note
/// while a reclaimer is not loaded: it is not known what that one reads.
fn facts(
    chain: &Chain,
    volume: &Volume,
    uid: &Uid,
    claim: Option<&Claim>,
    namespace: &NamespaceLabels,
    class: &Lookup<Arc<Class>>,
) -> KnownFacts {
    let noted = noted(volume, uid).unwrap_or_default();
    // A namespace or class may be made again under its name.
    let is_final = matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed);
    let known = |fact: &ClaimFact| match (fact, namespace, class) {
        (ClaimFact::NamespaceLabel(_) | ClaimFact::ClassParameter(_), ..)
            if is_final && noted.contains_key(&key(fact)) =>
        {
            noted.get(&key(fact)).cloned()
        }
        (ClaimFact::NamespaceLabel(key), Lookup::Found(labels), _) => Some(labels.get(key).cloned()),
        (ClaimFact::ClassParameter(_), _, Lookup::Found(class)) => Some(class.parameters.get(fact).cloned()),
        (ClaimFact::ClassParameter(_), ..) if volume.class.is_empty() => Some(None),
        (ClaimFact::NamespaceLabel(_) | ClaimFact::ClassParameter(_), ..) => noted.get(&key(fact)).cloned(),
        _ => match claim {
            Some(claim) => Some(claim.fact(fact).cloned()),
            None => noted.get(&key(fact)).cloned(),
        },
    };
    let rules = || chain.reclaimers().iter().filter(|rule| rule.matches.has_class(&volume.class));
    let read: BTreeSet<ClaimFact> = rules().flat_map(ReclaimRule::claim_facts).collect();
    let read: KnownFacts = read.iter().filter_map(|fact| Some((key(fact), known(fact)?))).collect();
    let kept = if rules().any(|rule| rule.reclaimer.is_err()) { noted } else { KnownFacts::new() };
    kept.into_iter().chain(read).collect()
}

/// The facts that are noted on a volume of the claim of that UID.
fn noted(volume: &Volume, uid: &Uid) -> Option<KnownFacts> {
    let note = volume.facts.get(&VolumeFact::Annotation(CLAIM_FACTS.into()))?;
    let note: Note = serde_json::from_str(note).ok()?;
    (note.uid == uid.0).then_some(note.facts)
}

/// The key of a fact in a note.
fn key(fact: &ClaimFact) -> String {
    match fact {
        ClaimFact::Namespace => "namespace".to_owned(),
        ClaimFact::Name => "name".to_owned(),
        ClaimFact::Label(key) => format!("label:{key}"),
        ClaimFact::Annotation(key) => format!("annotation:{key}"),
        ClaimFact::NamespaceLabel(key) => format!("namespaceLabel:{key}"),
        ClaimFact::ClassParameter(name) => format!("classParameter:{name}"),
        ClaimFact::OwnerName => "ownerName".to_owned(),
        ClaimFact::OwnerOrdinal => "ownerOrdinal".to_owned(),
    }
}
