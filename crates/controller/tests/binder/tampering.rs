//! What people and other programs do to the objects of claims that are steered.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Mode};
use bindery_core::steer::Choice;
use bindery_core::{Claim, ClaimPhase, ClaimRef, Volume};
use bindery_kit::{SameZone, gib, policy};
use tokio::time::Instant;

use crate::double::{Double, claim, holding, volume};
use crate::operating::run_during;
use crate::policies::{in_zone, zoned};
use crate::steering::{binder, binder_in, steered};

/// A claim that is steered.
fn steered_claim() -> Claim {
    Claim { steered: true, ..claim("c") }
}

/// A claimRef by name, as a person writes it.
fn by_name(claim: &str) -> Option<ClaimRef> {
    Some(ClaimRef { namespace: "ns".into(), name: claim.into(), uid: None })
}

/// How often volumes were reserved.
fn reservations(double: &Double) -> usize {
    steered(double).iter().filter(|name| **name == "reserve volume by name").count()
}

/// Removes each reservation of volume `v` until Bindery pauses.
async fn remove_until_paused(double: &Double, binder: &Binder<Double>) {
    for _ in 0..20 {
        let is_reserved = || double.volume("v").claim_ref.is_some();
        double
            .until("it is reserved, or Bindery pauses", || is_reserved() || binder.claims_paused() == 1)
            .await;
        if !is_reserved() {
            return;
        }
        double.change(|objects| {
            let mut free = Volume::clone(&objects.volumes["v"]);
            (free.claim_ref, free.annotations.reserved_for) = (None, None);
            objects.put_volume(free);
        });
    }
    panic!("Bindery does not pause: {:?}", steered(double));
}

