//! What runs the components of objects.

use std::sync::Arc;

use anyhow::Result;
use bindery_host::{Host, PolicyHost};
use bindery_registry::Digest;
use bindery_webhook::ReviewPermit;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};

use super::super::registry::RegistryModules;
use super::compilations::Compilations;
use super::{Cause, Fault};
use crate::compile::{ComponentKind, in_process};
use crate::engine::CacheArgument;
use crate::policy::module::{self, ShippedArgument};

/// How many shadows are loaded and tried at a time. Their calls take places that policies in effect need, and
/// their decisions take up to two others.
const SHADOW_TRIALS: usize = 1;

/// What runs the components of objects.
#[derive(Clone)]
pub(crate) struct Hosts {
    pub(super) engines: Arc<Host>,
    pub(super) policies: Arc<PolicyHost>,
    pub(super) shipped: ShippedArgument,
    /// The modules of registries.
    pub(crate) registry: RegistryModules,
    /// The permit of a review: its work holds it until it ends, and fetches nothing.
    pub(super) review: Option<ReviewPermit>,
    /// The turns of shadows to be loaded and tried.
    pub(super) shadow_trials: Arc<Semaphore>,
    /// Whether the object has changed: then the compiler tries at once what it has failed at.
    is_changed: bool,
    cache: CacheArgument,
    compilations: Arc<Compilations>,
}

/// Begins work that blocks. It holds the permit of a review until it ends.
pub(crate) fn blocking<T: Send + 'static>(
    review: Option<&ReviewPermit>,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let held = review.cloned();
    spawn_blocking(move || {
        let _held = held;
        work()
    })
}

impl Hosts {
    /// Hosts with this cache, the folder of the policies that ship, and the modules of registries.
    pub(crate) fn new(
        cache: &CacheArgument,
        shipped: &ShippedArgument,
        registry: RegistryModules,
    ) -> Result<Self> {
        Ok(Self {
            engines: Arc::new(Host::new(&cache.options())?),
            policies: Arc::new(module::host(cache)?),
            shipped: shipped.clone(),
            registry,
            review: None,
            shadow_trials: Arc::new(Semaphore::new(SHADOW_TRIALS)),
            is_changed: false,
            cache: cache.clone(),
            compilations: Arc::default(),
        })
    }

    /// The same for a review.
    pub(crate) fn for_review(&self, permit: ReviewPermit) -> Self {
        Self { review: Some(permit), ..self.clone() }
    }

    /// The same for an object that has changed, or has not.
    pub(super) fn for_object(&self, is_changed: bool) -> Self {
        Self { is_changed, ..self.clone() }
    }

