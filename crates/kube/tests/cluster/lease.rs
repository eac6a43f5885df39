//! Leader election by a Lease.

use std::time::Duration;

use bindery_kube::{ApiClient, Elector, LeaseError, LeaseSettings};
use bindery_sim::FaultRule;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::network::Network;
use crate::pauses::{port, read, refuse_a_read, seconds};
use crate::simulated::{Cluster, claim};

const DURATION: Duration = Duration::from_secs(16);
const RETRY: Duration = Duration::from_secs(2);

struct Replica {
    holds: watch::Receiver<bool>,
    running: JoinHandle<Result<(), LeaseError>>,
}

impl Replica {
    fn start(cluster: &Cluster, identity: &str) -> Self {
        Self::with_client(cluster.client(), identity)
    }

    fn with_client(client: impl Into<ApiClient>, identity: &str) -> Self {
        Self::with_settings(client, settings(identity, DURATION))
    }

    fn with_settings(client: impl Into<ApiClient>, settings: LeaseSettings) -> Self {
        let elector = Elector::new(client, settings, watch::Sender::new(None));
        let (sender, holds) = watch::channel(false);
        Self { holds, running: tokio::spawn(elector.run(sender)) }
    }

    /// Waits until the replica holds the Lease or not. Returns the time that this took.
    async fn until(&mut self, held: bool) -> Duration {
        let began = Instant::now();
        let came =
            tokio::time::timeout(Duration::from_secs(600), self.holds.wait_for(|holds| *holds == held));
        came.await.expect("it takes minutes at most").unwrap();
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

fn settings(identity: &str, duration: Duration) -> LeaseSettings {
    LeaseSettings {
        namespace: "kube-system".to_owned(),
        name: "bindery".to_owned(),
        identity: identity.to_owned(),
        duration,
    }
}

/// A cluster, and a replica that leads.
async fn leader(identity: &str) -> (Cluster, Replica) {
    let cluster = Cluster::new();
    let mut replica = Replica::start(&cluster, identity);
    replica.until(true).await;
    (cluster, replica)
}

async fn renewals(cluster: &Cluster, times: usize) {
    let renewed = || lease(cluster)["spec"]["renewTime"].clone();
    for _ in 0..times {
        let before = renewed();
        cluster.until("the Lease is renewed", || renewed() != before).await;
    }
}

fn lease(cluster: &Cluster) -> Value {
    cluster.sim.object("leases", Some("kube-system"), "bindery").unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_replica_leads_until_it_dies_or_stops() {
    let (cluster, first) = leader("first").await;
    let mut second = Replica::start(&cluster, "second");
    renewals(&cluster, 50).await;
    assert!(first.holds() && !second.holds());
    assert_eq!(lease(&cluster)["spec"]["holderIdentity"], "first");
    first.kill();
    let takeover = second.until(true).await;
    assert!((DURATION - RETRY..=DURATION + RETRY).contains(&takeover), "{takeover:?}");
    assert_eq!(lease(&cluster)["spec"]["leaseTransitions"], 2);
    let mut third = Replica::start(&cluster, "third");
    second.stop().await;
    let takeover = third.until(true).await;
    assert!(takeover <= RETRY, "{takeover:?}");
}

#[tokio::test(start_paused = true)]
async fn the_times_in_a_lease_are_not_compared_with_the_clock() {
    for renewed in ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let cluster = Cluster::new();
        cluster.add(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": "kube-system", "name": "bindery"},
            "spec": {
                "holderIdentity": "other", "leaseDurationSeconds": 16,
                "acquireTime": renewed, "renewTime": renewed,
            },
        }));
        let mut replica = Replica::start(&cluster, "replica");
        let takeover = replica.until(true).await;
        assert!((DURATION..=DURATION + RETRY).contains(&takeover), "{renewed}: {takeover:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_leases_metadata_is_kept_and_is_no_renewal() {
    let (cluster, first) = leader("first").await;
    let annotate = |round: u32| {
        let mut annotated = lease(&cluster);
        annotated["metadata"]["annotations"] = json!({"example.com/round": round.to_string()});
        cluster.sim.put(annotated);
    };
    annotate(0);
    renewals(&cluster, 5).await;
    assert!(first.holds());
    assert_eq!(lease(&cluster)["metadata"]["annotations"]["example.com/round"], "0");
    let mut second = Replica::start(&cluster, "second");
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
async fn a_holder_that_cannot_renew_stands_down_in_time() {
    let (cluster, mut first) = leader("first").await;
    cluster.sim.faults().add(FaultRule::new("update", "leases").always().fail(
        500,
        "InternalError",
        "injected",
    ));
    cluster.sim.faults().add(FaultRule::new("get", "leases").always().fail(500, "InternalError", "injected"));
    let stood_down = first.until(false).await;
    assert!(stood_down < DURATION - RETRY, "{stood_down:?}");
    cluster.sim.faults().clear();
    let back = first.until(true).await;
    assert!(back <= RETRY, "{back:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_renewal_is_not_answered_stands_down_in_time() {
    let (cluster, mut first) = leader("first").await;
    cluster.sim.faults().add(FaultRule::new("update", "leases").always().delay(Duration::from_secs(600)));
    let stood_down = first.until(false).await;
    assert!(stood_down < DURATION - RETRY, "{stood_down:?}");
    // The Lease cannot be released, and the replica stops all the same.
    drop(first.holds);
    let stopped = tokio::time::timeout(DURATION, first.running).await;
    assert!(stopped.is_ok(), "it waits for an answer");
}

/// The shortest allowed Lease and longer ones.
#[tokio::test(start_paused = true)]
async fn a_holder_has_its_grace_before_another_replica_leads() {
    for seconds in [3, 4, 15, 300] {
        let (cluster, network) = (Cluster::new(), Network::of(""));
        let [first, second] =
            ["first", "second"].map(|identity| settings(identity, Duration::from_secs(seconds)));
        let grace = first.grace();
        let mut first = Replica::with_settings(network.client(&cluster), first);
        first.until(true).await;
        let mut second = Replica::with_settings(cluster.client(), second);
        renewals(&cluster, 3).await;
        network.is_down.send_replace(true);
        first.until(false).await;
        let left = second.until(true).await;
        assert!(left >= grace, "{seconds} s: {left:?} of {grace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_unanswered_renewals_cost_no_leadership() {
    let (cluster, mut first) = leader("first").await;
    let mut second = Replica::start(&cluster, "second");
    // Two of the three attempts may stay unanswered.
    for unanswered in 1..=2 {
        first.holds.mark_unchanged();
        let faults = cluster.sim.faults();
        for _ in 0..unanswered {
            faults.add(FaultRule::new("update", "leases").delay(Duration::from_secs(600)));
        }
        cluster.until("the requests were sent", || cluster.sim.faults().pending() == 0).await;
        renewals(&cluster, 2).await;
        assert!(!first.holds.has_changed().unwrap(), "{unanswered}: it has stood down");
        assert!(first.holds() && !second.holds(), "{unanswered}");
    }
    // A follower also tries again after an unanswered request.
    first.kill();
    cluster.sim.faults().add(FaultRule::new("get", "leases").delay(Duration::from_secs(600)));
    let takeover = second.until(true).await;
    assert!(takeover <= DURATION + RETRY * 3, "{takeover:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_with_the_same_identity_one_leads() {
    let (cluster, first) = leader("same").await;
    let mut second = Replica::start(&cluster, "same");
    renewals(&cluster, 10).await;
    assert!(first.holds() && !second.holds());
    first.kill();
    let takeover = second.until(true).await;
    assert!((DURATION - RETRY..=DURATION + RETRY).contains(&takeover), "{takeover:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stops_while_it_takes_the_lease_releases_it() {
    let slow = FaultRule::new("update", "leases").delay(RETRY / 2);
    let lost = FaultRule::new("update", "leases").lose_answer();
    for (what, fault) in [("the answer is late", slow), ("the answer is lost", lost)] {
        let cluster = Cluster::new();
        cluster.sim.faults().add(fault);
        let first = Replica::start(&cluster, "first");
        cluster.until("it was asked for", || cluster.sim.faults().pending() == 0).await;
        assert!(!first.holds(), "{what}");
        first.stop().await;
        let spec = &lease(&cluster)["spec"];
        assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&"".into(), &1.into()), "{what}");
    }
}

/// Requests for the Lease that were answered.
fn lease_requests(cluster: &Cluster) -> usize {
    cluster.sim.requests().iter().filter(|request| request.resource == "leases").count()
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_while_other_requests_pause() {
    let cluster = Cluster::with([claim("c1")]);
    let client = ApiClient::from(cluster.client());
    let mut replica = Replica::with_client(client.clone(), "replica");
    replica.until(true).await;
    refuse_a_read(&cluster, 50);
    let port = port(&cluster, &client);
    assert!(!read(&port).await);
    replica.holds.mark_unchanged();
    assert_eq!(seconds(read(&port)).await, (50, true));
    assert!(!replica.holds.has_changed().unwrap(), "it stood down");
}

#[tokio::test(start_paused = true)]
async fn a_holder_heeds_retry_after_until_two_attempts_are_left() {
    let (cluster, mut replica) = leader("replica").await;
    let before = lease_requests(&cluster);
    cluster.sim.faults().add(FaultRule::new("update", "leases").busy(60));
    cluster.until("a renewal is refused", || cluster.sim.faults().pending() == 0).await;
    let refused = Instant::now();
    assert_eq!(lease_requests(&cluster), before + 1);
    replica.holds.mark_unchanged();
    cluster.until("the next attempt is made", || lease_requests(&cluster) > before + 1).await;
    // The last renewal was one part earlier. The holder would stand down after five, and tries from the
    // third on.
    assert!(refused.elapsed() > RETRY && refused.elapsed() <= RETRY * 3, "{:?}", refused.elapsed());
    cluster.until("it is renewed for minutes", || lease_requests(&cluster) > before + 60).await;
    assert!(!replica.holds.has_changed().unwrap(), "it stood down");
}
