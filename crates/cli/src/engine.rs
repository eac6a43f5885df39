//! Which engine decides.

use std::path::PathBuf;
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
    /// Keep compiled components in this folder, which must belong to this user alone, so that the next start need not
    /// compile. By default nothing is kept.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_ENGINE_CACHE")]
    engine_cache: Option<PathBuf>,
}

impl EngineArguments {
    /// The engine. A component is checked and, where that was not done before, compiled.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is no engine, or the folder for compiled ones is not to be trusted; the error says what
    /// to do.
    pub(crate) fn load(&self) -> Result<Arc<dyn Engine>> {
        if self.engine == NATIVE {
            return Ok(Arc::new(DefaultEngine));
        }
        let host = Host::new(&Options { cache: self.engine_cache.clone(), ..Options::default() })?;
        let engine = host.load_file(&self.engine, Limits::default()).map_err(|error| match error {
            LoadError::Read { .. } => error.into(),
            _ => anyhow!("{}: {error}", self.engine),
        })?;
        Ok(Arc::new(engine))
    }

    /// The engine as errors name it.
    pub(crate) fn name(&self) -> &str {
        if self.engine == NATIVE { "the native engine" } else { &self.engine }
    }

    /// The engine in words, for a person.
    pub(crate) fn describe(&self, engine: &dyn Engine) -> String {
        if self.engine == NATIVE {
            self.name().to_owned()
        } else {
            format!("the component {} ({})", self.engine, engine.digest())
        }
    }
}