    /// Has a component compiled that the cache does not have. Without a cache it is compiled when it is
    /// loaded. What is to be enforced waits for no shadow and no review.
    pub(super) async fn compile(
        &self,
        kind: ComponentKind,
        bytes: &[u8],
        is_shadow: bool,
    ) -> Result<(), Fault> {
        // It reads and hashes what was compiled.
        let has_compiled = || {
            let (hosts, bytes) = (self.clone(), bytes.to_vec());
            spawn_blocking(move || match kind {
                ComponentKind::Engine => hosts.engines.has_compiled(&bytes),
                ComponentKind::Policy => hosts.policies.has_compiled(&bytes),
            })
        };
        if self.cache.engine_cache.is_none() || matches!(has_compiled().await, Ok(true)) {
            return Ok(());
        }
        let compile = || async {
            match has_compiled().await {
                Ok(true) => Ok(Ok(())),
                _ => in_process(kind, bytes, &self.cache).await,
            }
        };
        let (is_urgent, component) = (!is_shadow && self.review.is_none(), Digest::of(bytes));
        if self.is_changed {
            self.compilations.end_pause(&component);
        }
        match self.compilations.run(is_urgent, component, compile).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(Fault { cause: Cause::ModuleInvalid, why }),
            Err(error) => Err(Fault { cause: Cause::CompilerFailed, why: format!("{error:#}") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::path::Path;
    use std::time::Duration;

    use anyhow::anyhow;
    use bindery_kube::{ApiClient, PolicyObjects};
    use bindery_policy::ObjectStatus;
    use bindery_sim::{Sim, SimOptions};
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::super::LoadedObject;
    use super::*;
    use crate::tests::arguments_of;

    /// The smallest component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn hosts(arguments: &[&str]) -> Hosts {
        let cache: CacheArgument = arguments_of(arguments);
        Hosts::new(&cache, &arguments_of(&[]), RegistryModules::offline(&cache)).unwrap()
    }

    /// The objects of an empty cluster.
    fn objects() -> Arc<PolicyObjects> {
        let client = kube::Client::new(Sim::new(SimOptions::default()).service(), "default");
        PolicyObjects::new(&ApiClient::from(client)).0
    }

    /// An object in this mode with the module of a file.
    fn object(module: &Path, mode: &str) -> Value {
        json!({
            "apiVersion": "policy.bindery.dev/v1alpha1", "kind": "MatchPolicy",
            "metadata": {"name": "p", "uid": "u", "generation": 1},
            "spec": {"module": module, "mode": mode},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn given_a_trial_of_a_shadow_when_others_load_then_only_shadows_wait() {
        let hosts = hosts(&[]);
        let objects = objects();
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("m.wasm");
        std::fs::write(&module, EMPTY).unwrap();
        let _trial = hosts.shadow_trials.acquire().await.unwrap();
        let ends = async |mode: &str| {
            let object = object(&module, mode);
            let mut loading = LoadedObject::new(object.clone());
            let attempt = loading.attempt(&object, &hosts, &objects);
            timeout(Duration::from_secs(600), attempt).await.is_ok()
        };
        assert_eq!([ends("enforce").await, ends("shadow").await], [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn given_no_room_for_a_module_when_loaded_again_then_it_lacks_room() {
        let folder = tempfile::tempdir().unwrap();
        let small = ["--engine-cache", folder.path().to_str().unwrap(), "--engine-cache-size=8"];
        let hosts = hosts(&small);
        let full = hosts.policies.compile(EMPTY).unwrap_err().to_string();
        let failed = || ready(Err(anyhow!(full.clone())));
        hosts.compilations.run(true, Digest::of(EMPTY), failed).await.unwrap_err();
        let objects = objects();
        let (module, known) = (folder.path().join("m.wasm"), ObjectStatus::default());
        std::fs::write(&module, EMPTY).unwrap();
        let lacks_room = async |mode: &str| {
            let object = object(&module, mode);
            let loaded = LoadedObject::load(object.clone(), None, &known, &hosts, &objects).await;
            let again = LoadedObject::awaiting(object, Some(&loaded), &known);
            [loaded.lacks_room(), again.lacks_room()]
        };
        assert_eq!([lacks_room("enforce").await, lacks_room("shadow").await], [[true; 2], [false; 2]]);
    }

    /// What is tried here fails by another sentence: this program does not compile.
    #[tokio::test(start_paused = true)]
    async fn what_the_compiler_failed_at_is_tried_at_once_for_a_changed_object() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = hosts(&["--engine-cache", folder.path().to_str().unwrap()]);
        let failed = || ready(Err(anyhow!("no memory")));
        hosts.compilations.run(true, Digest::of(EMPTY), failed).await.unwrap_err();

        let objects = objects();
        let (module, known) = (folder.path().join("m.wasm"), ObjectStatus::default());
        std::fs::write(&module, EMPTY).unwrap();
        let load = async |generation: u32, earlier: Option<LoadedObject>| {
            let mut object = object(&module, "enforce");
            object["metadata"]["generation"] = generation.into();
            LoadedObject::load(object, earlier, &known, &hosts, &objects).await
        };
        let first = load(1, None).await;
        assert_eq!(first.why_not_ready(), Some("no memory"));
        let again = load(1, Some(first)).await;
        assert_eq!(again.why_not_ready(), Some("no memory"));
        let fault = load(2, Some(again)).await.fault.unwrap();
        assert!(fault.cause == Cause::CompilerFailed && fault.why != "no memory", "{fault:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn given_a_module_with_endless_names_its_fault_fits_into_a_status() {
        let hosts = hosts(&[]);
        let objects = objects();
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("m.wasm");
        let imports = format!(r#"(component (import "{}" (instance)))"#, "a".repeat(50_000));
        std::fs::write(&module, wat::parse_str(imports).unwrap()).unwrap();
        let object = object(&module, "enforce");
        let attempt = LoadedObject::new(object.clone()).attempt(&object, &hosts, &objects).await;
        let Fault { cause, why } = attempt.err().unwrap();
        assert_eq!((cause, why.chars().count()), (Cause::ModuleInvalid, 4_097));
        assert!(why.starts_with("the component imports aaaa") && why.ends_with("aaaa…"), "{why}");
    }
}
