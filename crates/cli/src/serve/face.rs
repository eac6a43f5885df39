//! Health and metrics of a replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bindery_controller::Binder;
use bindery_kube::ApiPort;
use bindery_webhook::{Check, Health};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// What a replica shows of itself.
#[derive(Clone)]
pub(super) struct Face {
    binder: Arc<Binder<ApiPort>>,
    leads: Arc<AtomicBool>,
}

impl Face {
    /// The face of the replica with this binder.
    pub(super) fn new(binder: Arc<Binder<ApiPort>>, leads: Arc<AtomicBool>) -> Self {
        Self { binder, leads }
    }

    /// Everything that it counts, under the prefix `bindery`.
    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("bindery");
        registry.register_collector(Box::new(Counts(self.clone())));
        registry
    }

    fn lists(&self) -> Check {
        let awaited: Vec<_> = self.binder.store().awaited().into_iter().map(|kind| kind.name()).collect();
        let result = if awaited.is_empty() {
            Ok(())
        } else {
            Err(format!("the first list is not complete of: {}", awaited.join(", ")))
        };
        Check { name: "lists", result }
    }
}

impl Health for Face {
    fn live(&self) -> Vec<Check> {
        Vec::new()
    }

    fn ready(&self) -> Vec<Check> {
        vec![self.lists()]
    }
}

/// What is read when the metrics are asked for.
struct Counts(Face);

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Face { binder, leads } = &self.0;
        for (name, help, value) in binder.metrics().iter() {
            let counter = ConstCounter::new(value);
            let encoder = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(encoder)?;
        }
        let store = binder.store();
        let gauges = [
            ("leader", "Whether this replica decides.", usize::from(leads.load(Ordering::Relaxed))),
            ("lists_complete", "Whether all initial lists are complete.", usize::from(store.synced())),
            ("keys_waiting", "Objects that wait to be decided.", binder.keys_waiting()),
            ("operations_running", "Operations that run.", binder.operations_running()),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(encoder)?;
        }
        Ok(())
    }
}
