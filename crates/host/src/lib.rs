//! Hosts decision engines and policies: WebAssembly components of the contract in `wit/`.
//!
//! 1. [`Host`]: how WebAssembly is run, shared by all engines of a process.
//! 2. [`Host::load`] checks a component and compiles it, once; [`LoadError`] says why one is refused.
//! 3. [`ComponentEngine`] decides, in a fresh instance for every decision, within its [`Limits`].
//! 4. [`PolicyHost`], [`ComponentMatcher`] and [`ComponentReclaimer`] do the same for policies, with a pool
//!    of their own.
//!
//! # Guarantees
//!
//! - An engine sees the request and the answers to its questions, and nothing else: no file, clock,
//!   environment or randomness, and nothing of an earlier decision. So a decision and its fuel can be
//!   repeated.
//! - An engine that loops, recurses, allocates, traps or answers nonsense ends in an
//!   [`EngineFault`](bindery_core::EngineFault); the next decision is not affected.
//! - A question that the cluster answers by a [`Stop`](bindery_core::Stop) ends the call at once, and the
//!   caller gets this stop. So an engine that asks for ever ends at the
//!   [limits](bindery_core::DecisionLimits) of its session.
//! - Native code is compiled here from a checked component, or read from a file that only this user can
//!   write, in a folder that only this user can write.
//!
//! # Where the limits are
//!
//! `limits.rs` has their values, and `engine.rs` sets them for each call. `settings.rs` has the native stack
//! and the fuel that each instruction costs. `gate.rs` is the clock of the deadline, and `deadline.rs` gives
//! each call its processor time. `call.rs` puts the deadline off by the time of questions, and refuses more
//! memory. `tests/hostile.rs` exceeds each limit of an engine, and `tests/hostile_matchers.rs` of this crate
//! each limit of a policy.

#![allow(
    clippy::duplicate_mod,
    reason = "each version of the contract compiles the shared files with its own types"
)]

mod borrow;
mod cache;
mod call;
mod contract;
mod deadline;
mod engine;
mod gate;
mod limits;
mod load;
mod policy;
mod settings;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

pub use cache::cache_bytes_in_use;
pub use engine::{ComponentEngine, Stats};
pub use limits::Limits;
pub use load::LoadError;
pub use policy::{ComponentMatcher, ComponentPolicy, ComponentReclaimer, PolicyHost};
pub use settings::FUEL_SCHEDULE;

use cache::{Cache, InUse};
use contract::Contract;
use engine::Shared;
use gate::Gate;
use settings::InstanceLimits;

/// Largest component that is compiled, in bytes. Engines in Rust have tens of KiB; engines that contain an
/// interpreter have up to 20 MiB.
const COMPONENT_BYTES_MAX: usize = 64 << 20;

/// How a host is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most decisions at a time; more wait until one is done. Default 64. Each reserves 16 MiB of address
    /// space, and uses the memory that its engine touches.
    pub concurrency: u32,
    /// Folder for compiled engines; `None` keeps none. It must belong to this user, and others must not be
    /// able to write to it, because its files are run. A file in it that belongs to another user is replaced.
    pub cache: Option<PathBuf>,
    /// Most bytes of this folder; its subfolders do not count. What was used longest ago is removed first,
    /// and nothing that a process uses. Default 256 MiB; an engine or policy with an interpreter takes 50.
    pub cache_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrency: 64, cache: None, cache_bytes_max: 256 << 20 }
    }
}

/// Why a host cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No decision could ever run.
    #[error("concurrency is 0; at least one decision must be able to run")]
    NoConcurrency,
    /// The folder for compiled engines cannot be trusted.
    #[error("the folder {folder} cannot hold compiled engines: {reason}")]
    CacheFolder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it, and the remedy.
        reason: String,
    },
    /// WebAssembly does not run here.
    #[error("WebAssembly cannot be run here: {0}")]
    Runtime(String),
}

/// Runs engines. One host serves a process; engines keep what they need of it alive.
pub struct Host {
    runtime: Runtime,
}

/// How WebAssembly is run, with the compiled components.
struct Runtime {
    shared: Arc<Shared>,
    cache: Option<Cache>,
}

/// A component that was compiled now or before.
struct Compiled {
    component: Component,
    digest: String,
    /// Its artefact, or why that is not in the cache; none without a cache.
    kept: Option<io::Result<InUse>>,
}

