//! Reviews objects as they are applied: the loader's checks, before anything is stored.

use std::sync::Arc;
use std::time::Duration;

use bindery_kube::PolicyObjects;
use bindery_policy::{Chain, ENGINE, EffectMode, RECLAIM_POLICY};
use bindery_webhook::{PolicyFinding, PolicyReviewer, ReviewPermit};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::timeout;

use super::ModeArgument;
use crate::policies::object::{Cause, Hosts, LoadedObject, limit, mode, object_name};

/// How long a review waits for a module. The API server waits for ten seconds, by the chart.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// Reviews the objects of a cluster.
pub(super) struct ObjectReviewer {
    pub(super) objects: Arc<PolicyObjects>,
    pub(super) hosts: Hosts,
    /// The policies of files.
    pub(super) files: Arc<Chain>,
    pub(super) mode: ModeArgument,
}

impl ObjectReviewer {
    async fn find(&self, object: Value, permit: ReviewPermit) -> Result<(), PolicyFinding> {
        let mut loading = LoadedObject::new(object);
        if loading.is_off() {
            return Ok(());
        }
        let object = loading.object.clone();
        if limit::exceeds(&object, self.objects.all().iter().map(|(other, _)| other)) {
            return Err(PolicyFinding::Refused { field: "spec.mode", why: limit::too_many() });
        }
        self.check_others(&object)?;
        let hosts = self.hosts.for_review(permit);
        let attempt = timeout(ATTEMPT_MAX, loading.attempt(&object, &hosts, &self.objects)).await;
        let Ok(attempt) = attempt else {
            let why = "its module takes long to read, compile or try: the status will say whether it works";
            return Err(PolicyFinding::Doubtful(why.to_owned()));
        };
        match attempt {
            Ok(_) if object["kind"] == RECLAIM_POLICY && self.mode == ModeArgument::Steer => {
                let why = "it has no effect: upstream reclaims volumes in mode steer";
                Err(PolicyFinding::Doubtful(why.to_owned()))
            }
            Ok(_) if mode(&object) == EffectMode::Enforce && !object["spec"]["samplePercent"].is_null() => {
                let why = "spec.samplePercent has no effect in mode enforce: it decides about all objects";
                Err(PolicyFinding::Doubtful(why.to_owned()))
            }
            Ok(_) => Ok(()),
            Err(fault) => Err(match fault.cause {
                // A signature may have been written meanwhile: a review asks no registry.
                Cause::ModuleUnavailable | Cause::SignatureInvalid | Cause::CompilerFailed => {
                    PolicyFinding::Doubtful(fault.why)
                }
                _ => PolicyFinding::Refused { field: fault.field(), why: fault.why },
            }),
        }
    }

    /// Refuses a second engine, and a name that another policy has.
    fn check_others(&self, object: &Value) -> Result<(), PolicyFinding> {
        let is_active = |object: &Value| mode(object) == EffectMode::Enforce;
        // What decides beside others may have their names, and there may be several engines.
        if !is_active(object) {
            return Ok(());
        }
        let (kind, name) = object_name(object);
        let is_engine = |kind: &str| kind == ENGINE;
        for (other, _) in self.objects.all() {
            let (other_kind, other_name) = object_name(&other);
            if is_engine(&kind) && is_engine(&other_kind) && other_name != name && is_active(&other) {
                let why = format!("Engine {other_name:?} is in effect: set that one to off first");
                return Err(PolicyFinding::Refused { field: "spec.mode", why });
            }
            let are_policies = !is_engine(&kind) && !is_engine(&other_kind);
            if are_policies && other_kind != kind && other_name == name && is_active(&other) {
                return Err(taken(&other_kind, &name));
            }
        }
        match self.files.metrics(&name) {
            Some(_) if !is_engine(&kind) => Err(taken("a policy in a file of Bindery", &name)),
            _ => Ok(()),
        }
    }
}

fn taken(by: &str, name: &str) -> PolicyFinding {
    let why = format!("{by} has the name {name:?}: give this one another name");
    PolicyFinding::Refused { field: "metadata.name", why }
}

impl PolicyReviewer for ObjectReviewer {
    fn review(&self, object: Value, permit: ReviewPermit) -> BoxFuture<'_, Result<(), PolicyFinding>> {
        self.find(object, permit).boxed()
    }
}
