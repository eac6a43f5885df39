//! The status of objects, and the events that tell of it.

use std::time::Duration;

use bindery_controller::{Binder, Policies};
use bindery_core::{EventType, Text, Timestamp};
use bindery_kube::{ApiPort, system_clock};
use bindery_policy::{
    ALL_PERCENT, Condition, DifferenceKind, ENGINE, FaultCause, LastFault, ObjectStatus, ShadowDifference,
    ShadowStatus,
};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{ConfiguredObjects, FIELD_MANAGER, ModeArgument, WrittenStatus};
use crate::policies::object::{Cause, Effect, LoadedObject, ObjectName, TAKEN, is_taken, object_name};
use crate::policy::module::REGISTRY;

/// How many statuses of objects over the limit are written before other changes are looked at again, so that
/// a flood of objects delays no change of the policies in effect. Each write is a change that goes on with
/// them.
const SURPLUS_WRITES_MAX: usize = 16;

/// How long statuses are written before other changes are looked at again, so that an API server that is slow
/// to write them delays no change of the policies in effect.
const WRITING_MAX: Duration = Duration::from_secs(1);

/// A condition before its time is known.
pub(super) struct Told {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl ConfiguredObjects {
    /// Writes status where it changes. At ticks the leader writes counters too, and other replicas write
    /// where they differ from the leader. Returns whether all objects were looked at; otherwise the next call
    /// goes on with the others.
    pub(super) async fn write_status(
        &mut self,
        binder: &Binder<ApiPort>,
        leads: &watch::Receiver<bool>,
        is_tick: bool,
    ) -> bool {
        let (mut surplus_writes, until) = (0, Instant::now() + WRITING_MAX);
        let revision = binder.store().revision();
        let mut all = self.objects.all();
        if let Some(next) = self.next_status.take() {
            let place = all.iter().position(|(object, _)| object_name(object) == next);
            all.rotate_left(place.unwrap_or_default());
        }
        for (object, status) in all {
            let name = object_name(&object);
            if Instant::now() >= until {
                self.next_status = Some(name);
                return false;
            }
            let Some(loaded) = self.loaded.get(&name) else { continue };
            let known: ObjectStatus = serde_json::from_value(status).unwrap_or_default();
            if !*leads.borrow() {
                if is_tick && self.mode != ModeArgument::Observe {
                    self.write_entry(&name, &known).await;
                }
                continue;
            }
            if is_tick {
                self.remove_entries(&name, &known).await;
            }
            let known = ObjectStatus { replicas: Vec::new(), ..known };
            let wanted = self.status(&name, loaded, &known, binder, is_tick);
            let uid = loaded.object["metadata"]["uid"].as_str().unwrap_or_default();
            let write = WrittenStatus { uid: uid.to_owned(), over: known, status: wanted };
            if write.status == write.over || self.written.get(&name) == Some(&write) {
                continue;
            }
            if loaded.is_over_limit() {
                surplus_writes += 1;
                if surplus_writes > SURPLUS_WRITES_MAX {
                    continue;
                }
            }
            let status = serde_json::to_value(&write.status).unwrap_or_default();
            match self.objects.write_status(&name.0, &name.1, uid, FIELD_MANAGER, &status).await {
                Ok(()) => {
                    self.tell(&name, &write).await;
                    self.written.insert(name, write);
                }
                Err(error) => {
                    tracing::warn!(kind = name.0, name = name.1, error, "the status cannot be written");
                }
            }
        }
        if is_tick && *leads.borrow() {
            self.looked_at = Some(revision);
        }
        true
    }

    /// The status of an object. Between ticks counters stay as they are known.
    pub(super) fn status(
        &self,
        name: &ObjectName,
        loaded: &LoadedObject,
        known: &ObjectStatus,
        binder: &Binder<ApiPort>,
        is_tick: bool,
    ) -> ObjectStatus {
        let generation = loaded.object["metadata"]["generation"].as_i64().unwrap_or_default();
        let told = [
            self.ready(name, loaded),
            compiling(loaded),
            settings_valid(loaded),
            self.effective(name, loaded, known, binder.store(), is_tick),
        ];
        let told = told.into_iter().chain(verified(loaded));
        let conditions = told.map(|told| condition(told, generation, known)).collect();
        let digest = loaded.last_good.as_ref().map(|last_good| last_good.digest.clone());
        let wanted_digest = loaded.wanted.as_ref().map(|wanted| wanted.to_string().into());
        let mut status = ObjectStatus {
            observed_generation: Some(generation),
            wanted_digest: wanted_digest.filter(|wanted| Some(wanted) != digest.as_ref()),
            digest,
            conditions,
            // One that could not be loaded after a restart is kept for people.
            last_good: loaded.good().cloned().or_else(|| {
                let known = known.last_good.clone().filter(|_| loaded.fault.is_some());
                known.filter(|known| !loaded.rolled_back.as_ref().is_some_and(|it| it.is_of(known)))
            }),
            history: loaded.history.clone(),
            rolled_back: loaded.rolled_back.clone(),
            shadow: loaded.is_shadow().then(|| match &known.shadow {
                Some(shadow) if !is_tick && known.observed_generation == Some(generation) => shadow.clone(),
                _ => shadow_status(loaded),
            }),
            ..known.clone()
        };
        if is_tick {
            self.count(&mut status, name, loaded, &binder.policies());
        }
        status
    }

