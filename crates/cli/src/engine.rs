//! The choice of the engine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use bindery_core::{Engine, Quantity};
use bindery_engine::DefaultEngine;
use bindery_host::{Host, Limits, LoadError, Options};

/// The value of `--engine` for the engine that is compiled into this program.
pub(crate) const NATIVE: &str = "native";
/// The default engine as a component, beside the program, as in the image.
const COMPONENT: &str = "bindery-engine.wasm";

#[derive(clap::Args)]
pub(crate) struct EngineArguments {
    /// The engine that decides: the file of a component, or `native` for the default engine that is compiled
    /// into this program. By default `bindery-engine.wasm` beside this program, the same engine as a
    /// component, or `native` without that file.
    #[arg(long, value_name = "native|FILE", env = "BINDERY_ENGINE",
          default_value_os_t = default_engine(), hide_default_value = true)]
    engine: PathBuf,
    #[command(flatten)]
    pub(crate) cache: CacheArgument,
}

/// The folder of compiled components.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CacheArgument {
    /// Keep compiled components in this folder, so that the next start need not compile. The folder must
    /// belong to this user alone. By default nothing is kept.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_ENGINE_CACHE")]
    pub(crate) engine_cache: Option<PathBuf>,
    /// How many bytes that folder may have: five eighths are for compiled components, and a quarter for
    /// modules that cluster objects name. Of each, what is in use is never removed.
    #[arg(long, value_name = "QUANTITY", env = "BINDERY_ENGINE_CACHE_SIZE", default_value = "512Mi",
          value_parser = Quantity::parse)]
    engine_cache_size: Quantity,
}

impl CacheArgument {
    /// Options of a host with this cache.
    pub(crate) fn options(&self) -> Options {
        let cache = self.engine_cache.clone();
        Options { cache, cache_bytes_max: self.compiled_max(), ..Options::default() }
    }

    /// Most bytes of compiled components.
    pub(crate) fn compiled_max(&self) -> u64 {
        self.engine_cache_size.whole / 8 * 5
    }

    /// Most bytes of modules that cluster objects name.
    pub(crate) fn modules_max(&self) -> u64 {
        self.engine_cache_size.whole / 4
    }

    /// The same arguments for another process.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let folder = self
            .engine_cache
            .iter()
            .flat_map(|folder| -> [OsString; 2] { ["--engine-cache".into(), folder.into()] });
        folder.chain([format!("--engine-cache-size={}", self.engine_cache_size).into()]).collect()
    }
}

fn default_engine() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(COMPONENT));
    beside.filter(|component| component.is_file()).unwrap_or_else(|| NATIVE.into())
}

impl EngineArguments {
    /// Loads the engine. A component is checked and compiled, unless the cache has it.
    pub(crate) fn load(&self) -> Result<Arc<dyn Engine>> {
        let engine = &*self.engine;
        if self.is_native() {
            return Ok(Arc::new(DefaultEngine));
        }
        // Reading a pipe or a device may never end.
        if engine.exists() && !engine.is_file() {
            bail!(
                "--engine {} is not a regular file; name a component's file, or `native`",
                engine.display()
            );
        }
        let loaded = self.host()?.load_file(engine, Limits::default()).map_err(|error| match error {
            LoadError::Read { .. } => error.into(),
            _ => anyhow!("{}: {error}", engine.display()),
        })?;
        Ok(Arc::new(loaded))
    }

    /// What loads engines, with the folder of compiled components.
    pub(crate) fn host(&self) -> Result<Host> {
        Ok(Host::new(&self.cache.options())?)
    }

    fn is_native(&self) -> bool {
        self.engine == Path::new(NATIVE)
    }

    /// The name of the engine in errors.
    pub(crate) fn name(&self) -> String {
        if self.is_native() { "the native engine".to_owned() } else { self.engine.display().to_string() }
    }

    /// The engine for people, with its digest.
    pub(crate) fn describe(&self, engine: &dyn Engine) -> String {
        if self.is_native() {
            self.name()
        } else {
            format!("the component {} ({})", self.engine.display(), engine.digest())
        }
    }
}
