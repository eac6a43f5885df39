//! What runs the components of objects.

use std::sync::Arc;

use anyhow::Result;
use bindery_host::{Host, PolicyHost};

use super::super::registry::RegistryModules;
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
    /// Whether modules are fetched that are not kept.
    pub(super) fetches: bool,
    cache: CacheArgument,
    /// One component is compiled at a time, and one of a shadow beside it: what is to be enforced waits for
    /// no shadow.
    compiling: Arc<tokio::sync::Mutex<()>>,
    compiling_shadow: Arc<tokio::sync::Mutex<()>>,
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
            fetches: true,
            cache: cache.clone(),
            compiling: Arc::default(),
            compiling_shadow: Arc::default(),
        })
    }

    /// The same for reviews, which fetch nothing.
    pub(crate) fn without_fetches(&self) -> Self {
        Self { fetches: false, ..self.clone() }
    }

    /// The modules of registries.
    pub(crate) fn registry(&self) -> &RegistryModules {
        &self.registry
    }

    /// Has a component compiled that the cache does not have. Without a cache it is compiled when it is
    /// loaded.
    pub(super) async fn compile(&self, kind: ComponentKind, bytes: &[u8], is_shadow: bool) -> Result<()> {
        let has_compiled = || match kind {
            ComponentKind::Engine => self.engines.has_compiled(bytes),
            ComponentKind::Policy => self.policies.has_compiled(bytes),
        };
        if self.cache.engine_cache.is_none() || has_compiled() {
            return Ok(());
        }
        let lock = if is_shadow { &self.compiling_shadow } else { &self.compiling };
        let _one = lock.lock().await;
        if has_compiled() { Ok(()) } else { in_process(kind, bytes, &self.cache).await }
    }
}
