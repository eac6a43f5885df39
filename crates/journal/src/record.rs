//! What a journal has: decisions, writes, swaps and gaps.

use bindery_core::{Answer, Evidence, GuardRead, GuardVerdict};
use bindery_policy::{MatcherEvidence, PolicyEvidence, ReclaimerEvidence, Skipped, Unscored};
use serde::{Deserialize, Serialize};

use crate::{ChainDigest, Redaction};

/// Most bytes of one record: the limits of a decision keep its evidence far below.
pub(crate) const RECORD_MAX: usize = 16 << 20;
/// The longest name of an object, with its namespace and its kind, and the longest digest, in bytes.
const NAME_MAX: usize = 1 << 10;
/// Most volumes on the pages that one decision was shown: the limits of a decision are far below.
const LISTED_MAX: usize = 1 << 20;
/// Bytes before the content of a record: its kind, and the number of bytes that follow.
const RECORD_HEAD: usize = 1 + 4;

/// The numbers of the kinds of records. A kind never changes: a record with other fields is a new kind.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const WRITE: u8 = 2;
    pub(super) const SWAP: u8 = 3;
    pub(super) const GAP: u8 = 4;
    pub(super) const DIFFERENCE: u8 = 5;
    // No release has written kinds 1 and 6: decisions with fewer fields.
    pub(super) const DECISION: u8 = 7;
}

/// What policies have said, as format 1 has it.
type PoliciesOfFormat1 =
    (String, Vec<MatcherEvidence>, usize, Option<Unscored>, Vec<ReclaimerEvidence>, Vec<Skipped>);

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When it was recorded, in milliseconds since the Unix epoch, by the clock of the replica. In format 1
    /// the time of the request.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// A decision.
    Decision(Box<Record>),
    /// A write was answered, or was given up.
    Write(Wrote),
    /// The engine or the policies were replaced.
    Swap(Swap),
    /// Records are missing here.
    Gap(Gap),
    /// A shadow decided otherwise.
    Difference(Box<Differed>),
    /// The file was ended by its writer.
    End,
    /// A kind of record that this version does not know: its number. It is of a later version.
    Unknown(u8),
}

/// One decision with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The evidence and the decision.
    pub evidence: Evidence,
    /// What the guard said; in format 1 it has refused what did not pass.
    pub guard: GuardVerdict,
    /// Digest of the policies in force; `None` in format 1 where none applies.
    pub chain: Option<String>,
    /// What policies have said; `None` if none applies.
    pub policies: Option<PolicyEvidence>,
    /// Units of fuel that the engine used, comparable under one fuel schedule; `None` for a native engine and
    /// in format 1.
    pub fuel: Option<u64>,
    /// The live reads that the guard wanted; none in format 1.
    pub reads: Vec<GuardRead>,
    /// What has digests in place of values.
    pub redacted: Redacted,
}

/// Which parts of a decision have digests in place of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Redacted {
    /// What the engine was shown.
    pub engine: bool,
    /// What policies were shown; then they cannot be asked again.
    pub policies: bool,
}

/// The answer to a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wrote {
    /// The write in words, such as `bind claim`.
    pub write: String,
    /// Name of a volume, or `namespace/name` of a claim.
    pub object: String,
    /// Whether the object is a claim.
    pub claim: bool,
    /// UID of the object; `None` for a creation.
    pub uid: Option<String>,
    /// The version that the API server had to find; `None` for a creation.
    pub version: Option<String>,
    /// The version of the object afterwards (`None` after a deletion), or why the write failed.
    pub result: Result<Option<String>, String>,
}

/// What replaced what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Swap {
    /// Another engine: the digests.
    Engine {
        /// Of the one before.
        from: String,
        /// Of the one that decides from now on.
        to: String,
    },
    /// Other policies: the digests.
    Policies {
        /// Of those before.
        from: String,
        /// Of those that are asked from now on.
        to: String,
    },
}

/// How a shadow decided otherwise: a policy or an engine whose decisions are not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Differed {
    /// Kind of the shadow's object: `MatchPolicy`, `ReclaimPolicy` or `Engine`.
    pub kind: String,
    /// Name of the shadow.
    pub shadow: String,
    /// Digest of the engine that decided for it.
    pub engine: String,
    /// Digest of the policies that decided for it, with the shadow if it is one of them.
    pub chain: String,
    /// Name of a volume, or `namespace/name` of a claim.
    pub object: String,
    /// Whether the object is a claim.
    pub claim: bool,
    /// `now` of the decision's request, in seconds since the Unix epoch.
    pub now: i64,
    /// How it differs, such as `other-volume`.
    pub difference: String,
    /// What was decided.
    pub active: DecisionSummary,
    /// What the shadow decided.
    pub instead: DecisionSummary,
}

/// A decision in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionSummary {
    /// What is done.
    pub answer: String,
    /// Why; empty where that is clear.
    pub reason: String,
}

/// Records that were made and are not in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// How many.
    pub lost: u64,
    /// When the first was made, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// When the last was made.
    pub to_ms: u64,
}

