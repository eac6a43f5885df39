//! What runs the components of objects.

use std::sync::Arc;

use anyhow::Result;
use bindery_host::{Host, PolicyHost};
use bindery_registry::Digest;
use bindery_webhook::ReviewPermit;
use tokio::task::{JoinHandle, spawn_blocking};

use super::super::registry::RegistryModules;
use super::compilations::Compilations;
use super::{Cause, Fault};
use crate::compile::{ComponentKind, in_process};
use crate::engine::CacheArgument;
use crate::policy::module::{self, ShippedArgument};

/// What runs the components of objects.
#[derive(Clone)]
pub(crate) struct Hosts {
    pub(super) engines: Arc<Host>,
    pub(super) policies: Arc<PolicyHost>,
    pub(super) shipped: ShippedArgument,
    pub(super) registry: RegistryModules,
    /// The permit of a review: its work holds it until it ends, and fetches nothing.
    pub(super) review: Option<ReviewPermit>,
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
            cache: cache.clone(),
            compilations: Arc::default(),
        })
    }

    /// The same for a review.
    pub(crate) fn for_review(&self, permit: ReviewPermit) -> Self {
        Self { review: Some(permit), ..self.clone() }
    }

    /// The modules of registries.
    pub(crate) fn registry(&self) -> &RegistryModules {
        &self.registry
    }

    /// Has a component compiled that the cache does not have. Without a cache it is compiled when it is
    /// loaded. What is to be enforced waits for no shadow and no review.
    pub(super) async fn compile(
        &self,
        kind: ComponentKind,
        bytes: &[u8],
        is_shadow: bool,
    ) -> Result<(), Fault> {
        let has_compiled = || match kind {
            ComponentKind::Engine => self.engines.has_compiled(bytes),
            ComponentKind::Policy => self.policies.has_compiled(bytes),
        };
        if self.cache.engine_cache.is_none() || has_compiled() {
            return Ok(());
        }
        let compile =
            || async { if has_compiled() { Ok(Ok(())) } else { in_process(kind, bytes, &self.cache).await } };
        let is_urgent = !is_shadow && self.review.is_none();
        match self.compilations.run(is_urgent, Digest::of(bytes), compile).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(Fault { cause: Cause::ModuleInvalid, why }),
            Err(error) => Err(Fault { cause: Cause::CompilerFailed, why: format!("{error:#}") }),
        }
    }
}
