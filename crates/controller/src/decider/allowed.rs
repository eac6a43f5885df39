//! The volumes that a claim may get, without a choice among them: the scheduler chooses.

use bindery_core::{Claim, EngineFault, Stop};
use bindery_policy::{Rests, Rounds, Scored, allowed};
use bindery_store::{LiveReads, Revision};

use super::Decider;
use super::views::BinderEnvironment;
use crate::Port;

/// What [`Decider::allowed`] finds.
pub(crate) struct Allowed {
    pub(crate) volumes: Vec<Scored>,
    pub(crate) rests: Rests,
    pub(crate) since: Revision,
}

impl<P: Port> Decider<P> {
    /// The volumes that a claim whose class waits for a consumer may get, with the scores that policies give
    /// them, what policies that spread have counted, and the store that this rests on.
    pub(crate) async fn allowed(&self, claim: &Claim) -> Result<Allowed, EngineFault> {
        let (live, mut rounds) = (LiveReads::default(), Rounds::default());
        let environment =
            BinderEnvironment { configuration: &self.configuration, operations: &self.operations };
        loop {
            let (chain, kept) = (&self.policies.chain, &self.policies.kept);
            let (answer, since) = {
                let mut session = self.store.session(&environment, &live, self.limits);
                (allowed(&mut session, claim, chain, kept, &mut rounds), session.revision())
            };
            match answer {
                Ok((volumes, rests)) => return Ok(Allowed { volumes, rests, since }),
                Err(Stop::Judge) => rounds = self.policies.judge(rounds).await?,
                Err(stop) => return Err(stop.into()),
            }
        }
    }
}
