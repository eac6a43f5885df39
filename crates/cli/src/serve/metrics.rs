//! `/metrics`. `docs/metrics.md` lists every metric, and what to do when it is high.

mod cache;
mod journal;
mod policies;
mod shadows;

use std::collections::BTreeMap;
use std::fmt::Error;

use bindery_controller::{Compared, ForeignWriters, Steerable};
use bindery_core::{ClaimPhase, VolumePhase};
use bindery_kube::EventLoss;
use bindery_kube::plugins::{HOST_PATH, NFS};
use bindery_webhook::AdmissionMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::clock::ClockWatch;
use super::health::ReplicaHealth;
use super::journal::JournalCounts;
use super::webhook::WebhookStatistics;
use crate::engine::CacheArgument;

/// Upstream's name of volumes whose source has no in-tree plugin.
const NO_PLUGIN: &str = "N/A";

/// Every metric of a replica.
pub(super) fn registry(
    health: &ReplicaHealth,
    admission: &AdmissionMetrics,
    webhook: &WebhookStatistics,
    clock: &ClockWatch,
    journal: &JournalCounts,
    cache: &CacheArgument,
) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Upstream(health.clone())));
    let own = registry.sub_registry_with_prefix("bindery");
    own.register_collector(Box::new(Own {
        health: health.clone(),
        clock: clock.clone(),
        webhook: webhook.clone(),
        journal: journal.clone(),
        cache: cache.clone(),
    }));
    admission.register(own);
    registry
}

/// Metrics that only Bindery has.
#[derive(Debug)]
struct Own {
    health: ReplicaHealth,
    clock: ClockWatch,
    webhook: WebhookStatistics,
    journal: JournalCounts,
    cache: CacheArgument,
}

/// Metrics that upstream has too, under its names.
#[derive(Debug)]
struct Upstream(ReplicaHealth);

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let binder = &self.health.binder;
        counters(&mut encoder, binder.metrics().iter().chain(self.counters()))?;
        for (name, help, value) in self.gauges() {
            gauge(&mut encoder, name, help, value)?;
        }
        let help = "What keeps this replica from leading, in modes own and steer";
        let causes = self.health.causes().into_iter().map(|cause| ([cause], 1));
        family(&mut encoder, "cannot_lead", help, MetricType::Gauge, ["cause"], causes)?;
        let help = "Time since the last bytes of a kind's list or watch";
        let silences = self.health.silences().map(|(kind, seconds)| ([kind], seconds));
        family(&mut encoder, "watch_silence_seconds", help, MetricType::Gauge, ["kind"], silences)?;
        let help = "Claims whose bind by upstream was compared with Bindery's decision, in observe mode";
        let claims = Compared::ALL.map(|compared| ([compared.name()], binder.observation().count(compared)));
        family(&mut encoder, "observed_claims", help, MetricType::Counter, ["outcome"], claims)?;
        let help =
            "Claims that upstream bound and mode steer could choose for, by its choice, in observe mode";
        let claims = Steerable::ALL.map(|choice| ([choice.name()], binder.observation().steerable(choice)));
        family(&mut encoder, "observed_steerable_claims", help, MetricType::Counter, ["choice"], claims)?;
        let help = "Events that were not written, by cause";
        let events = EventLoss::ALL.map(|cause| ([cause.name()], self.health.events.dropped(cause)));
        family(&mut encoder, "events_dropped", help, MetricType::Counter, ["cause"], events)?;
        self.encode_webhook(&mut encoder)?;
        policies::encode(&self.health, &mut encoder)?;
        shadows::encode(&self.health, &mut encoder)?;
        journal::encode(&self.journal, &mut encoder)?;
        cache::encode(&self.cache, &mut encoder)
    }
}

