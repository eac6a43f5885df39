//! Hosts policies: components of the worlds `matcher` and `reclaimer`.
//!
//! Policies have a host of their own: an interpreter needs more memory and core instances than an engine, and
//! a policy that is slow must not take an engine's place.

mod carry;
mod matcher;
mod reclaimer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bindery_policy::{Matcher, Metadata, PolicyFault, Reclaimer as _};
use parking_lot::Mutex;
use wasmtime::component::Linker;
use wasmtime::{Store, Trap};

pub use self::matcher::ComponentMatcher;
pub use self::reclaimer::ComponentReclaimer;
use crate::cache::InUse;
use crate::call::{Excess, Memory, is_bad_answer};
use crate::deadline::{Deadline, thread_time};
use crate::engine::{STACK_LEFT_BYTES, STACK_NEW_BYTES, Shared};
use crate::load::{self, LoadError};
use crate::{Compiled, HostError, Limits, Options, Runtime, Stats, settings};

/// Most rows of one call, as the contract says; a larger batch is judged in several calls.
const ROWS_MAX: usize = 512;

/// Runs policies. One host serves a process; policies keep what they need of it alive.
pub struct PolicyHost {
    runtime: Runtime,
}

/// A policy in a component: a matcher or a reclaimer, by what it exports.
pub enum ComponentPolicy {
    /// It exports `match`.
    Matcher(ComponentMatcher),
    /// It exports `reclaim`.
    Reclaimer(ComponentReclaimer),
}

impl ComponentPolicy {
    /// What it says about itself.
    pub fn metadata(&self) -> &Metadata {
        match self {
            Self::Matcher(matcher) => matcher.metadata(),
            Self::Reclaimer(reclaimer) => reclaimer.metadata(),
        }
    }

    /// The SHA-256 of its component.
    pub fn digest(&self) -> &str {
        match self {
            Self::Matcher(matcher) => matcher.digest(),
            Self::Reclaimer(reclaimer) => reclaimer.digest(),
        }
    }

    /// The most fuel, memory and table elements that one call has used so far.
    pub fn most(&self) -> Stats {
        match self {
            Self::Matcher(matcher) => matcher.most(),
            Self::Reclaimer(reclaimer) => reclaimer.most(),
        }
    }

    /// Checks settings beyond its schema; see [`Matcher::check`].
    ///
    /// # Errors
    ///
    /// The policy failed; the inner error is a sentence about the settings.
    pub fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault> {
        match self {
            Self::Matcher(matcher) => matcher.check(settings),
            Self::Reclaimer(reclaimer) => reclaimer.check(settings),
        }
    }
}

/// How calls of a component are limited.
struct Limited {
    shared: Arc<Shared>,
    limits: Arc<Limits>,
    /// Units of fuel that all calls have used.
    fuel: AtomicU64,
    /// The most that one call has used, of each.
    most: Mutex<Stats>,
}

/// The data of a wasmtime store: what one call of a policy may use.
struct PolicyCall {
    memory: Memory,
    deadline: Deadline,
}

/// A component that was compiled for a world.
struct Loaded<P> {
    component: P,
    calls: Limited,
    digest: String,
    /// Keeps its file in the cache.
    _artefact: Option<InUse>,
}

impl PolicyHost {
    /// Largest component that is compiled, in bytes. One that contains an interpreter has 12 to 20 MiB.
    pub const COMPONENT_BYTES_MAX: usize = 32 << 20;

    /// Sets up a host. Each place of [`Options::concurrency`] reserves 64 MiB of address space.
    ///
    /// # Errors
    ///
    /// The options are invalid, or this machine lacks the address space for the pool.
    pub fn new(options: &Options) -> Result<Self, HostError> {
        Ok(Self { runtime: Runtime::new(options, &settings::POLICY)? })
    }

    /// Whether the cache has these bytes compiled, so that loading them takes milliseconds.
    pub fn has_compiled(&self, bytes: &[u8]) -> bool {
        self.runtime.has_compiled(bytes)
    }

    /// Compiles the bytes of a component, so that the cache has them.
    pub fn compile(&self, bytes: &[u8]) -> Result<(), LoadError> {
        self.runtime.fill_cache(bytes, Self::COMPONENT_BYTES_MAX)
    }

    /// Loads a policy from the bytes of a component. Compiling one that contains an interpreter, where it is
    /// not in the cache, takes seconds.
    pub fn load(&self, bytes: &[u8], limits: Limits) -> Result<ComponentPolicy, LoadError> {
        let Compiled { component, digest, kept } = self.runtime.compile(bytes, Self::COMPONENT_BYTES_MAX)?;
        let engine = &self.runtime.shared.engine;
        let is_reclaimer = match load::MATCHER.check(engine, &component) {
            Err(LoadError::NoExport { .. }) if load::RECLAIMER.is_exported(engine, &component) => true,
            checked => checked.map(|_| false)?,
        };
        let (shared, limits) = (Arc::clone(&self.runtime.shared), Arc::new(limits));
        let calls = Limited { shared, limits, fuel: AtomicU64::new(0), most: Mutex::default() };
        let mut linker = Linker::new(engine);
        let _artefact = kept.and_then(Result::ok);
        let mismatch = |error: wasmtime::Error| LoadError::of(&error, LoadError::Mismatch);
        if !is_reclaimer {
            let component = matcher::link(&mut linker, &component).map_err(mismatch)?;
            return ComponentMatcher::new(Loaded { component, calls, digest, _artefact })
                .map(ComponentPolicy::Matcher);
        }
        load::RECLAIMER.check(engine, &component)?;
        let component = reclaimer::link(&mut linker, &component).map_err(mismatch)?;
        ComponentReclaimer::new(Loaded { component, calls, digest, _artefact })
            .map(ComponentPolicy::Reclaimer)
    }
}

