//! Hosts matchers: components of the world `matcher`.
//!
//! Policies have a host of their own: an interpreter needs more memory and core instances than an engine, and
//! a policy that is slow must not take an engine's place.

mod carry;

use std::path::Path;
use std::sync::Arc;

use bindery_policy::{Candidates, ClaimView, Matcher, Metadata, Narrowing, PolicyFault, Verdicts};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Store, Trap};

use self::carry::Lower as _;
use crate::call::{Excess, Memory, is_bad_answer};
use crate::engine::{STACK_LEFT_BYTES, STACK_NEW_BYTES, Shared};
use crate::gate::TICK;
use crate::load::{self, LoadError};
use crate::{HostError, Limits, Options, Runtime, Stats, read, settings};

pub(crate) mod bindings {
    #![allow(missing_docs, unreachable_pub, reason = "generated code; wit/ has the documentation")]
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

    wasmtime::component::bindgen!({
        path: "../../wit/0.2",
        world: "matcher",
    });
}

use self::bindings::{MatcherPre, bindery};

/// Largest component of a policy that is compiled, in bytes. One that contains an interpreter has 12 to 20
/// MiB.
const COMPONENT_BYTES_MAX: usize = 32 << 20;
/// Most rows of one call, as the contract says; a larger batch is judged in several calls.
const ROWS_MAX: usize = 512;

/// Runs policies. One host serves a process; policies keep what they need of it alive.
pub struct PolicyHost {
    runtime: Runtime,
}

/// A matcher in a component. Every call runs in a fresh instance, which is dropped afterwards.
pub struct ComponentMatcher {
    digest: String,
    metadata: Metadata,
    component: Limited,
}

/// A component whose calls have limits.
struct Limited {
    shared: Arc<Shared>,
    limits: Arc<Limits>,
    component: MatcherPre<PolicyCall>,
}

/// The data of a wasmtime store: what one call of a policy may use.
struct PolicyCall {
    memory: Memory,
}

impl bindery::policy::facts::Host for PolicyCall {}

impl PolicyHost {
    /// Sets up a host. Each place of [`Options::concurrency`] reserves 64 MiB of address space.
    ///
    /// # Errors
    ///
    /// The options are invalid, or this machine lacks the address space for the pool.
    pub fn new(options: &Options) -> Result<Self, HostError> {
        Ok(Self { runtime: Runtime::new(options, &settings::POLICY)? })
    }

    /// Loads a matcher from a file. Compiling one that contains an interpreter, where it is not in the cache,
    /// takes seconds.
    ///
    /// # Errors
    ///
    /// The file cannot be read, this host cannot run it, or what it says about itself breaks a rule.
    pub fn load_file(&self, path: &Path, limits: Limits) -> Result<ComponentMatcher, LoadError> {
        self.load(&read(path, COMPONENT_BYTES_MAX)?, limits)
    }

    /// Loads a matcher from the bytes of a component; see [`PolicyHost::load_file`].
    ///
    /// # Errors
    ///
    /// As [`PolicyHost::load_file`].
    pub fn load(&self, bytes: &[u8], limits: Limits) -> Result<ComponentMatcher, LoadError> {
        let (component, _, digest) = self.runtime.compile(bytes, COMPONENT_BYTES_MAX, &load::MATCHER)?;
        let mut linker = Linker::new(&self.runtime.shared.engine);
        let component = bindings::Matcher::add_to_linker::<_, HasSelf<PolicyCall>>(&mut linker, |call| call)
            .and_then(|()| MatcherPre::new(linker.instantiate_pre(&component)?))
            .map_err(|error| LoadError::Mismatch(format!("{error:#}")))?;
        let (shared, limits) = (Arc::clone(&self.runtime.shared), Arc::new(limits));
        let component = Limited { shared, limits, component };
        // One call tells for all: each begins in an equal instance, and imports nothing that could differ.
        let described =
            component.call(|matcher, store| matcher.bindery_policy_match_().call_describe(store)).0;
        let metadata: Metadata = described.map_err(|fault| LoadError::Metadata(fault.to_string()))?.into();
        metadata.check().map_err(LoadError::Metadata)?;
        Ok(ComponentMatcher { digest, metadata, component })
    }
}

