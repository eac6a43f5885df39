//! The claims that a volume wakes, and the concurrent writes of claims and volumes.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Parts, Settings, WriteError};
use bindery_core::{
    Action, ClaimPhase, ClaimRef, Cluster, Decision, EngineFault, Outcome, Regarding, Request, Step, Subject,
    Volume, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_store::Delivery;
use tokio::time::Instant;

use crate::double::{Double, Scripted, binder, binder_of, claim, holding, parts, volume};
use crate::operating::run_during;

/// Claims that wait.
const WAITING: u64 = 10_000;

fn arrives(double: &Double, binder: &Binder<Double>, volume: Volume) {
    double.add_volume(&volume);
    binder.intake().deliver(Delivery::applied(volume));
}

#[tokio::test(start_paused = true)]
async fn a_volume_costs_the_same_decisions_however_many_claims_wait() {
    // The claim binds it, and then both are decided once more. A volume that is not Available is made so
    // before.
    for (phase, at_once, most) in [
        (VolumePhase::Available, true, 300),
        (VolumePhase::Available, false, 300),
        (VolumePhase::Pending, true, 400),
    ] {
        let double = Double::new();
        (0..WAITING).for_each(|n| double.add_claim(&claim(&format!("c{n:05}"))));
        // Events are not refreshed, because that would be a decision too.
        let settings = Settings { event_refresh: Duration::from_secs(1 << 30), ..Settings::default() };
        let binder = binder_of(Parts { settings, ..parts(&double, DefaultEngine) });
        double.watch(binder.intake(), Duration::ZERO);
        let decisions = || binder.metrics().decisions.get();
        run_during(&binder, async {
            double.rest().await;
            assert_eq!(decisions(), WAITING);
            let told = double.reasons().len();
            for n in 0..100 {
                let name = format!("v{n:02}");
                arrives(&double, &binder, Volume { phase, ..volume(&name) });
                if !at_once {
                    double.rest().await;
                }
            }
            double.rest().await;
            let made = decisions() - WAITING;
            assert!(made <= most, "{made} decisions for {phase:?}, at once: {at_once}");
            // No claim gets the event again that no volume fits.
            assert_eq!(double.reasons().len(), told);
        })
        .await;
        // Those that have waited longest.
        for n in 0..100 {
            assert_eq!(double.claim(&format!("c{n:05}")).status.phase, ClaimPhase::Bound, "c{n:05}");
        }
        assert_eq!(binder.metrics().conflicts.get(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_a_claim_does_not_take_is_offered_to_the_next_one_at_once() {
    let double = Double::new();
    let names =
        ["a-declines", "b-faults", "c-panics", "d-is-refused", "e-cannot-write", "f-takes", "g-waits"];
    names.iter().for_each(|name| double.add_claim(&claim(name)));
    let engine = Scripted(move |request: &Request, cluster: &mut dyn Cluster| {
        let decision = bindery_engine::decide(request, cluster)?;
        let Subject::SyncClaim(claim) = &request.subject else { return Ok(decision) };
        if !decision.actions().any(|action| matches!(action, Action::ReserveVolume { .. })) {
            return Ok(decision);
        }
        match &*claim.key.name {
            "a-declines" => Ok(Decision::done()),
            "b-faults" => Err(EngineFault::Exhausted("fuel")),
            "c-panics" => panic!("a bug in a native engine"),
            "d-is-refused" => {
                let lost = Action::RemoveSelectedNode { claim: claim.target() };
                Ok(Decision::new(vec![Step::from(lost)], Outcome::Done))
            }
            _ => Ok(decision),
        }
    });
    let binder = binder(&double, engine);
    double.watch(binder.intake(), Duration::ZERO);
    run_during(&binder, async {
        double.rest().await;
        double.fail_write(1, WriteError::Failed("the line is dead".to_owned()));
        let begin = Instant::now();
        arrives(&double, &binder, volume("v1"));
        let bound = || double.claim("f-takes").status.phase == ClaimPhase::Bound;
        double.until("the sixth has taken it", bound).await;
        // By the virtual clock: no claim waited for a timer.
        assert!(begin.elapsed() <= Duration::from_millis(5), "{:?}", begin.elapsed());
        assert_eq!(double.writes().len(), 5);
        double.rest().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_behind_a_reservation_goes_on_when_the_volume_is_taken() {
    let double = holding([volume("v1")], []);
    ["c1", "c2"].iter().for_each(|name| double.add_claim(&claim(name)));
    let binder = binder(&double, DefaultEngine);
    double.watch(binder.intake(), Duration::ZERO);
    let told =
        || double.notes_about(|regarding| matches!(regarding, Regarding::Claim(c) if &*c.key.name == "c2"));
    let writes = Arc::clone(&double.gate).acquire_many_owned(1_000).await.unwrap();
    run_during(&binder, async {
        double.rest().await;
        assert_eq!(told(), [""; 0]);
        drop(writes);
        double.rest().await;
        assert_eq!(double.claim("c1").status.phase, ClaimPhase::Bound);
        assert_eq!(told(), ["FailedBinding"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pairs_that_users_have_made_are_bound_without_a_conflict() {
    const PAIRS: usize = 83;
    for (latency, lag) in [(1, 0), (5, 1), (5, 20), (20, 7)].map(|(a, b)| (Duration::from_millis(a), b)) {
        for names_volume in [false, true] {
            let double = Double::new();
            for n in 0..PAIRS {
                let mut claim = claim(&format!("c{n:02}"));
                let mut volume = Volume { phase: VolumePhase::Pending, ..volume(&format!("v{n:02}")) };
                let key = claim.key.clone();
                let uid = (n % 2 == 0).then(|| claim.uid.clone());
                volume.claim_ref = Some(ClaimRef { namespace: key.namespace, name: key.name, uid });
                claim.volume_name = names_volume.then(|| volume.name.clone());
                double.add_volume(&volume);
                double.add_claim(&claim);
            }
            let binder = binder(&double, DefaultEngine);
            double.set_latency(latency);
            double.watch(binder.intake(), Duration::from_millis(lag));
            run_during(&binder, double.rest()).await;
            for n in 0..PAIRS {
                assert_eq!(double.claim(&format!("c{n:02}")).status.phase, ClaimPhase::Bound);
            }
            assert_eq!(binder.metrics().conflicts.get(), 0, "{latency:?}, {lag}, {names_volume}");
        }
    }
}
