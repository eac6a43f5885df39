//! What the operator configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{Migration, Text};
use bindery_policy::Chain;

use crate::{Plugins, Shadow};

/// The operator's configuration that engines may ask for.
pub struct Configuration<T> {
    /// The in-tree plugins.
    pub plugins: Arc<Plugins<T>>,
    /// Which in-tree plugins are migrated to CSI drivers.
    pub migrations: Migrations,
    /// Whether volumes are provisioned on demand (upstream's `--enable-dynamic-provisioning`).
    pub dynamic_provisioning: bool,
    /// Whether released volumes may be offered again without being scrubbed, which shows their data to the
    /// next tenant. Off by default.
    pub offer_again: bool,
    /// The policies at the start; [`crate::Binder::swap_policies`] replaces them. None by default.
    pub policies: Arc<Chain>,
    /// What decides beside engine and policies at the start; [`crate::Binder::swap_shadows`] replaces it.
    /// None by default.
    pub shadows: Vec<Shadow>,
}

/// Which in-tree plugins are migrated to CSI drivers (KEP-625).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Migrations {
    /// These, by the names of the plugins.
    Table(BTreeMap<Text, Text>),
    /// Every plugin, to this driver: what upstream's tests assume.
    Every(Text),
}

/// In-tree plugins whose code is gone and whose volumes a CSI driver serves, unconditionally since the gates
/// were removed (`csi-translation-lib`).
const UPSTREAM: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

impl Migrations {
    /// Those of Kubernetes v1.36.
    pub fn upstream() -> Self {
        Self::Table(UPSTREAM.into_iter().map(|(plugin, driver)| (plugin.into(), driver.into())).collect())
    }

    /// The migration of the plugin of that name.
    pub fn get(&self, plugin: &str) -> Migration {
        match self {
            Self::Table(drivers) => drivers.get(plugin).cloned().map_or(Migration::Off, Migration::On),
            Self::Every(driver) => Migration::On(driver.clone()),
        }
    }
}

impl<T> Default for Configuration<T> {
    /// The default: no plugin, upstream's migrations, provisioning on.
    fn default() -> Self {
        Self {
            plugins: Arc::default(),
            migrations: Migrations::upstream(),
            dynamic_provisioning: true,
            offer_again: false,
            policies: Arc::default(),
            shadows: Vec::new(),
        }
    }
}
