//! What a case shows was really read: the objects and answers that the guard may rely on.
//!
//! All of it comes from the host: the request, the exchanges, and the view. Nothing rests on the
//! engine's word: an object is looked up by the name, UID and version that an action claims to have read.

use std::ops::Deref;
use std::sync::Arc;

use super::{Case, Objection};
use crate::{
    Answer, Claim, ClaimKey, ClaimTarget, Class, Key, Lookup, Migration, OperationKind, Plugin, PluginMatch,
    Pod, Point, Progress, Question, Regarding, Returned, Source, Subject, Text, Uid, Volume, VolumeTarget,
};

/// A claim or a volume, borrowed or shared.
#[derive(Clone)]
pub(super) enum Ref<'a, T> {
    /// In the case, or among the effects of earlier steps.
    Borrowed(&'a T),
    /// In the view.
    Shared(Arc<T>),
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(object) => object,
            Self::Shared(object) => object,
        }
    }
}

/// How far an operation has come, whether it is about a claim or a volume.
#[derive(Clone, Copy)]
pub(super) struct RunningOperation<'a> {
    pub(super) kind: OperationKind,
    pub(super) plugin: &'a Text,
    pub(super) uid: &'a Uid,
    pub(super) point: Point,
    pub(super) returned: &'a Returned,
}

impl<'a> RunningOperation<'a> {
    fn of<T>(progress: &'a Progress<T>) -> Self {
        Self {
            kind: progress.operation.kind,
            plugin: &progress.operation.plugin,
            uid: &progress.operation.uid,
            point: progress.point,
            returned: &progress.returned,
        }
    }

    /// Whether its last step ended without failure.
    pub(super) fn succeeded(&self) -> bool {
        matches!(self.returned, Returned::Success)
    }

    /// Whether its last step failed.
    pub(super) fn failed(&self) -> bool {
        matches!(self.returned, Returned::Failed(_) | Returned::InUse(_))
    }
}

impl<'a> Case<'a> {
    /// The answers for which `pick` returns something, newest first.
    fn answers<T>(&'a self, pick: impl Fn(&'a Question, &'a Answer) -> Option<T>) -> impl Iterator<Item = T> {
        let exchanges = self.exchanges.iter().rev();
        exchanges.filter_map(move |exchange| pick(&exchange.question, &exchange.answer))
    }

    /// The newest answer for which `pick` returns something.
    fn answer<T>(&'a self, pick: impl Fn(&'a Question, &'a Answer) -> Option<T>) -> Option<T> {
        self.answers(pick).next()
    }

    /// What look-ups of the claim of that key found, newest first, with where each looked.
    fn lookups_of_claim(&'a self, key: &ClaimKey) -> impl Iterator<Item = (Source, &'a Lookup<Arc<Claim>>)> {
        self.answers(move |question, answer| match (question, answer) {
            (Question::Claim(source, asked), Answer::Claim(found)) if asked == key => Some((*source, found)),
            _ => None,
        })
    }

    /// What look-ups of the volume of that name found, newest first, with where each looked.
    fn lookups_of_volume(&'a self, name: &str) -> impl Iterator<Item = (Source, &'a Lookup<Arc<Volume>>)> {
        self.answers(move |question, answer| match (question, answer) {
            (Question::Volume(source, asked), Answer::Volume(found)) if **asked == *name => {
                Some((*source, found))
            }
            _ => None,
        })
    }