#[tokio::test(start_paused = true)]
async fn reservations_that_are_removed_again_and_again_pause_and_say_so() {
    let double = holding([volume("v")], [steered_claim()]);
    let binder = binder(&double);
    run_during(&binder, async {
        remove_until_paused(&double, &binder).await;
        let first = reservations(&double);
        assert!((2..10).contains(&first), "{first}");
        assert_eq!(double.reasons(), ["ReservationRemoved"]);
        let message = &double.messages()[0];
        assert!(message.starts_with(&format!("volume v was reserved for it {first} times")), "{message}");
        // A write that changes only what is removed ends no pause, another one does.
        let paused = Instant::now();
        double.change(|objects| {
            let same = Volume::clone(&objects.volumes["v"]);
            objects.put_volume(same);
        });
        double.until("the pause is over", || reservations(&double) > first).await;
        let lasted = paused.elapsed();
        assert!(lasted > Duration::from_secs(60) && lasted < Duration::from_secs(600), "{lasted:?}");
        assert_eq!(binder.claims_paused(), 0);

        remove_until_paused(&double, &binder).await;
        assert_eq!(reservations(&double), 2 * first);
        let paused = Instant::now();
        double.change(|objects| {
            let labels = [("disk".into(), "new".into())].into();
            let changed = Volume { labels, ..Volume::clone(&objects.volumes["v"]) };
            objects.put_volume(changed);
        });
        double.until("it is reserved again", || reservations(&double) > 2 * first).await;
        assert!(paused.elapsed() < Duration::from_secs(1), "{:?}", paused.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_choice_that_is_removed_again_and_again_is_not_made_without_end() {
    let double = holding([volume("v")], [steered_claim()]);
    let binder = binder(&double);
    run_during(&binder, async {
        for _ in 0..40 {
            let has_choice = || double.claim("c").choice.is_some() && double.volume("v").claim_ref.is_some();
            double
                .until("it is chosen, or Bindery pauses", || has_choice() || binder.claims_paused() == 1)
                .await;
            double.change(|objects| {
                let replaced = Claim { choice: None, ..Claim::clone(&objects.claims[&claim("c").key]) };
                objects.put_claim(replaced);
            });
        }
    })
    .await;
    assert!(reservations(&double) < 10, "{:?}", steered(&double));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_upstream_does_not_bind_is_told_within_a_minute() {
    let double = holding([volume("v")], [steered_claim()]);
    let binder = binder(&double);
    run_during(&binder, async {
        double.until("it is reserved", || double.volume("v").claim_ref.is_some()).await;
        let reserved = Instant::now();
        assert_eq!(binder.claims_overdue(), 0);
        double.until("its user is told", || double.reasons() == ["ReservationNotCarriedOut"]).await;
        assert!(reserved.elapsed() < Duration::from_secs(60), "{:?}", reserved.elapsed());
        assert_eq!(binder.claims_overdue(), 1);
        // The event does not expire while the claim waits.
        double.until("its user is told again", || double.reasons().len() == 2).await;
        double.change(|objects| {
            let mut bound = Claim::clone(&objects.claims[&claim("c").key]);
            (bound.volume_name, bound.status.phase) = (Some("v".into()), ClaimPhase::Bound);
            objects.put_claim(bound);
        });
        double.until("it is not overdue any more", || binder.claims_overdue() == 0).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_persons_reservation_that_the_claim_cannot_have_is_told() {
    let double = holding(
        [
            Volume { claim_ref: by_name("c"), ..volume("small") },
            Volume { capacity: Some(gib(5)), ..volume("large") },
        ],
        [Claim { request: gib(2), ..steered_claim() }],
    );
    let binder = binder(&double);
    run_during(&binder, async {
        double.until("its user is told", || double.reasons().contains(&"ReservationUnfit")).await;
        let message = &double.messages()[0];
        assert!(message.contains("volume small") && message.contains("spec.capacity.storage"), "{message}");
        assert!(steered(&double).is_empty());
        double.change(|objects| {
            let freed = Volume { claim_ref: None, ..Volume::clone(&objects.volumes["small"]) };
            objects.put_volume(freed);
        });
        double.until("another is reserved", || double.volume("large").claim_ref.is_some()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_person_who_reserves_the_volume_in_the_same_moment_keeps_it() {
    for (claim_of_person, reserved) in [("other", "w"), ("c", "v")] {
        let double = holding([volume("v"), Volume { capacity: Some(gib(2)), ..volume("w") }], []);
        let choice = Choice { volume: "v".into(), uid: "uid-v".into(), withdrawn: false };
        double.add_claim(&Claim { choice: Some(choice.into()), ..steered_claim() });
        let binder = binder(&double);
        run_during(&binder, async {
            let permits = u32::try_from(double.gate.available_permits()).unwrap();
            let held = Arc::clone(&double.gate).acquire_many_owned(permits).await.unwrap();
            let is_sent = || double.whole_story().contains(&"reserve volume by name");
            double.until("the reservation is sent", is_sent).await;
            double.change(|objects| {
                let claim_ref = by_name(claim_of_person);
                let taken = Volume { claim_ref, ..Volume::clone(&objects.volumes["v"]) };
                objects.put_volume(taken);
            });
            drop(held);
            double.rest().await;
        })
        .await;
        let named = ["v", "w"].map(|name| double.volume(name).claim_ref == by_name("c"));
        assert_eq!(double.volume("v").claim_ref, by_name(claim_of_person));
        assert!(double.volume("v").annotations.reserved_for.is_none());
        assert_eq!(named, ["v", "w"].map(|name| name == reserved), "{claim_of_person}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_choice_written_by_hand_gives_no_volume_that_a_policy_rejects() {
    let double = holding([in_zone(volume("b1"), "b")], []);
    let choice = Choice { volume: "b1".into(), uid: "uid-b1".into(), withdrawn: false };
    double.add_claim(&Claim { steered: true, choice: Some(choice.into()), ..zoned("c") });
    let binder = binder_in(Mode::Steer, &double, vec![policy("zone", SameZone)]);
    run_during(&binder, async {
        // Upstream's event says nothing of policies.
        double.until("its user is told", || double.reasons().contains(&"VolumesRejected")).await;
        assert!(double.messages()[0].contains("1 of 1 volumes rejected: zone 1"), "{:?}", double.messages());
        assert!(double.claim("c").choice.is_some_and(|choice| choice.withdrawn));
        double.change(|objects| {
            objects.put_volume(in_zone(volume("a1"), "a"));
        });
        double.until("the allowed one is reserved", || double.volume("a1").claim_ref.is_some()).await;
    })
    .await;
    assert_eq!(double.volume("b1").claim_ref, None);
}
