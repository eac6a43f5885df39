//! Leaders that die: killed at random moments, or stopped for longer than their Lease and resumed, while
//! tenants come and go whose volumes are kept or deleted.

use std::time::{Duration, Instant};

use bindery_cluster::{ControlPlane, Manager, Programs};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;

use super::load::{LEFT, Load};
use super::world::{Replica, until_rest};

/// Leaders that are killed. `cargo xtask soak` kills more (`BINDERY_KILLS`).
const KILLS: usize = 20;
/// For how long tenants come while nobody leads.
const LEADERLESS: Duration = Duration::from_millis(500);
/// Most milliseconds for which tenants come between two deaths: as long as it takes to serve those who have
/// waited, and more.
const LED_MAX: u64 = 1_500;
/// For how long a tenant may have to wait for a leader, besides its turn.
const WITHOUT_LEADER: Duration = Duration::from_secs(60);

/// A random choice that can be made again: the seed is printed, and taken from `BINDERY_SEED` where that is
/// set.
pub(crate) fn chance() -> StdRng {
    let seed = std::env::var("BINDERY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    println!("BINDERY_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Tenants who come and go, whoever leads.
struct Trial {
    plane: ControlPlane,
    load: Load,
    chance: StdRng,
}

impl Trial {
    async fn new() -> Self {
        let chance = chance();
        let programs = Programs::from_env().unwrap();
        let plane = ControlPlane::start(programs, Manager::ProtectionAlone).await.unwrap();
        let load = Load::new(plane.client().await.unwrap(), WITHOUT_LEADER).await;
        Self { plane, load, chance }
    }

    fn replica(&self, identity: &str) -> Replica {
        Replica::start_with(&self.plane.kubeconfig(), identity, &self.load.arguments(), &[])
    }

    /// Lets tenants come, until a moment at which some have not been served.
    async fn receive(&mut self, time: Duration) {
        self.load.run_for(time, &mut self.chance).await.unwrap();
        while self.load.unserved().unwrap() == 0 {
            self.load.run_for(Duration::from_millis(1), &mut self.chance).await.unwrap();
        }
    }

    /// Waits until all are served and the world is at rest: every tenant that stays has its data, and what
    /// was to be deleted is gone. Who dies between a volume's provision and its creation leaves what it has
    /// provisioned if the claim goes meanwhile, as upstream does.
    async fn until_rest(&mut self) {
        self.load.until_served().await.unwrap();
        let losses = async |_: &_| {
            let mut losses = self.load.losses().await;
            losses.retain(|loss| !(loss.ends_with(LEFT) && loss.contains("/pvc-")));
            losses
        };
        until_rest(&self.plane.client().await.unwrap(), losses).await.unwrap();
    }
}

#[tokio::test]
async fn a_leader_that_is_killed_loses_no_claim_and_binds_none_twice() {
    let mut trial = Trial::new().await;
    let mut leader = trial.replica("0");
    leader.until_leading().await;
    let kills = std::env::var("BINDERY_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let mut takeovers = Vec::new();
    for kill in 1..=kills {
        let mut next = trial.replica(&kill.to_string());
        let led = trial.chance.random_range(0..LED_MAX);
        trial.receive(Duration::from_millis(led)).await;
        leader.signal(Signal::KILL);
        let died = Instant::now();
        trial.receive(LEADERLESS).await;
        next.until_leading().await;
        takeovers.push(died.elapsed());
        leader = next;
    }
    trial.until_rest().await;
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
    // The next one does the work that the sleeper was at, before that wakes up in the middle of it.
    trial.load.until_served().await.unwrap();
    trial.receive(Duration::from_millis(LED_MAX)).await;
    sleeper.signal(Signal::CONT);
    trial.receive(Duration::from_millis(LED_MAX)).await;
    trial.until_rest().await;
    // It has stood down. Nothing keeps it from leading again, where the next one is late.
    sleeper.until_logged("this replica no longer leads").await;
    for replica in [sleeper, next] {
        assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0, "{}", replica.log());
    }
}
