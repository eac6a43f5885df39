//! Redacts what is written: digests under a key take the place of values that readers must not see.
//!
//! Equal values have equal digests, so a redacted journal still tells which values were the same. Texts that
//! come from elsewhere, such as errors of the API server, may name anything, so they are redacted as a whole.

mod evidence;
mod policies;

use std::collections::{BTreeMap, BTreeSet};

use bindery_core::{CLAIM_FACTS, ClaimFact, GuardRead, GuardVerdict, Key, Text, VolumeFact};
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::{Record, Redacted, What, Wrote};

/// How a digest begins. With what follows it is a valid name of a namespace and value of a label.
const PREFIX: &str = "redacted-";
/// The label of a namespace that has its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Bytes of a digest: enough that no two values have the same one.
const DIGEST_BYTES: usize = 16;

/// What is redacted in a file, and by which key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Redaction {
    /// The digest of no text: the same in files whose digests can be compared.
    pub key: String,
    /// Keys of annotations of claims and volumes whose values are redacted.
    pub annotations: BTreeSet<String>,
    /// Keys of labels of claims, volumes, namespaces and nodes whose values are redacted.
    pub labels: BTreeSet<String>,
    /// Whether names of namespaces are redacted.
    pub namespaces: bool,
}

/// Redacts entries of a journal.
pub struct Redactor {
    mac: Hmac<Sha256>,
    redaction: Redaction,
}

/// Redacts one entry.
struct Pass<'a> {
    redactor: &'a Redactor,
    /// What was redacted in this entry, with the digests.
    words: BTreeMap<Text, Text>,
    /// Whether the engine was shown, or has answered, something of it.
    is_of_engine: bool,
    /// The policies that were shown nothing that is redacted. The reasons of others may quote it.
    open: BTreeSet<Text>,
}

impl Redactor {
    /// Redacts by this key. [`Redaction::key`] is set.
    pub fn new(key: &[u8], redaction: Redaction) -> Self {
        let mac = Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
        let mut redactor = Self { mac, redaction };
        redactor.redaction.key = redactor.digest("").to_string();
        redactor
    }

    /// What is redacted.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// Redacts an entry, and marks it.
    pub fn redact(&self, what: &mut What) {
        let (words, open) = Default::default();
        let mut pass = Pass { redactor: self, words, is_of_engine: false, open };
        match what {
            What::Decision(record) => {
                let Record { evidence, guard, policies, reads, redacted, chain: _, fuel: _ } = &mut **record;
                let (open, others) = policies.as_ref().map_or_else(Default::default, |it| self.open_of(it));
                pass.open = open;
                pass.evidence(evidence);
                pass.reads(reads);
                match guard {
                    GuardVerdict::Passed => {}
                    // The guard asks policies too, and says what they have answered.
                    GuardVerdict::Refused(why) | GuardVerdict::Unproven(why) | GuardVerdict::Stale(why)
                        if others > 0 =>
                    {
                        *why = self.digest(why).to_string();
                    }
                    GuardVerdict::Refused(why) | GuardVerdict::Unproven(why) | GuardVerdict::Stale(why) => {
                        *why = pass.without_words(why);
                    }
                }
                *redacted = Redacted { engine: pass.is_of_engine, policies: false };
                if let Some(policies) = policies {
                    redacted.policies = pass.policies(policies);
                }
            }
            What::Write(Wrote { object, claim, result, write: _, uid: _, version: _ }) => {
                if *claim {
                    pass.claim_name(object);
                }
                if let Err(why) = result {
                    *why = self.digest(why).to_string();
                }
            }
            What::Difference(differed) => {
                if differed.claim {
                    pass.claim_name(&mut differed.object);
                }
                // They may quote what policies were shown.
                let reasons = [&mut differed.active.reason, &mut differed.instead.reason];
                for reason in reasons.into_iter().filter(|reason| !reason.is_empty()) {
                    *reason = self.digest(reason).to_string();
                }
            }
            What::Swap(_) | What::Gap(_) | What::End | What::Unknown(_) => {}
        }
    }

