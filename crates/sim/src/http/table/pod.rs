//! The row of a pod, as upstream's `printPod` makes it.

use serde_json::{Value, json};

use super::age::since;
use super::or;
use crate::clock::Clock;
use crate::object::{self, items, text};

/// The condition of the row of an ended pod.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// A summary of the containers.
#[derive(Default)]
struct Summary {
    reason: String,
    restarts: i64,
    ready: usize,
    last_restart: String,
}

pub(super) fn cells(pod: &Value, clock: &Clock) -> Value {
    let mut summary = Summary { reason: first_reason(pod).to_owned(), ..Summary::default() };
    if !initializing(pod, &mut summary) || has_condition(pod, "Initialized") {
        containers(pod, &mut summary);
    }
    let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    if object::is_deleting(pod) {
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !ended {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    let restarts = if summary.restarts != 0 && !summary.last_restart.is_empty() {
        format!("{} ({} ago)", summary.restarts, since(&summary.last_restart, clock))
    } else {
        summary.restarts.to_string()
    };
    let gates = items(pod, "/spec/readinessGates");
    let gate_count = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        let is_true = |gate: &&Value| has_condition(pod, text(gate, "/conditionType"));
        format!("{}/{}", gates.iter().filter(is_true).count(), gates.len())
    };
    json!([
        object::name(pod),
        format!("{}/{}", summary.ready, items(pod, "/spec/containers").len()),
        summary.reason,
        restarts,
        since(object::meta_text(pod, "creationTimestamp"), clock),
        or(text(pod, "/status/podIPs/0/ip"), "<none>"),
        or(text(pod, "/spec/nodeName"), "<none>"),
        or(text(pod, "/status/nominatedNodeName"), "<none>"),
        gate_count,
    ])
}

fn first_reason(pod: &Value) -> &str {
    let gated = items(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    if gated { "SchedulingGated" } else { or(text(pod, "/status/reason"), text(pod, "/status/phase")) }
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    items(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn count_restarts(container: &Value, summary: &mut Summary) {
    let restarts = container["restartCount"].as_i64().unwrap_or(0);
    summary.restarts = summary.restarts.saturating_add(restarts);
    // Timestamps of one format compare as texts.
    let ended = text(container, "/lastState/terminated/finishedAt");
    if ended > summary.last_restart.as_str() {
        ended.clone_into(&mut summary.last_restart);
    }
}

/// The end of a container, in a word.
fn ending(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match terminated["signal"].as_i64() {
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
    }
}

/// Whether init containers still run or failed. If so, sets the reason.
fn initializing(pod: &Value, summary: &mut Summary) -> bool {
    let total = items(pod, "/spec/initContainers").len();
    for (index, container) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
        count_restarts(container, summary);
        let waiting = text(container, "/state/waiting/reason");
        summary.reason = match container.pointer("/state/terminated") {
            Some(terminated) if terminated["exitCode"].as_i64().unwrap_or(0) == 0 => continue,
            Some(terminated) => format!("Init:{}", ending(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{index}/{total}"),
        };
        return true;
    }
    false
}

fn containers(pod: &Value, summary: &mut Summary) {
    summary.restarts = 0;
    summary.last_restart.clear();
    let (mut running, mut error) = (false, String::new());
    for container in items(pod, "/status/containerStatuses").iter().rev() {
        count_restarts(container, summary);
        let waiting = text(container, "/state/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if let Some(terminated) = container.pointer("/state/terminated") {
            summary.reason = ending(terminated);
            if terminated["exitCode"].as_i64().unwrap_or(0) != 0 {
                error.clone_from(&summary.reason);
            }
        } else if container["ready"] == true && container.pointer("/state/running").is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        if running && has_condition(pod, "Ready") {
            "Running".clone_into(&mut summary.reason);
        } else if !error.is_empty() {
            summary.reason = error;
        } else if running {
            "NotReady".clone_into(&mut summary.reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: Value, ready: &str, status: &str) {
        let cells = cells(&pod, &Clock::default());
        assert_eq!((cells[1].as_str(), cells[2].as_str()), (Some(ready), Some(status)), "{pod}");
    }

    #[test]
    fn the_status_of_a_pod_is_as_upstream_prints_it() {
        let spec = json!({"containers": [{"name": "a"}]});
        check(json!({"spec": spec, "status": {"phase": "Pending"}}), "0/1", "Pending");
        let running =
            json!({"phase": "Running", "containerStatuses": [{"ready": true, "state": {"running": {}}}]});
        check(json!({"spec": spec, "status": running}), "1/1", "Running");
        let done = json!({
            "phase": "Succeeded",
            "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
        });
        check(json!({"spec": spec, "status": done}), "0/1", "Completed");
        check(
            json!({"metadata": {"deletionTimestamp": "x"}, "spec": spec, "status": running}),
            "1/1",
            "Terminating",
        );
        let crash =
            json!({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]});
        check(json!({"spec": spec, "status": crash}), "0/1", "ExitCode:3");
    }
}