    /// What a module has done since this process has loaded it.
    fn count(
        &self,
        status: &mut ObjectStatus,
        name: &ObjectName,
        loaded: &LoadedObject,
        policies: &Policies,
    ) {
        if let Effect::Engine(engine) = &loaded.effect {
            (status.calls, status.faults) = (engine.calls.get(), engine.faults.get());
        }
        let activity = match loaded.is_shadow() {
            true => policies.shadow_activity(&name.0, &name.1),
            false => policies.activities().find(|it| **it.name == *name.1),
        };
        let is_counted = name.0 != ENGINE && !is_taken(name, &self.base.policies, &self.loaded);
        if let Some(activity) = activity.filter(|_| is_counted) {
            status.calls = activity.metrics.calls.get();
            status.faults = FaultCause::ALL.iter().map(|&cause| activity.metrics.faults(cause)).sum();
            let reasons = activity.metadata.iter().flat_map(|metadata| &metadata.reasons);
            let counts = reasons.map(|reason| reason.name.clone()).zip(activity.metrics.rejected());
            status.rejections = counts.filter(|(_, count)| *count > 0).collect();
        }
        if let Some((at, message)) = loaded.last_fault.get() {
            status.last_fault = Some(LastFault { time: time(at), message });
        }
    }

    /// Whether the newest generation of an object is in use.
    pub(super) fn ready(&self, name: &ObjectName, loaded: &LoadedObject) -> Told {
        let told = |status, reason, message| Told { kind: "Ready", status, reason, message };
        if loaded.is_off() {
            return told("True", "Off", "spec.mode is off".to_owned());
        }
        if is_taken(name, &self.base.policies, &self.loaded) {
            let message = format!("{TAKEN}: give it another name; {}", without(loaded));
            return told("False", "NameTaken", message);
        }
        let Some(fault) = &loaded.fault else {
            return told("True", "Loaded", "the module is loaded and has checked its settings".to_owned());
        };
        let stays = match &loaded.last_good {
            Some(last_good) => format!("generation {} stays in effect", last_good.generation),
            None if loaded.is_shadow() => "it decides nothing".to_owned(),
            None if loaded.object["kind"] == ENGINE => "the engine of the settings stays".to_owned(),
            None => without(loaded).to_owned(),
        };
        told("False", fault.cause.name(), format!("{}: {}; {stays}", fault.field(), fault.why))
    }

    /// Tells of a generation that cannot be loaded, or can be again, by an event.
    pub(super) async fn tell(&self, (kind, name): &ObjectName, write: &WrittenStatus) {
        let ready = |status: &ObjectStatus| status.condition("Ready").cloned();
        let Some(now) = ready(&write.status) else { return };
        let before = ready(&write.over);
        let is_same = |before: &Condition| (&before.reason, &before.message) == (&now.reason, &now.message);
        if before.as_ref().is_some_and(is_same) || (before.is_none() && *now.status == *"True") {
            return;
        }
        let event_type = if *now.status == *"True" { EventType::Normal } else { EventType::Warning };
        let (texts, time) = ((&*now.reason, &*now.message), system_clock()());
        let of = (&**kind, &**name, &*write.uid);
        if let Err(error) = self.objects.record(of, event_type, texts, time).await {
            tracing::warn!(kind, name, error, "an event cannot be written");
        }
    }
}

/// What a shadow has shown.
fn shadow_status(loaded: &LoadedObject) -> ShadowStatus {
    let metrics = &loaded.shadow;
    let differences = DifferenceKind::ALL.map(|kind| (kind.name().into(), metrics.differences(kind)));
    let latest = metrics.latest().into_iter().map(|latest| ShadowDifference {
        time: time(latest.time),
        object: latest.object,
        kind: latest.kind.name().into(),
        active: latest.active,
        shadow: latest.shadow,
    });
    ShadowStatus {
        compared: metrics.compared.get(),
        not_comparable: metrics.not_comparable.get(),
        dropped: metrics.dropped.get(),
        not_sampled: metrics.not_sampled.get(),
        sample_percent: Some(loaded.sample_percent()).filter(|percent| *percent < ALL_PERCENT),
        released: metrics.released(),
        differences: differences.into_iter().filter(|(_, count)| *count > 0).collect(),
        latest: latest.collect(),
    }
}

/// A time by RFC 3339.
fn time(at: Timestamp) -> Text {
    jiff::Timestamp::from_second(at).unwrap_or_default().to_string().into()
}

/// What becomes of what a policy matches that is not loaded.
fn without(loaded: &LoadedObject) -> &'static str {
    match loaded.object["spec"]["onFailure"].as_str() {
        Some("Skip") => "what it matches is decided without it",
        _ => "what it matches waits",
    }
}

