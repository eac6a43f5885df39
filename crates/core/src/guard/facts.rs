//! What was really read: the records and answers that the guard may rely on.
//!
//! All of it is the host's word: the request, the exchanges, and the world. The engine's word counts for
//! nothing, so a record is found by the name, UID and version that an action claims to have read.

use std::ops::Deref;
use std::sync::Arc;

use super::{Case, Object, Objection};
use crate::{
    Answer, Claim, ClaimKey, ClaimTarget, Class, Lookup, Migration, OperationKind, Plugin, Pod, Point,
    Progress, Question, Regarding, Returned, Source, Subject, Text, Uid, Volume, VolumeTarget,
};

/// A record, wherever it is kept.
#[derive(Clone)]
pub(super) enum Seen<'a, T> {
    /// In the case or the scene.
    There(&'a T),
    /// In the world.
    World(Arc<T>),
}

impl<T> Deref for Seen<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::There(record) => record,
            Self::World(record) => record,
        }
    }
}

/// Where an operation stands, whatever it is about.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) kind: OperationKind,
    pub(super) plugin: &'a Text,
    pub(super) uid: &'a Uid,
    pub(super) point: Point,
    pub(super) returned: &'a Returned,
}

impl Work<'_> {
    /// Whether the last thing was done without failure.
    pub(super) fn succeeded(&self) -> bool {
        matches!(self.returned, Returned::Success)
    }

    /// Whether the last thing failed.
    pub(super) fn failed(&self) -> bool {
        matches!(self.returned, Returned::Failed(_) | Returned::InUse(_))
    }
}

/// Looks facts up in a case.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) case: &'a Case<'a>,
}

impl<'a> Facts<'a> {
    /// Answers that the pick takes, newest first.
    fn answers<T>(self, pick: impl Fn(&'a Question, &'a Answer) -> Option<T>) -> impl Iterator<Item = T> {
        self.case
            .exchanges
            .iter()
            .rev()
            .filter_map(move |exchange| pick(&exchange.question, &exchange.answer))
    }

    /// The newest answer that the pick takes.
    fn answer<T>(self, pick: impl Fn(&'a Question, &'a Answer) -> Option<T>) -> Option<T> {
        self.answers(pick).next()
    }

    /// The claims that were read, newest first.
    pub(super) fn claims(self) -> impl Iterator<Item = &'a Claim> {
        let subject = match &self.case.request.subject {
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
    fn volumes(self) -> impl Iterator<Item = &'a Volume> {
        let (fresh, subject) = match &self.case.request.subject {
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

    /// The claim that an action names, as it was read; `None` where it was not.
    ///
    /// # Errors
    ///
    /// It was not read, but the world has it at another version.
    pub(super) fn claim(self, target: &ClaimTarget) -> Result<Option<Seen<'a, Claim>>, Objection> {
        let is_target = |c: &Claim| c.key == target.key && c.uid == target.uid && c.version == target.version;
        if let Some(Lookup::Found(proof)) = self.case.world.claim_proof(&target.key)
            && is_target(proof)
        {
            return Ok(Some(Seen::World(Arc::clone(proof))));
        }
        if let Some(claim) = self.claims().find(|claim| is_target(claim)) {
            return Ok(Some(Seen::There(claim)));
        }
        match self.case.world.claim(&target.key) {
            Lookup::Found(now) if now.uid == target.uid && now.version != target.version => {
                Err(Objection::Stale {
                    object: Object::Claim(target.key.clone()),
                    what: "it has another version",
                })
            }
            _ => Ok(None),
        }
    }

    /// The volume that an action names, as it was read; `None` where it was not.
    ///
    /// # Errors
    ///
    /// It was not read, but the world has it at another version.
    pub(super) fn volume(self, target: &VolumeTarget) -> Result<Option<Seen<'a, Volume>>, Objection> {
        let is_target =
            |v: &Volume| v.name == target.name && v.uid == target.uid && v.version == target.version;
        if let Some(volume) = self.volumes().find(|volume| is_target(volume)) {
            return Ok(Some(Seen::There(volume)));
        }
        match self.case.world.volume(&target.name) {
            Lookup::Found(now) if is_target(&now) && self.identified(target) => Ok(Some(Seen::World(now))),
            Lookup::Found(now) if now.uid == target.uid && now.version != target.version => {
                Err(Objection::Stale {
                    object: Object::Volume(target.name.clone()),
                    what: "it has another version",
                })
            }
            _ => Ok(None),
        }
    }

