//! `--with`: another engine than the recorded one.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use bindery_core::Engine;
use bindery_host::Limits;

use crate::engine::EngineArguments;
use crate::policy::module::REGISTRY;
use crate::policy::registry::RegistryArguments;

#[derive(clap::Args)]
pub(super) struct WithArguments {
    /// Decide with another engine, and report what it would have changed: `native`, the file of a component,
    /// or a component in a registry. Differences are the answer then, so the exit status is 0.
    #[arg(long, value_name = "native|FILE|oci://HOST/REPOSITORY[:TAG][@sha256:HEX]")]
    with: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArguments,
}

impl WithArguments {
    /// Whether the engine is to decide all records, whatever engine is recorded.
    pub(super) fn is_given(&self) -> bool {
        self.with.is_some()
    }

    /// Loads the engine; without `--with` the one of `--engine`.
    pub(super) fn load(&self, engine: &EngineArguments) -> Result<Arc<dyn Engine>> {
        let Some(with) = &self.with else { return engine.load(Limits::default()) };
        let Some(reference) = with.to_str().filter(|text| text.starts_with(REGISTRY)) else {
            return engine.load_other(with, Limits::default());
        };
        let at = || format!("--with {reference}");
        let module = reference.parse().map_err(|why: String| anyhow!(why));
        let module = module.and_then(|parsed| self.registry.module(&parsed)).with_context(at)?;
        Ok(Arc::new(engine.host()?.load(&module, Limits::default()).with_context(at)?))
    }
}
