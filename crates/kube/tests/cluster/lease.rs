//! Replicas compete for a Lease.

use std::time::Duration;

use bindery_kube::{Elector, LeaseError, LeaseSettings};
use bindery_sim::FaultRule;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::world::World;

const DURATION: Duration = Duration::from_secs(16);
/// How often a holder renews.
const RETRY: Duration = Duration::from_secs(2);

struct Replica {
    holds: watch::Receiver<bool>,
    running: JoinHandle<Result<(), LeaseError>>,
}

impl Replica {
    fn start(world: &World, identity: &str) -> Self {
        let settings = LeaseSettings {
            namespace: "kube-system".to_owned(),
            name: "bindery".to_owned(),
            identity: identity.to_owned(),
            duration: DURATION,
        };
        let elector = Elector::new(world.client(), settings, watch::Sender::new(None));
        let (sender, holds) = watch::channel(false);
        Self { holds, running: tokio::spawn(elector.run(sender)) }
    }

    /// Waits until it holds the Lease, or no more; answers how long that took.
    async fn until(&mut self, held: bool) -> Duration {
        let began = Instant::now();
        let came =
            tokio::time::timeout(Duration::from_secs(600), self.holds.wait_for(|holds| *holds == held));
        came.await.expect("it comes within minutes").unwrap();
        began.elapsed()
    }

    fn holds(&self) -> bool {
        *self.holds.borrow()
    }

    async fn stop(self) {
        drop(self.holds);
        self.running.await.unwrap().unwrap();
    }

    fn kill(self) {
        self.running.abort();
    }
}

/// Waits until the Lease has been renewed so many times.
async fn renewals(world: &World, times: usize) {
    let renewed = || lease(world)["spec"]["renewTime"].clone();
    for _ in 0..times {
        let before = renewed();
        world.until("the Lease is renewed", || renewed() != before).await;
    }
}

fn lease(world: &World) -> Value {
    world.sim.object("leases", Some("kube-system"), "bindery").unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_holds_it_and_the_next_takes_over_when_it_dies_or_ends() {
    let world = World::new();
    let mut first = Replica::start(&world, "first");
    first.until(true).await;
    let mut second = Replica::start(&world, "second");
    renewals(&world, 50).await;
    assert!(first.holds() && !second.holds());
    assert_eq!(lease(&world)["spec"]["holderIdentity"], "first");
    first.kill();
    let takeover = second.until(true).await;
    assert!((DURATION - RETRY..=DURATION + RETRY).contains(&takeover), "{takeover:?}");
    assert_eq!(lease(&world)["spec"]["leaseTransitions"], 2);
    let mut third = Replica::start(&world, "third");
    second.stop().await;
    let takeover = third.until(true).await;
    assert!(takeover <= RETRY, "{takeover:?}");
}

#[tokio::test(start_paused = true)]
async fn times_in_it_count_for_nothing() {
    for renewed in ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let world = World::new();
        world.add(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": "kube-system", "name": "bindery"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 16, "acquireTime": renewed, "renewTime": renewed},
        }));
        let mut replica = Replica::start(&world, "replica");
        let takeover = replica.until(true).await;
        assert!((DURATION..=DURATION + RETRY).contains(&takeover), "{renewed}: {takeover:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_write_beside_its_spec_stays_and_is_no_sign_of_life() {
    let world = World::new();
    let mut first = Replica::start(&world, "first");
    first.until(true).await;
    let annotate = |round: u32| {
        let mut annotated = lease(&world);
        annotated["metadata"]["annotations"] = json!({"example.com/round": round.to_string()});
        world.sim.put(annotated);
    };
    annotate(0);
    renewals(&world, 5).await;
    assert!(first.holds());
    assert_eq!(lease(&world)["metadata"]["annotations"]["example.com/round"], "0");
    let mut second = Replica::start(&world, "second");
    first.kill();
    let began = Instant::now();
    for round in 1.. {
        annotate(round);
        if tokio::time::timeout(RETRY, second.until(true)).await.is_ok() {
            break;
        }
    }
    assert!(began.elapsed() <= DURATION + RETRY * 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_stands_down_before_another_may_take_over() {
    let world = World::new();
    let mut first = Replica::start(&world, "first");
    first.until(true).await;
    world.sim.faults().add(FaultRule::new("update", "leases").always().fail(
        500,
        "InternalError",
        "injected",
    ));
    world.sim.faults().add(FaultRule::new("get", "leases").always().fail(500, "InternalError", "injected"));
    let stood_down = first.until(false).await;
    assert!(stood_down < DURATION - RETRY, "{stood_down:?}");
    world.sim.faults().clear();
    let back = first.until(true).await;
    assert!(back <= RETRY, "{back:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_not_waited_for() {
    let world = World::new();
    let mut first = Replica::start(&world, "first");
    first.until(true).await;
    world.sim.faults().add(FaultRule::new("update", "leases").always().delay(Duration::from_secs(600)));
    let stood_down = first.until(false).await;
    assert!(stood_down < DURATION - RETRY, "{stood_down:?}");
    assert!(first.stop_in_time().await);
}

#[tokio::test(start_paused = true)]
async fn one_unanswered_request_costs_no_leadership() {
    let world = World::new();
    let mut first = Replica::start(&world, "first");
    first.until(true).await;
    let mut second = Replica::start(&world, "second");
    // Two of the three attempts that fit may stay without an answer.
    for unanswered in 1..=2 {
        first.holds.mark_unchanged();
        let faults = world.sim.faults();
        for _ in 0..unanswered {
            faults.add(FaultRule::new("update", "leases").delay(Duration::from_secs(600)));
        }
        world.until("the requests were sent", || world.sim.faults().pending() == 0).await;
        renewals(&world, 2).await;
        assert!(!first.holds.has_changed().unwrap(), "{unanswered}: it has stood down");
        assert!(first.holds() && !second.holds(), "{unanswered}");
    }
    // A follower, too, tries again before the holder would have stood down.
    first.kill();
    world.sim.faults().add(FaultRule::new("get", "leases").delay(Duration::from_secs(600)));
    let takeover = second.until(true).await;
    assert!(takeover <= DURATION + RETRY * 3, "{takeover:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_with_the_same_identity_one_holds_it() {
    let world = World::new();
    let mut first = Replica::start(&world, "same");
    first.until(true).await;
    let mut second = Replica::start(&world, "same");
    renewals(&world, 10).await;
    assert!(first.holds() && !second.holds());
    first.kill();
    let takeover = second.until(true).await;
    assert!((DURATION - RETRY..=DURATION + RETRY).contains(&takeover), "{takeover:?}");
}

#[tokio::test(start_paused = true)]
async fn who_ends_while_it_takes_the_lease_gives_it_back() {
    let slow = FaultRule::new("update", "leases").delay(RETRY / 2);
    let lost = FaultRule::new("update", "leases").lose_answer();
    for (what, fault) in [("the answer is late", slow), ("the answer is lost", lost)] {
        let world = World::new();
        world.sim.faults().add(fault);
        let first = Replica::start(&world, "first");
        world.until("it was asked for", || world.sim.faults().pending() == 0).await;
        assert!(!first.holds(), "{what}");
        first.stop().await;
        let spec = &lease(&world)["spec"];
        assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&"".into(), &1.into()), "{what}");
    }
}

impl Replica {
    /// Ends it; answers whether it ended within the Lease's duration, given back or not.
    async fn stop_in_time(self) -> bool {
        drop(self.holds);
        tokio::time::timeout(DURATION, self.running).await.is_ok()
    }
}
