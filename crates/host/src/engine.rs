//! An engine that is a component.

use std::sync::Arc;

use bindery_core::{Cluster, Decision, Engine, EngineFault, Request, Stop};
use wasmtime::{Store, Trap};

use crate::Limits;
use crate::borrow::Borrowed;
use crate::cache::InUse;
use crate::call::{Call, Excess, is_bad_answer};
use crate::contract::Contract;
use crate::deadline::Deadline;
use crate::gate::Gate;
use crate::load::is_of_machine;
use crate::settings::STACK_BYTES;

/// Stack that must be left when a decision begins: the engine's own, and as much again for the host's
/// answers. With less, the thread would overflow before wasmtime notices, which ends the process.
pub(crate) const STACK_LEFT_BYTES: usize = STACK_BYTES + (256 << 10);
/// Stack that a decision gets where too little is left.
pub(crate) const STACK_NEW_BYTES: usize = 1 << 20;

/// A decision engine in a component. Every decision runs in a fresh instance, which is dropped afterwards.
///
/// Any number of threads may call it at a time, whatever their stacks. `decide` takes about 12 us, less than
/// a handover to another thread, so it runs on the caller's thread; where less than 512 KiB of stack is left,
/// on a new stack.
pub struct ComponentEngine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) digest: String,
    pub(crate) contract: Contract,
    /// Keeps its file in the cache.
    pub(crate) _artefact: Option<InUse>,
}

/// What the engines of a host share.
pub(crate) struct Shared {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) gate: Gate,
}

/// What a call used, also where it ended without a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Units of fuel, comparable under one [`crate::FUEL_SCHEDULE`].
    pub fuel: u64,
    /// Questions to the cluster.
    pub questions: u32,
    /// Bytes of linear memory at the end.
    pub memory_bytes: usize,
    /// Elements of the largest table.
    pub table_elements: usize,
}

impl Stats {
    /// The larger of each figure of two calls.
    pub(crate) fn max(&self, other: &Self) -> Self {
        Self {
            fuel: self.fuel.max(other.fuel),
            questions: self.questions.max(other.questions),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            table_elements: self.table_elements.max(other.table_elements),
        }
    }
}

impl ComponentEngine {
    /// As [`Engine::decide`], with what the call used.
    pub fn decide_with_stats(
        &self,
        request: &Request,
        cluster: &mut dyn Cluster,
    ) -> (Result<Decision, EngineFault>, Stats) {
        let pass = self.shared.gate.enter();
        stacker::maybe_grow(STACK_LEFT_BYTES, STACK_NEW_BYTES, || {
            #[allow(unsafe_code, reason = "see the safety comment")]
            // SAFETY: the store that this goes into is dropped at the end of this closure, within the borrow.
            let cluster = unsafe { Borrowed::new(cluster) };
            let call = Call::new(cluster, Arc::clone(&self.limits), pass.clock());
            self.run(call, request)
        })
    }

    fn run(&self, call: Call, request: &Request) -> (Result<Decision, EngineFault>, Stats) {
        let mut store = Store::new(&self.shared.engine, call);
        // Limits are set before instantiation, because a start function can loop.
        let decided = self.limit(&mut store).and_then(|()| self.contract.decide(&mut store, request));
        let fuel = self.limits.fuel.saturating_sub(store.get_fuel().unwrap_or_default());
        let Call { questions, memory, .. } = store.data();
        let stats = Stats {
            fuel,
            questions: *questions,
            memory_bytes: memory.bytes,
            table_elements: memory.table_elements,
        };
        let decision = match decided {
            Ok(Ok(decision)) => Ok(decision),
            Ok(Err(what)) => Err(EngineFault::BadAnswer(what)),
            Err(error) => Err(fault(&error)),
        };
        (decision, stats)
    }

    fn limit(&self, store: &mut Store<Call>) -> wasmtime::Result<()> {
        store.limiter(|call| &mut call.memory);
        store.set_hostcall_fuel(self.limits.lifted_bytes);
        store.set_epoch_deadline(Deadline::epochs(self.limits.time));
        store.epoch_deadline_callback(|mut store| store.data_mut().at_deadline());
        store.set_fuel(self.limits.fuel)
    }
}

impl Engine for ComponentEngine {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        self.decide_with_stats(request, cluster).0
    }

    fn decide_with_fuel(
        &self,
        request: &Request,
        cluster: &mut dyn Cluster,
    ) -> (Result<Decision, EngineFault>, Option<u64>) {
        let (decision, stats) = self.decide_with_stats(request, cluster);
        (decision, Some(stats.fuel))
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn asks_reclaimers(&self) -> bool {
        !matches!(self.contract, Contract::V0_1(_))
    }
}

/// Why a call ended without an answer.
fn fault(error: &wasmtime::Error) -> EngineFault {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return EngineFault::Stopped(stop.clone());
    }
    match error.downcast_ref::<Excess>() {
        Some(Excess::Deadline) => return EngineFault::Exhausted("past its deadline"),
        Some(excess @ (Excess::Memory { .. } | Excess::Table { .. })) => {
            return EngineFault::Trapped(excess.to_string());
        }
        None => {}
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => EngineFault::Exhausted("out of fuel"),
        Some(trap) if is_bad_answer(trap) => EngineFault::BadAnswer(trap.to_string()),
        Some(trap) => EngineFault::Trapped(trap.to_string()),
        None if is_of_machine(error) => EngineFault::Unavailable(format!("{error:#}")),
        // Any other error comes from reading the answer.
        None => EngineFault::BadAnswer(error.root_cause().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn an_engine_for_which_memory_lacks_has_answered_nothing_wrong() {
        let lacks = wasmtime::Error::new(Errno::NOMEM).context("no instance");
        assert!(matches!(fault(&lacks), EngineFault::Unavailable(why) if why.starts_with("no instance: ")));
        assert!(matches!(fault(&wasmtime::Error::new(Errno::INVAL)), EngineFault::BadAnswer(_)));
    }
}
