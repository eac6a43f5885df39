//! The volumes that a claim may get, without a choice among them: the scheduler chooses.

use bindery_core::{Claim, EngineFault, Stop};
use bindery_policy::{AllowedVolumes, Rounds, allowed};
use bindery_store::{LiveReads, Revision};

use super::views::BinderEnvironment;
use super::{Decider, Policies};
use crate::Port;

impl<P: Port> Decider<P> {
    /// The volumes that a claim whose class waits for a consumer may get, and the store that this rests on.
    pub(crate) async fn allowed(
        &self,
        policies: &Policies,
        claim: &Claim,
    ) -> Result<(AllowedVolumes, Revision), EngineFault> {
        let (live, mut rounds) = (LiveReads::default(), Rounds::default());
        let environment =
            BinderEnvironment { configuration: &self.configuration, operations: &self.operations };
        loop {
            let (chain, kept) = (&policies.chain, &policies.kept);
            let (answer, since) = {
                let mut session = self.store.session(&environment, &live, self.limits);
                (allowed(&mut session, claim, chain, kept, &mut rounds), session.revision())
            };
            match answer {
                Ok(allowed) => return Ok((allowed, since)),
                Err(Stop::Judge) => rounds = policies.judge(rounds).await?,
                Err(stop) => return Err(stop.into()),
            }
        }
    }
}
