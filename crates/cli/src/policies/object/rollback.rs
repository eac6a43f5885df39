//! Earlier generations of an object, and the way back to them.

use std::sync::Arc;

use bindery_kube::PolicyObjects;
use bindery_policy::{LastGood, LatestFault, ObjectStatus, Probation, ProbationOutcome, RolledBack};
use serde_json::Value;

use super::{Cause, Effect, Fault, Hosts, LoadedObject, has_config_map, held};

/// How many earlier generations are kept.
const GENERATIONS_MAX: usize = 4;
/// The most bytes of their specs, as JSON: the status must fit into an object of etcd, beside settings that
/// may be nearly as large.
const BYTES_MAX: usize = 256 << 10;

impl Effect {
    /// The first calls of its module.
    fn probation(&self) -> Option<&Probation> {
        match self {
            Self::Match(policy) => Some(&policy.metrics.probation),
            Self::Reclaim(rule) => Some(&rule.metrics.probation),
            Self::Engine(engine) => Some(&engine.probation),
            Self::None => None,
        }
    }

    /// Has its faults told there, beside those of earlier generations.
    pub(super) fn tell_faults(&mut self, told: &LatestFault) {
        let told = told.clone();
        match self {
            Self::Match(policy) => policy.metrics.last_fault = told,
            Self::Reclaim(rule) => rule.metrics.last_fault = told,
            Self::Engine(engine) => {
                if let Some(engine) = Arc::get_mut(engine) {
                    engine.last_fault = told;
                }
            }
            Self::None => {}
        }
    }
}

impl LoadedObject {
    /// Takes over which generations were good: from what is loaded, else from the status.
    pub(super) fn remember(&mut self, earlier: Option<&Self>, known: &ObjectStatus) {
        let (last_good, history) = match earlier {
            Some(earlier) if earlier.good().is_some() || earlier.is_off() => {
                (earlier.good(), &earlier.history)
            }
            _ => (known.last_good.as_ref(), &known.history),
        };
        (self.last_good, self.history) = (last_good.cloned(), history.clone());
        let rolled_back = earlier.and_then(|earlier| earlier.rolled_back.clone());
        self.rolled_back = rolled_back.or_else(|| known.rolled_back.clone());
    }

    /// Replaces the last good generation, which becomes the newest of the earlier ones.
    pub(super) fn retire(&mut self, new: Option<LastGood>) {
        let old = std::mem::replace(&mut self.last_good, new);
        if let Some(old) = old.filter(|old| self.last_good.as_ref() != Some(old)) {
            self.history.insert(0, old);
        }
        let mut left = BYTES_MAX;
        let mut fits = |good: &LastGood| {
            let bytes = serde_json::to_string(&good.spec).map_or(usize::MAX, |spec| spec.len());
            left.checked_sub(bytes).map(|rest| left = rest).is_some()
        };
        let kept =
            self.history.iter().take(GENERATIONS_MAX).map_while(|good| fits(good).then_some(())).count();
        self.history.truncate(kept);
    }

    /// Continues the counters of the earlier generation, if it has the same module.
    pub(super) fn count_with(&mut self, earlier: &Self, digest: &str) {
        if earlier.last_good.as_ref().is_none_or(|last| *last.digest != *digest) {
            return;
        }
        match (&mut self.effect, &earlier.effect) {
            (Effect::Match(policy), Effect::Match(earlier)) => policy.metrics.continue_from(&earlier.metrics),
            (Effect::Reclaim(rule), Effect::Reclaim(earlier)) => rule.metrics.continue_from(&earlier.metrics),
            (Effect::Engine(engine), Effect::Engine(earlier)) => {
                if let Some(engine) = Arc::get_mut(engine) {
                    engine.continue_from(earlier);
                }
            }
            _ => {}
        }
    }

    /// Whether what is in effect has to be taken back: its first calls have failed, here or, by the status,
    /// at the leader.
    pub(crate) fn has_failed(&self, known: &ObjectStatus) -> bool {
        let Some(in_effect) = &self.last_good else { return false };
        let is_in_effect = |rolled: &RolledBack| rolled.is_of(in_effect);
        let by_calls = self.effect.probation().is_some_and(|it| it.outcome() == ProbationOutcome::Failed);
        let is_known = [&self.rolled_back, &known.rolled_back].into_iter().flatten().any(is_in_effect);
        // Without an earlier generation all claims would wait, and not only those at which it fails.
        let has_another = self.place_before().is_some() || matches!(self.effect, Effect::Engine(_));
        has_another && !self.stays && !self.is_shadow() && (by_calls || is_known)
    }

