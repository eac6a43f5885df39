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
    /// What the engine decides is unknown: why.
    NotReplayable(&'static str),
    /// The engine did not decide.
    Faulted(EngineFault),
}

/// Decides the request of `record` again, from its evidence alone. Returns the units of fuel too, if the
/// engine counts them and they can be compared.
///
/// Where the engine was shown something that is redacted, it is shown the digests. If it decides otherwise
/// then, the decision depends on what is redacted. The fuel is not comparable, because digests have another
/// length.
pub fn replay(record: &Record, engine: &dyn Engine) -> (Replayed, Option<u64>) {
    let evidence = &record.evidence;
    let mut replayer = Replayer::new(&evidence.exchanges);
    let (decided, fuel) = engine.decide_with_fuel(&evidence.request, &mut replayer);
    let is_redacted = record.redacted.engine;
    let replayed = match decided {
        Ok(decision) if decision == evidence.decision => Replayed::Same,
        Ok(_) | Err(EngineFault::Stopped(Stop::NotRecorded)) if is_redacted => {
            Replayed::NotReplayable("depends on what is redacted")
        }
        Ok(decision) => Replayed::Different(Box::new(decision)),
        Err(EngineFault::Stopped(Stop::NotRecorded)) => {
            Replayed::NotReplayable("asks a question without a recorded answer")
        }
        Err(fault) => Replayed::Faulted(fault),
    };
    (replayed, fuel.filter(|_| !is_redacted))
}