    /// Whether the host told the engine of the object of an event, at this version.
    pub(super) fn has_shown(self, regarding: &Regarding) -> bool {
        match regarding {
            Regarding::Claim(target) => self.claims().any(|claim| claim.target() == *target),
            Regarding::Volume(target) => {
                self.volumes().any(|volume| volume.target() == *target) || self.identified(target)
            }
        }
    }

    /// Whether the host told the engine of this very object.
    fn identified(self, target: &VolumeTarget) -> bool {
        self.answers(|_, answer| match answer {
            Answer::Identity(identity) => Some(identity),
            _ => None,
        })
        .any(|identity| identity == target)
    }

    /// The claim of that UID: as it was read last, else as the world has it under that key.
    pub(super) fn claim_of(self, key: &ClaimKey, uid: &Uid) -> Option<Seen<'a, Claim>> {
        if let Some(claim) = self.claims().find(|claim| claim.uid == *uid) {
            return Some(Seen::There(claim));
        }
        match self.case.world.claim(key) {
            Lookup::Found(claim) if claim.uid == *uid => Some(Seen::World(claim)),
            _ => None,
        }
    }

    /// The volume of that name as it was read last, else as the world has it.
    pub(super) fn volume_named(self, name: &str) -> Lookup<Seen<'a, Volume>> {
        let read = self.answers(|question, answer| match (question, answer) {
            (Question::Volume(_, asked), Answer::Volume(lookup)) if **asked == *name => Some(match lookup {
                Lookup::Found(volume) => Lookup::Found(Seen::There(&**volume)),
                Lookup::Absent => Lookup::Absent,
                Lookup::Unreadable(error) => Lookup::Unreadable(error.clone()),
                Lookup::Failed(error) => Lookup::Failed(error.clone()),
            }),
            (_, Answer::Described(volume)) if *volume.name == *name => {
                Some(Lookup::Found(Seen::There(&**volume)))
            }
            _ => None,
        });
        let mut known = read.chain(
            self.volumes()
                .find(|volume| *volume.name == *name)
                .map(|volume| Lookup::Found(Seen::There(volume))),
        );
        known.next().unwrap_or_else(|| match self.case.world.volume(name) {
            Lookup::Found(volume) => Lookup::Found(Seen::World(volume)),
            Lookup::Absent => Lookup::Absent,
            Lookup::Unreadable(error) => Lookup::Unreadable(error),
            Lookup::Failed(error) => Lookup::Failed(error),
        })
    }

    /// What is wrong with the volume of that name where it cannot be read, by any answer or the world (G7).
    pub(super) fn unreadable_volume(self, name: &str) -> Option<Text> {
        let told = self.answers(|question, answer| match (question, answer) {
            (Question::Volume(_, asked), Answer::Volume(Lookup::Unreadable(error))) if **asked == *name => {
                Some(error.clone())
            }
            _ => None,
        });
        told.chain(unreadable(self.case.world.volume(name))).next()
    }

    /// What is wrong with the claim of that key where it cannot be read, by any answer or the world (G7).
    pub(super) fn unreadable_claim(self, key: &ClaimKey) -> Option<Text> {
        let told = self.answers(|question, answer| match (question, answer) {
            (Question::Claim(_, asked), Answer::Claim(Lookup::Unreadable(error))) if asked == key => {
                Some(error.clone())
            }
            _ => None,
        });
        told.chain(unreadable(self.case.world.claim(key))).next()
    }

    /// The claim of that key, read live for this decision: by the engine, else by the guard.
    pub(super) fn live_claim(self, key: &ClaimKey) -> Option<&'a Lookup<Arc<Claim>>> {
        self.told_live_claim(key).or_else(|| self.case.world.claim_proof(key))
    }

    /// The claim of that key, read live by the engine for this decision.
    pub(super) fn told_live_claim(self, key: &ClaimKey) -> Option<&'a Lookup<Arc<Claim>>> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Claim(Source::Live, asked), Answer::Claim(lookup)) if asked == key => Some(lookup),
            _ => None,
        })
    }

    /// The volume of that name, read live for this decision: by the engine, else by the guard.
    pub(super) fn live_volume(self, name: &str) -> Option<&'a Lookup<Arc<Volume>>> {
        self.told_live_volume(name).or_else(|| self.case.world.volume_proof(name))
    }

    /// The volume of that name, read live by the engine for this decision.
    pub(super) fn told_live_volume(self, name: &str) -> Option<&'a Lookup<Arc<Volume>>> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Volume(Source::Live, asked), Answer::Volume(lookup)) if **asked == *name => {
                Some(lookup)
            }
            _ => None,
        })
    }

    /// Whether a claim of that key was found in a cache.
    pub(super) fn claim_cached(self, key: &ClaimKey) -> bool {
        self.answers(|question, answer| match (question, answer) {
            (Question::Claim(Source::Overlay | Source::Cache, asked), Answer::Claim(lookup))
                if asked == key =>
            {
                Some(lookup)
            }
            _ => None,
        })
        .any(|lookup| matches!(lookup, Lookup::Found(_)))
    }

    /// The pods that use the claim, as the engine was told.
    pub(super) fn pods(self, key: &ClaimKey) -> Option<&'a [Pod]> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Pods(asked), Answer::Pods(pods)) if asked == key => Some(pods.as_deref().ok()),
            _ => None,
        })
        .flatten()
    }

    /// Whether the engine was told that a class of that name is a default one.
    pub(super) fn was_default(self, name: &str) -> bool {
        self.answers(|_, answer| match answer {
            Answer::DefaultClasses(Ok(names)) => Some(names.iter().any(|n| **n == *name)),
            Answer::Class(Lookup::Found(class)) => Some(class.default && *class.name == *name),
            _ => None,
        })
        .any(|is_default| is_default)
    }

    /// The class of that name: as the engine was told, else as the world has it.
    pub(super) fn class(self, name: &str) -> Lookup<Arc<Class>> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Class(asked), Answer::Class(lookup)) if **asked == *name => Some(lookup.clone()),
            _ => None,
        })
        .unwrap_or_else(|| self.case.world.class(name))
    }

    /// The migration of that plugin, as the engine was told.
    pub(super) fn migration(self, plugin: &str) -> Option<&'a Migration> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Migration(asked), Answer::Migration(migration)) if **asked == *plugin => {
                Some(migration)
            }
            _ => None,
        })
    }

    /// The plugin of that name, as the engine was told.
    pub(super) fn plugin(self, name: &str) -> Option<&'a Plugin> {
        self.answer(|question, answer| match (question, answer) {
            (Question::Plugin(asked), Answer::Plugin(plugin)) if **asked == *name => Some(plugin.as_ref()),
            _ => None,
        })
        .flatten()
    }

    /// The one plugin that supports the source of the volume of that name, as the engine was told.
    pub(super) fn plugin_for(self, volume: &str) -> Option<&'a Plugin> {
        self.answer(|question, answer| match (question, answer) {
            (Question::PluginForVolume(asked), Answer::PluginMatch(found)) if **asked == *volume => {
                Some(found)
            }
            _ => None,
        })
        .and_then(|found| match found {
            crate::PluginMatch::One(plugin) => Some(plugin),
            crate::PluginMatch::None | crate::PluginMatch::Several(_) => None,
        })
    }

    /// Whether the engine was told that dynamic provisioning is on.
    pub(super) fn provisioning_on(self) -> bool {
        self.answer(|_, answer| match answer {
            Answer::DynamicProvisioning(on) => Some(*on),
            _ => None,
        })
        .unwrap_or(false)
    }

    /// The operation that is decided on, if it is one.
    pub(super) fn work(self) -> Option<Work<'a>> {
        fn of<T>(progress: &Progress<T>) -> Work<'_> {
            Work {
                kind: progress.operation.kind,
                plugin: &progress.operation.plugin,
                uid: &progress.operation.uid,
                point: progress.point,
                returned: &progress.returned,
            }
        }
        match &self.case.request.subject {
            Subject::SyncClaimOperation(progress) => Some(of(progress)),
            Subject::SyncVolumeOperation(progress) => Some(of(progress)),
            Subject::SyncClaim(_)
            | Subject::SyncVolume(_)
            | Subject::ReviewClaim { .. }
            | Subject::ReviewVolume { .. } => None,
        }
    }
}

fn unreadable<T>(lookup: Lookup<T>) -> Option<Text> {
    match lookup {
        Lookup::Unreadable(error) => Some(error),
        Lookup::Found(_) | Lookup::Absent | Lookup::Failed(_) => None,
    }
}