    fn digest(&self, value: &str) -> Text {
        let digest = self.mac.clone().chain_update(value).finalize().into_bytes();
        let hex = digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}"));
        std::iter::once(PREFIX.to_owned()).chain(hex).collect::<String>().into()
    }

    fn redacts_claim_fact(&self, fact: &ClaimFact) -> bool {
        match fact {
            ClaimFact::Namespace => self.redaction.namespaces,
            ClaimFact::NamespaceLabel(key) if self.redaction.namespaces && **key == *NAMESPACE_NAME => true,
            ClaimFact::Label(key) | ClaimFact::NamespaceLabel(key) => self.redaction.labels.contains(&**key),
            ClaimFact::Annotation(key) => self.redaction.annotations.contains(&**key),
            ClaimFact::Name
            | ClaimFact::ClassParameter(_)
            | ClaimFact::OwnerName
            | ClaimFact::OwnerOrdinal => false,
        }
    }

    fn redacts_volume_fact(&self, fact: &VolumeFact) -> bool {
        match fact {
            VolumeFact::Label(key) | VolumeFact::Topology(key) => self.redaction.labels.contains(&**key),
            // It has labels and annotations of the claim, labels of its namespace, and the namespace's name.
            VolumeFact::Annotation(key) if **key == *CLAIM_FACTS => self.redacts_any(),
            VolumeFact::Annotation(key) => self.redaction.annotations.contains(&**key),
            VolumeFact::ClassName
            | VolumeFact::Source
            | VolumeFact::Driver
            | VolumeFact::ReclaimPolicy
            | VolumeFact::PhaseTransition => false,
        }
    }

    fn redacts_any(&self) -> bool {
        let Redaction { key: _, annotations, labels, namespaces } = &self.redaction;
        *namespaces || !annotations.is_empty() || !labels.is_empty()
    }
}

impl Pass<'_> {
    /// Puts the digest of a text in its place.
    fn word(&mut self, text: &mut Text) {
        let digest = self.words.entry(text.clone()).or_insert_with(|| self.redactor.digest(text));
        *text = digest.clone();
    }

    /// Redacts the name of a namespace that the engine was shown.
    fn namespace(&mut self, name: &mut Text) {
        if self.redactor.redaction.namespaces {
            self.word(name);
            self.is_of_engine = true;
        }
    }

    fn reads(&mut self, reads: &mut [GuardRead]) {
        for GuardRead { key, found } in reads {
            if let Key::Claim(key) = key {
                self.namespace(&mut key.namespace);
            }
            if let Err(why) = found {
                // The guard's verdict quotes it.
                let mut word = Text::from(&**why);
                self.word(&mut word);
                *why = word.to_string();
            }
        }
    }

    /// Redacts the namespace in `NAMESPACE/NAME`.
    fn claim_name(&mut self, object: &mut String) {
        if let Some((namespace, name)) = object.split_once('/') {
            let mut namespace = namespace.into();
            self.namespace(&mut namespace);
            *object = format!("{namespace}/{name}");
        }
    }

    /// A text that Bindery or the engine has made, with digests in place of what was redacted in this entry.
    /// A name inside of a longer word stays.
    fn without_words(&mut self, text: &str) -> String {
        let is_inside = |around: Option<char>| around.is_some_and(char::is_alphanumeric);
        let (mut made, mut before, mut rest) = (String::new(), None, text);
        while let Some(next) = rest.chars().next() {
            let stands_here = |word: &Text| {
                let after = rest.strip_prefix(&**word);
                after.is_some_and(|after| !word.is_empty() && !is_inside(after.chars().next()))
            };
            let words = self.words.iter().filter(|_| !is_inside(before));
            let found = words.filter(|(word, _)| stands_here(word)).max_by_key(|(word, _)| word.len());
            let taken = match found {
                Some((word, digest)) => {
                    made += digest;
                    word.len()
                }
                None => {
                    made.push(next);
                    next.len_utf8()
                }
            };
            before = rest[..taken].chars().next_back();
            rest = &rest[taken..];
        }
        made
    }
}
