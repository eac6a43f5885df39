//! The served resources, as one table. Facts that only discovery shows, such as short names, are in its
//! recorded documents.

/// One resource of the API: its names, its scope, and how the real server treats it.
#[derive(Debug)]
pub(crate) struct Resource {
    /// API group; empty for the core group.
    pub(crate) group: &'static str,
    /// The plural, as in paths.
    pub(crate) plural: &'static str,
    /// The kind, which is also the key of the stored objects: both resources of events share theirs.
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    /// Whether there is a status subresource.
    pub(crate) has_status: bool,
    /// Whether a PUT of a missing object creates it.
    pub(crate) create_on_update: bool,
    /// Whether an update without resourceVersion is accepted.
    pub(crate) unconditional_update: bool,
    /// Whether deletion waits for a grace period.
    pub(crate) graceful: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) generation: bool,
    /// Whether a deletion is answered with the deleted object instead of a Status.
    pub(crate) delete_returns_object: bool,
    /// Whether something of a real cluster runs the object, and nothing does here.
    pub(crate) not_run: bool,
    /// Whether there is a subresource `scale`.
    pub(crate) has_scale: bool,
}

/// The only served version of each group.
pub(crate) const VERSION: &str = "v1";

/// Kinds with rules of their own in several places.
pub(crate) const VOLUME: &str = "PersistentVolume";
pub(crate) const CLAIM: &str = "PersistentVolumeClaim";
pub(crate) const CLASS: &str = "StorageClass";
pub(crate) const POD: &str = "Pod";
pub(crate) const NAMESPACE: &str = "Namespace";
pub(crate) const EVENT: &str = "Event";
pub(crate) const STATEFUL_SET: &str = "StatefulSet";
pub(crate) const ENDPOINTS: &str = "Endpoints";

/// The group of access reviews, which are answered and not stored.
pub(crate) const AUTHORIZATION: &str = "authorization.k8s.io";
pub(crate) const APPS: &str = "apps";
pub(crate) const BATCH: &str = "batch";
pub(crate) const DISCOVERY: &str = "discovery.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// Groups in the order of discovery, without the core group.
pub(crate) const GROUPS: [&str; 8] =
    [APPS, EVENTS, AUTHORIZATION, BATCH, NETWORKING, STORAGE, COORDINATION, DISCOVERY];

const fn cluster(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        group,
        plural,
        kind,
        namespaced: false,
        has_status: false,
        create_on_update: false,
        unconditional_update: true,
        graceful: false,
        generation: false,
        delete_returns_object: false,
        not_run: false,
        has_scale: false,
    }
}

const fn namespaced(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { namespaced: true, ..cluster(group, plural, kind) }
}

const fn storage(plural: &'static str, kind: &'static str) -> Resource {
    Resource { delete_returns_object: true, ..cluster(STORAGE, plural, kind) }
}

const fn workload(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { has_status: true, generation: true, not_run: true, ..namespaced(group, plural, kind) }
}

const fn scalable(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { has_scale: true, ..workload(group, plural, kind) }
}

/// The subresource `scale` of workloads, whose objects have a kind of their own.
pub(crate) static SCALE: Resource = namespaced("autoscaling", "scale", "Scale");

/// The table, in the order in which the end of a namespace deletes objects.
pub(crate) static RESOURCES: [Resource; 30] = [
    Resource { has_status: true, delete_returns_object: true, ..cluster("", "persistentvolumes", VOLUME) },
    Resource {
        has_status: true,
        delete_returns_object: true,
        ..namespaced("", "persistentvolumeclaims", CLAIM)
    },
    Resource {
        has_status: true,
        graceful: true,
        generation: true,
        delete_returns_object: true,
        ..namespaced("", "pods", POD)
    },
    Resource { has_status: true, ..cluster("", "nodes", "Node") },
    Resource { has_status: true, ..cluster("", "namespaces", NAMESPACE) },
    Resource { create_on_update: true, ..namespaced("", "events", EVENT) },
    Resource { create_on_update: true, ..namespaced(EVENTS, "events", EVENT) },
    Resource {
        create_on_update: true,
        unconditional_update: false,
        ..namespaced(COORDINATION, "leases", "Lease")
    },
    namespaced("", "configmaps", "ConfigMap"),
    storage("storageclasses", CLASS),
    storage("volumeattributesclasses", "VolumeAttributesClass"),
    Resource { unconditional_update: false, generation: true, ..storage("csidrivers", "CSIDriver") },
    Resource { unconditional_update: false, ..storage("csinodes", "CSINode") },
    Resource {
        unconditional_update: false,
        ..namespaced(STORAGE, "csistoragecapacities", "CSIStorageCapacity")
    },
    Resource {
        has_status: true,
        unconditional_update: false,
        ..storage("volumeattachments", "VolumeAttachment")
    },
    Resource { delete_returns_object: true, ..namespaced("", "serviceaccounts", "ServiceAccount") },
    namespaced("", "secrets", "Secret"),
    Resource {
        has_status: true,
        delete_returns_object: true,
        not_run: true,
        ..namespaced("", "services", "Service")
    },
    namespaced("", "endpoints", ENDPOINTS),
    Resource { generation: true, ..namespaced(DISCOVERY, "endpointslices", "EndpointSlice") },
    scalable(APPS, "deployments", "Deployment"),
    scalable(APPS, "statefulsets", STATEFUL_SET),
    scalable(APPS, "replicasets", "ReplicaSet"),
    scalable("", "replicationcontrollers", "ReplicationController"),
    workload(APPS, "daemonsets", "DaemonSet"),
    workload(BATCH, "jobs", "Job"),
    workload(BATCH, "cronjobs", "CronJob"),
    workload(NETWORKING, "ingresses", "Ingress"),
    cluster(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    cluster(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
];

impl Resource {
    /// `v1` or `GROUP/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { VERSION.to_owned() } else { format!("{}/{VERSION}", self.group) }
    }

    /// `persistentvolumes` or `storageclasses.storage.k8s.io`, as error messages name it.
    pub(crate) fn qualified(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// The group and version as paths and recorded documents begin: `api/v1` or `apis/GROUP/v1`.
    pub(crate) fn path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("{root}/{}", self.api_version())
    }

    /// The object's key in etcd, which some messages show.
    pub(crate) fn storage_key(&self, namespace: &str, name: &str) -> String {
        let folder = if self.plural == "nodes" { "minions" } else { self.plural };
        let scope = if self.namespaced { format!("{namespace}/") } else { String::new() };
        format!("/registry/{folder}/{scope}{name}")
    }
}

/// A plural or kind with its group: `storageclasses.storage.k8s.io`.
pub(crate) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// Finds a resource by group and plural.
pub(crate) fn by_plural(group: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural && resource.group == group)
}

/// Finds a resource by apiVersion and kind.
pub(crate) fn by_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.kind == kind && resource.api_version() == api_version)
}

/// Finds a resource by its plural (`persistentvolumes`), or `PLURAL.GROUP`.
pub(crate) fn by_name(name: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == name || resource.qualified() == name)
}