    /// Goes on with what the same generation has put into effect, and with what it has shown as a shadow.
    pub(crate) fn continue_from(&mut self, earlier: Self) {
        (self.effect, self.before, self.shadow) = (earlier.effect, earlier.before, earlier.shadow);
    }

    /// Forgets what was in effect before, once the module has passed its probation.
    pub(crate) fn settle(&mut self) {
        if self.effect.probation().is_some_and(|it| it.outcome() == ProbationOutcome::Passed) {
            self.before = None;
        }
    }

    /// The generation in effect, or the one that is to be in effect once its module is there.
    pub(crate) fn good(&self) -> Option<&LastGood> {
        self.last_good.as_ref().or(self.awaited.as_ref())
    }

    /// Whether the module of its last good generation is not there yet, so that another try may succeed.
    pub(crate) fn awaits_good(&self) -> bool {
        self.awaited.is_some()
    }

    /// Tries again to load the last good generation. The newest one is left alone.
    pub(crate) async fn restore_awaited(&mut self, hosts: &Hosts, objects: &PolicyObjects) {
        let Some(awaited) = self.awaited.take() else { return };
        self.lacked_room = false;
        let why = self.fault.as_ref().map(|fault| fault.why.clone()).unwrap_or_default();
        self.effect = self.restore(awaited, &why, hosts, objects).await;
    }

    /// Loads the last good generation, or what holds all that it matches.
    pub(super) async fn restore(
        &mut self,
        last_good: LastGood,
        fault: &str,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Effect {
        let mut object = self.object.clone();
        object["spec"] = Value::Object(last_good.spec.clone());
        let has_config_map = has_config_map(&object["spec"]);
        let kept = match last_good.digest.parse() {
            Ok(digest) if has_config_map => hosts.registry.kept_module(digest).await,
            _ => None,
        };
        let loaded = match kept {
            Some(module) => Self::loaded(&object, module, Vec::new(), hosts).await,
            None => {
                let signed_by = self.signed_by.take();
                let loaded = self.attempt(&object, hosts, objects).await;
                self.signed_by = signed_by;
                loaded
            }
        };
        match loaded {
            // A file comes with Bindery: a new build of it is still the same policy.
            Ok((mut effect, digest)) if *last_good.digest == *digest || !has_config_map => {
                effect.tell_faults(&self.last_fault);
                self.last_good = Some(LastGood { digest: digest.into(), ..last_good });
                return effect;
            }
            Err(fault) if fault.may_pass(has_config_map) => {
                (self.awaited, self.lacked_room) = (Some(last_good), fault.lacks_room());
            }
            _ => {}
        }
        if self.wants_shadow() { Effect::None } else { held(&object, fault) }
    }

    /// The place in the history of the generation that is to come back.
    fn place_before(&self) -> Option<usize> {
        self.history.iter().position(|good| self.accepts(good))
    }

    /// Puts the generation before the one in effect into effect again. A policy whose earlier generation
    /// cannot be loaded stays: without any, everything that it matches would wait. An engine gives way to
    /// that of the settings.
    pub(crate) async fn roll_back(&mut self, hosts: &Hosts, objects: &PolicyObjects) {
        let failed = "its first calls failed in at least three namespaces";
        let why = format!("{failed}; apply another version");
        let mut back = self.clone();
        let taken_back = back.last_good.take();
        back.rolled_back =
            taken_back.map(|LastGood { generation, digest, .. }| RolledBack { generation, digest });
        let place = back.place_before();
        // What was in effect before is that of the newest earlier generation.
        let effect = back.before.take().filter(|_| place == Some(0));
        let before = place.and_then(|place| back.history.drain(..=place).next_back());
        let generation = before.as_ref().map(|before| before.generation);
        back.effect = match (before, effect) {
            (Some(before), Some(effect)) if !matches!(effect, Effect::None) => {
                back.last_good = Some(before);
                effect
            }
            (Some(before), _) => back.restore(before, &why, hosts, objects).await,
            (None, _) => Effect::None,
        };
        let is_engine = matches!(self.effect, Effect::Engine(_));
        let fault = match generation {
            Some(generation) if back.last_good.is_none() && !is_engine => {
                self.stays = true;
                let why =
                    format!("{failed}, and generation {generation} cannot be loaded; apply another version");
                Fault { cause: Cause::ProbationFailed, why }
            }
            _ => {
                *self = back;
                Fault { cause: Cause::RolledBack, why }
            }
        };
        // A newer generation may have failed by another cause, which its author has to know.
        self.fault.get_or_insert(fault);
    }
}
