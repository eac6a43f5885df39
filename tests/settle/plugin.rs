//! The in-tree plugin of these worlds. What it destroys is held against the law.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{
    Claim, ClaimRef, FINALIZER_IN_TREE, Plugin as Description, PluginOperation, ReclaimPolicy, Text, Uid,
    Volume, VolumeAnnotations, VolumePhase,
};
use futures::future::{BoxFuture, FutureExt as _};

use crate::law;
use crate::server::Server;
use crate::world::{PLUGIN, PROTECTION, SOURCE};

/// The plugin: its first calls fail, the others succeed.
pub(crate) struct MockPlugin {
    server: Server,
    failures_left: Mutex<usize>,
}

impl MockPlugin {
    pub(crate) fn new(server: &Server) -> Self {
        let failures = server.weather().plugin_failures;
        Self { server: server.clone(), failures_left: Mutex::new(failures) }
    }

    fn fails(&self) -> Result<(), PluginError> {
        let mut left = self.failures_left.lock().unwrap();
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(PluginError::Failed("the disk is on fire".into()))
    }

    /// Takes the data of a volume away.
    fn destroy(&self, volume: &Volume) {
        let mut server = self.server.inner();
        if let Err(violation) = law::may_destroy(&server, volume) {
            server.accuse(format!("{violation}: the plugin and {volume:?}"));
        }
    }
}

impl Plugin<Volume> for MockPlugin {
    fn describe(&self) -> Description {
        Description {
            name: PLUGIN.into(),
            provisions: true,
            deletes: true,
            recycles: true,
            mount_options: false,
        }
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == SOURCE
    }

    fn ready(&self, _: PluginOperation) -> Result<(), Text> {
        Ok(())
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Volume, PluginError>> {
        async {
            self.fails()?;
            self.server.inner().assets.provisioned.insert(order.claim.uid.clone());
            let mut volume = provisioned(&order.claim, PLUGIN);
            volume.finalizers.push(FINALIZER_IN_TREE.into());
            volume.source = SOURCE.into();
            Ok(volume)
        }
        .boxed()
    }

    fn discard<'a>(&'a self, template: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async {
            self.fails()?;
            let uid: Option<&Uid> = template.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.as_ref());
            let mut server = self.server.inner();
            uid.map(|uid| server.assets.provisioned.remove(uid));
            Ok(())
        }
        .boxed()
    }

    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async {
            self.fails()?;
            self.destroy(volume);
            self.server.inner().assets.deleted.insert(volume.uid.clone());
            Ok(())
        }
        .boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async {
            self.fails()?;
            self.destroy(volume);
            self.server.inner().assets.recycled.insert(volume.uid.clone());
            Ok(())
        }
        .boxed()
    }
}

/// The volume that a provisioner makes for a claim.
pub(crate) fn provisioned(claim: &Claim, by: &str) -> Volume {
    let name: Text = format!("pvc-{}", claim.uid).into();
    Volume {
        uid: Uid(format!("uid-{name}").into()),
        name,
        version: "0".into(),
        deleting: false,
        labels: BTreeMap::new(),
        annotations: VolumeAnnotations {
            bound_by_controller: true,
            provisioned_by: Some(by.into()),
            migrated_to: None,
            pre_resize_capacity: None,
        },
        finalizers: vec![PROTECTION.into()],
        capacity: Some(claim.request),
        access_modes: claim.access_modes.clone(),
        class: claim.class.clone().unwrap_or_else(|| "".into()),
        mode: claim.mode,
        attributes_class: claim.attributes_class.clone(),
        claim_ref: Some(ClaimRef {
            namespace: claim.key.namespace.clone(),
            name: claim.key.name.clone(),
            uid: Some(claim.uid.clone()),
        }),
        policy: ReclaimPolicy::Delete,
        node_affinity: false,
        source: "csi".into(),
        phase: VolumePhase::Pending,
    }
}
