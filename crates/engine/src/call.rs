//! One call of the engine: the cluster that it asks and the decision that it drafts.

use std::sync::Arc;

use bindery_core::{
    Action, Claim, ClaimKey, Class, Cluster, Decision, Event, EventKind, Failure, Finding, Follows, Lookup,
    Outcome, Regarding, Source, Step, Stop, Subject, Tally, Text, Volume,
};

/// Upstream syncs every object again after this time (`--pvclaimbinder-sync-period`), in milliseconds. Where
/// upstream drops work and relies on its resync, the decision asks for one.
const RESYNC_MS: u64 = 15_000;

/// A call. Rows add steps to its draft; how it ends is their result.
pub(crate) struct Call<'a> {
    /// What may be asked.
    pub(crate) cluster: &'a mut dyn Cluster,
    /// The object that is synced; `None` in a review, which emits nothing.
    subject: Option<Regarding>,
    draft: Decision,
}

/// Why a call ends early.
#[derive(Debug)]
pub(crate) enum Halt {
    /// A question stopped the call, so there is no decision.
    Stopped(Stop),
    /// The sync or operation fails; the steps found so far are still carried out first.
    Failed(Failure),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(cluster: &'a mut dyn Cluster, subject: &Subject) -> Self {
        Self { cluster, subject: subject.event_object(), draft: Decision::done() }
    }

    /// The decision.
    pub(crate) fn conclude(mut self, outcome: Result<Outcome, Halt>) -> Result<Decision, Stop> {
        self.draft.outcome = match outcome {
            Ok(outcome) => outcome,
            Err(Halt::Failed(failure)) => Outcome::Failed(failure),
            Err(Halt::Stopped(stop)) => return Err(stop),
        };
        Ok(self.draft)
    }

    /// Adds a step that needs all writes before it, and whose failure fails the sync or operation.
    pub(crate) fn act(&mut self, action: Action) {
        self.push(action, Follows::Success);
    }

    /// Adds a step that needs all writes before it, and whose failure upstream only logs.
    pub(crate) fn tolerate(&mut self, action: Action) {
        self.push(action, Follows::Tolerated);
    }

    /// Adds a step.
    pub(crate) fn push(&mut self, action: Action, follows: Follows) {
        self.draft.steps.push(Step { action, follows });
    }

    /// Adds an event on a claim, after the writes before it.
    pub(crate) fn tell_claim(&mut self, claim: &Claim, kind: EventKind) {
        self.act(claim_event(claim, kind));
    }

    /// Adds an event on a claim, even if a write before it fails.
    pub(crate) fn tell_claim_regardless(&mut self, claim: &Claim, kind: EventKind) {
        self.push(claim_event(claim, kind), Follows::Regardless);
    }

    /// Adds an event on a volume, after the writes before it.
    pub(crate) fn tell_volume(&mut self, volume: &Volume, kind: EventKind) {
        self.act(Action::Emit(Event { regarding: Regarding::Volume(volume.target()), kind }));
    }

    /// Adds reasons why volumes were not chosen.
    pub(crate) fn tally(&mut self, tallies: impl IntoIterator<Item = Tally>) {
        self.draft.tallies.extend(tallies);
    }

    /// Adds findings of a review.
    pub(crate) fn find(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.draft.findings.extend(findings);
    }

    /// Lets the host wait before the first step.
    pub(crate) fn wait_ms(&mut self, wait_ms: u64) {
        self.draft.wait_ms = wait_ms;
    }

    /// Has the object decided again after upstream's resync period.
    pub(crate) fn again_after_resync(&mut self) {
        self.again_after(RESYNC_MS);
    }

    /// Has the object decided again after this number of milliseconds.
    pub(crate) fn again_after(&mut self, millis: u64) {
        self.draft.requeue_after_ms = Some(millis);
    }

    /// The claim of that key, `None` where there is none.
    pub(crate) fn claim(&mut self, source: Source, key: &ClaimKey) -> Result<Option<Arc<Claim>>, Halt> {
        let lookup = self.cluster.claim(source, key.clone())?;
        self.settle(lookup, "claim", key)
    }

    /// The volume of that name, `None` where there is none.
    pub(crate) fn volume(&mut self, source: Source, name: &Text) -> Result<Option<Arc<Volume>>, Halt> {
        let lookup = self.cluster.volume(source, name.clone())?;
        self.settle(lookup, "volume", name)
    }

    /// The class of that name, `None` where there is none.
    pub(crate) fn class(&mut self, name: &Text) -> Result<Option<Arc<Class>>, Halt> {
        match self.cluster.class(name.clone())? {
            Lookup::Failed(error) => Err(Failure::Class { name: name.clone(), error }.into()),
            lookup => self.settle(lookup, "class", name),
        }
    }

    /// Maps an answer to found or absent; the sync fails if the read failed.
    pub(crate) fn settle<T>(
        &mut self,
        lookup: Lookup<T>,
        kind: &str,
        name: &impl std::fmt::Display,
    ) -> Result<Option<T>, Halt> {
        match lookup {
            Lookup::Found(found) => Ok(Some(found)),
            Lookup::Absent => Ok(None),
            Lookup::Failed(error) => Err(Failure::Read(error).into()),
            Lookup::Unreadable(error) => Err(self.unreadable(&format!("{kind} {name}: {error}"))),
        }
    }

    /// Something that the object names cannot be read: emits an event and fails the sync.
    fn unreadable(&mut self, what: &str) -> Halt {
        let what = Text::from(what);
        if let Some(regarding) = self.subject.clone() {
            self.act(Action::Emit(Event { regarding, kind: EventKind::Unreadable(what.clone()) }));
        }
        Failure::Unreadable(what).into()
    }
}

fn claim_event(claim: &Claim, kind: EventKind) -> Action {
    Action::Emit(Event { regarding: Regarding::Claim(claim.target()), kind })
}
