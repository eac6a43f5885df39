//! Upstream's metrics, with upstream's meanings (`pkg/controller/volume/persistentvolume/metrics`): how long
//! provisioning and deleting take, and which claims got a default class.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use bindery_core::{Operation, OperationKind, PluginOperation, Text, Uid};
use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

/// Upper bounds of the buckets, in seconds, of both histograms.
const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
/// Label of an unknown plugin.
const NO_PLUGIN: &str = "N/A";

/// `N` labels, each with its value.
type Labels<const N: usize> = [(&'static str, String); N];

type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Metrics that upstream has too, under upstream's names.
#[derive(Debug)]
pub struct UpstreamMetrics {
    /// Attempts to give a claim the default class.
    pub(crate) classes: Counter,
    /// Those that failed.
    pub(crate) class_errors: Counter,
    /// One call of a plugin.
    calls: Histograms<4>,
    /// From the first start until the claim is bound or the volume is gone.
    wholes: Histograms<2>,
    /// Failed attempts meanwhile.
    errors: Family<Labels<2>, Counter>,
    /// Operations that have started and not succeeded, by the UID of the claim or volume.
    started: Mutex<HashMap<Uid, Started>>,
}

#[derive(Debug)]
struct Started {
    at: Instant,
    labels: Labels<2>,
}

impl UpstreamMetrics {
    /// Encodes all of them, under upstream's names.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut metric = |name, help, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        let help = "Attempts to give a claim the default class, failures included";
        metric("retroactive_storageclass", help, &self.classes)?;
        let help = "Failures to give a claim the default class";
        metric("retroactive_storageclass_errors", help, &self.class_errors)?;
        metric("volume_operation_errors", "Failures to provision or delete a volume", &self.errors)?;
        let help = "Time from the first attempt until a claim is bound, or a volume is deleted";
        metric("volume_operation_total_seconds", help, &self.wholes)?;
        metric("storage_operation_duration_seconds", "Time of one call of a plugin", &self.calls)
    }

    /// Records the duration of a call of a plugin.
    pub(crate) fn called(&self, plugin: &str, call: PluginOperation, took: Duration, succeeded: bool) {
        let operation_name = match call {
            PluginOperation::Provision => "volume_provision",
            PluginOperation::Delete => "volume_delete",
            // Upstream does not measure it.
            PluginOperation::Recycle => return,
        };
        let status = if succeeded { "success" } else { "fail-unknown" };
        let labels = [
            ("volume_plugin", plugin.to_owned()),
            ("operation_name", operation_name.to_owned()),
            ("status", status.to_owned()),
            ("migrated", false.to_string()),
        ];
        self.calls.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// An operation starts. If it is a retry, the time of the first start stays.
    pub(crate) fn start(&self, operation: &Operation, plugin: Option<Text>) {
        let operation_name = match operation.kind {
            OperationKind::ProvisionExternal | OperationKind::Provision => "provision",
            OperationKind::Delete => "delete",
            OperationKind::Recycle => return,
        };
        let plugin = Some(operation.plugin.clone()).filter(|plugin| !plugin.is_empty()).or(plugin);
        let plugin_name = plugin.map_or_else(|| NO_PLUGIN.to_owned(), |plugin| plugin.to_string());
        let labels = [("plugin_name", plugin_name), ("operation_name", operation_name.to_owned())];
        self.started
            .lock()
            .entry(operation.uid.clone())
            .or_insert_with(|| Started { at: Instant::now(), labels });
    }

    /// An operation on the object has failed.
    pub(crate) fn failed(&self, uid: &Uid) {
        if let Some(started) = self.started.lock().get(uid) {
            self.errors.get_or_create(&started.labels).inc();
        }
    }

    /// The operation has succeeded: the claim is bound, or the volume is gone.
    pub(crate) fn done(&self, uid: &Uid) {
        if let Some(Started { at, labels }) = self.started.lock().remove(uid) {
            self.wholes.get_or_create(&labels).observe(at.elapsed().as_secs_f64());
        }
    }

    /// The object is gone before the operation succeeded.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.started.lock().remove(uid);
    }

    /// Number of objects with such an operation.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.started.lock().len()
    }
}

impl Default for UpstreamMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self {
            classes: Counter::default(),
            class_errors: Counter::default(),
            calls: Family::new_with_constructor(histogram),
            wholes: Family::new_with_constructor(histogram),
            errors: Family::default(),
            started: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: OperationKind, plugin: &str) -> Operation {
        Operation { kind, plugin: plugin.into(), uid: "u".into() }
    }

    fn labels(plugin: &str, operation: &str) -> Labels<2> {
        [("plugin_name", plugin.to_owned()), ("operation_name", operation.to_owned())]
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_start_counts_and_failures_on_the_way_do() {
        let metrics = UpstreamMetrics::default();
        metrics.failed(&"u".into());
        for _ in 0..2 {
            metrics.start(&operation(OperationKind::Provision, "example.com/disk"), None);
            metrics.failed(&"u".into());
            tokio::time::advance(Duration::from_secs(20)).await;
        }
        metrics.done(&"u".into());
        metrics.done(&"u".into());
        let labels = labels("example.com/disk", "provision");
        assert_eq!(metrics.errors.get_or_create(&labels).get(), 2);
        assert!(metrics.wholes.get(&labels).is_some());
        assert!(metrics.started.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_plugin_has_upstream_s_name_and_recycling_is_not_measured() {
        let metrics = UpstreamMetrics::default();
        metrics.start(&operation(OperationKind::Recycle, ""), None);
        assert!(metrics.started.lock().is_empty());
        metrics.start(&operation(OperationKind::Delete, ""), None);
        metrics.done(&"u".into());
        assert!(metrics.wholes.get(&labels("N/A", "delete")).is_some());
        metrics.start(&operation(OperationKind::Delete, ""), Some("example.com".into()));
        metrics.forget(&"u".into());
        metrics.done(&"u".into());
        assert!(metrics.wholes.get(&labels("example.com", "delete")).is_none());
    }
}
