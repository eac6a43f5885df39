//! Which engine decides.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use bindery_core::Engine;
use bindery_engine::DefaultEngine;
use bindery_host::{Host, Limits, LoadError, Options};

/// What stands for the engine that is compiled into this program.
const NATIVE: &str = "native";

/// Who decides.
#[derive(clap::Args)]
pub(crate) struct EngineArguments {
    /// Who decides: `native`, the default engine compiled into this program, or the file of a component.
    #[arg(long, value_name = "native|FILE", env = "BINDERY_ENGINE", default_value = NATIVE)]
    engine: String,
}

impl EngineArguments {
    /// The engine. A component is checked and compiled; nothing of that is kept.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is no engine; the error says what to do.
    pub(crate) fn load(&self) -> Result<Arc<dyn Engine>> {
        if self.engine == NATIVE {
            return Ok(Arc::new(DefaultEngine));
        }
        let host = Host::new(&Options::default())?;
        let engine = host.load_file(&self.engine, Limits::default()).map_err(|error| match error {
            LoadError::Read { .. } => anyhow!("{error}"),
            _ => anyhow!("{}: {error}", self.engine),
        })?;
        Ok(Arc::new(engine))
    }

    /// The engine in words, for a person.
    pub(crate) fn describe(&self, engine: &dyn Engine) -> String {
        if self.engine == NATIVE {
            "the native engine".to_owned()
        } else {
            format!("the component {} ({})", self.engine, engine.digest())
        }
    }
}
