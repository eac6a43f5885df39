//! The kinds that the simulator serves, as one table. What only discovery tells of them, such as short names,
//! is in its recorded documents.

/// One resource of the API: its names, its scope, and how the real server treats it.
#[derive(Debug)]
pub(crate) struct Resource {
    /// API group; empty for the core group.
    pub(crate) group: &'static str,
    /// The plural, as in paths.
    pub(crate) plural: &'static str,
    /// The kind of one object.
    pub(crate) kind: &'static str,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Whether there is a status subresource.
    pub(crate) has_status: bool,
    /// Whether a PUT creates what does not exist.
    pub(crate) create_on_update: bool,
    /// Whether an update without resourceVersion is accepted.
    pub(crate) unconditional_update: bool,
    /// Whether deletion waits for a grace period (pods), and `spec` changes count generations.
    pub(crate) graceful: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) generation: bool,
    /// Whether a successful deletion answers the object as it was last, rather than a Status.
    pub(crate) delete_returns_object: bool,
    /// Index of the resource that keeps the objects; another one for a second view of the same objects.
    pub(crate) stored_as: usize,
}

/// All versions served are v1.
pub(crate) const VERSION: &str = "v1";

const STORAGE: &str = "storage.k8s.io";

const BASE: Resource = Resource {
    group: "",
    plural: "",
    kind: "",
    namespaced: false,
    has_status: false,
    create_on_update: false,
    unconditional_update: true,
    graceful: false,
    generation: false,
    delete_returns_object: false,
    stored_as: 0,
};

/// Index of namespaces in [`RESOURCES`].
pub(crate) const NAMESPACES: usize = 4;
/// Index of core events in [`RESOURCES`].
pub(crate) const EVENTS: usize = 5;
/// Index of volumes in [`RESOURCES`].
pub(crate) const VOLUMES: usize = 0;
/// Index of claims in [`RESOURCES`].
pub(crate) const CLAIMS: usize = 1;
/// Index of pods in [`RESOURCES`].
pub(crate) const PODS: usize = 2;
/// Index of storage classes in [`RESOURCES`].
pub(crate) const CLASSES: usize = 9;

/// The table. The order is free, but for the indices above and `stored_as`.
pub(crate) static RESOURCES: [Resource; 17] = [
    Resource {
        plural: "persistentvolumes",
        kind: "PersistentVolume",
        has_status: true,
        delete_returns_object: true,
        stored_as: 0,
        ..BASE
    },
    Resource {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        namespaced: true,
        has_status: true,
        delete_returns_object: true,
        stored_as: 1,
        ..BASE
    },
    Resource {
        plural: "pods",
        kind: "Pod",
        namespaced: true,
        has_status: true,
        graceful: true,
        generation: true,
        delete_returns_object: true,
        stored_as: 2,
        ..BASE
    },
    Resource { plural: "nodes", kind: "Node", has_status: true, stored_as: 3, ..BASE },
    Resource { plural: "namespaces", kind: "Namespace", has_status: true, stored_as: 4, ..BASE },
    Resource {
        plural: "events",
        kind: "Event",
        namespaced: true,
        create_on_update: true,
        stored_as: 5,
        ..BASE
    },
    Resource {
        group: "events.k8s.io",
        plural: "events",
        kind: "Event",
        namespaced: true,
        create_on_update: true,
        stored_as: 5,
        ..BASE
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        namespaced: true,
        create_on_update: true,
        unconditional_update: false,
        stored_as: 7,
        ..BASE
    },
    Resource { plural: "configmaps", kind: "ConfigMap", namespaced: true, stored_as: 8, ..BASE },
    Resource {
        group: STORAGE,
        plural: "storageclasses",
        kind: "StorageClass",
        delete_returns_object: true,
        stored_as: 9,
        ..BASE
    },
    Resource {
        group: STORAGE,
        plural: "volumeattributesclasses",
        kind: "VolumeAttributesClass",
        delete_returns_object: true,
        stored_as: 10,
        ..BASE
    },
    Resource {
        group: STORAGE,
        plural: "csidrivers",
        kind: "CSIDriver",
        unconditional_update: false,
        generation: true,
        delete_returns_object: true,
        stored_as: 11,
        ..BASE
    },
    Resource {
        group: STORAGE,
        plural: "csinodes",
        kind: "CSINode",
        unconditional_update: false,
        delete_returns_object: true,
        stored_as: 12,
        ..BASE
    },
    Resource {
        group: STORAGE,
        plural: "csistoragecapacities",
        kind: "CSIStorageCapacity",
        namespaced: true,
        unconditional_update: false,
        stored_as: 13,
        ..BASE
    },
    Resource {
        group: STORAGE,
        plural: "volumeattachments",
        kind: "VolumeAttachment",
        has_status: true,
        unconditional_update: false,
        delete_returns_object: true,
        stored_as: 14,
        ..BASE
    },
    Resource {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        namespaced: true,
        delete_returns_object: true,
        stored_as: 15,
        ..BASE
    },
    Resource { plural: "secrets", kind: "Secret", namespaced: true, stored_as: 16, ..BASE },
];

/// Groups in the order in which discovery lists them, the core group left out.
pub(crate) const GROUPS: [&str; 3] = ["events.k8s.io", STORAGE, "coordination.k8s.io"];

impl Resource {
    /// `v1` or `GROUP/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { VERSION.to_owned() } else { format!("{}/{VERSION}", self.group) }
    }

    /// `persistentvolumes` or `storageclasses.storage.k8s.io`, as error messages name it.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `PersistentVolume` or `StorageClass.storage.k8s.io`, as validation errors name it.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The key under which etcd keeps the object, which some messages show.
    pub(crate) fn storage_key(&self, namespace: &str, name: &str) -> String {
        let folder = match self.plural {
            "nodes" => "minions",
            other => other,
        };
        if self.namespaced {
            format!("/registry/{folder}/{namespace}/{name}")
        } else {
            format!("/registry/{folder}/{name}")
        }
    }
}

/// Finds a resource by group and plural.
pub(crate) fn by_plural(group: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural && resource.group == group)
}

/// Finds a resource by apiVersion and kind.
pub(crate) fn by_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.kind == kind && resource.api_version() == api_version)
}

/// Finds a resource by its plural alone (`persistentvolumes`), or `plural.group`.
pub(crate) fn by_name(name: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == name || resource.qualified() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_fit_the_table() {
        assert_eq!(RESOURCES[NAMESPACES].plural, "namespaces");
        assert_eq!(RESOURCES[EVENTS].plural, "events");
        assert_eq!(RESOURCES[VOLUMES].plural, "persistentvolumes");
        assert_eq!(RESOURCES[CLAIMS].plural, "persistentvolumeclaims");
        assert_eq!(RESOURCES[PODS].plural, "pods");
        assert_eq!(RESOURCES[CLASSES].plural, "storageclasses");
        for (index, resource) in RESOURCES.iter().enumerate() {
            assert!(resource.stored_as == index || resource.group == "events.k8s.io");
        }
    }
}
