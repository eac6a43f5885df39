//! Replays a record.

use bindery_core::{Decision, Engine, EngineFault, Replayer, Stop};

use crate::Record;

/// The result of a replay.
#[derive(Debug)]
pub enum Replayed {
    /// The same decision, from the same questions.
    Same,
    /// Another decision.
    Different(Box<Decision>),
    /// The engine asks a question that was not recorded, so its decision is unknown.
    NotReplayable,
    /// The engine did not decide.
    Faulted(EngineFault),
}

/// Decides the request of `record` again, from its evidence alone. Returns the units of fuel too, if the
/// engine counts them.
pub fn replay(record: &Record, engine: &dyn Engine) -> (Replayed, Option<u64>) {
    let evidence = &record.evidence;
    let mut replayer = Replayer::new(&evidence.exchanges);
    let (decided, fuel) = engine.decide_with_fuel(&evidence.request, &mut replayer);
    let replayed = match decided {
        Ok(decision) if decision == evidence.decision => Replayed::Same,
        Ok(decision) => Replayed::Different(Box::new(decision)),
        Err(EngineFault::Stopped(Stop::NotRecorded)) => Replayed::NotReplayable,
        Err(fault) => Replayed::Faulted(fault),
    };
    (replayed, fuel)
}
