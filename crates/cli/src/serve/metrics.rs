//! What `/metrics` shows. `docs/metrics.md` lists all of it, with what to do when it is high.

use std::collections::BTreeMap;
use std::fmt::Error;

use bindery_controller::{Compared, Vigil};
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
use super::door::DoorRecord;
use super::face::Face;

/// Upstream's name of volumes whose source no in-tree plugin serves.
const NO_PLUGIN: &str = "N/A";

/// Everything that a replica counts.
pub(super) fn registry(
    face: &Face,
    admission: &AdmissionMetrics,
    door: &DoorRecord,
    clock: &ClockWatch,
) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Upstream(face.clone())));
    let own = registry.sub_registry_with_prefix("bindery");
    own.register_collector(Box::new(Own { face: face.clone(), clock: clock.clone() }));
    own.register_collector(Box::new(Door(door.clone())));
    admission.register(own);
    registry
}

/// What only Bindery has, read when it is asked for.
#[derive(Debug)]
struct Own {
    face: Face,
    clock: ClockWatch,
}

/// The door: its certificate, and who comes.
#[derive(Debug)]
struct Door(DoorRecord);

/// What upstream has too, under its names.
#[derive(Debug)]
struct Upstream(Face);

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let binder = self.face.binder();
        for (name, help, value) in binder.metrics().iter().chain(self.counters()) {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        for (name, help, value) in self.gauges() {
            gauge(&mut encoder, name, help, value)?;
        }
        let help = "What keeps this replica from leading, in own mode";
        let mut family = encoder.encode_descriptor("cannot_lead", help, None, MetricType::Gauge)?;
        for cause in self.face.causes() {
            let gauge = ConstGauge::new(1_i64);
            gauge.encode(family.encode_family(&[("cause", cause)])?)?;
        }
        let help = "Claims whose bind by upstream was compared with Bindery's decision, in observe mode";
        let mut family = encoder.encode_descriptor("observed_claims", help, None, MetricType::Counter)?;
        for compared in Compared::ALL {
            let counter = ConstCounter::new(binder.observation().count(compared));
            counter.encode(family.encode_family(&[("outcome", compared.name())])?)?;
        }
        let help = "Events that were not written, by cause";
        let mut family = encoder.encode_descriptor("events_dropped", help, None, MetricType::Counter)?;
        for cause in EventLoss::ALL {
            let counter = ConstCounter::new(self.face.events().dropped(cause));
            counter.encode(family.encode_family(&[("cause", cause.name())])?)?;
        }
        let help = "Time since the last bytes of a kind's list or watch";
        let mut family = encoder.encode_descriptor("watch_silence_seconds", help, None, MetricType::Gauge)?;
        for (kind, seconds) in self.face.silences() {
            let gauge = ConstGauge::new(i64::try_from(seconds).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("kind", kind.name())])?)?;
        }
        Ok(())
    }
}

impl Own {
    fn counters(&self) -> [(&'static str, &'static str, u64); 4] {
        let (binder, vigil) = (self.face.binder(), self.face.binder().intake().vigil());
        let pressure = binder.port().pressure();
        [
            (
                "foreign_writes",
                "Writes of other binders that were seen, in own mode",
                vigil.map_or(0, Vigil::writes),
            ),
            (
                "requests_refused",
                "Requests that the API server refused because it was too busy, or did not answer within a minute",
                pressure.refused,
            ),
            (
                "requests_late",
                "Requests of decisions that the API server took longer than a second to answer",
                pressure.late,
            ),
            ("clock_jumps", "Jumps of the time of day that were seen", self.clock.jumps()),
        ]
    }

    fn gauges(&self) -> [(&'static str, &'static str, usize); 11] {
        let (binder, vigil) = (self.face.binder(), self.face.binder().intake().vigil());
        let pressure = binder.port().pressure();
        [
            ("leader", "Whether this replica leads", usize::from(self.face.leads())),
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
                usize::from(binder.passage().check().is_err()),
            ),
            ("keys_waiting", "Objects that wait to be decided", binder.keys_waiting()),
            ("keys_failing", "Objects whose last sync failed, to be tried again", binder.keys_failing()),
            ("operations_running", "Operations that run", binder.operations_running()),
            ("requests_in_flight", "Requests that are under way", pressure.in_flight),
            ("requests_in_flight_max", "Requests that may be under way at the same time", pressure.limit),
            (
                "foreign_writer",
                "Whether recycling and deleting are stopped because another binder was seen",
                usize::from(vigil.is_some_and(Vigil::holds)),
            ),
            (
                "observed_claims_awaited",
                "Claims that Bindery would bind now and upstream has not bound, in observe mode",
                binder.observation().awaited(),
            ),
        ]
    }
}

