//! Metrics of each shadow. Their labels are kinds and names of objects, so their number is bounded.

use std::fmt::Error;

use bindery_controller::Shadow;
use bindery_policy::{DifferenceKind, ShadowMetrics, ShadowReleased};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family;
use crate::serve::health::ReplicaHealth;

/// A counter: its name, its help, and its value.
type Counted = (&'static str, &'static str, fn(&ShadowMetrics) -> u64);

const COUNTERS: [Counted; 4] = [
    ("shadow_compared", "Decisions that a shadow has made too, and that were compared", |metrics| {
        metrics.compared.get()
    }),
    (
        "shadow_not_comparable",
        "Decisions of a shadow that could not be compared, because the cluster had changed too much",
        |metrics| metrics.not_comparable.get(),
    ),
    ("shadow_dropped", "Decisions that a shadow did not make, because there were too many", |metrics| {
        metrics.dropped.get()
    }),
    (
        "shadow_not_sampled",
        "Decisions that a shadow did not make, because their objects are outside its share",
        |metrics| metrics.not_sampled.get(),
    ),
];

/// Metrics of each policy and engine that decides beside those in effect.
pub(super) fn encode(health: &ReplicaHealth, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let policies = health.binder.policies();
    let shadows: Vec<&Shadow> = policies.shadows().collect();
    for (name, help, value) in COUNTERS {
        let samples = shadows.iter().map(|it| ([it.kind(), &*it.name], value(&it.metrics)));
        family(encoder, name, help, MetricType::Counter, ["kind", "name"], samples)?;
    }
    let differences = shadows.iter().flat_map(|it| {
        let count = |kind: DifferenceKind| it.metrics.differences(kind);
        DifferenceKind::ALL.map(|kind| ([it.kind(), &*it.name, kind.name()], count(kind)))
    });
    let (name, help) = ("shadow_differences", "Decisions of a shadow that differ from those made, by how");
    family(encoder, name, help, MetricType::Counter, ["kind", "name", "difference"], differences)?;
    let released = shadows.iter().filter_map(|it| Some((it, it.metrics.released()?)));
    let fates = released.flat_map(|(it, ShadowReleased { kept, later, due, offered })| {
        let fates = [("kept", kept), ("later", later), ("due", due), ("offered", offered)];
        fates.map(|(fate, count)| ([it.kind(), &*it.name, fate], count))
    });
    let (name, help) = ("shadow_released_volumes", "Released volumes, by what a shadow would have done");
    family(encoder, name, help, MetricType::Gauge, ["kind", "name", "fate"], fates)
}