impl Runtime {
    fn new(options: &Options, instance: &InstanceLimits) -> Result<Self, HostError> {
        if options.concurrency == 0 {
            return Err(HostError::NoConcurrency);
        }
        let runtime = |reason: String| HostError::Runtime(reason);
        let config = settings::config(options.concurrency, instance);
        let engine = wasmtime::Engine::new(&config).map_err(|error| runtime(format!("{error:#}")))?;
        let fingerprint = settings::fingerprint(&config, &engine);
        let open = |folder| Cache::open(folder, options.cache_bytes_max, fingerprint);
        let cache = options.cache.as_deref().map(open).transpose()?;
        let gate =
            Gate::new(options.concurrency, engine.weak()).map_err(|error| runtime(error.to_string()))?;
        Ok(Self { shared: Arc::new(Shared { engine, gate }), cache })
    }

    /// Checks that the bytes are a component, and compiles it.
    fn compile(&self, bytes: &[u8], bytes_max: usize) -> Result<Compiled, LoadError> {
        if bytes.len() > bytes_max {
            return Err(LoadError::TooLarge { max: bytes_max });
        }
        load::check_shape(bytes)?;
        let digest = Sha256::digest(bytes);
        let engine = &self.shared.engine;
        let compiled = match &self.cache {
            Some(cache) => cache.get(engine, bytes, &digest).map(|(component, kept)| (component, Some(kept))),
            None => Component::from_binary(engine, bytes).map(|component| (component, None)),
        };
        let (component, kept) = compiled.map_err(|error| LoadError::of(&error, LoadError::Invalid))?;
        Ok(Compiled { component, digest: format!("sha256:{digest:x}"), kept })
    }

    /// Compiles a component into the cache.
    fn fill_cache(&self, bytes: &[u8], bytes_max: usize) -> Result<(), LoadError> {
        match self.compile(bytes, bytes_max)?.kept {
            Some(Err(error)) => Err(LoadError::NotKept(error)),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// Whether the cache has these bytes compiled.
    fn has_compiled(&self, bytes: &[u8]) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.has(&Sha256::digest(bytes)))
    }
}

impl Host {
    /// Sets up a host.
    ///
    /// # Errors
    ///
    /// The options are invalid, or this machine lacks the address space for the pool.
    pub fn new(options: &Options) -> Result<Self, HostError> {
        Ok(Self { runtime: Runtime::new(options, &settings::ENGINE)? })
    }

    /// Loads an engine from the bytes of a component. Compiling it, where it is not in the cache, takes
    /// milliseconds for an engine in Rust and seconds for one that contains an interpreter.
    pub fn load(&self, bytes: &[u8], limits: Limits) -> Result<ComponentEngine, LoadError> {
        let Compiled { component, digest, kept } = self.runtime.compile(bytes, COMPONENT_BYTES_MAX)?;
        let version = load::ENGINE.check(&self.runtime.shared.engine, &component)?;
        let contract = Contract::new(&component, version);
        Ok(ComponentEngine {
            contract: contract.map_err(|error| LoadError::of(&error, LoadError::Mismatch))?,
            shared: Arc::clone(&self.runtime.shared),
            limits: Arc::new(limits),
            digest,
            _artefact: kept.and_then(Result::ok),
        })
    }

    /// Whether the cache has these bytes compiled, so that loading them takes milliseconds.
    pub fn has_compiled(&self, bytes: &[u8]) -> bool {
        self.runtime.has_compiled(bytes)
    }

    /// Compiles the bytes of a component, so that the cache has them.
    pub fn compile(&self, bytes: &[u8]) -> Result<(), LoadError> {
        self.runtime.fill_cache(bytes, COMPONENT_BYTES_MAX)
    }

    /// Loads an engine from a file, as [`Host::load`].
    pub fn load_file(&self, path: impl AsRef<Path>, limits: Limits) -> Result<ComponentEngine, LoadError> {
        self.load(&read(path.as_ref(), COMPONENT_BYTES_MAX)?, limits)
    }
}

/// The content of a file, up to one byte more than the largest component.
fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(bytes_max as u64 + 1).read_to_end(&mut bytes))
        .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    Ok(bytes)
}