fn compiling(loaded: &LoadedObject) -> Told {
    let (status, reason, message) = match &loaded.fault {
        Some(fault) if fault.cause == Cause::Loading => ("True", fault.cause.name(), fault.why.clone()),
        _ => ("False", "Idle", "no module of it is being read or compiled".to_owned()),
    };
    Told { kind: "Compiling", status, reason, message }
}

fn settings_valid(loaded: &LoadedObject) -> Told {
    let (status, reason, message) = match &loaded.fault {
        _ if loaded.is_off() => ("Unknown", "Off", "spec.mode is off".to_owned()),
        None => ("True", "Checked", "the module accepts the settings".to_owned()),
        Some(fault) if fault.cause == Cause::SettingsInvalid => {
            ("False", fault.cause.name(), fault.why.clone())
        }
        Some(_) => ("Unknown", "ModuleNotLoaded", "no module has checked them".to_owned()),
    };
    Told { kind: "SettingsValid", status, reason, message }
}

/// The time, by RFC 3339 in seconds.
pub(super) fn now() -> Text {
    time(system_clock()())
}

/// Whether trusted keys have signed the module; nothing about one that comes from no registry.
fn verified(loaded: &LoadedObject) -> Option<Told> {
    let module = loaded.object["spec"]["module"].as_str().unwrap_or_default();
    if !module.starts_with(REGISTRY) {
        return None;
    }
    let (status, reason, message) = match (&loaded.fault, &loaded.signed_by) {
        _ if loaded.is_off() => ("Unknown", "Off", "spec.mode is off".to_owned()),
        (Some(fault), _) if fault.cause == Cause::SignatureInvalid => {
            ("False", fault.cause.name(), fault.why.clone())
        }
        (Some(fault), _)
            if matches!(fault.cause, Cause::Loading | Cause::ModuleUnavailable | Cause::TooMany) =>
        {
            ("Unknown", "NotFetched", fault.why.clone())
        }
        (_, Some(keys)) => {
            let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
            ("True", "Signed", format!("it is signed by the key {}", keys.join(", ")))
        }
        // It was not read, so its digest was not checked either.
        (Some(fault), None) if loaded.wanted.is_none() => ("Unknown", "NotChecked", fault.why.clone()),
        (_, None) => ("Unknown", "NoKeys", "no keys are trusted: its digest alone was checked".to_owned()),
    };
    Some(Told { kind: "Verified", status, reason, message })
}

fn condition(told: Told, generation: i64, known: &ObjectStatus) -> Condition {
    let Told { kind, status, reason, message } = told;
    let same = known.conditions.iter().find(|known| *known.kind == *kind && *known.status == *status);
    Condition {
        kind: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: same.map_or_else(now, |known| known.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use bindery_registry::Digest;
    use serde_json::json;

    use super::*;
    use crate::policies::object::Fault;

    #[test]
    fn keys_are_told_to_be_missing_only_where_the_module_was_read() {
        let mut loaded = LoadedObject::new(json!({"spec": {"module": "oci://registry.example/m"}}));
        let told = |loaded: &LoadedObject| {
            let Told { status, reason, message, .. } = verified(loaded).unwrap();
            (status, reason, message)
        };
        let why = "spec.pull: it is no object";
        loaded.fault = Some(Fault { cause: Cause::Invalid, why: why.to_owned() });
        assert_eq!(told(&loaded), ("Unknown", "NotChecked", why.to_owned()));
        loaded.wanted = Some(Digest::of(b"module"));
        assert_eq!(told(&loaded).1, "NoKeys");
        loaded.signed_by = Some([Digest::of(b"key")].into());
        assert_eq!(told(&loaded).1, "Signed");
    }

    #[test]
    fn an_object_is_compiling_only_while_its_module_is_being_loaded() {
        for (cause, expected) in [
            (None, ("False", "Idle")),
            (Some(Cause::CompilerFailed), ("False", "Idle")),
            (Some(Cause::Loading), ("True", "Loading")),
        ] {
            let mut loaded = LoadedObject::new(json!({}));
            loaded.fault = cause.map(|cause| Fault { cause, why: String::new() });
            let Told { status, reason, .. } = compiling(&loaded);
            assert_eq!((status, reason), expected, "{cause:?}");
        }
    }
}
