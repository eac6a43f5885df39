//! Random worlds and requests, small enough that objects meet often.

mod objects;

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::guard::Reclaim;
use bindery_core::{
    Claim, ClaimKey, ClaimPhase, ClaimRef, Fate, Migration, Operation, OperationKind, Point, Progress,
    ReclaimPolicy, Request, Returned, Subject, Text, Version, Volume, VolumePhase,
};
use bindery_kit::Choices;

pub(crate) use self::objects::volume_phase;
use self::objects::{claim, classes, plugins, volume};
use crate::model::{Model, Objects, Unreadable};

/// The in-tree plugin of these worlds.
pub(crate) const PLUGIN: &str = "kubernetes.io/mock";
/// The external provisioner of these worlds.
pub(crate) const DRIVER: &str = "vendor.example/disk";
/// The in-tree plugin that has migrated, and its driver.
pub(crate) const MIGRATED: (&str, &str) = ("kubernetes.io/old", "csi.old.example");

const VOLUMES: [&str; 3] = ["v0", "v1", "pvc-uid-c0"];
const CLAIMS: [&str; 3] = ["c0", "c1", "c2"];

/// A world of up to three volumes and three claims.
pub(crate) fn model(c: &mut Choices<'_>) -> Model {
    let (volumes, claims) = (1 + c.below(3), 1 + c.below(3));
    let mut seen = Objects::default();
    for name in &CLAIMS[..claims] {
        let claim = claim(c, name);
        seen.claims.insert(claim.key.clone(), Arc::new(claim));
    }
    for name in &VOLUMES[..volumes] {
        let volume = volume(c, name, &seen);
        seen.volumes.insert(volume.name.clone(), Arc::new(volume));
    }
    if c.percent(30) {
        pair(c, &mut seen);
    }
    let late = if c.percent(15) { late_claim(c, &mut seen) } else { None };
    let mut now = if c.percent(25) { evolved(c, &seen) } else { seen.clone() };
    let truth = if c.percent(25) { evolved(c, &now) } else { now.clone() };
    if let Some(late) = late {
        seen.claims.remove(&late);
        if c.percent(75) {
            now.claims.remove(&late);
        }
    }
    let unreadable = c.percent(5).then(|| {
        if c.percent(50) {
            Unreadable::Volume(c.pick(&VOLUMES).into())
        } else {
            Unreadable::Claim(ClaimKey::new("d", c.pick(&CLAIMS)))
        }
    });
    Model {
        seen,
        now,
        truth,
        classes: classes(c),
        migrations: BTreeMap::from([(MIGRATED.0.into(), Migration::On(MIGRATED.1.into()))]),
        plugins: plugins(c),
        pod_runs: c.percent(15),
        provisioning: !c.percent(5),
        synced: !c.percent(3),
        offers_again: c.percent(20),
        live_fails: c.percent(5),
        unreadable,
        reclaims: reclaims(c),
        claim_proofs: BTreeMap::new(),
        volume_proofs: BTreeMap::new(),
    }
}

/// What reclaimers say about some of the volumes.
fn reclaims(c: &mut Choices<'_>) -> BTreeMap<Text, Reclaim> {
    use Fate::{ByPolicy, Delete, Keep, KeepFor, OfferAgain, Recycle};
    let mut reclaims = BTreeMap::new();
    for name in VOLUMES {
        if c.percent(30) {
            let fate = c.pick(&[ByPolicy, Keep, KeepFor(1), Delete, Recycle, OfferAgain]);
            // The chain lets no volume be offered again that the document does not allow.
            let is_allowed = fate == OfferAgain || c.percent(40);
            reclaims.insert(name.into(), Reclaim { fate, is_allowed });
        }
    }
    reclaims
}

/// Makes the first volume and the first claim a complete pair; sometimes one trait of it is missing.
fn pair(c: &mut Choices<'_>, objects: &mut Objects) {
    let (Some(volume), Some(claim)) =
        (objects.volumes.values_mut().next(), objects.claims.values_mut().next())
    else {
        return;
    };
    let (volume, claim, missing) = (Arc::make_mut(volume), Arc::make_mut(claim), c.below(6));
    volume.claim_ref = Some(ClaimRef {
        namespace: claim.key.namespace.clone(),
        name: claim.key.name.clone(),
        uid: (missing != 1).then(|| claim.uid.clone()),
    });
    claim.annotations.bind_completed = missing != 2;
    claim.volume_name = (missing != 3).then(|| volume.name.clone());
    if missing != 4 {
        volume.phase = VolumePhase::Bound;
    }
    if missing != 5 {
        claim.status.phase = ClaimPhase::Bound;
    }
}

/// Picks a claim that the watch has not delivered yet, and often a volume that it left, so that the cache
/// differs from a live read.
fn late_claim(c: &mut Choices<'_>, objects: &mut Objects) -> Option<ClaimKey> {
    let keys: Vec<_> = objects.claims.keys().cloned().collect();
    let names: Vec<_> = objects.volumes.keys().cloned().collect();
    if keys.len() < 2 {
        return None;
    }
    let (key, name) = (c.pick(&keys), c.pick(&names));
    if c.percent(60) {
        let (claim, volume) = (objects.claims.get_mut(&key)?, objects.volumes.get_mut(&name)?);
        let (claim, volume) = (Arc::make_mut(claim), Arc::make_mut(volume));
        claim.volume_name = Some(c.usually(&["elsewhere".into(), name]));
        volume.claim_ref = Some(ClaimRef {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: Some(claim.uid.clone()),
        });
        volume.phase = c.usually(&[VolumePhase::Released, VolumePhase::Failed, VolumePhase::Bound]);
        volume.policy = c.pick(&[ReclaimPolicy::Delete, ReclaimPolicy::Recycle, ReclaimPolicy::Retain]);
    }
    Some(key)
}

