//! Compares the decision of a shadow with the one that was carried out.

use std::collections::BTreeSet;

use bindery_core::{
    Action, Answer, ClaimKey, Decision, EventKind, Exchange, Fate, OperationKind, Outcome, Question,
    ReclaimVerdict, Regarding, Request, Source, Subject, Text, Volume,
};
use bindery_policy::{Difference, DifferenceKind, Rejections, Rounds, Says, ShadowAnswer, Waits};
use bindery_store::Store;

use super::decide::ShadowDecider;
use super::{Active, Made, Shadow, Shadowing};
use crate::decider::Policies;

/// What a decision comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ComparedDecision {
    /// The claim gets this volume.
    Binds(Text),
    /// A volume is provisioned.
    Provisions,
    /// The scheduler may choose among these volumes.
    Offers(BTreeSet<Text>),
    /// What else is done, and why.
    Other { does: String, why: String },
    /// What becomes of a volume by its policies and what is done, and why.
    Fate { fate: Fate, does: String, why: String },
    /// What a step of an operation does, and why.
    Step { does: String, why: String },
    /// The engine or a policy failed, for this reason.
    Fault(String),
    /// The guard refuses it, for this reason.
    Refused(String),
}

impl ComparedDecision {
    pub(super) fn of(
        request: &Request,
        decision: &Decision,
        exchanges: &[Exchange],
        rejections: Option<&Rejections>,
    ) -> Self {
        let does = decision.actions().filter_map(done).collect::<Vec<_>>().join("; ");
        let why = reasons(decision, rejections);
        if let Subject::SyncClaimOperation(_) | Subject::SyncVolumeOperation(_) = request.subject {
            let then = match &decision.outcome {
                Outcome::Continue(point) => format!("then {point:?}"),
                Outcome::Done | Outcome::Failed(_) => "then it ends".to_owned(),
            };
            let does = if does.is_empty() { then } else { format!("{does}, {then}") };
            return Self::Step { does, why };
        }
        if let Some(volume) = decision.chosen() {
            return Self::Binds(volume.clone());
        }
        if !matches!(request.subject, Subject::SyncVolume(_)) {
            let provisions = decision.actions().any(is_provisioning);
            return if provisions { Self::Provisions } else { Self::Other { does, why } };
        }
        match reclaim_verdict(exchanges) {
            None | Some(ReclaimVerdict { fate: Fate::ByPolicy, .. }) => {
                Self::Fate { fate: Fate::ByPolicy, does, why }
            }
            Some(ReclaimVerdict { fate, policy, reason }) => {
                Self::Fate { fate: *fate, does, why: format!("policy {policy}: {reason}") }
            }
        }
    }

    /// A claim or volume waits for a policy: for that of the shadow, or for an active one.
    pub(super) fn waits(Waits { policy, why }: &Waits, shadow: &Shadow) -> Self {
        if *policy == shadow.name {
            return Self::Fault(why.clone());
        }
        Self::Other { does: String::new(), why: format!("it waits for policy {policy}: {why}") }
    }

    fn answer(&self) -> String {
        match self {
            Self::Binds(volume) => format!("binds volume {volume}"),
            Self::Provisions => "provisions a volume".to_owned(),
            Self::Offers(volumes) if volumes.is_empty() => "offers the scheduler no volume".to_owned(),
            Self::Offers(volumes) => {
                let names: Vec<&str> = volumes.iter().map(|name| &**name).collect();
                format!("offers the scheduler {}", names.join(", "))
            }
            Self::Other { does, .. } if does.is_empty() => "waits".to_owned(),
            Self::Other { does, .. } | Self::Step { does, .. } => does.clone(),
            Self::Fate { fate: Fate::ByPolicy, does, .. } if does.is_empty() => "leaves it".to_owned(),
            Self::Fate { fate: Fate::ByPolicy, does, .. } => does.clone(),
            Self::Fate { fate, .. } => fate.to_string(),
            Self::Fault(_) => "no answer".to_owned(),
            Self::Refused(_) => "what the guard refuses".to_owned(),
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Binds(_) | Self::Provisions | Self::Offers(_) => "",
            Self::Other { why, .. }
            | Self::Fate { why, .. }
            | Self::Step { why, .. }
            | Self::Fault(why)
            | Self::Refused(why) => why,
        }
    }

    fn difference(&self, shadow: &Self) -> Option<DifferenceKind> {
        use DifferenceKind as Kind;
        match (self, shadow) {
            (active, shadow) if active == shadow => None,
            (_, Self::Fault(_)) => Some(Kind::Fault),
            (_, Self::Refused(_)) => Some(Kind::Refused),
            (Self::Fate { fate, does, .. }, Self::Fate { fate: other, does: deeds, .. }) => {
                let is_other = (fate, does) != (other, deeds);
                Some(if is_other { Kind::OtherFate } else { Kind::OtherReason })
            }
            (Self::Fate { .. }, _) | (_, Self::Fate { .. }) => Some(Kind::OtherFate),
            (Self::Offers(_), _) | (_, Self::Offers(_)) => Some(Kind::OtherLabels),
            (Self::Step { does, .. }, Self::Step { does: deeds, .. }) if does == deeds => {
                Some(Kind::OtherReason)
            }
            (Self::Step { .. }, _) | (_, Self::Step { .. }) => Some(Kind::OtherStep),
            (Self::Binds(_), Self::Binds(_)) => Some(Kind::OtherVolume),
            (_, Self::Binds(_)) => Some(Kind::Binds),
            (_, Self::Provisions) => Some(Kind::Provisions),
            (Self::Binds(_) | Self::Provisions, _) => Some(Kind::BindsNone),
            _ => Some(Kind::OtherReason),
        }
    }

