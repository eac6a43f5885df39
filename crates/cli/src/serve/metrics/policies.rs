//! Metrics of each policy. Their labels are names of documents and declared reasons, so their number is
//! bounded.

use std::fmt::Error;

use bindery_policy::{Activity, FaultCause};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;

use super::family;
use crate::serve::health::ReplicaHealth;

/// A metric with one value for each policy: its name, its help, its type, and its value.
type Single = (&'static str, &'static str, MetricType, fn(&Activity<'_>) -> u64);

const SINGLES: [Single; 6] = [
    ("policy_loaded", "Whether a policy's module is loaded", MetricType::Gauge, |policy| {
        u64::from(policy.metadata.is_some())
    }),
    ("policy_rows", "Volumes that a policy has judged", MetricType::Counter, |policy| {
        policy.metrics.rows.get()
    }),
    (
        "policy_waits",
        "Decisions that ended because their claim or volume waits for a policy",
        MetricType::Counter,
        |policy| policy.metrics.waits.get(),
    ),
    (
        "policy_unscored",
        "Decisions that picked a volume although there were more candidates than a policy scores",
        MetricType::Counter,
        |policy| policy.metrics.unscored.get(),
    ),
    ("policy_fuel", "Units of fuel that a policy has used", MetricType::Counter, |policy| policy.fuel),
    ("policy_verdicts_kept", "Verdicts of a policy that are kept", MetricType::Gauge, |policy| {
        policy.verdicts_kept as u64
    }),
];

/// Metrics of each policy, and of each cluster object; none where there is none.
pub(super) fn encode(health: &ReplicaHealth, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let objects = health.objects.lock().clone();
    let policies = health.binder.policies();
    let policies: Vec<_> = policies.activities().collect();
    if policies.is_empty() && objects.is_empty() {
        return Ok(());
    }
    let help = "Whether the newest generation of an engine or policy is in use";
    let samples = objects.iter().map(|((kind, name), ready)| ([kind, name], u64::from(*ready)));
    family(encoder, "policy_object_ready", help, MetricType::Gauge, ["kind", "name"], samples)?;
    for (name, help, kind, value) in SINGLES {
        let samples = policies.iter().map(|policy| ([&**policy.name], value(policy)));
        family(encoder, name, help, kind, ["policy"], samples)?;
    }
    let reasons = policies.iter().filter_map(|policy| {
        let counts = policy.metadata?.reasons.iter().zip(policy.metrics.rejected());
        Some(counts.map(|(reason, count)| ([&**policy.name, &*reason.name], count)))
    });
    let help =
        "Volumes that a policy has judged and rejected, or whose reclaim policy it overrides, by reason";
    let labels = ["policy", "reason"];
    family(encoder, "policy_rejected_rows", help, MetricType::Counter, labels, reasons.flatten())?;
    let causes = policies.iter().flat_map(|policy| {
        FaultCause::ALL.map(|cause| ([&**policy.name, cause.name()], policy.metrics.faults(cause)))
    });
    let help = "Calls to which a policy gave no answer, by cause";
    family(encoder, "policy_faults", help, MetricType::Counter, ["policy", "cause"], causes)?;
    let help = "Time of asking a policy to narrow, or to judge a batch of volumes";
    let mut durations =
        encoder.encode_descriptor("policy_duration_seconds", help, None, MetricType::Histogram)?;
    for policy in policies {
        policy.metrics.duration.encode(durations.encode_family(&[("policy", &**policy.name)])?)?;
    }
    Ok(())
}
