//! Leaders that are killed at random moments, or stopped for longer than their Lease and resumed, while
//! tenants come and go whose volumes are kept or deleted.

use std::time::{Duration, Instant};

use bindery_cluster::{Cluster, Manager, Replica};
use bindery_kit::number_from_env;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rustix::process::Signal;

use super::load::{Load, chance};

/// Leaders that are killed; `cargo xtask soak` sets a higher number (`BINDERY_KILLS`).
const KILLS: u64 = 20;
/// Mode steer has fewer moments to be killed at, and each takeover takes as long.
const STEERING_KILLS: u64 = 5;
/// One leader of this many serves all waiting tenants before it is killed. A busy machine may be too slow
/// to serve a tenant before any of the other kills.
const SERVES_ALL_EVERY: u64 = 5;
/// How long tenants come without a leader.
const LEADERLESS: Duration = Duration::from_millis(500);
/// Most milliseconds for which tenants come between two deaths: enough to serve those that have waited.
const LED_MAX: u64 = 1_500;
/// Most time for which a tenant may wait for a leader.
const WITHOUT_LEADER: Duration = Duration::from_secs(60);

struct Trial {
    cluster: Cluster,
    load: Load,
    chance: StdRng,
    mode: &'static str,
}

impl Trial {
    async fn new() -> Self {
        Self::in_mode("--mode=own", Manager::ProtectionAlone).await
    }

    async fn in_mode(mode: &'static str, manager: Manager) -> Self {
        let chance = chance();
        let cluster = Cluster::start(manager).await;
        let load = Load::new(&cluster, WITHOUT_LEADER).await;
        Self { cluster, load, chance, mode }
    }

    fn replica(&self, identity: &str) -> Replica {
        self.cluster.replica_with(identity, &[&self.load.argument(), self.mode])
    }

    /// Lets tenants come for a while, and on until some wait.
    async fn receive(&mut self, time: Duration) {
        self.load.run_for(time, &mut self.chance).await.unwrap();
        while self.load.unserved().unwrap() == 0 {
            self.load.run_for(Duration::from_millis(1), &mut self.chance).await.unwrap();
        }
    }
}

#[tokio::test]
async fn leaders_that_are_killed_lose_no_claim_and_bind_none_twice() {
    kill_leaders(Trial::new().await, KILLS).await;
}

#[tokio::test]
async fn leaders_of_mode_steer_that_are_killed_leave_no_reservation() {
    let mut trial = Trial::in_mode("--mode=steer", Manager::Whole).await;
    trial.load.is_beside_upstream = true;
    kill_leaders(trial, STEERING_KILLS).await;
}

async fn kill_leaders(mut trial: Trial, kills: u64) {
    let mut leader = trial.replica("0");
    leader.until_leading().await;
    let kills = number_from_env("BINDERY_KILLS").unwrap_or(kills);
    let mut takeovers = Vec::new();
    for kill in 1..=kills {
        let mut next = trial.replica(&kill.to_string());
        let led = trial.chance.random_range(0..LED_MAX);
        if kill % SERVES_ALL_EVERY == 0 {
            trial.load.until_served().await.unwrap();
        }
        trial.receive(Duration::from_millis(led)).await;
        leader.signal(Signal::KILL);
        let died = Instant::now();
        trial.receive(LEADERLESS).await;
        next.until_leading().await;
        takeovers.push(died.elapsed());
        leader = next;
    }
    trial.load.until_settled(&trial.cluster).await;
    assert_eq!(leader.metric("bindery_foreign_writes_total").await, 0, "{}", leader.log());
    println!("{} tenants, takeovers after {takeovers:.1?}", trial.load.count());
}

#[tokio::test]
async fn a_leader_that_slept_through_its_lease_does_no_harm() {
    let mut trial = Trial::new().await;
    let mut sleeper = trial.replica("sleeper");
    sleeper.until_leading().await;
    trial.receive(Duration::from_millis(LED_MAX)).await;
    sleeper.signal(Signal::STOP);
    let mut next = trial.replica("next");
    next.until_leading().await;
    // The next one finishes the sleeper's work before the sleeper wakes up in the middle of it.
    trial.load.until_served().await.unwrap();
    trial.receive(Duration::from_millis(LED_MAX)).await;
    sleeper.signal(Signal::CONT);
    trial.receive(Duration::from_millis(LED_MAX)).await;
    trial.load.until_settled(&trial.cluster).await;
    // It has stepped down. It may lead again if the next one is late.
    sleeper.until_logged("this replica no longer leads").await;
    for replica in [sleeper, next] {
        assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0, "{}", replica.log());
    }
}
