//! The objects of a world. Their names and values are few, so that they meet.

use bindery_core::{BindingMode, Claim, ClaimFact, ClaimKey, ClaimRef, Class, ReclaimPolicy, Text, Volume};
use bindery_kit::{Choices, ZONE, gib};
use bindery_store::{ObservedPod, PodContent};

use crate::law::{Api, Objects};

pub(crate) const CLAIMS: [&str; 3] = ["c0", "c1", "c2"];
pub(crate) const VOLUMES: [&str; 4] = ["v0", "v1", "v2", "v3"];
const ZONES: [&str; 2] = ["a", "b"];
/// The class that waits for a pod.
pub(crate) const LOCAL: &str = "local";
/// The claims of each pod. No pod has a node, so the scheduler tries them again and again.
pub(crate) const PODS: [&[&str]; 2] = [&["c0"], &["c1", "c2"]];
/// What the nodes reach, one each, beside the volumes that all of them reach.
pub(crate) const TOPOLOGIES: [u64; 2] = [1, 2];

/// The class, as it never changes.
pub(crate) fn class() -> Class {
    bindery_kit::class(LOCAL, "kubernetes.io/no-provisioner", Some(BindingMode::WaitForFirstConsumer))
}

/// The pods, as they never change.
pub(crate) fn pods() -> Vec<ObservedPod> {
    let pod = |(name, claims): (&str, &[&str])| {
        let claims = claims.iter().map(|&claim| claim.into()).collect();
        let content = Ok(PodContent { claims, scheduled: false, terminated: false });
        ObservedPod { namespace: "d".into(), name: name.into(), content }
    };
    ["p0", "p1"].into_iter().zip(PODS).map(pod).collect()
}

pub(crate) fn key(name: &str) -> ClaimKey {
    ClaimKey::new("d", name)
}

/// Creates a claim. It is steered in most cases.
pub(crate) fn create_claim(c: &mut Choices<'_>, objects: &mut Objects, name: &str) {
    let mut claim = bindery_kit::claim(key(name));
    claim.uid = objects.extra.next_uid(name);
    claim.class = Some(if c.percent(40) { LOCAL } else { "" }.into());
    claim.request = gib(c.usually(&[1, 2]));
    claim.steered = !c.percent(10);
    let zone: Text = c.usually(&ZONES).into();
    claim.facts.set(ClaimFact::Label(ZONE.into()), Some(zone.clone()));
    objects.extra.zones.insert(claim.uid.clone(), zone);
    objects.put_claim(claim);
}

/// Creates a volume.
pub(crate) fn create_volume(c: &mut Choices<'_>, objects: &mut Objects, name: &str) {
    let mut volume = bindery_kit::volume(name);
    volume.uid = objects.extra.next_uid(name);
    volume.capacity = Some(gib(c.usually(&[1, 2, 3])));
    if c.percent(40) {
        volume.class = LOCAL.into();
        volume.topology = c.pick(&[Some(1), Some(2), None]);
    }
    volume.labels.insert(ZONE.into(), c.usually(&ZONES).into());
    if c.percent(20) {
        volume.policy = ReclaimPolicy::Delete;
        volume.annotations.provisioned_by = Some("vendor.example/disk".into());
    }
    objects.put_volume(volume);
}

/// Whether policy and upstream allow the claim a free volume.
pub(crate) fn fits(objects: &Objects, claim: &Claim, volume: &Volume) -> bool {
    let zone = &objects.extra.zones[&claim.uid];
    !volume.deleting
        && *volume.class == *claim.class.as_deref().unwrap_or_default()
        && volume.capacity >= Some(claim.request)
        && volume.labels.get(ZONE) == Some(zone)
}

/// What a user does.
pub(crate) fn act(c: &mut Choices<'_>, api: &Api) {
    let (action, claim, volume) = (c.below(12), c.pick(&CLAIMS), c.pick(&VOLUMES));
    api.objects().extra.is_person = true;
    api.change(|objects| match action {
        0 => objects.remove_claim(&key(claim)),
        1 | 2 => {
            objects.remove_claim(&key(claim));
            create_claim(c, objects, claim);
        }
        3 if !objects.claims.contains_key(&key(claim)) => create_claim(c, objects, claim),
        4 => change_volume(objects, volume, |volume| {
            if volume.claim_ref.is_none() {
                let ClaimKey { namespace, name } = key(claim);
                volume.claim_ref = Some(ClaimRef { namespace, name, uid: None });
            }
        }),
        5 => change_volume(objects, volume, |volume| {
            volume.claim_ref = volume.claim_ref.take().filter(|claim_ref| claim_ref.uid.is_some());
        }),
        6 => {
            if let Some(mut claim) = objects.claims.get(&key(claim)).map(|claim| Claim::clone(claim)) {
                objects.extra.tampered.insert(claim.key.clone());
                claim.choice = None;
                objects.put_claim(claim);
            }
        }
        7 => change_volume(objects, volume, |volume| volume.annotations.reserved_for = None),
        8 if objects.volumes.get(volume).is_none_or(|volume| is_not_bound(volume)) => {
            objects.delete_volume(&volume.into());
            create_volume(c, objects, volume);
        }
        9 => change_volume(objects, volume, |volume| {
            volume.labels.insert(ZONE.into(), c.pick(&ZONES).into());
        }),
        10 => change_volume(objects, volume, |volume| volume.capacity = Some(gib(c.pick(&[1, 2, 3])))),
        // Of a bound volume, or of a released one, which a person thereby reserves for the next claim.
        11 => change_volume(objects, volume, |volume| {
            if let Some(claim_ref) = &mut volume.claim_ref {
                claim_ref.uid = None;
            }
        }),
        _ => {}
    });
    api.objects().extra.is_person = false;
}

fn is_not_bound(volume: &Volume) -> bool {
    volume.claim_ref.as_ref().is_none_or(|claim_ref| claim_ref.uid.is_none())
}

/// Changes a volume. The claims that it names, before or afterwards, are a person's affair from then on.
fn change_volume(objects: &mut Objects, name: &str, change: impl FnOnce(&mut Volume)) {
    let Some(mut volume) = objects.volumes.get(name).map(|volume| Volume::clone(volume)) else { return };
    let named = |volume: &Volume| volume.claim_ref.as_ref().map(ClaimRef::claim_key);
    let before = (named(&volume), volume.annotations.reserved_for.clone());
    change(&mut volume);
    let changed = before != (named(&volume), volume.annotations.reserved_for.clone());
    let uid_changed = objects.volumes[name].claim_ref != volume.claim_ref;
    if changed || uid_changed {
        objects.extra.tampered.extend(before.0);
        objects.extra.tampered.extend(named(&volume));
    }
    objects.put_volume(volume);
}