impl ComponentMatcher {
    /// As [`Matcher::judge`], with what the call used; of several calls the sum of the fuel, and the most
    /// memory.
    pub fn judge_with_stats(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> (Result<Verdicts, PolicyFault>, Stats) {
        let mut verdicts = Verdicts::default();
        let mut stats = Stats::default();
        for from in (0..candidates.whole.len()).step_by(ROWS_MAX) {
            let rows = candidates.rows(from..(from + ROWS_MAX).min(candidates.whole.len()));
            let (answer, used) = self.component.call(|matcher, store| {
                let (claim, rows) = (claim.lower(), rows.lower());
                matcher.bindery_policy_match_().call_judge(store, settings, &claim, &rows)
            });
            stats.fuel += used.fuel;
            stats.memory_bytes = stats.memory_bytes.max(used.memory_bytes);
            let answer = answer.map(Verdicts::from).and_then(|answer| {
                answer.verdicts(&self.metadata, rows.whole.len())?;
                Ok(answer)
            });
            match answer {
                Ok(Verdicts { reasons, scores }) => {
                    verdicts.reasons.extend(reasons);
                    verdicts.scores.extend(scores);
                }
                Err(fault) => return (Err(fault), stats),
            }
        }
        (Ok(verdicts), stats)
    }
}

impl Limited {
    /// Calls a function in a fresh instance.
    fn call<T>(
        &self,
        function: impl FnOnce(&bindings::Matcher, &mut Store<PolicyCall>) -> wasmtime::Result<T>,
    ) -> (Result<T, PolicyFault>, Stats) {
        let _pass = self.shared.gate.enter();
        stacker::maybe_grow(STACK_LEFT_BYTES, STACK_NEW_BYTES, || {
            let memory = Memory { limits: Arc::clone(&self.limits), bytes: 0 };
            let mut store = Store::new(&self.shared.engine, PolicyCall { memory });
            let answer = self
                .limit(&mut store)
                .and_then(|()| self.component.instantiate(&mut store))
                .and_then(|matcher| function(&matcher, &mut store));
            let stats = Stats {
                fuel: self.limits.fuel.saturating_sub(store.get_fuel().unwrap_or_default()),
                questions: 0,
                memory_bytes: store.data().memory.bytes,
            };
            (answer.map_err(|error| self.fault(&error)), stats)
        })
    }

    /// Sets the limits, before instantiation, because a start function can loop.
    fn limit(&self, store: &mut Store<PolicyCall>) -> wasmtime::Result<()> {
        let ticks = self.limits.time.as_micros().div_ceil(TICK.as_micros());
        store.limiter(|call| &mut call.memory);
        store.set_hostcall_fuel(self.limits.lifted_bytes);
        store.set_epoch_deadline(u64::try_from(ticks).unwrap_or(u64::MAX));
        store.set_fuel(self.limits.fuel)
    }

    /// Why a call ended without an answer, with the limit and the remedy.
    fn fault(&self, error: &wasmtime::Error) -> PolicyFault {
        if let Some(excess) = error.downcast_ref::<Excess>() {
            return PolicyFault::Exhausted(format!("{excess}; it must keep less in memory"));
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => PolicyFault::Exhausted(format!(
                "it used its {} units of fuel; it must do less for each of {ROWS_MAX} rows",
                self.limits.fuel
            )),
            Some(Trap::Interrupt) => PolicyFault::Exhausted(format!(
                "it took more than {} ms; it must do less for each of {ROWS_MAX} rows",
                self.limits.time.as_millis()
            )),
            Some(trap) if is_bad_answer(trap) => PolicyFault::BadAnswer(trap.to_string()),
            Some(trap) => PolicyFault::Trapped(trap.to_string()),
            None if error.is::<wasmtime::PoolConcurrencyLimitError>() => {
                PolicyFault::Unavailable(error.to_string())
            }
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

impl Matcher for ComponentMatcher {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault> {
        self.component.call(|matcher, store| matcher.bindery_policy_match_().call_check(store, settings)).0
    }

    fn narrow(&self, settings: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
        let claim = claim.lower();
        let answer = self
            .component
            .call(|matcher, store| matcher.bindery_policy_match_().call_narrow(store, settings, &claim))
            .0?;
        let narrowing = carry::narrowing(answer)?;
        narrowing.check(&self.metadata)?;
        Ok(narrowing)
    }

    fn judge(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> Result<Verdicts, PolicyFault> {
        self.judge_with_stats(settings, claim, candidates).0
    }
}
