//! Decides objects again only for their events, so that no event expires while it is true.
//!
//! API servers delete events after a while (`--event-ttl`). Upstream's resync records the event of every
//! stuck claim every 15 s. Bindery decides an object again after [`EVENT_REFRESH`] if its last decision
//! recorded an event.

use std::time::Duration;

use bindery_core::{Action, Decision, Key, Lookup, Source};

use super::{Binder, Mode};
use crate::Port;

/// Default delay until an object is decided again for its event. API servers keep events for an hour by
/// default.
pub const EVENT_REFRESH: Duration = Duration::from_secs(15 * 60);

impl<P: Port> Binder<P> {
    /// Delay until the object of a decision is decided again for the events that the decision records.
    pub(super) fn refresh_after(&self, decision: &Decision) -> Option<Duration> {
        let records = decision.actions().any(|action| matches!(action, Action::Emit(_)));
        records.then_some(self.settings.event_refresh)
    }

    /// Delay until an unreadable object is decided again for its event.
    pub(super) fn refresh_of_unreadable(&self, key: &Key) -> Option<Duration> {
        let is_unreadable = match key {
            Key::Claim(key) => matches!(self.store.claim(Source::Overlay, key), Lookup::Unreadable(_)),
            Key::Volume(name) => matches!(self.store.volume(Source::Overlay, name), Lookup::Unreadable(_)),
        };
        (self.settings.mode == Mode::Own && is_unreadable).then_some(self.settings.event_refresh)
    }
}
