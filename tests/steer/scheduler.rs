//! The scheduler's part for classes that wait for a pod: its plugin VolumeBinding.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::steer::steering_key;
use bindery_core::{Claim, ClaimRef, Text, Volume, VolumePhase};

use crate::law::{Api, Objects};
use crate::world::{self, LOCAL, PODS, TOPOLOGIES};

/// Binds the claims of each pod to volumes that one node can reach, if there are enough (`FindPodVolumes`,
/// `BindPodVolumes`): for one claim after the other the smallest one that its selector matches.
pub(crate) fn schedule(api: &Api) {
    for claims in PODS {
        let chosen = {
            let objects = api.objects();
            TOPOLOGIES.iter().find_map(|node| choose(&objects, claims, *node))
        };
        for (claim, volume) in chosen.into_iter().flatten() {
            api.objects().extra.is_scheduler = true;
            api.change(|objects| {
                let claim_ref = ClaimRef {
                    namespace: claim.key.namespace.clone(),
                    name: claim.key.name.clone(),
                    uid: Some(claim.uid.clone()),
                };
                let mut bound = Volume { claim_ref: Some(claim_ref), ..Volume::clone(&volume) };
                bound.annotations.bound_by_controller = true;
                objects.put_volume(bound);
            });
            api.objects().extra.is_scheduler = false;
        }
    }
}

/// The claims of a pod that need a volume, each with one that the node can reach; `None` if one has none.
fn choose(objects: &Objects, claims: &[&str], node: u64) -> Option<Vec<(Arc<Claim>, Arc<Volume>)>> {
    let mut unbound = Vec::new();
    for name in claims {
        let claim = objects.claims.get(&world::key(name))?;
        if claim.class.as_deref() != Some(LOCAL) {
            continue;
        }
        let has = |volume: &&Arc<Volume>| {
            let by = volume.claim_ref.as_ref();
            claim.volume_name.as_ref() == Some(&volume.name)
                || by.is_some_and(|by| by.claim_key() == claim.key && by.uid.as_ref() == Some(&claim.uid))
        };
        match objects.volumes.values().find(has) {
            Some(volume) if volume.topology.is_some_and(|topology| topology != node) => return None,
            Some(_) => {}
            None if claim.volume_name.is_some() || claim.deleting => return None,
            None => unbound.push(Arc::clone(claim)),
        }
    }
    unbound.sort_by_key(|claim| claim.request);
    let mut taken: BTreeSet<Text> = BTreeSet::new();
    let mut chosen = Vec::new();
    for claim in unbound {
        let fits = |volume: &&Arc<Volume>| {
            !taken.contains(&volume.name)
                && volume.topology.is_none_or(|topology| topology == node)
                && is_free_for(&claim, volume)
        };
        let volume = objects.volumes.values().filter(fits).min_by_key(|volume| volume.capacity)?;
        taken.insert(volume.name.clone());
        let volume = Arc::clone(volume);
        chosen.push((claim, volume));
    }
    Some(chosen)
}

/// Whether the scheduler may take a volume for a claim (`FindMatchingVolume`).
fn is_free_for(claim: &Claim, volume: &Volume) -> bool {
    let key = steering_key(&claim.key).expect("the names fit");
    volume.claim_ref.is_none()
        && volume.phase == VolumePhase::Available
        && !volume.deleting
        && &*volume.class == LOCAL
        && volume.capacity >= Some(claim.request)
        && (!claim.steered || volume.labels.contains_key(&*key))
}
