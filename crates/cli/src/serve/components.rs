//! The engine and the policies of a replica.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bindery_controller::Shadow;
use bindery_core::Engine;
use bindery_policy::Chain;
use tokio::task::spawn_blocking;

use super::Arguments;
use super::mode::ModeArgument;
use crate::policies::Purpose;

/// The engine and the policies of a replica, and what decides beside them.
#[derive(Clone)]
pub(super) struct Components {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) policies: Arc<Chain>,
    pub(super) shadows: Vec<Shadow>,
}

impl Components {
    /// Compiles the components that the cache does not have. A busy machine takes minutes; signals and
    /// `/livez` are answered meanwhile.
    pub(super) async fn load(arguments: Arc<Arguments>) -> Result<Self> {
        let loaded = spawn_blocking(move || Self::load_blocking(&arguments)).await;
        loaded.context("the engine and the policies cannot be loaded")?
    }

    fn load_blocking(arguments: &Arguments) -> Result<Self> {
        let engine = arguments.engine.load()?;
        let policies = arguments.policies.load(&arguments.engine.cache, Purpose::Serve)?;
        if let (ModeArgument::Steer, [reclaimer, ..]) = (arguments.mode, policies.reclaimers()) {
            bail!(
                "policy {:?}: upstream reclaims volumes in mode steer, so no ReclaimPolicy has an effect; \
                 leave it out, or use mode own",
                reclaimer.name
            );
        }
        Ok(Self { engine, policies, shadows: Vec::new() })
    }
}