/// The first bytes of a file say what it continues, and name its writer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Number of the file, from 1.
    pub number: u64,
    /// Digest of the last whole block of the file before; zeros in the first file.
    pub previous: ChainDigest,
    /// When it was begun, in milliseconds since the Unix epoch.
    pub began_ms: u64,
    /// The replica, as the Lease names it when it leads. A replica decides only while it leads, in modes own
    /// and steer.
    pub replica: String,
    /// The mode of the replica.
    pub mode: String,
    /// The version of Bindery.
    pub version: String,
    /// How fuel is counted.
    pub fuel_schedule: String,
    /// What is redacted in the file.
    pub redaction: Option<Redaction>,
}

impl Record {
    /// Decodes a record of format 1, whose policies follow its other fields, where there are any.
    pub(crate) fn from_format_1(bytes: &[u8]) -> postcard::Result<Self> {
        let ((evidence, refused), rest): ((Evidence, Option<String>), _) = postcard::take_from_bytes(bytes)?;
        let policies = if rest.is_empty() { None } else { Some(postcard::from_bytes(rest)?) };
        let policies = policies.map(|of_format_1: PoliciesOfFormat1| {
            let (chain, matchers, volumes_left_out, unscored, reclaimers, skipped) = of_format_1;
            let calls = Vec::new();
            PolicyEvidence { chain, matchers, volumes_left_out, unscored, reclaimers, skipped, calls }
        });
        let guard = refused.map_or(GuardVerdict::Passed, GuardVerdict::Refused);
        let chain = policies.as_ref().map(|policies| policies.chain.clone());
        let (reads, redacted) = Default::default();
        Ok(Self { evidence, guard, chain, policies, fuel: None, reads, redacted })
    }

    /// Checks what reports repeat, so that no record makes a report of any length.
    fn check(&self) -> Result<(), String> {
        let Evidence { engine, request, exchanges, .. } = &self.evidence;
        let object = request.subject.key().to_string();
        if object.len() > NAME_MAX {
            return Err(format!("the name of the object of a decision has {} bytes", object.len()));
        }
        let fails = |why: String| Err(format!("the decision about {object} {why}"));
        let digests = [Some(engine), self.chain.as_ref(), self.policies.as_ref().map(|it| &it.chain)];
        if let Some(long) = digests.into_iter().flatten().find(|digest| digest.len() > NAME_MAX) {
            return fails(format!("has a digest of {} bytes", long.len()));
        }
        let mut listed = 0;
        for exchange in exchanges {
            let name = match &exchange.answer {
                Answer::Identity(volume) => &volume.name,
                Answer::Described(volume) => &volume.name,
                Answer::Page(page) => {
                    listed += page.handles.len();
                    continue;
                }
                _ => continue,
            };
            if name.len() > NAME_MAX {
                return fails(format!("has read a volume with a name of {} bytes", name.len()));
            }
        }
        if listed > LISTED_MAX {
            return fails(format!("was shown {listed} volumes"));
        }
        self.policies.as_ref().map_or(Ok(()), |policies| policies.check().or_else(fails))
    }
}

impl Entry {
    /// Checks that a writer can have written it: anyone can write a file whose digests are right.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.what {
            What::Decision(record) => record.check(),
            _ => Ok(()),
        }
    }

    /// Its bytes in a block.
    ///
    /// # Errors
    ///
    /// It has more than 16 MiB, or is of an unknown kind.
    pub fn encode(&self) -> postcard::Result<Vec<u8>> {
        let head = |kind| vec![kind, 0, 0, 0, 0];
        let at = self.at_ms;
        let mut bytes = match &self.what {
            What::Decision(record) => postcard::to_extend(&(at, &**record), head(kind::DECISION)),
            What::Write(wrote) => postcard::to_extend(&(at, wrote), head(kind::WRITE)),
            What::Swap(swap) => postcard::to_extend(&(at, swap), head(kind::SWAP)),
            What::Gap(gap) => postcard::to_extend(&(at, gap), head(kind::GAP)),
            What::Difference(differed) => postcard::to_extend(&(at, &**differed), head(kind::DIFFERENCE)),
            What::End => postcard::to_extend(&at, head(kind::END)),
            What::Unknown(_) => Err(postcard::Error::WontImplement),
        }?;
        let length = bytes.len() - RECORD_HEAD;
        if length > RECORD_MAX {
            return Err(postcard::Error::SerializeBufferFull);
        }
        let length = u32::try_from(length).map_err(|_| postcard::Error::SerializeBufferFull)?;
        bytes[1..RECORD_HEAD].copy_from_slice(&length.to_le_bytes());
        Ok(bytes)
    }

    /// Takes the first entry from the records of a block; returns what follows it.
    pub fn decode(bytes: &[u8]) -> postcard::Result<(Self, &[u8])> {
        let cut = || postcard::Error::DeserializeUnexpectedEnd;
        let (head, rest) = bytes.split_at_checked(RECORD_HEAD).ok_or_else(cut)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (content, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        let (at_ms, body): (u64, _) = postcard::take_from_bytes(content)?;
        let what = match head[0] {
            kind::END => What::End,
            kind::DECISION => What::Decision(postcard::from_bytes(body)?),
            kind::WRITE => What::Write(postcard::from_bytes(body)?),
            kind::SWAP => What::Swap(postcard::from_bytes(body)?),
            kind::GAP => What::Gap(postcard::from_bytes(body)?),
            kind::DIFFERENCE => What::Difference(postcard::from_bytes(body)?),
            kind => What::Unknown(kind),
        };
        Ok((Self { at_ms, what }, rest))
    }
}
