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

/// Decides the request of `record` again, from its evidence alone.
pub fn replay(record: &Record, engine: &dyn Engine) -> Replayed {
    let evidence = &record.evidence;
    let mut replayer = Replayer::new(&evidence.exchanges);
    match engine.decide(&evidence.request, &mut replayer) {
        Ok(decision) if decision == evidence.decision => Replayed::Same,
        Ok(decision) => Replayed::Different(Box::new(decision)),
        Err(EngineFault::Stopped(Stop::NotRecorded)) => Replayed::NotReplayable,
        Err(fault) => Replayed::Faulted(fault),
    }
}