/// What a policy says about itself. One call tells for all: each begins in an equal instance, and imports
/// nothing that could differ.
fn described(answer: Result<impl Into<Metadata>, PolicyFault>) -> Result<Metadata, LoadError> {
    let answer = answer.map_err(|fault| match fault {
        PolicyFault::Unavailable(why) => LoadError::Unavailable(why),
        fault => LoadError::Metadata(fault.to_string()),
    });
    let metadata: Metadata = answer?.into();
    metadata.check().map_err(LoadError::Metadata)?;
    Ok(metadata)
}

impl Limited {
    /// Calls a function, which makes a fresh instance in the store. The error names the limit and the remedy.
    fn call<T>(
        &self,
        function: impl FnOnce(&mut Store<PolicyCall>) -> wasmtime::Result<T>,
    ) -> (Result<T, PolicyFault>, Stats) {
        let _pass = self.shared.gate.enter();
        stacker::maybe_grow(STACK_LEFT_BYTES, STACK_NEW_BYTES, || {
            let memory = Memory::new(Arc::clone(&self.limits));
            let mut store = Store::new(
                &self.shared.engine,
                PolicyCall { memory, deadline: Deadline::after(self.limits.time) },
            );
            let answer = self.limit(&mut store).and_then(|()| function(&mut store));
            let stats = Stats {
                fuel: self.limits.fuel.saturating_sub(store.get_fuel().unwrap_or_default()),
                questions: 0,
                memory_bytes: store.data().memory.bytes,
                table_elements: store.data().memory.table_elements,
            };
            self.fuel.fetch_add(stats.fuel, Ordering::Relaxed);
            let mut most = self.most.lock();
            *most = most.max(&stats);
            (answer.map_err(|error| self.fault(&error)), stats)
        })
    }

    /// Sets the limits, before instantiation, because a start function can loop.
    fn limit(&self, store: &mut Store<PolicyCall>) -> wasmtime::Result<()> {
        store.limiter(|call| &mut call.memory);
        store.set_hostcall_fuel(self.limits.lifted_bytes);
        store.set_epoch_deadline(Deadline::epochs(self.limits.time));
        store.epoch_deadline_callback(|mut store| store.data_mut().deadline.at(thread_time()));
        store.set_fuel(self.limits.fuel)
    }

    /// Why a call ended without an answer, with the limit and the remedy.
    fn fault(&self, error: &wasmtime::Error) -> PolicyFault {
        match error.downcast_ref::<Excess>() {
            Some(Excess::Deadline) => {
                return PolicyFault::Exhausted(format!(
                    "it took more than {} ms; it must do less for each of {ROWS_MAX} rows",
                    self.limits.time.as_millis()
                ));
            }
            Some(excess) => return PolicyFault::Exhausted(format!("{excess}; it must keep less in memory")),
            None => {}
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => PolicyFault::Exhausted(format!(
                "it used its {} units of fuel; it must do less for each of {ROWS_MAX} rows",
                self.limits.fuel
            )),
            Some(trap) if is_bad_answer(trap) => PolicyFault::BadAnswer(trap.to_string()),
            Some(trap) => PolicyFault::Trapped(trap.to_string()),
            None if load::is_of_machine(error) => PolicyFault::Unavailable(format!("{error:#}")),
            None => PolicyFault::BadAnswer(self.unreadable(&error.root_cause().to_string())),
        }
    }

    /// Why an answer cannot be read. Wasmtime has no type for an answer that is too large.
    fn unreadable(&self, why: &str) -> String {
        if why.starts_with("too much data") {
            return format!("it hands over more than {} bytes, which is the limit", self.limits.lifted_bytes);
        }
        why.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn metadata_for_which_memory_lacks_is_not_wrong() {
        let host = PolicyHost::new(&Options { concurrency: 1, ..Options::default() }).unwrap();
        let (shared, limits) = (Arc::clone(&host.runtime.shared), Arc::new(Limits::policy()));
        let calls = Limited { shared, limits, fuel: AtomicU64::new(0), most: Mutex::default() };
        let told = |errno: Errno| {
            let failed = wasmtime::Error::new(errno).context("no instance");
            described(calls.call::<Metadata>(|_| Err(failed)).0).unwrap_err()
        };
        assert!(matches!(told(Errno::NOMEM), LoadError::Unavailable(_)));
        assert!(matches!(told(Errno::INVAL), LoadError::Metadata(_)));
    }
}