impl Collector for Door {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let DoorRecord { certificates, traffic } = &self.0;
        let counters = [
            (
                "certificate_changes",
                "Certificates taken into use in the place of others, by the webhook",
                certificates.changes(),
            ),
            (
                "certificate_errors",
                "Certificates that could not be read, made, kept or made known; those in use stayed",
                certificates.failures(),
            ),
            (
                "webhook_handshake_errors",
                "Connections to the webhook without a handshake, or with a wrong client certificate",
                traffic.handshake_errors(),
            ),
            (
                "webhook_connections_shed",
                "Connections to the webhook that were closed or turned away because there were too many",
                traffic.shed(),
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        gauge(&mut encoder, "webhook_connections", "Open connections to the webhook", traffic.connections())?;
        // Without a certificate there is nothing that could expire.
        let told = [
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
        for (name, help, value) in told {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            if let Some(value) = value {
                ConstGauge::new(value).encode(descriptor)?;
            }
        }
        Ok(())
    }
}

impl Collector for Upstream {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let metrics = self.0.binder().upstream_metrics();
        let counters = [
            (
                "retroactive_storageclass",
                "Default classes that were to be given to claims, those included that could not be",
                metrics.classes.get(),
            ),
            (
                "retroactive_storageclass_errors",
                "Default classes that could not be given to claims",
                metrics.class_errors.get(),
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let help = "Failures to provision or delete a volume";
        metrics.errors.encode(encoder.encode_descriptor(
            "volume_operation_errors",
            help,
            None,
            MetricType::Counter,
        )?)?;
        let help = "Time from the first attempt until a claim is bound, or a volume gone";
        let name = "volume_operation_total_seconds";
        metrics.wholes.encode(encoder.encode_descriptor(name, help, None, MetricType::Histogram)?)?;
        let help = "Time of one call of a plugin";
        let name = "storage_operation_duration_seconds";
        metrics.calls.encode(encoder.encode_descriptor(name, help, None, MetricType::Histogram)?)?;
        self.encode_collector(&mut encoder)
    }
}

/// How many objects have these labels.
type Counts<const N: usize> = BTreeMap<[String; N], usize>;

impl Upstream {
    /// Upstream's `pv_collector`. Like upstream, only who leads tells it, so that it can be summed over
    /// replicas.
    fn encode_collector(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (volumes, claims) = if self.0.leads() {
            (self.0.binder().store().volumes(), self.0.binder().store().claims())
        } else {
            (Vec::new(), Vec::new())
        };
        let mut total = Counts::default();
        let mut by_phase = [Counts::default(), Counts::default()];
        for volume in &volumes {
            let plugin = match &*volume.source {
                "hostPath" => HOST_PATH,
                "nfs" => NFS,
                _ => NO_PLUGIN,
            };
            *total.entry([plugin.to_owned(), volume.mode.name().to_owned()]).or_default() += 1;
            let counts = &mut by_phase[usize::from(volume.phase != VolumePhase::Bound)];
            *counts.entry([volume.class.to_string()]).or_default() += 1;
        }
        family(encoder, "total_pv_count", "Volumes", ["plugin_name", "volume_mode"], &total)?;
        let [bound, unbound] = &by_phase;
        family(encoder, "bound_pv_count", "Volumes in phase Bound", ["storage_class"], bound)?;
        family(encoder, "unbound_pv_count", "Volumes in any other phase", ["storage_class"], unbound)?;
        let mut by_phase = [Counts::default(), Counts::default()];
        for claim in &claims {
            let counts = &mut by_phase[usize::from(claim.status.phase != ClaimPhase::Bound)];
            let labels = [&claim.key.namespace, claim.class_or_empty(), claim.attributes_class_or_empty()];
            *counts.entry(labels.map(str::to_owned)).or_default() += 1;
        }
        let labels = ["namespace", "storage_class", "volume_attributes_class"];
        let [bound, unbound] = &by_phase;
        family(encoder, "bound_pvc_count", "Claims in phase Bound", labels, bound)?;
        family(encoder, "unbound_pvc_count", "Claims in any other phase", labels, unbound)
    }
}

fn family<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: [&str; N],
    counts: &Counts<N>,
) -> Result<(), Error>
where
    for<'a> [(&'a str, &'a str); N]: EncodeLabelSet,
{
    let name = format!("pv_collector_{name}");
    let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
    for (values, count) in counts {
        let pairs: [(&str, &str); N] = std::array::from_fn(|at| (labels[at], values[at].as_str()));
        let gauge = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
        gauge.encode(family.encode_family(&pairs)?)?;
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: usize) -> Result<(), Error> {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}
