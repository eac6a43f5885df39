//! The template of recycler pods, and how long they may run.

use std::time::Duration;

use bindery_core::Volume;
use serde_json::{Value, json};

/// Where the built-in pod runs.
const NAMESPACE: &str = "default";
/// Keeps a pod from being scheduled until its volume has been read once more.
pub(super) const GATE: &str = "bindery.dev/volume-read";
/// The image of upstream v1.36.
pub const RECYCLER_IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
/// Deletes everything below `/scrub`, and fails if something is left.
const SCRIPT: &str =
    "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";
const GIB: u64 = 1 << 30;

/// The template of recycler pods, and how long they may run.
#[derive(Clone, Debug)]
pub struct RecyclerSettings {
    /// The pod. The source of its first volume is replaced. It may not name a node.
    pub pod: Value,
    /// Lowest `activeDeadlineSeconds`.
    pub minimum_seconds: u64,
    /// `activeDeadlineSeconds` for each GiB of capacity.
    pub seconds_per_gib: u64,
}

/// Why a recycler pod's template cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A pod that names its node starts at once, and the API server does not let it have a gate.
    #[error(
        "the recycler pod's template has spec.nodeName, so it could not be held back until its volume has \
         been read once more: choose its node by spec.nodeSelector or spec.affinity"
    )]
    NodeName,
    /// The template has no volume to replace.
    #[error("the recycler pod's template has no metadata or no entry in spec.volumes")]
    NoVolume,
}

impl RecyclerSettings {
    /// Upstream's for hostPath.
    pub fn host_path() -> Self {
        Self { pod: default_pod(), minimum_seconds: 60, seconds_per_gib: 30 }
    }

    /// Upstream's for NFS.
    pub fn nfs() -> Self {
        Self { pod: default_pod(), minimum_seconds: 300, seconds_per_gib: 30 }
    }

    /// The same settings with another image, which must have a shell and `find`. For clusters that cannot
    /// reach upstream's registry.
    #[must_use]
    pub fn with_image(mut self, image: &str) -> Self {
        self.pod["spec"]["containers"][0]["image"] = image.into();
        self
    }

    pub(super) fn deadline(&self, volume: &Volume) -> Duration {
        let gib = volume.capacity.map_or(0, |capacity| capacity.whole / GIB);
        Duration::from_secs(self.minimum_seconds.max(gib.saturating_mul(self.seconds_per_gib)))
    }

    pub(super) fn check(&self) -> Result<(), TemplateError> {
        let spec = &self.pod["spec"];
        if spec["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            return Err(TemplateError::NodeName);
        }
        let is_whole = self.pod["metadata"].is_object() && spec["volumes"][0].is_object();
        if is_whole { Ok(()) } else { Err(TemplateError::NoVolume) }
    }

    /// Where pods are listed and created.
    pub(super) fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace())
    }

    pub(super) fn namespace(&self) -> &str {
        self.pod["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE)
    }

    /// The pod that scrubs a volume. It has a name of its own, so that concurrent recycles do not meet, a
    /// gate, and the volume as its owner.
    pub(super) fn pod_for(&self, volume: &Volume, source: Value) -> Value {
        let mut pod = self.pod.clone();
        let meta = &mut pod["metadata"];
        meta.as_object_mut().map(|meta| meta.remove("generateName"));
        meta["name"] = format!("recycler-for-{}", volume.name).into();
        meta["ownerReferences"] = json!([{
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "name": *volume.name,
            "uid": *volume.uid.0,
        }]);
        let spec = &mut pod["spec"];
        let first = &mut spec["volumes"][0];
        let name = first["name"].take();
        *first = source;
        first["name"] = name;
        spec["activeDeadlineSeconds"] = self.deadline(volume).as_secs().into();
        let mut gates = gates(spec);
        gates.push(json!({"name": GATE}));
        spec["schedulingGates"] = gates.into();
        pod
    }
}

/// The scheduling gates of a pod's spec.
pub(super) fn gates(spec: &Value) -> Vec<Value> {
    spec["schedulingGates"].as_array().cloned().unwrap_or_default()
}

/// Whether a pod has the gate of [`RecyclerSettings::pod_for`].
pub(super) fn is_gated(pod: &Value) -> bool {
    gates(&pod["spec"]).iter().any(|gate| gate["name"] == GATE)
}

/// Upstream's `NewPersistentVolumeRecyclerPodTemplate`.
fn default_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "", "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "vol"}],
            "containers": [{
                "name": "pv-recycler",
                "image": RECYCLER_IMAGE,
                "command": ["/bin/sh"],
                "args": ["-c", SCRIPT],
                "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_with_another_image_keeps_the_script() {
        let settings = RecyclerSettings::nfs().with_image("registry.example/scrub@sha256:0");
        let container = &settings.pod["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/scrub@sha256:0");
        assert_eq!(container["args"][1], SCRIPT);
    }

    #[test]
    fn a_template_without_volume_or_with_a_node_is_refused() {
        let with = |field: &str, value: Value| {
            let mut settings = RecyclerSettings::nfs();
            settings.pod["spec"][field] = value;
            settings.check()
        };
        assert_eq!(with("nodeSelector", json!({"disk": "local"})), Ok(()));
        assert_eq!(with("volumes", json!([])), Err(TemplateError::NoVolume));
        let refused = with("nodeName", "node-1".into()).unwrap_err();
        assert!(refused.to_string().contains("spec.nodeName"), "{refused}");
    }
}