    /// A volume that it is about, and the other is not.
    fn volume(&self, other: &Self) -> Option<&Text> {
        match (self, other) {
            (Self::Binds(volume), _) => Some(volume),
            (Self::Offers(volumes), Self::Offers(others)) => {
                volumes.iter().find(|name| !others.contains(*name))
            }
            _ => None,
        }
    }
}

/// What a decision says of its reasons, without numbers.
fn reasons(decision: &Decision, rejections: Option<&Rejections>) -> String {
    let events = decision.actions().filter_map(|action| match action {
        Action::Emit(event) => Some(event.kind.to_string()),
        _ => None,
    });
    let failure = match &decision.outcome {
        Outcome::Failed(failure) => Some(failure.to_string()),
        Outcome::Done | Outcome::Continue(_) => None,
    };
    let rejected = rejections.map(|rejections| {
        let mut names: Vec<&str> = rejections.by_policy.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        format!("volumes are rejected by {}", names.join(", "))
    });
    events.chain(failure).chain(rejected).collect::<Vec<_>>().join("; ")
}

/// The answer about a volume whose claim is gone, if the engine has asked for it.
fn reclaim_verdict(exchanges: &[Exchange]) -> Option<&ReclaimVerdict> {
    exchanges.iter().find_map(|exchange| match (&exchange.question, &exchange.answer) {
        (Question::Reclaim(_), Answer::Reclaim(verdict)) => Some(verdict),
        _ => None,
    })
}

fn is_provisioning(action: &Action) -> bool {
    match action {
        Action::StartOperation(operation) => {
            matches!(operation.kind, OperationKind::Provision | OperationKind::ProvisionExternal)
        }
        Action::Emit(event) => matches!(event.kind, EventKind::ExternalProvisioning(_)),
        _ => false,
    }
}

/// What an action does, as people say it; `None` for events and for what decides later.
fn done(action: &Action) -> Option<String> {
    Some(match action {
        Action::SetVolumePhase { phase, .. } => format!("phase {}", phase.name()),
        Action::SetClaimStatus { phase, .. } => format!("phase {}", phase.name()),
        Action::SetClaimClass { class, .. } => format!("gives it class {class}"),
        Action::SetReclaimPolicy { policy, .. } => format!("reclaim policy {}", policy.name()),
        Action::UnbindVolume { .. } => "takes it from its claim".to_owned(),
        Action::StartOperation(operation) => match operation.kind {
            OperationKind::Provision | OperationKind::ProvisionExternal => "provisions a volume",
            OperationKind::Delete => "deletes it",
            OperationKind::Recycle => "scrubs it",
        }
        .to_owned(),
        Action::AnnotateClaim { .. } | Action::AnnotateVolume { .. } => "annotates it".to_owned(),
        Action::RemoveSelectedNode { .. } => "has the scheduler choose again".to_owned(),
        Action::DeleteVolume { .. } => "deletes it".to_owned(),
        Action::CreateVolume { name, .. } => format!("creates volume {name}"),
        Action::CallPlugin { plugin, .. } => format!("calls plugin {plugin}"),
        Action::ReserveVolume { .. } | Action::BindClaim { .. } => "binds it".to_owned(),
        Action::Emit(_) | Action::EnqueueClaim(_) => return None,
    })
}

/// Why the policy of a shadow has given no answer, although the decision went on without it.
pub(super) fn fault(shadowing: &Shadowing, rounds: &Rounds) -> Option<String> {
    let policies = shadowing.policies.chain.policies();
    let failed = rounds
        .failed()
        .iter()
        .find(|(place, _)| policies.get(**place).is_some_and(|policy| policy.name == shadowing.shadow.name));
    failed.map(|(_, fault)| fault.to_string())
}

impl<T> ShadowDecider<T> {
    /// How a shadow has decided otherwise.
    pub(super) fn difference(
        &self,
        made: &Made,
        shadowing: &Shadowing,
        shadow: &ComparedDecision,
    ) -> Option<Difference> {
        let active = match &made.active {
            Active::Decided(decision) => {
                ComparedDecision::of(&made.request, decision, &made.exchanges, made.rejections.as_ref())
            }
            Active::Offered(offered) => ComparedDecision::Offers(offered.volumes.clone()),
        };
        let kind = active.difference(shadow)?;
        let object = match made.request.subject.event_object()? {
            Regarding::Claim(claim) => format!("pvc {}", claim.key),
            Regarding::Volume(volume) => format!("pv {}", volume.name),
        };
        let why = |told: &ComparedDecision, policies: &Policies, other: &ComparedDecision| match &made
            .request
            .subject
        {
            Subject::SyncClaim(claim) => self.why(told, policies, other, &claim.key),
            _ => told.reason().to_owned(),
        };
        Some(Difference {
            time: made.request.now,
            object: object.into(),
            kind,
            active: ShadowAnswer::new(&active.answer(), &why(&active, &made.policies, shadow)),
            shadow: ShadowAnswer::new(&shadow.answer(), &why(shadow, &shadowing.policies, &active)),
        })
    }

