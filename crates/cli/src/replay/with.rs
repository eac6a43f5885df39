//! `--with`: another engine or policy than the recorded one.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_core::Engine;
use bindery_engine::DefaultEngine;
use bindery_host::{ComponentPolicy, Limits, LoadError};

use crate::engine::{EngineArguments, NATIVE};
use crate::policy::module::{self, REGISTRY};
use crate::policy::registry::RegistryArguments;

#[derive(clap::Args)]
pub(super) struct WithArguments {
    /// Decide with another engine, or ask another policy in place of that of `--named`, and report what it
    /// would have changed: `native`, the file of a component, or a component in a registry. Differences are
    /// the answer then, so the exit status is 0.
    #[arg(long, value_name = "native|FILE|oci://HOST/REPOSITORY[:TAG][@sha256:HEX]")]
    with: Option<PathBuf>,
    /// The name that the journal has for the policy in whose place the one of `--with` is asked, with the
    /// recorded settings.
    #[arg(long, value_name = "POLICY", requires = "with")]
    named: Option<String>,
}

/// What stands in for what is recorded.
pub(super) enum With {
    Engine(Arc<dyn Engine>),
    /// In place of the policy of that name.
    Policy(String, Box<ComponentPolicy>),
}

impl WithArguments {
    /// Loads what is given, by its world.
    pub(super) fn load(
        &self,
        engine: &EngineArguments,
        registry: &RegistryArguments,
    ) -> Result<Option<With>> {
        let Some(with) = &self.with else { return Ok(None) };
        let at = || format!("--with {}", with.display());
        let loaded = match with.to_str() {
            Some(NATIVE) => With::Engine(Arc::new(DefaultEngine)),
            Some(reference) if reference.starts_with(REGISTRY) => {
                let parsed = reference.parse().map_err(|why: String| anyhow!(why)).with_context(at)?;
                self.of(&registry.module(&parsed).with_context(at)?, engine).with_context(at)?
            }
            _ => self.of(&module::read(with)?, engine).with_context(at)?,
        };
        match (loaded, &self.named) {
            (With::Engine(_), Some(_)) => bail!("{} is an engine; leave out --named", at()),
            (loaded, _) => Ok(Some(loaded)),
        }
    }

    fn of(&self, module: &[u8], engine: &EngineArguments) -> Result<With> {
        match module::host(&engine.cache)?.load(module, Limits::policy()) {
            Ok(policy) => {
                let why = "it is a policy; name by --named the policy of the journal in whose place it is \
                           asked: `bindery journal show` prints them";
                Ok(With::Policy(self.named.clone().context(why)?, Box::new(policy)))
            }
            // An engine imports and exports other interfaces than a policy, and may be larger.
            Err(
                no_policy @ (LoadError::NoExport { .. }
                | LoadError::ForeignImports(_)
                | LoadError::TooLarge { .. }),
            ) => match engine.host()?.load(module, Limits::default()) {
                Ok(engine) => Ok(With::Engine(Arc::new(engine))),
                Err(LoadError::NoExport { .. } | LoadError::ForeignImports(_))
                    if matches!(no_policy, LoadError::TooLarge { .. }) =>
                {
                    Err(no_policy.into())
                }
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}
