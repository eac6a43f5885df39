//! The check for other binders, and what stops when one is noticed.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Parts};
use bindery_core::{Claim, ClaimPhase, ReclaimPolicy, Volume, VolumePhase};
use bindery_engine::DefaultEngine;
use bindery_store::{Author, Authors, Delivered, Delivery, LazyAuthors, Object};

use crate::disk::Disk;
use crate::double::{Double, binder_of, claim, holding, parts, volume};
use crate::operating::{released, run_during};
use crate::syncing::taken;

fn other() -> Author {
    Author::Other("kube-controller-manager".into())
}

fn by(author: Author, object: impl Into<Object>) -> Delivery {
    let authors = Authors { phase: author.clone(), bind_completed: author, claim_ref: Author::Unknown };
    Delivery::Applied(Delivered { object: object.into(), authors: Some(authors.into()) })
}

fn binder(double: &Double) -> Arc<Binder<Double>> {
    binder_of(parts(double, DefaultEngine))
}

/// Whether this volume, delivered after one of 1 GiB in phase Pending, counts as a sign of another binder.
fn is_sign_of_volume(after: impl FnOnce(Volume) -> Volume, author: Author) -> bool {
    let before = Volume { phase: VolumePhase::Pending, version: "2".into(), ..volume("v") };
    let double = holding([before.clone()], []);
    let binder = binder(&double);
    binder.intake().deliver(by(author, after(Volume { version: "3".into(), ..before })));
    is_noticed(&binder)
}

fn is_sign_of_claim(after: impl FnOnce(Claim) -> Claim, author: Author) -> bool {
    let double = holding([], [Claim { version: "2".into(), ..claim("c") }]);
    let binder = binder(&double);
    binder.intake().deliver(by(author, after(Claim { version: "3".into(), ..claim("c") })));
    is_noticed(&binder)
}

fn is_noticed(binder: &Binder<Double>) -> bool {
    let check = binder.intake().foreign_writers().expect("it may write");
    assert_eq!(check.holds(), check.writes() > 0);
    check.holds()
}

#[test]
fn authors_are_read_only_where_a_change_may_be_a_sign() {
    let before = Volume { version: "2".into(), ..volume("v") };
    let double = holding([before.clone()], []);
    let object = Volume { version: "3".into(), deleting: true, ..before }.into();
    let authors = Some(LazyAuthors::new(|| panic!("its authors are read")));
    binder(&double).intake().deliver(Delivery::Applied(Delivered { object, authors }));
}

#[test]
fn only_what_only_binders_write_is_a_sign() {
    let available = |volume| Volume { phase: VolumePhase::Available, ..volume };
    assert!(is_sign_of_volume(available, other()));
    assert!(!is_sign_of_volume(available, Author::Bindery));
    assert!(!is_sign_of_volume(available, Author::Unknown));
    // A user, the scheduler or a provisioner may reserve a volume.
    let reserved = |volume| Volume { claim_ref: released().claim_ref, ..volume };
    assert!(!is_sign_of_volume(reserved, other()));
    // Another volume of that name was made with its phase.
    assert!(!is_sign_of_volume(|volume| Volume { uid: "new".into(), ..available(volume) }, other()));
    // A restore of etcd brought back an old write of another binder that is off now.
    assert!(!is_sign_of_volume(|volume| Volume { version: "1".into(), ..available(volume) }, other()));

    let bound = |mut claim: Claim| {
        claim.status.phase = ClaimPhase::Bound;
        claim
    };
    let marked = |mut claim: Claim| {
        claim.annotations.bind_completed = true;
        claim
    };
    assert!(is_sign_of_claim(bound, other()) && is_sign_of_claim(marked, other()));
    assert!(!is_sign_of_claim(bound, Author::Bindery) && !is_sign_of_claim(marked, Author::Bindery));
    assert!(!is_sign_of_claim(|claim| Claim { version: "1".into(), ..bound(claim) }, other()));
    assert!(!is_sign_of_claim(|claim| Claim { volume_name: Some("v".into()), ..claim }, other()));
}

#[tokio::test]
async fn the_echo_of_an_own_write_is_not_a_sign_whatever_its_author() {
    let double = holding([Volume { phase: VolumePhase::Pending, ..volume("v") }], []);
    let binder = binder(&double);
    assert_eq!(binder.sync(&bindery_core::Key::Volume("v".into())).await.result, Ok(()));
    let written = double.volume("v");
    assert_eq!(written.phase, VolumePhase::Available);
    binder.intake().deliver(by(other(), written));
    assert!(!is_noticed(&binder));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_it_is_held_and_everything_afterwards() {
    let double = holding([released(), volume("free")], [claim("c2")]);
    let disk = Disk::new(&double);
    let binder = binder_of(Parts { configuration: disk.configuration(), ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    let check = binder.intake().foreign_writers().expect("it may write");
    check.hold();
    run_during(&binder, async {
        double.rest().await;
        assert!(!double.story().contains(&"disk begins") && double.has_volume("v1"));
        assert_eq!(double.claim("c2").status.phase, ClaimPhase::Bound);
        assert!(check.release(0));
        double.until("the volume is gone", || !double.has_volume("v1")).await;
    })
    .await;
}

#[test]
fn what_was_written_after_the_operator_had_looked_is_not_acknowledged() {
    let before = Volume { phase: VolumePhase::Pending, ..volume("v") };
    let double = holding([before.clone()], []);
    let binder = binder(&double);
    let check = binder.intake().foreign_writers().expect("it may write");
    let after = Volume { phase: VolumePhase::Available, version: "2".into(), ..before };
    binder.intake().deliver(by(other(), after.clone()));
    let acknowledged = check.writes();
    let failed = Volume { phase: VolumePhase::Failed, version: "3".into(), ..after };
    binder.intake().deliver(by(other(), failed));
    assert!(!check.release(acknowledged) && check.holds());
    assert!(check.release(check.writes()) && !check.holds());
}

/// Stops recycling and deleting while the plugin works on a volume, runs a check once that has come to rest,
/// and then lets the plugin finish.
async fn hold_while_it_works(volume: &Volume, held: impl Fn(&Double), is_done: impl Fn(&Double) -> bool) {
    let double = holding([volume.clone()], []);
    let disk = Disk::new(&double);
    let gate = Arc::clone(&disk.gate).acquire_many_owned(1_000).await.expect("the gate is never closed");
    let binder = binder_of(Parts { configuration: disk.configuration(), ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    let check = binder.intake().foreign_writers().expect("it may write");
    run_during(&binder, async {
        double.until("the plugin works", || double.story().contains(&"disk begins")).await;
        check.hold();
        drop(gate);
        double.rest().await;
        assert!(double.story().contains(&"disk ends"));
        held(&double);
        assert!(check.release(0));
        double.until("it is done", || is_done(&double)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_under_way_ends_before_its_next_step() {
    let held = |double: &Double| assert!(double.has_volume("v1"));
    hold_while_it_works(&released(), held, |double| !double.has_volume("v1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_being_scrubbed_is_not_offered_while_it_is_held() {
    let mut volume = taken("v1", "c1");
    (volume.phase, volume.policy) = (VolumePhase::Released, ReclaimPolicy::Recycle);
    volume.annotations.bound_by_controller = true;
    let held = |double: &Double| {
        assert_eq!((double.volume("v1").claim_ref, double.writes()), (volume.claim_ref.clone(), Vec::new()));
    };
    hold_while_it_works(&volume, held, |double| double.volume("v1").claim_ref.is_none()).await;
}
