//! A stand-in for the scheduler and the kubelet: pods without a scheduling gate run, and succeed.

use std::sync::Arc;
use std::time::Duration;

use bindery_kit::json::merged;
use serde_json::{Value, json};
use tokio::time::interval;

use crate::law;
use crate::timeline::Timeline;

/// A pod succeeds within this time.
const EVERY: Duration = Duration::from_secs(3);

/// Runs pods for ever.
pub(crate) async fn keep(timeline: Arc<Timeline>) {
    let mut ticks = interval(EVERY);
    loop {
        ticks.tick().await;
        timeline.until_up().await;
        let runs = |pod: &Value| !law::is_gated(pod) && pod["status"]["phase"] == "Pending";
        for pod in timeline.sim.objects("pods").into_iter().filter(runs) {
            law::scrubbed_by(&timeline.sim, &pod).iter().for_each(|volume| timeline.note_scrub(volume));
            timeline.sim.put(merged(pod, json!({"status": {"phase": "Succeeded"}})));
        }
    }
}
