//! The deadline of a call, by the processor time of its thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wasmtime::UpdateDeadline;

use crate::call::Excess;
use crate::gate::TICK;

/// The deadline of a call. The epoch clock tells when the time has passed on the wall; then the call gets as
/// much processor time. So a call on a busy machine, which may get no processor for seconds, is not ended for
/// that. A call on an idle machine ends after twice the time.
pub(crate) struct Deadline {
    time: Duration,
    /// The processor time of the thread at which the call ends; `None` until the epoch clock reaches `time`.
    until: Option<Duration>,
}

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self { time, until: None }
    }

    /// The epochs until the deadline of the epoch clock.
    pub(crate) fn epochs(time: Duration) -> u64 {
        u64::try_from(time.as_micros().div_ceil(TICK.as_micros())).unwrap_or(u64::MAX)
    }

    /// Extends the call by epochs that were not its own.
    pub(crate) fn put_off(&mut self, epochs: u64) {
        if let Some(until) = &mut self.until {
            *until += TICK.saturating_mul(u32::try_from(epochs).unwrap_or(u32::MAX));
        }
    }

    /// What happens at the deadline of the epoch clock, at this processor time of the thread.
    pub(crate) fn at(&mut self, now: Duration) -> wasmtime::Result<UpdateDeadline> {
        let until = *self.until.get_or_insert_with(|| now.saturating_add(self.time));
        match until.saturating_sub(now) {
            Duration::ZERO => Err(wasmtime::Error::new(Excess::Deadline)),
            left => Ok(UpdateDeadline::Continue(Self::epochs(left))),
        }
    }
}

/// The processor time that this thread has used.
pub(crate) fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn epochs(deadline: &mut Deadline, now: Duration) -> Option<u64> {
        match deadline.at(now) {
            Ok(UpdateDeadline::Continue(epochs)) => Some(epochs),
            Ok(_) => panic!("the call continues or ends"),
            Err(error) => {
                assert_eq!(error.downcast_ref(), Some(&Excess::Deadline));
                None
            }
        }
    }

    #[test]
    fn a_call_that_gets_no_processor_is_not_ended() {
        let mut deadline = Deadline::after(ms(250));
        assert_eq!(epochs(&mut deadline, ms(1_000)), Some(250));
        assert_eq!(epochs(&mut deadline, ms(1_010)), Some(240));
        assert_eq!(epochs(&mut deadline, ms(1_010)), Some(240));
        deadline.put_off(5);
        assert_eq!(epochs(&mut deadline, ms(1_250)), Some(5));
        assert_eq!(epochs(&mut deadline, ms(1_255)), None);
    }
}