    /// The claims that were read, newest first.
    pub(super) fn claims(&'a self) -> impl Iterator<Item = &'a Claim> {
        let subject = match &self.request.subject {
            Subject::SyncClaim(claim) => Some(&**claim),
            Subject::SyncClaimOperation(progress) => Some(&progress.object),
            _ => None,
        };
        let read = self.answers(|_, answer| match answer {
            Answer::Claim(Lookup::Found(claim)) => Some(&**claim),
            _ => None,
        });
        read.chain(subject)
    }

    /// The volumes that were read, newest first.
    fn volumes(&'a self) -> impl Iterator<Item = &'a Volume> {
        let (fresh, subject) = match &self.request.subject {
            Subject::SyncVolume(volume) => (None, Some(&**volume)),
            Subject::SyncVolumeOperation(progress) => (progress.fresh.as_ref(), Some(&progress.object)),
            _ => (None, None),
        };
        let read = self.answers(|_, answer| match answer {
            Answer::Volume(Lookup::Found(volume)) | Answer::Described(volume) => Some(&**volume),
            _ => None,
        });
        read.chain(fresh).chain(subject)
    }

    /// The claim that an action names, as it was read; `None` if it was not read.
    ///
    /// # Errors
    ///
    /// It was not read, and the view has another version of it.
    pub(super) fn claim(&'a self, target: &ClaimTarget) -> Result<Option<Ref<'a, Claim>>, Objection> {
        let is_target = |c: &Claim| c.key == target.key && c.uid == target.uid && c.version == target.version;
        if let Some(Lookup::Found(proof)) = self.view.claim_proof(&target.key)
            && is_target(proof)
        {
            return Ok(Some(Ref::Shared(Arc::clone(proof))));
        }
        if let Some(claim) = self.claims().find(|claim| is_target(claim)) {
            return Ok(Some(Ref::Borrowed(claim)));
        }
        match self.view.claim(&target.key) {
            Lookup::Found(now) if now.uid == target.uid && now.version != target.version => {
                let object = Key::Claim(target.key.clone());
                Err(Objection::Stale { object, what: "it has another version" })
            }
            _ => Ok(None),
        }
    }

    /// The volume that an action names, as it was read; `None` if it was not read.
    ///
    /// # Errors
    ///
    /// It was not read, and the view has another version of it.
    pub(super) fn volume(&'a self, target: &VolumeTarget) -> Result<Option<Ref<'a, Volume>>, Objection> {
        let is_target =
            |v: &Volume| v.name == target.name && v.uid == target.uid && v.version == target.version;
        if let Some(volume) = self.volumes().find(|volume| is_target(volume)) {
            return Ok(Some(Ref::Borrowed(volume)));
        }
        match self.view.volume(&target.name) {
            Lookup::Found(now) if is_target(&now) && self.identified(target) => Ok(Some(Ref::Shared(now))),
            Lookup::Found(now) if now.uid == target.uid && now.version != target.version => {
                let object = Key::Volume(target.name.clone());
                Err(Objection::Stale { object, what: "it has another version" })
            }
            _ => Ok(None),
        }
    }

    /// Whether the host showed the engine the object of an event at this version.
    pub(super) fn has_shown(&'a self, regarding: &Regarding) -> bool {
        match regarding {
            Regarding::Claim(target) => self.claims().any(|claim| claim.target() == *target),
            Regarding::Volume(target) => {
                self.volumes().any(|volume| volume.target() == *target) || self.identified(target)
            }
        }
    }

    /// Whether the host told the engine this identity.
    fn identified(&'a self, target: &VolumeTarget) -> bool {
        self.answers(|_, answer| match answer {
            Answer::Identity(identity) => Some(identity),
            _ => None,
        })
        .any(|identity| identity == target)
    }

    /// The claim of that UID: as it was read last, else as the view has it under that key.
    pub(super) fn claim_of(&'a self, key: &ClaimKey, uid: &Uid) -> Option<Ref<'a, Claim>> {
        if let Some(claim) = self.claims().find(|claim| claim.uid == *uid) {
            return Some(Ref::Borrowed(claim));
        }
        match self.view.claim(key) {
            Lookup::Found(claim) if claim.uid == *uid => Some(Ref::Shared(claim)),
            _ => None,
        }
    }

    /// The volume of that name as it was read last, else as the view has it.
    pub(super) fn volume_named(&'a self, name: &str) -> Lookup<Ref<'a, Volume>> {
        let read = self.answer(|question, answer| match (question, answer) {
            (Question::Volume(_, asked), Answer::Volume(found)) if **asked == *name => {
                Some(found.as_ref().map(|volume| Ref::Borrowed(&**volume)))
            }
            (_, Answer::Described(volume)) if *volume.name == *name => {
                Some(Lookup::Found(Ref::Borrowed(&**volume)))
            }
            _ => None,
        });
        let of_request = || self.volumes().find(|volume| *volume.name == *name);
        read.or_else(|| of_request().map(|volume| Lookup::Found(Ref::Borrowed(volume))))
            .unwrap_or_else(|| self.view.volume(name).map(Ref::Shared))
    }

    /// Why the volume of that name cannot be read, by any answer or the view (G7).
    pub(super) fn unreadable_volume(&'a self, name: &str) -> Option<Text> {
        let mut told = self.lookups_of_volume(name);
        told.find_map(|(_, found)| unreadable(found)).or_else(|| unreadable(&self.view.volume(name)))
    }

    /// Why the claim of that key cannot be read, by any answer or the view (G7).
    pub(super) fn unreadable_claim(&'a self, key: &ClaimKey) -> Option<Text> {
        let mut told = self.lookups_of_claim(key);
        told.find_map(|(_, found)| unreadable(found)).or_else(|| unreadable(&self.view.claim(key)))
    }

    /// The claim of that key, read live for this decision: by the engine, else by the guard.
    pub(super) fn live_claim(&'a self, key: &ClaimKey) -> Option<&'a Lookup<Arc<Claim>>> {
        self.told_live_claim(key).or_else(|| self.view.claim_proof(key))
    }

    /// The claim of that key, read live by the engine for this decision.
    pub(super) fn told_live_claim(&'a self, key: &ClaimKey) -> Option<&'a Lookup<Arc<Claim>>> {
        self.lookups_of_claim(key).find(|(source, _)| *source == Source::Live).map(|(_, found)| found)
    }

    /// The volume of that name, read live for this decision: by the engine, else by the guard.
    pub(super) fn live_volume(&'a self, name: &str) -> Option<&'a Lookup<Arc<Volume>>> {
        self.told_live_volume(name).or_else(|| self.view.volume_proof(name))
    }

    /// The volume of that name, read live by the engine for this decision.
    pub(super) fn told_live_volume(&'a self, name: &str) -> Option<&'a Lookup<Arc<Volume>>> {
        self.lookups_of_volume(name).find(|(source, _)| *source == Source::Live).map(|(_, found)| found)
    }

    /// Whether a claim of that key was found in a cache.
    pub(super) fn claim_cached(&'a self, key: &ClaimKey) -> bool {
        self.lookups_of_claim(key)
            .any(|(source, found)| source != Source::Live && matches!(found, Lookup::Found(_)))
    }

    /// The pods that use the claim, as the engine was told.
    pub(super) fn pods(&'a self, key: &ClaimKey) -> Option<&'a [Pod]> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Pods(asked), Answer::Pods(pods)) if asked == key => Some(pods.as_deref().ok()),
            _ => None,
        })
        .flatten()
    }

    /// Whether the engine was told that a class of that name is a default one.
    pub(super) fn was_default(&'a self, name: &str) -> bool {
        self.answers(|_, answer| match answer {
            Answer::DefaultClasses(Ok(names)) => Some(names.iter().any(|n| **n == *name)),
            Answer::Class(Lookup::Found(class)) => Some(class.default && *class.name == *name),
            _ => None,
        })
        .any(|is_default| is_default)
    }

    /// The class of that name: as the engine was told, else as the view has it.
    pub(super) fn class(&'a self, name: &str) -> Lookup<Arc<Class>> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Class(asked), Answer::Class(lookup)) if **asked == *name => Some(lookup.clone()),
            _ => None,
        })
        .unwrap_or_else(|| self.view.class(name))
    }

    /// The migration of that plugin, as the engine was told.
    pub(super) fn migration(&'a self, plugin: &str) -> Option<&'a Migration> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Migration(asked), Answer::Migration(migration)) if **asked == *plugin => {
                Some(migration)
            }
            _ => None,
        })
    }

    /// The plugin of that name, as the engine was told.
    pub(super) fn plugin(&'a self, name: &str) -> Option<&'a Plugin> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Plugin(asked), Answer::Plugin(plugin)) if **asked == *name => Some(plugin.as_ref()),
            _ => None,
        })
        .flatten()
    }

    /// The one plugin that supports the source of the volume of that name, as the engine was told.
    pub(super) fn plugin_for(&'a self, volume: &str) -> Option<&'a Plugin> {
        let found = self.answer(|question, answer| match (question, answer) {
            (Question::PluginForVolume(asked), Answer::PluginMatch(found)) if **asked == *volume => {
                Some(found)
            }
            _ => None,
        });
        match found? {
            PluginMatch::One(plugin) => Some(plugin),
            PluginMatch::None | PluginMatch::Several(_) => None,
        }
    }

    /// Whether the engine was told that dynamic provisioning is on.
    pub(super) fn provisioning_on(&'a self) -> bool {
        self.answer(|_, answer| match answer {
            Answer::DynamicProvisioning(on) => Some(*on),
            _ => None,
        })
        .unwrap_or(false)
    }

    /// The operation whose next step is decided; `None` in a sync and in a review.
    pub(super) fn running(&'a self) -> Option<RunningOperation<'a>> {
        match &self.request.subject {
            Subject::SyncClaimOperation(progress) => Some(RunningOperation::of(progress)),
            Subject::SyncVolumeOperation(progress) => Some(RunningOperation::of(progress)),
            Subject::SyncClaim(_)
            | Subject::SyncVolume(_)
            | Subject::ReviewClaim { .. }
            | Subject::ReviewVolume { .. } => None,
        }
    }
}

fn unreadable<T>(found: &Lookup<T>) -> Option<Text> {
    match found {
        Lookup::Unreadable(error) => Some(error.clone()),
        Lookup::Found(_) | Lookup::Absent | Lookup::Failed(_) => None,
    }
}
