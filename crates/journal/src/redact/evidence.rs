//! Redacts what an engine was shown and has answered. Types are destructured without `..`, and matches list
//! all cases, so that a new field or case that may hold a name does not compile before it is redacted here.

use std::sync::Arc;

use bindery_core::steer::{steered_by, steering_key};
use bindery_core::{
    Action, Answer, Claim, ClaimKey, Decision, Event, EventKind, Evidence, Exchange, Facts, Failure, Finding,
    Lookup, MatchVerdict, Message, Outcome, Progress, Query, Question, ReclaimVerdict, Regarding,
    Requirement, Returned, Selector, Subject, Text, Volume,
};

use super::{Pass, Redactor};

impl Pass<'_> {
    pub(super) fn evidence(&mut self, evidence: &mut Evidence) {
        let Evidence { request, exchanges, decision, engine: _ } = evidence;
        match &mut request.subject {
            Subject::SyncClaim(claim) => self.claim(Arc::make_mut(claim)),
            Subject::SyncVolume(volume) => self.volume(Arc::make_mut(volume)),
            Subject::SyncClaimOperation(progress) => self.progress(progress, Self::claim),
            Subject::SyncVolumeOperation(progress) => self.progress(progress, Self::volume),
            Subject::ReviewClaim { new, old } => {
                [Some(new), old.as_mut()].into_iter().flatten().for_each(|it| self.claim(Arc::make_mut(it)));
            }
            Subject::ReviewVolume { new, old } => {
                [Some(new), old.as_mut()].into_iter().flatten().for_each(|it| self.volume(Arc::make_mut(it)));
            }
        }
        for Exchange { question, answer } in exchanges {
            self.question(question);
            self.answer(answer);
        }
        self.decision(decision);
    }

    fn key(&mut self, key: &mut ClaimKey) {
        self.namespace(&mut key.namespace);
    }

    /// A text that the engine was shown and that comes from elsewhere.
    fn foreign(&mut self, text: &mut Text) {
        self.word(text);
        self.is_of_engine = true;
    }

    /// A text that the engine has made.
    fn made(&mut self, text: &mut Text) {
        *text = self.without_words(text).into();
    }

    /// The reason of a policy, which may quote what it was shown.
    fn reason(&mut self, policy: &Text, reason: &mut Text) {
        if !policy.is_empty() && !self.open.contains(policy) {
            self.foreign(reason);
        }
    }

    fn claim(&mut self, claim: &mut Claim) {
        self.key(&mut claim.key);
        match &mut claim.selector {
            Some(Selector::Requirements(requirements)) => self.requirements(requirements),
            Some(Selector::Invalid(why)) => self.foreign(why),
            None => {}
        }
        self.facts(&mut claim.facts, Redactor::redacts_claim_fact);
    }

    fn facts<K: Clone + Ord>(&mut self, facts: &mut Facts<K>, redacts: fn(&Redactor, &K) -> bool) {
        let redacted = facts.iter().map(|(fact, value)| {
            let mut value = value.clone();
            if redacts(self.redactor, fact) {
                self.word(&mut value);
            }
            (fact.clone(), value)
        });
        *facts = redacted.collect();
    }

    /// Redacts a volume. Engines are shown neither labels nor facts of it.
    fn volume(&mut self, volume: &mut Volume) {
        if let Some(claim_ref) = &mut volume.claim_ref {
            self.namespace(&mut claim_ref.namespace);
        }
        let labels = std::mem::take(&mut volume.labels).into_iter().map(|(key, mut value)| {
            if self.redactor.redaction.labels.contains(&*key) {
                self.word(&mut value);
            }
            (self.label_key(key), value)
        });
        volume.labels = labels.collect();
        self.facts(&mut volume.facts, Redactor::redacts_volume_fact);
    }

    /// The key of a label; one that steers a claim names its namespace.
    fn label_key(&mut self, key: Text) -> Text {
        let Some(mut claim) = steered_by(&key).filter(|_| self.redactor.redaction.namespaces) else {
            return key;
        };
        self.word(&mut claim.namespace);
        // With the digest it may be longer than keys are.
        steering_key(&claim).map_or_else(|| self.redactor.digest(&key), Text::from)
    }

    /// Redacts requirements, which the engine is shown.
    fn requirements(&mut self, requirements: &mut [Requirement]) {
        for Requirement { key, values, operator: _ } in requirements {
            let is_redacted = self.redactor.redaction.labels.contains(&**key);
            let before = key.clone();
            *key = self.label_key(key.clone());
            self.is_of_engine |= is_redacted || *key != before;
            values.iter_mut().filter(|_| is_redacted).for_each(|value| self.word(value));
        }
    }

    fn progress<T>(&mut self, progress: &mut Progress<T>, redact: impl FnOnce(&mut Self, &mut T)) {
        let Progress { operation: _, object, fresh, point: _, returned } = progress;
        redact(self, object);
        if let Some(volume) = fresh {
            self.volume(volume);
        }
        match returned {
            Returned::Success | Returned::AlreadyExists => {}
            Returned::InUse(text) | Returned::Failed(text) => self.foreign(text),
        }
    }

    fn query(&mut self, query: &mut Query) {
        self.requirements(&mut query.labels);
    }

    fn question(&mut self, question: &mut Question) {
        match question {
            Question::Claim(_, key) | Question::Pods(key) | Question::ReservedFor { key, .. } => {
                self.key(key);
            }
            Question::Candidates { query, .. } | Question::Tallies(query) => self.query(query),
            Question::Volume(..)
            | Question::Node(_)
            | Question::Class(_)
            | Question::DefaultClasses
            | Question::Plugin(_)
            | Question::PluginForVolume(_)
            | Question::PluginReady(..)
            | Question::Migration(_)
            | Question::DynamicProvisioning
            | Question::Operation(..)
            | Question::AccessSets(_)
            | Question::Identify(_)
            | Question::Describe(_)
            | Question::Verdict(_)
            | Question::Reclaim(_) => {}
        }
    }

    fn answer(&mut self, answer: &mut Answer) {
        match answer {
            Answer::Claim(found) => self.lookup(found, |pass, claim| pass.claim(Arc::make_mut(claim))),
            Answer::Volume(found) => self.lookup(found, |pass, volume| pass.volume(Arc::make_mut(volume))),
            Answer::Node(found) => self.lookup(found, |_, ()| {}),
            Answer::Class(found) => self.lookup(found, |_, _| {}),
            Answer::Pods(Err(why)) | Answer::DefaultClasses(Err(why)) | Answer::Ready(Err(why)) => {
                self.foreign(why);
            }
            Answer::Described(volume) => self.volume(Arc::make_mut(volume)),
            Answer::Verdict(MatchVerdict::Rejected { policy, reason }) => self.reason(policy, reason),
            Answer::Reclaim(ReclaimVerdict { fate: _, policy, reason }) => self.reason(policy, reason),
            Answer::Pods(Ok(_))
            | Answer::DefaultClasses(Ok(_))
            | Answer::Ready(Ok(()))
            | Answer::Plugin(_)
            | Answer::PluginMatch(_)
            | Answer::Migration(_)
            | Answer::DynamicProvisioning(_)
            | Answer::Operation(_)
            | Answer::AccessSets(_)
            | Answer::Page(_)
            | Answer::Reserved(_)
            | Answer::Identity(_)
            | Answer::Tallies(_)
            | Answer::Verdict(MatchVerdict::Allowed) => {}
        }
    }

    fn lookup<T>(&mut self, lookup: &mut Lookup<T>, redact: impl FnOnce(&mut Self, &mut T)) {
        match lookup {
            Lookup::Found(object) => redact(self, object),
            Lookup::Absent => {}
            Lookup::Unreadable(why) | Lookup::Failed(why) => self.foreign(why),
        }
    }

    fn decision(&mut self, decision: &mut Decision) {
        let Decision { wait_ms: _, steps, outcome, tallies: _, findings, requeue_after_ms: _ } = decision;
        steps.iter_mut().for_each(|step| self.action(&mut step.action));
        match outcome {
            Outcome::Done | Outcome::Continue(_) => {}
            Outcome::Failed(failure) => self.failure(failure),
        }
        for Finding { rule: _, volume: _, claim, found, wanted } in findings {
            claim.iter_mut().for_each(|key| self.key(key));
            self.made(found);
            self.made(wanted);
        }
    }

    fn action(&mut self, action: &mut Action) {
        match action {
            Action::ReserveVolume { claim, .. }
            | Action::BindClaim { claim, .. }
            | Action::SetClaimStatus { claim, .. }
            | Action::SetClaimClass { claim, .. }
            | Action::AnnotateClaim { claim, .. }
            | Action::RemoveSelectedNode { claim }
            | Action::CreateVolume { claim, .. } => self.key(&mut claim.key),
            Action::EnqueueClaim(key) => self.key(key),
            Action::SetVolumePhase { message, .. } => self.message(message),
            Action::Emit(Event { regarding, kind }) => {
                if let Regarding::Claim(claim) = regarding {
                    self.key(&mut claim.key);
                }
                self.event(kind);
            }
            Action::AnnotateVolume { .. }
            | Action::SetReclaimPolicy { .. }
            | Action::UnbindVolume { .. }
            | Action::DeleteVolume { .. }
            | Action::StartOperation(_)
            | Action::CallPlugin { .. } => {}
        }
    }

    fn event(&mut self, kind: &mut EventKind) {
        match kind {
            EventKind::VolumeModeMismatch { claim: text }
            | EventKind::VolumeInUse(text)
            | EventKind::Unreadable(text) => self.made(text),
            EventKind::VolumeRejected { volume: _, policy, reason }
            | EventKind::ReclaimPolicySet { to: _, policy, reason } => self.reason(policy, reason),
            EventKind::RecycleWaitsForPods(pods) => pods.iter_mut().for_each(|pod| self.made(pod)),
            EventKind::ProvisioningFailed(failure) | EventKind::ProvisioningCleanupFailed(failure) => {
                self.failure(failure);
            }
            EventKind::VolumeFailedDelete(message) | EventKind::VolumeFailedRecycle(message) => {
                self.message(message);
            }
            EventKind::NoVolumeFits
            | EventKind::VolumeOfOther(_)
            | EventKind::WaitForFirstConsumer
            | EventKind::WaitForPodScheduled(_)
            | EventKind::ClaimMismatch { .. }
            | EventKind::ClaimModeMismatch { .. }
            | EventKind::ClaimLostReference
            | EventKind::ClaimLostVolume(_)
            | EventKind::ClaimMisbound(_)
            | EventKind::ExternalProvisioning(_)
            | EventKind::ProvisioningSucceeded { .. }
            | EventKind::UnknownReclaimPolicy
            | EventKind::VolumeRecycled => {}
        }
    }

    fn message(&mut self, message: &mut Message) {
        match message {
            Message::DeleterNotReady { error: text, .. }
            | Message::DeleteFailed(text)
            | Message::RecycleFailed(text) => self.made(text),
            Message::Empty
            | Message::UnknownReclaimPolicy
            | Message::NoDeleter { .. }
            | Message::NoPlugin(_)
            | Message::NoRecycler => {}
        }
    }

    fn failure(&mut self, failure: &mut Failure) {
        match failure {
            Failure::Read(text)
            | Failure::Unreadable(text)
            | Failure::SelectorInvalid(text)
            | Failure::Class { error: text, .. }
            | Failure::NotReady(text)
            | Failure::Node { error: text, .. }
            | Failure::Plugin(text)
            | Failure::Write(text) => self.made(text),
            Failure::BindingModeUnset(_)
            | Failure::NoCapacity(_)
            | Failure::VolumeOfOther(_)
            | Failure::NoPlugin(_)
            | Failure::DataSource(_)
            | Failure::MountOptions(_)
            | Failure::Untranslatable(_) => {}
        }
    }
}
