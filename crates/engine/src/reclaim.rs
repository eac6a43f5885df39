//! Reclaiming a released volume: upstream's `reclaimVolume`.

use bindery_core::{
    EventKind, Follows, IN_TREE_PREFIX, Message, OperationKind, Plugin, PluginFound, PluginMatch,
    ReclaimPolicy, Source, Stop, Text, Volume,
};

use crate::bind::fail_volume;
use crate::call::{Call, Halt};
use crate::provision::start;

/// Reclaims a released volume by its policy (`reclaimVolume`).
pub(crate) fn reclaim(call: &mut Call<'_>, volume: &Volume) -> Result<(), Halt> {
    if volume.annotations.migrated_to.as_ref().is_some_and(|driver| !driver.is_empty()) {
        // Its external provisioner reclaims it.
        return Ok(());
    }
    match volume.policy {
        ReclaimPolicy::Retain => Ok(()),
        ReclaimPolicy::Recycle => start(call, OperationKind::Recycle, &"".into(), &volume.uid),
        ReclaimPolicy::Delete => start(call, OperationKind::Delete, &"".into(), &volume.uid),
        ReclaimPolicy::Unknown => {
            let (message, event) = (Message::UnknownReclaimPolicy, EventKind::UnknownReclaimPolicy);
            fail_volume(call, volume, Follows::Success, message, event);
            Ok(())
        }
    }
}

/// Whether no claim uses `volume`, by the cache (`isVolumeReleased`).
pub(crate) fn is_unclaimed(call: &mut Call<'_>, volume: &Volume) -> Result<bool, Halt> {
    let Some(claim_ref) = &volume.claim_ref else { return Ok(false) };
    let Some(uid) = &claim_ref.uid else { return Ok(false) };
    let key = claim_ref.claim_key();
    Ok(match call.claim(Source::Overlay, &key)? {
        Some(claim) if claim.uid == *uid => {
            claim.volume_name.as_ref().is_some_and(|name| *name != volume.name)
        }
        Some(_) | None => true,
    })
}

/// What deletes the asset of a volume.
pub(crate) enum Deleter {
    /// The in-tree plugin of this name.
    Plugin(Text),
    /// An external provisioner.
    External,
    /// No plugin, though an in-tree plugin should.
    Missing(Message),
}

/// Finds the deleter of the asset of `volume` (`findDeletablePlugin`).
pub(crate) fn find_deleter(call: &mut Call<'_>, volume: &Volume) -> Result<Deleter, Stop> {
    if let Some(name) = volume.annotations.provisioned_by.as_ref().filter(|name| !name.is_empty()) {
        return deleter_by_name(call, name);
    }
    // Its CSI driver deletes it, or the administrator of a static CSI volume.
    if volume.annotations.migrated_to.is_some() || volume.is_csi() {
        return Ok(Deleter::External);
    }
    let found = match call.cluster.plugin_for_volume(volume.name.clone())? {
        PluginMatch::One(plugin) if plugin.deletes => return Ok(Deleter::Plugin(plugin.name)),
        PluginMatch::One(_) => PluginFound::Unable,
        PluginMatch::None => PluginFound::None,
        PluginMatch::Several(names) => PluginFound::Several(names),
    };
    Ok(Deleter::Missing(Message::NoDeleter { volume: volume.name.clone(), found }))
}

/// Finds the deleter of assets that the plugin `name` has provisioned.
pub(crate) fn deleter_by_name(call: &mut Call<'_>, name: &Text) -> Result<Deleter, Stop> {
    match call.cluster.plugin(name.clone())? {
        Some(Plugin { deletes: true, .. }) => Ok(Deleter::Plugin(name.clone())),
        Some(_) | None if name.starts_with(IN_TREE_PREFIX) => {
            Ok(Deleter::Missing(Message::NoPlugin(name.clone())))
        }
        Some(_) | None => Ok(Deleter::External),
    }
}