impl Own {
    fn counters(&self) -> [(&'static str, &'static str, u64); 4] {
        let writers = self.health.binder.intake().foreign_writers();
        let pressure = self.health.binder.port().pressure();
        [
            (
                "foreign_writes",
                "Writes of other binders that were seen, in own mode",
                writers.map_or(0, ForeignWriters::writes),
            ),
            (
                "requests_refused",
                "Requests that the API server refused because it was too busy, or did not answer within a \
                 minute",
                pressure.refused,
            ),
            (
                "requests_late",
                "Requests of decisions that the API server took longer than a second to answer",
                pressure.late,
            ),
            ("clock_jumps", "Jumps of the system clock", self.clock.jumps()),
        ]
    }

    fn gauges(&self) -> [(&'static str, &'static str, usize); 15] {
        let (binder, writers) = (&self.health.binder, self.health.binder.intake().foreign_writers());
        let pressure = binder.port().pressure();
        [
            ("leader", "Whether this replica leads", usize::from(self.health.leads())),
            (
                "lists_complete",
                "Whether all initial lists are complete",
                usize::from(binder.store().synced()),
            ),
            (
                "credentials_refused",
                "Whether the API server refuses the credentials of this replica",
                usize::from(binder.port().refusal().is_some()),
            ),
            (
                "writes_blocked",
                "Whether the last writes all failed",
                usize::from(binder.write_health().check().is_err()),
            ),
            ("keys_waiting", "Objects that wait to be decided", binder.keys_waiting()),
            ("keys_failing", "Objects whose last sync failed, to be retried", binder.keys_failing()),
            ("operations_running", "Operations that run", binder.operations_running()),
            ("requests_in_flight", "Requests in flight", pressure.in_flight),
            ("requests_in_flight_max", "Most requests in flight at the same time", pressure.limit),
            (
                "foreign_writer",
                "Whether recycling and deleting are stopped because another binder was seen",
                usize::from(writers.is_some_and(ForeignWriters::holds)),
            ),
            (
                "volumes_kept_without_policy",
                "Released volumes that a policy has kept to which none applies any more",
                if self.health.leads() { binder.kept_without_policy() } else { 0 },
            ),
            (
                "observed_claims_awaited",
                "Claims that Bindery would bind now and upstream has not bound, in observe mode",
                binder.observation().awaited(),
            ),
            (
                "claims_not_steerable",
                "Claims whose namespace and name are too long for a label that steers, in mode steer",
                if self.health.leads() { binder.claims_not_steerable() } else { 0 },
            ),
            (
                "steer_claims_overdue",
                "Claims that upstream has not bound half a minute after a volume was reserved, in mode steer",
                binder.claims_overdue(),
            ),
            (
                "steer_claims_paused",
                "Claims for which nothing is reserved or labelled for a while, because others remove it",
                binder.claims_paused(),
            ),
        ]
    }

    /// Metrics of the webhook's certificate and connections.
    fn encode_webhook(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let WebhookStatistics { certificates, traffic } = &self.webhook;
        let counts = [
            ("certificate_changes", "Changes of the webhook's certificate", certificates.changes()),
            (
                "certificate_errors",
                "Failures to read, make, store or publish a certificate; the one in use stays in use",
                certificates.failures(),
            ),
            (
                "webhook_handshake_errors",
                "Connections to the webhook without a handshake, or with a wrong client certificate",
                traffic.handshake_errors.get(),
            ),
            (
                "webhook_connections_shed",
                "Connections to the webhook that were closed or refused because there were too many",
                traffic.shed.get(),
            ),
        ];
        counters(encoder, counts)?;
        gauge(encoder, "webhook_connections", "Open connections to the webhook", traffic.connections())?;
        // Without a certificate neither has a value.
        let optional = [
            (
                "certificate_expiry_timestamp_seconds",
                "When the certificate of the webhook expires",
                certificates.expires(),
            ),
            (
                "certificate_trusted",
                "Whether the webhook configuration trusts the certificates that Bindery makes",
                certificates.trusted().map(i64::from),
            ),
        ];
        for (name, help, value) in optional {
            gauge_if(encoder, name, help, value)?;
        }
        Ok(())
    }
}

