//! Which objects are decided again for their events alone, so that no event expires while it is true.
//!
//! API servers delete events after a while (`--event-ttl`). Upstream's resync tells of every stuck claim each
//! 15 s. Here an object whose last decision recorded an event is decided again after [`EVENT_REFRESH`]; one
//! that records none is not.

use std::time::Duration;

use bindery_core::{Action, Decision, Lookup, Source};

use super::{Binder, Mode};
use crate::{Key, Port};

/// How soon an object is decided again for its event by default; API servers keep events for an hour by
/// default.
pub const EVENT_REFRESH: Duration = Duration::from_secs(15 * 60);

impl<P: Port> Binder<P> {
    /// How soon the object of a decision is decided again for what the decision records.
    pub(super) fn refresh_after(&self, decision: &Decision) -> Option<Duration> {
        let records = decision.actions().any(|action| matches!(action, Action::Emit(_)));
        records.then_some(self.settings.event_refresh)
    }

    /// How soon an object is decided again that no decision is made about, because it cannot be read.
    pub(super) fn refresh_of_unreadable(&self, key: &Key) -> Option<Duration> {
        let is_unreadable = match key {
            Key::Claim(key) => matches!(self.store.claim(Source::Overlay, key), Lookup::Unreadable(_)),
            Key::Volume(name) => matches!(self.store.volume(Source::Overlay, name), Lookup::Unreadable(_)),
        };
        (self.settings.mode == Mode::Own && is_unreadable).then_some(self.settings.event_refresh)
    }
}
