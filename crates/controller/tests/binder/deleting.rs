//! Deletions of volumes: what refuses them, and volumes that come back.

use bindery_controller::{REASON_UNWRITABLE, WriteError};
use bindery_core::{FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Volume};
use bindery_engine::DefaultEngine;
use bindery_store::{Delivery, Kind};

use crate::disk::Disk;
use crate::double::{PROTECTION, holding};
use crate::operating::{binder, key, released, run_during};

#[tokio::test]
async fn a_deletion_that_a_webhook_refuses_is_told_at_the_volume() {
    let double = holding([released()], []);
    let binder = binder(&double, &Disk::new(&double), DefaultEngine);
    double.fail_write(2, WriteError::Forbidden("a webhook denies it".to_owned()));
    let operation = binder.sync(&key()).await.operations.pop().expect("the volume is to be deleted");
    assert_eq!(binder.perform(operation).await, Ok(()), "as in upstream");
    assert_eq!(double.write_names(), ["annotate volume", "delete volume"]);
    assert_eq!(double.notes_about(|told| *told.uid() == released().uid), [REASON_UNWRITABLE]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_volume_that_a_list_brings_back_is_deleted_again() {
    let restored = Volume { finalizers: vec![PROTECTION.into()], ..released() };
    let double = holding([restored.clone()], []);
    let disk = Disk::new(&double);
    let binder = binder(&double, &disk, DefaultEngine);
    let list = |volume: &Volume| {
        binder.intake().deliver(Delivery::listed(Kind::Volume, [volume.clone()], "1"));
    };
    let deletions = || double.write_names().into_iter().filter(|name| *name == "delete volume").count();
    let is_list_wanted = || binder.intake().freshness().is_list_wanted(Kind::Volume);
    run_during(&binder, async {
        binder.intake().list_begins(Kind::Volume);
        double.until("the deletion is accepted", || deletions() == 1).await;
        // The turn after an event clears the timer by which the engine asked for another one.
        binder.intake().enqueue(key());
        double.rest().await;
        assert!(!is_list_wanted(), "the watch after the list in flight may report the deletion");
        list(&restored);
        double.rest().await;
        assert_eq!(deletions(), 1, "the list may have been answered before the deletion was accepted");
        assert!(is_list_wanted(), "the watch does not report the deletion");

        double.add_volume(&restored);
        binder.intake().list_begins(Kind::Volume);
        list(&restored);
        double.until("the deletion is accepted again", || deletions() == 2).await;

        binder.intake().list_begins(Kind::Volume);
        let finalizers = vec![PROTECTION.into(), FINALIZER_EXTERNAL.into()];
        list(&Volume { deleting: true, finalizers, ..restored.clone() });
        double.rest().await;
        assert_eq!(deletions(), 2, "a finalizer holds the volume");

        // The user had deleted it before.
        let finalizers = vec![PROTECTION.into(), FINALIZER_IN_TREE.into()];
        let restored = Volume { deleting: true, finalizers, ..restored.clone() };
        double.add_volume(&restored);
        binder.intake().list_begins(Kind::Volume);
        list(&restored);
        double.until("the deletion is accepted once more", || deletions() == 3).await;
    })
    .await;
}

/// A restore of etcd can take back a deletion that the watch has not reported yet.
#[tokio::test(start_paused = true)]
async fn a_volume_that_was_gone_and_is_back_is_deleted() {
    let double = holding([released()], []);
    let disk = Disk::new(&double);
    let binder = binder(&double, &disk, DefaultEngine);
    double.objects().volumes.clear();
    run_during(&binder, async {
        double.until("the volume is seen to be gone", || binder.metrics().operations.get() == 1).await;
        double.add_volume(&released());
        double.until("it is deleted", || double.write_names().contains(&"delete volume")).await;
    })
    .await;
}