    /// Why a claim gets what it gets, and not the volume that the other decision gives it.
    fn why(
        &self,
        told: &ComparedDecision,
        policies: &Policies,
        other: &ComparedDecision,
        claim: &ClaimKey,
    ) -> String {
        let said = other.volume(told).and_then(|volume| said(policies, &self.store, claim, volume));
        let reasons = [told.reason(), said.as_deref().unwrap_or_default()];
        let reasons: Vec<&str> = reasons.into_iter().filter(|reason| !reason.is_empty()).collect();
        match (reasons.is_empty(), told, other) {
            (true, ComparedDecision::Binds(volume), ComparedDecision::Binds(other)) => {
                format!("volume {volume} comes before {other}")
            }
            (true, ComparedDecision::Binds(_), _) => "its policies allow the volume".to_owned(),
            _ => reasons.join("; "),
        }
    }
}

/// What policies say about the volume that a claim does not get: which of them rejects it, or the scores.
fn said(policies: &Policies, store: &Store, claim: &ClaimKey, volume: &str) -> Option<String> {
    let claim = store.claim(Source::Overlay, claim).found()?;
    let volume = store.volume(Source::Overlay, volume).found()?;
    let Volume { name, .. } = &*volume;
    let said = policies.said(store, &claim, &volume).ok()?;
    said.iter().find_map(|said| match &said.says {
        Says::Rejected { sentence, .. } => {
            Some(format!("policy {} rejects volume {name}: {sentence}", said.policy))
        }
        Says::Scored { score, weight } => {
            Some(format!("policy {} scores volume {name} {score} times {weight}", said.policy))
        }
        Says::Allowed => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(does: &str, why: &str) -> ComparedDecision {
        ComparedDecision::Other { does: does.to_owned(), why: why.to_owned() }
    }

    fn fate(fate: Fate, why: &str) -> ComparedDecision {
        ComparedDecision::Fate { fate, does: String::new(), why: why.to_owned() }
    }

    #[test]
    fn each_pair_of_decisions_has_its_difference() {
        use DifferenceKind as Kind;
        let binds = |volume: &str| ComparedDecision::Binds(volume.into());
        let offers =
            |names: &[&str]| ComparedDecision::Offers(names.iter().map(|&name| name.into()).collect());
        let fault = || ComparedDecision::Fault("it trapped".to_owned());
        let step =
            |does: &str, why: &str| ComparedDecision::Step { does: does.to_owned(), why: why.to_owned() };
        for (active, shadow, expected) in [
            (binds("a"), binds("a"), None),
            (binds("a"), binds("b"), Some(Kind::OtherVolume)),
            (other("", "nothing fits"), binds("b"), Some(Kind::Binds)),
            (ComparedDecision::Provisions, binds("b"), Some(Kind::Binds)),
            (binds("a"), ComparedDecision::Provisions, Some(Kind::Provisions)),
            (other("", ""), ComparedDecision::Provisions, Some(Kind::Provisions)),
            (binds("a"), other("", ""), Some(Kind::BindsNone)),
            (ComparedDecision::Provisions, other("", ""), Some(Kind::BindsNone)),
            (other("", "a"), other("", "b"), Some(Kind::OtherReason)),
            (other("gives it class a", ""), other("", ""), Some(Kind::OtherReason)),
            (fate(Fate::Keep, "a"), fate(Fate::Keep, "a"), None),
            (fate(Fate::Keep, "a"), fate(Fate::Keep, "b"), Some(Kind::OtherReason)),
            (fate(Fate::Keep, ""), fate(Fate::KeepFor(1), ""), Some(Kind::OtherFate)),
            (fate(Fate::Keep, ""), other("", ""), Some(Kind::OtherFate)),
            (binds("a"), fault(), Some(Kind::Fault)),
            (fate(Fate::Keep, ""), fault(), Some(Kind::Fault)),
            (binds("a"), ComparedDecision::Refused("G3".to_owned()), Some(Kind::Refused)),
            (step("a", ""), step("b", ""), Some(Kind::OtherStep)),
            (step("a", ""), step("a", "why"), Some(Kind::OtherReason)),
            (step("a", ""), fault(), Some(Kind::Fault)),
            (offers(&["a"]), offers(&["a"]), None),
            (offers(&["a"]), offers(&["a", "b"]), Some(Kind::OtherLabels)),
            (offers(&["a"]), other("", "it waits"), Some(Kind::OtherLabels)),
        ] {
            assert_eq!(active.difference(&shadow), expected, "{active:?} {shadow:?}");
        }
    }
}
