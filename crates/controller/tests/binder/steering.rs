//! Mode steer on a cluster in memory, in which the test is upstream.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Mode, Parts, REASON_UNWRITABLE, Settings, WriteError};
use bindery_core::steer::{Choice, SteerWrite};
use bindery_core::{Claim, ClaimRef, Volume, VolumePhase};
use bindery_engine::DefaultEngine;
use bindery_kit::gib;
use bindery_policy::{Chain, Policy};
use tokio::time::Instant;

use crate::double::{Double, binder_of, claim, holding, parts, volume};
use crate::operating::run_during;
use crate::policies::key;

pub(crate) fn binder(double: &Double) -> Arc<Binder<Double>> {
    binder_in(Mode::Steer, double, Vec::new())
}

/// A binder that sees each later change at once.
pub(crate) fn binder_in(mode: Mode, double: &Double, policies: Vec<Policy>) -> Arc<Binder<Double>> {
    let settings = Settings { mode, ..Settings::default() };
    let policies = Arc::new(Chain::new(policies));
    let configuration = Configuration { policies, ..Configuration::default() };
    let binder = binder_of(Parts { settings, configuration, ..parts(double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    binder
}

/// The names of the writes that succeeded.
pub(crate) fn steered(double: &Double) -> Vec<&'static str> {
    let objects = double.objects();
    objects.steered.iter().filter(|(_, result)| result.is_ok()).map(|(write, _)| write.name()).collect()
}

/// Binds a claim to the volume that is reserved for it, as upstream does.
fn bind(double: &Double, volume: &str, name: &str) {
    let reserved = double.volume(volume);
    double.change(|objects| {
        let mut bound = Claim::clone(&objects.claims[&claim(name).key]);
        let claim_ref =
            reserved.claim_ref.clone().map(|by_name| ClaimRef { uid: Some(bound.uid.clone()), ..by_name });
        objects.put_volume(Volume { claim_ref, phase: VolumePhase::Bound, ..reserved });
        bound.volume_name = Some(volume.into());
        bound.status.phase = bindery_core::ClaimPhase::Bound;
        objects.put_claim(bound);
    });
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_touched_until_bound_and_its_reservation_then_forgotten() {
    let double = holding([volume("v")], [Claim { steered: true, ..claim("c") }]);
    let binder = binder(&double);
    run_during(&binder, async {
        let begin = Instant::now();
        let touches = |count| steered(&double).iter().filter(|name| **name == "touch claim").count() == count;
        for (count, after) in [(1, 0), (2, 250), (3, 1_000), (4, 4_000)] {
            double.until("it is touched", || touches(count)).await;
            // By the virtual clock.
            assert!(begin.elapsed() >= Duration::from_millis(after), "{count}: {:?}", begin.elapsed());
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        let reserved = double.volume("v");
        let by_name = ClaimRef { namespace: "ns".into(), name: "c".into(), uid: None };
        assert_eq!(reserved.claim_ref, Some(by_name));
        bind(&double, "v", "c");
        double.until("it is forgotten", || double.volume("v").annotations.reserved_for.is_none()).await;
    })
    .await;
    let begun = ["annotate claim with choice", "reserve volume by name"];
    assert_eq!(steered(&double)[..2], begun);
    assert!(double.writes().is_empty(), "nothing of upstream's loop is done");
}

#[tokio::test(start_paused = true)]
async fn of_many_reserved_claims_few_are_touched_while_upstream_binds() {
    let double = Double::new();
    for i in 0..60 {
        double.add_volume(&volume(&format!("v{i}")));
        double.add_claim(&Claim { steered: true, ..claim(&format!("c{i}")) });
    }
    let binder = binder(&double);
    let count = |write: &str| steered(&double).iter().filter(|name| **name == write).count();
    let (touched, forgotten) = (|| count("touch claim"), || count("forget reservation of volume"));
    run_during(&binder, async {
        double.until("all are reserved", || binder.metrics().steer_reservations.get() == 60).await;
        double.until("the first are touched", || touched() >= 32).await;
        let volumes: Vec<_> = double.objects().volumes.values().cloned().collect();
        for volume in &volumes[..10] {
            bind(&double, &volume.name, &volume.claim_ref.as_ref().unwrap().name);
            let bound = Instant::now();
            // By the virtual clock.
            double.until("it is seen", || bound.elapsed() >= Duration::from_millis(100)).await;
        }
        assert_eq!((touched(), forgotten()), (32, 0));
        let rests = Instant::now();
        double.until("the others are touched", || touched() > 32).await;
        assert!(rests.elapsed() >= Duration::from_millis(150), "{:?}", rests.elapsed());
        double.until("those that are bound are forgotten", || forgotten() == 10).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_choice_whose_volume_has_changed_is_withdrawn_before_another_follows() {
    let double = holding([volume("v"), Volume { capacity: Some(gib(2)), ..volume("w") }], []);
    let choice = Choice { volume: "v".into(), uid: "uid-v".into(), withdrawn: false };
    let request = gib(2);
    double.add_claim(&Claim { steered: true, request, choice: Some(choice.into()), ..claim("c") });
    let binder = binder(&double);
    run_during(&binder, async {
        double.until("another is reserved", || double.volume("w").claim_ref.is_some()).await;
    })
    .await;
    let expected =
        ["withdraw choice of claim", "fence volume", "annotate claim with choice", "reserve volume by name"];
    assert_eq!(steered(&double)[..4], expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_steered_is_left_alone_and_a_gone_claims_volume_freed() {
    let double = holding([volume("v")], [claim("plain"), Claim { steered: true, ..claim("c") }]);
    let binder = binder(&double);
    run_during(&binder, async {
        double.until("it is reserved", || double.volume("v").claim_ref.is_some()).await;
        double.change(|objects| objects.remove_claim(&claim("c").key));
        double.until("it is free again", || double.volume("v").claim_ref.is_none()).await;
    })
    .await;
    let of_plain = |write: &SteerWrite| format!("{write:?}").contains("plain");
    assert!(!double.objects().steered.iter().any(|(write, _)| of_plain(write)));
    assert!(double.writes().is_empty());
    assert_eq!(binder.metrics().steer_releases.get(), 1);
}

/// As by a policy of the API server, or without the right to write.
#[tokio::test]
async fn a_steering_write_that_the_api_server_does_not_take_is_told() {
    let refusals = [
        (WriteError::Invalid("a policy wants a label".to_owned()), 1),
        (WriteError::Forbidden("cannot patch".to_owned()), 1),
        (WriteError::Conflict("changed".to_owned()), 0),
        (WriteError::Failed("no answer".to_owned()), 0),
    ];
    let writes = ["annotate claim with choice", "reserve volume by name", "touch claim"];
    for (error, told) in refusals {
        for (nth, write) in writes.into_iter().enumerate() {
            let double = holding([volume("v")], [Claim { steered: true, ..claim("c") }]);
            let binder = binder(&double);
            double.fail_write(nth + 1, error.clone());
            assert!(binder.sync(&key("c")).await.result.is_err());
            assert_eq!(steered(&double), writes[..nth]);
            assert_eq!(double.reasons(), vec![REASON_UNWRITABLE; told], "{write}: {error}");
            assert!(double.messages().iter().all(|message| message.contains(write)), "{write}");
        }
    }
}
