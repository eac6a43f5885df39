//! The in-tree plugin of these worlds. The law checks each destruction of data.

use std::sync::Mutex;

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{
    Claim, ClaimRef, FINALIZER_IN_TREE, Plugin as Description, PluginOperation, ReclaimPolicy, Text, Volume,
    VolumePhase,
};
use bindery_kit::VOLUME_PROTECTION;
use futures::future::{BoxFuture, FutureExt as _, ready};

use crate::law::{self, Api, Assets};
use crate::world::{PLUGIN, SOURCE};

/// The plugin. Its first calls fail, later ones succeed.
pub(crate) struct MockPlugin {
    api: Api,
    failures_left: Mutex<usize>,
}

impl MockPlugin {
    pub(crate) fn new(api: &Api, failures: usize) -> Self {
        Self { api: api.clone(), failures_left: Mutex::new(failures) }
    }

    fn succeed(&self) -> Result<(), PluginError> {
        let mut left = self.failures_left.lock().unwrap();
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(PluginError::Failed("the disk is on fire".into()))
    }

    /// Destroys the data of a volume and records it.
    fn destroy(&self, volume: &Volume, note: impl FnOnce(&mut Assets)) -> Result<(), PluginError> {
        self.succeed()?;
        let mut state = self.api.objects();
        if let Err(violation) = law::may_destroy(&state, volume) {
            state.extra.violations.push(format!("{violation}: the plugin and {volume:?}"));
        }
        note(&mut state.extra.assets);
        Ok(())
    }

    fn make(&self, claim: &Claim) -> Result<Volume, PluginError> {
        self.succeed()?;
        self.api.objects().extra.assets.provisioned.insert(claim.uid.clone());
        let mut volume = provisioned(claim, PLUGIN);
        volume.finalizers.push(FINALIZER_IN_TREE.into());
        volume.source = SOURCE.into();
        Ok(volume)
    }

    fn discard(&self, template: &Volume) -> Result<(), PluginError> {
        self.succeed()?;
        if let Some(uid) = law::uid_in(template) {
            self.api.objects().extra.assets.provisioned.remove(uid);
        }
        Ok(())
    }
}

impl Plugin<Volume> for MockPlugin {
    fn describe(&self) -> Description {
        bindery_kit::plugin(PLUGIN)
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == SOURCE
    }

    fn ready(&self, _: PluginOperation) -> Result<(), Text> {
        Ok(())
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Volume, PluginError>> {
        ready(()).map(|()| self.make(&order.claim)).boxed()
    }

    fn discard<'a>(&'a self, template: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        ready(()).map(|()| self.discard(template)).boxed()
    }

    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        let note = |assets: &mut Assets| _ = assets.deleted.insert(volume.uid.clone());
        ready(()).map(move |()| self.destroy(volume, note)).boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        let note = |assets: &mut Assets| _ = assets.recycled.insert(volume.uid.clone());
        ready(()).map(move |()| self.destroy(volume, note)).boxed()
    }
}

/// The volume that a provisioner makes for a claim.
pub(crate) fn provisioned(claim: &Claim, by: &str) -> Volume {
    let name = format!("pvc-{}", claim.uid);
    let mut volume = Volume {
        finalizers: vec![VOLUME_PROTECTION.into()],
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
        source: "csi".into(),
        phase: VolumePhase::Pending,
        ..bindery_kit::volume(&name)
    };
    volume.annotations.bound_by_controller = true;
    volume.annotations.provisioned_by = Some(by.into());
    volume
}