impl Collector for Upstream {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.0.binder.upstream_metrics().encode(&mut encoder)?;
        self.encode_collector(&mut encoder)
    }
}

/// Number of objects by the values of their labels.
type ByLabels<const N: usize> = BTreeMap<[String; N], u64>;

impl Upstream {
    /// Upstream's `pv_collector`. As upstream does, only the leader counts objects, so that replicas can be
    /// summed.
    fn encode_collector(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let store = self.0.leads().then(|| self.0.binder.store());
        let mut total = ByLabels::default();
        let mut by_phase = [ByLabels::default(), ByLabels::default()];
        for volume in store.map(|store| store.volumes()).unwrap_or_default() {
            let plugin = match &*volume.source {
                "hostPath" => HOST_PATH,
                "nfs" => NFS,
                _ => NO_PLUGIN,
            };
            *total.entry([plugin.to_owned(), volume.mode.name().to_owned()]).or_default() += 1;
            let counts = &mut by_phase[usize::from(volume.phase != VolumePhase::Bound)];
            *counts.entry([volume.class.to_string()]).or_default() += 1;
        }
        gauges(encoder, "pv_collector_total_pv_count", "Volumes", ["plugin_name", "volume_mode"], &total)?;
        let [bound, unbound] = &by_phase;
        gauges(encoder, "pv_collector_bound_pv_count", "Volumes in phase Bound", ["storage_class"], bound)?;
        gauges(
            encoder,
            "pv_collector_unbound_pv_count",
            "Volumes in any other phase",
            ["storage_class"],
            unbound,
        )?;

        let mut by_phase = [ByLabels::default(), ByLabels::default()];
        for claim in store.map(|store| store.claims()).unwrap_or_default() {
            let counts = &mut by_phase[usize::from(claim.status.phase != ClaimPhase::Bound)];
            let labels = [&claim.key.namespace, claim.class_or_empty(), claim.attributes_class_or_empty()];
            *counts.entry(labels.map(str::to_owned)).or_default() += 1;
        }
        let labels = ["namespace", "storage_class", "volume_attributes_class"];
        let [bound, unbound] = &by_phase;
        gauges(encoder, "pv_collector_bound_pvc_count", "Claims in phase Bound", labels, bound)?;
        gauges(encoder, "pv_collector_unbound_pvc_count", "Claims in any other phase", labels, unbound)
    }
}

/// One gauge for each combination of labels.
fn gauges<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: [&str; N],
    counts: &ByLabels<N>,
) -> Result<(), Error>
where
    for<'a> [(&'a str, &'a str); N]: EncodeLabelSet,
{
    let samples = counts.iter().map(|(values, count)| (values.each_ref(), *count));
    family(encoder, name, help, MetricType::Gauge, labels, samples)
}

/// One counter or gauge for each combination of labels.
fn family<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    labels: [&str; N],
    samples: impl IntoIterator<Item = ([impl AsRef<str>; N], u64)>,
) -> Result<(), Error>
where
    for<'a> [(&'a str, &'a str); N]: EncodeLabelSet,
{
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (values, value) in samples {
        let pairs: [(&str, &str); N] = std::array::from_fn(|at| (labels[at], values[at].as_ref()));
        let sample = family.encode_family(&pairs)?;
        match kind {
            MetricType::Counter => ConstCounter::new(value).encode(sample)?,
            _ => ConstGauge::new(value).encode(sample)?,
        }
    }
    Ok(())
}

fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    counters: impl IntoIterator<Item = (&'static str, &'static str, u64)>,
) -> Result<(), Error> {
    for (name, help, value) in counters {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    Ok(())
}

/// A gauge that has no sample without a value.
fn gauge_if(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: Option<impl TryInto<i64>>,
) -> Result<(), Error> {
    let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let gauge = value.map(|value| ConstGauge::new(value.try_into().unwrap_or(i64::MAX)));
    gauge.map_or(Ok(()), |gauge| gauge.encode(descriptor))
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: usize) -> Result<(), Error> {
    gauge_if(encoder, name, help, Some(value))
}
