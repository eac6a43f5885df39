//! G8: a decision has a bounded size.

use super::{Breach, Objection, Refusal};
use crate::{
    Action, Decision, Event, EventKind, Failure, Key, Message, NEAREST_MAX, Operation, Outcome, PluginFound,
    Reason, Text,
};

/// Most steps of a decision. The longest of the default engine has eight.
pub const STEPS_MAX: usize = 64;
/// Most steps that act on an object and follow regardless: each doubles the states that later steps may meet.
pub const REGARDLESS_MAX: usize = 4;
/// Most bytes in one text. The longest text that an honest decision repeats is a plugin's error.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most bytes in all texts.
pub const DECISION_BYTES_MAX: usize = 1 << 20;
/// Most tallies, one for each reason.
pub const TALLIES_MAX: usize = Reason::ALL.len();
/// Most findings of a review.
pub const FINDINGS_MAX: usize = 64;

/// Checks all sizes of a decision about `object`.
pub(super) fn check(decision: &Decision, object: impl Fn() -> Key) -> Result<(), Objection> {
    let limit = |what: &str, found: usize, max: usize| {
        if found <= max {
            return Ok(());
        }
        let sentence = format!("the decision has {found} {what}, more than {max}");
        Err(Objection::Refused(Refusal { breach: Breach::TooLarge, object: object(), step: None, sentence }))
    };
    limit("steps", decision.steps.len(), STEPS_MAX)?;
    let regardless = decision.steps.iter().filter(|step| super::acts_regardless(step));
    limit("acts that follow regardless", regardless.count(), REGARDLESS_MAX)?;
    limit("tallies", decision.tallies.len(), TALLIES_MAX)?;
    limit("findings", decision.findings.len(), FINDINGS_MAX)?;
    for tally in &decision.tallies {
        limit("nearest candidates in a tally", tally.nearest.len(), NEAREST_MAX)?;
    }
    let mut sum = Sum::default();
    sum.decision(decision);
    limit("bytes in one text", sum.longest, TEXT_BYTES_MAX)?;
    limit("bytes in its texts", sum.total, DECISION_BYTES_MAX)
}

/// Adds up the texts that the engine chose; names of objects are bounded by G5, which compares them.
#[derive(Default)]
struct Sum {
    longest: usize,
    total: usize,
}

impl Sum {
    fn decision(&mut self, decision: &Decision) {
        decision.actions().for_each(|action| self.action(action));
        if let Outcome::Failed(failure) = &decision.outcome {
            self.failure(failure);
        }
        decision.tallies.iter().for_each(|tally| self.texts(&tally.nearest));
        for finding in &decision.findings {
            self.texts([&finding.volume, &finding.found, &finding.wanted]);
        }
    }

    fn action(&mut self, action: &Action) {
        match action {
            Action::SetVolumePhase { message, .. } => self.message(message),
            Action::Emit(Event { kind, .. }) => self.event(kind),
            Action::EnqueueClaim(key) => self.texts([&key.namespace, &key.name]),
            Action::StartOperation(Operation { plugin, .. }) | Action::CallPlugin { plugin, .. } => {
                self.text(plugin);
            }
            Action::CreateVolume { name, class, plugin, .. } => self.texts([name, class, plugin]),
            // Their texts must equal those of objects and answers.
            Action::ReserveVolume { .. }
            | Action::BindClaim { .. }
            | Action::SetClaimStatus { .. }
            | Action::SetClaimClass { .. }
            | Action::AnnotateClaim { .. }
            | Action::RemoveSelectedNode { .. }
            | Action::AnnotateVolume { .. }
            | Action::SetReclaimPolicy { .. }
            | Action::UnbindVolume { .. }
            | Action::DeleteVolume { .. } => {}
        }
    }

    fn event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::VolumeOfOther(text)
            | EventKind::ClaimMismatch { volume: text, .. }
            | EventKind::ClaimModeMismatch { volume: text }
            | EventKind::VolumeModeMismatch { claim: text }
            | EventKind::ClaimLostVolume(text)
            | EventKind::ClaimMisbound(text)
            | EventKind::ExternalProvisioning(text)
            | EventKind::VolumeInUse(text)
            | EventKind::Unreadable(text) => self.text(text),
            EventKind::ProvisioningSucceeded { volume, plugin } => self.texts([volume, plugin]),
            EventKind::VolumeRejected { volume, policy, reason } => self.texts([volume, policy, reason]),
            EventKind::ReclaimPolicySet { policy, reason, .. } => self.texts([policy, reason]),
            EventKind::WaitForPodScheduled(pods) | EventKind::RecycleWaitsForPods(pods) => self.texts(pods),
            EventKind::ProvisioningFailed(failure) | EventKind::ProvisioningCleanupFailed(failure) => {
                self.failure(failure);
            }
            EventKind::VolumeFailedDelete(message) | EventKind::VolumeFailedRecycle(message) => {
                self.message(message);
            }
            EventKind::NoVolumeFits
            | EventKind::WaitForFirstConsumer
            | EventKind::ClaimLostReference
            | EventKind::UnknownReclaimPolicy
            | EventKind::VolumeRecycled => {}
        }
    }

    fn message(&mut self, message: &Message) {
        match message {
            Message::Empty | Message::UnknownReclaimPolicy | Message::NoRecycler => {}
            Message::NoDeleter { volume, found } => {
                self.text(volume);
                if let PluginFound::Several(names) = found {
                    self.texts(names);
                }
            }
            Message::DeleterNotReady { volume, error } => self.texts([volume, error]),
            Message::NoPlugin(text) | Message::DeleteFailed(text) | Message::RecycleFailed(text) => {
                self.text(text);
            }
        }
    }

    fn failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Read(text)
            | Failure::Unreadable(text)
            | Failure::BindingModeUnset(text)
            | Failure::SelectorInvalid(text)
            | Failure::NoCapacity(text)
            | Failure::VolumeOfOther(text)
            | Failure::NoPlugin(text)
            | Failure::DataSource(text)
            | Failure::MountOptions(text)
            | Failure::NotReady(text)
            | Failure::Plugin(text)
            | Failure::Untranslatable(text)
            | Failure::Write(text) => self.text(text),
            Failure::Class { name, error } | Failure::Node { name, error } => self.texts([name, error]),
        }
    }

    fn texts<'a>(&mut self, texts: impl IntoIterator<Item = &'a Text>) {
        texts.into_iter().for_each(|text| self.text(text));
    }

    fn text(&mut self, text: &Text) {
        self.longest = self.longest.max(text.len());
        self.total = self.total.saturating_add(text.len());
    }
}