/// The objects after another client has changed one of them.
fn evolved(c: &mut Choices<'_>, before: &Objects) -> Objects {
    let mut after = before.clone();
    let claim = ClaimKey::new("d", c.pick(&CLAIMS));
    let volume: Text = c.pick(&VOLUMES).into();
    match c.below(7) {
        0 => _ = after.claims.remove(&claim),
        1 => _ = after.volumes.remove(&volume),
        choice => {
            if let Some(claim) = after.claims.get_mut(&claim).filter(|_| choice < 5) {
                let claim = Arc::make_mut(claim);
                claim.version = next(&claim.version);
                match choice {
                    2 => claim.volume_name = claim.volume_name.take().or(Some(volume)),
                    3 => (claim.uid, claim.volume_name) = ("uid-again".into(), None),
                    _ => claim.status.phase = ClaimPhase::Pending,
                }
            } else if let Some(volume) = after.volumes.get_mut(&volume) {
                let volume = Arc::make_mut(volume);
                volume.version = next(&volume.version);
                match choice {
                    5 => volume.claim_ref = None,
                    6 => volume.phase = VolumePhase::Released,
                    _ => volume.policy = ReclaimPolicy::Retain,
                }
            }
        }
    }
    after
}

/// The version after this one.
pub(crate) fn next(version: &Version) -> Version {
    let number: u64 = version.0.parse().unwrap_or(0);
    Version((number + 1).to_string().into())
}

/// A request about one of the objects that the engine is shown.
pub(crate) fn request(c: &mut Choices<'_>, model: &mut Model) -> Request {
    let claims: Vec<_> = model.seen.claims.values().cloned().collect();
    let volumes: Vec<_> = model.seen.volumes.values().cloned().collect();
    let (claim, volume) = (c.pick(&claims), c.pick(&volumes));
    let subject = match c.below(12) {
        0..4 => Subject::SyncClaim(claim),
        4..8 => Subject::SyncVolume(volume),
        8 | 9 => {
            let kind = c.pick(&[OperationKind::Provision, OperationKind::ProvisionExternal]);
            let mut object = Claim::clone(&claim);
            if c.percent(80) {
                object.volume_name = None;
                object.annotations.bind_completed = false;
                // Each version has only one content.
                for objects in [&mut model.seen, &mut model.now, &mut model.truth] {
                    for other in objects.claims.values_mut() {
                        if other.target() == object.target() {
                            *other = Arc::new(object.clone());
                        }
                    }
                }
            }
            let class = object.class.clone().unwrap_or_default();
            let served = model.classes.get(&class).map(|class| class.provisioner.clone());
            let plugin = served.filter(|_| !c.percent(10)).unwrap_or_else(|| PLUGIN.into());
            let points = [
                Point::Start,
                Point::Annotated,
                Point::Provisioned,
                Point::Created { attempt: 1 },
                Point::CleanedUp { attempt: 1 },
            ];
            let operation = Operation { kind, plugin, uid: object.uid.clone() };
            Subject::SyncClaimOperation(progress(c, operation, object, None, &points))
        }
        10 => reclaim(c, model, &volume),
        _ if c.percent(20) => Subject::ReviewVolume { new: volume, old: None },
        _ => reclaim(c, model, &volume),
    };
    Request { now: 0, subject }
}

fn reclaim(c: &mut Choices<'_>, model: &mut Model, volume: &Arc<Volume>) -> Subject {
    let mut volume = Volume::clone(volume);
    if c.percent(60) {
        volume.phase = c.usually(&[VolumePhase::Released, VolumePhase::Failed]);
        volume.policy = c.pick(&[ReclaimPolicy::Delete, ReclaimPolicy::Recycle]);
        volume.annotations.migrated_to = None;
        if let Some(claim_ref) = &mut volume.claim_ref {
            claim_ref.uid = Some("uid-former".into());
        }
        for objects in [&mut model.seen, &mut model.now, &mut model.truth] {
            for other in objects.volumes.values_mut() {
                if other.target() == volume.target() {
                    *other = Arc::new(volume.clone());
                }
            }
        }
    }
    let kind = if volume.policy == ReclaimPolicy::Recycle || c.percent(10) {
        OperationKind::Recycle
    } else {
        OperationKind::Delete
    };
    let fresh = model.truth.volumes.get(&volume.name).filter(|_| c.percent(50)).map(|v| Volume::clone(v));
    let points = [Point::Start, Point::Deleted, Point::FinalizerRemoved, Point::Recycled];
    let operation = Operation { kind, plugin: "".into(), uid: volume.uid.clone() };
    Subject::SyncVolumeOperation(progress(c, operation, volume, fresh, &points))
}

fn progress<T>(
    c: &mut Choices<'_>,
    operation: Operation,
    object: T,
    fresh: Option<Volume>,
    points: &[Point],
) -> Progress<T> {
    let point = c.pick(points);
    let returned = match point {
        Point::Start => Returned::Success,
        _ => c.pick(&[
            Returned::Success,
            Returned::Failed("backend refused".into()),
            Returned::InUse("mounted".into()),
            Returned::AlreadyExists,
        ]),
    };
    Progress { operation, object, fresh, point, returned }
}
