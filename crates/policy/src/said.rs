//! What each policy of a claim says about one volume, for commands that explain.

use bindery_core::{Cell, Claim, Stop, Text, Volume, VolumeRow};

use crate::chain::Asked;
use crate::kept::Verdict;
use crate::view::sentence;
use crate::{AnswerCache, Chain, RelatedObjects, Rounds};

/// What one policy says about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The policy.
    pub policy: Text,
    /// What it says.
    pub says: Says,
}

/// What a policy can say about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// The claim may get it.
    Allowed,
    /// The claim may get it, and the volumes with the highest sum of weighted scores are preferred.
    Scored {
        /// Its score.
        score: u32,
        /// By what the score is multiplied.
        weight: u32,
    },
    /// The claim may not get it.
    Rejected {
        /// The name of the reason.
        reason: Text,
        /// The reason as a sentence.
        sentence: Text,
    },
}

impl Chain {
    /// What the policies of a claim say about a volume, in the order of the chain. A policy that judges
    /// volumes is left out where another one has rejected the volume: it is not asked.
    ///
    /// # Errors
    ///
    /// Those of [`Chain::verdict`].
    pub fn said(
        &self,
        claim: &Claim,
        volume: &Volume,
        related: &RelatedObjects<'_>,
        kept: &AnswerCache,
        rounds: &mut Rounds,
    ) -> Result<Vec<Said>, Stop> {
        let applied = self.narrowed(claim, related, kept, rounds)?;
        applied.verdict(volume, rounds)?;
        let cells: Vec<Cell> = self.columns.cells(volume).collect();
        let row = VolumeRow::new(volume, &cells);
        Ok(applied.asked.iter().filter_map(|asked| asked.said(volume, &row)).collect())
    }
}

impl Asked<'_> {
    /// What the policy has said; `None` if it was not asked.
    fn said(&self, volume: &Volume, row: &VolumeRow<'_>) -> Option<Said> {
        let (metadata, narrowing) = (self.matcher.metadata(), self.context.narrowing()?);
        let verdict = match self.rejection(row) {
            Some(reason) => Verdict::Rejected(reason),
            None if narrowing.judge => self.context.verdict(self.shown.key(row))?,
            None => Verdict::Allowed(0),
        };
        let says = match verdict {
            Verdict::Allowed(score) if metadata.scores => Says::Scored { score, weight: self.policy.weight },
            Verdict::Allowed(_) => Says::Allowed,
            Verdict::Rejected(reason) => Says::Rejected {
                reason: metadata.reasons.get(reason as usize).map(|reason| reason.name.clone())?,
                sentence: sentence(metadata, reason, &self.context.view, volume),
            },
        };
        Some(Said { policy: self.policy.name.clone(), says })
    }
}
