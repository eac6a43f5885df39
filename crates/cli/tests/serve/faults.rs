//! What goes wrong between Bindery and its cluster, under load.
//!
//! Each kind of fault lasts for [`SECONDS`], or for as many as `BINDERY_FAULT_SECONDS` says (`cargo xtask soak faults`).
//! Meanwhile no moment shows harm. Then the sky clears, all tenants are served, and the world comes to rest without a
//! violation. The checker knows nothing of Bindery.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use bindery_cluster::{
    After, Answered, Asked, Before, Clock, ControlPlane, Fair, Manager, Programs, Proxy, Weather, snapshot,
};
use http::StatusCode;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::death::chance;
use super::load::{LEFT, Load, Unserved, is_of_a_tenant};
use super::world::{Replica, until_rest};

/// How long each kind of fault lasts, unless told otherwise.
const SECONDS: u64 = 6;
/// By which the replica says, with the claim's UID, that it may leave what it has provisioned.
const ABANDONED: &str = "abandoned when the volume was provisioned";
/// By which it says that a connection was lost.
const NO_ANSWER: &str = "no answer from the API server";
/// How often a moment is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Bindery behind a proxy, under load.
struct Trial {
    plane: ControlPlane,
    proxy: Proxy,
    replica: Replica,
    load: Load,
    chance: StdRng,
    lasts: Duration,
    client: kube::Client,
}

/// Faults that come by chance.
struct Storm {
    kind: Kind,
    chance: Mutex<StdRng>,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cut,
    Delay,
    Refuse(StatusCode),
    LoseAnswers,
}

impl Weather for Storm {
    fn before(&self, _: &Asked) -> Before {
        let mut chance = self.chance.lock().unwrap();
        match self.kind {
            Kind::Cut if chance.random_bool(0.005) => Before::CutAll,
            Kind::Cut if chance.random_bool(0.1) => Before::Cut,
            Kind::Delay if chance.random_bool(0.3) => {
                Before::Delay(Duration::from_millis(chance.random_range(10..1_500)))
            }
            Kind::Refuse(status) if chance.random_bool(0.1) => {
                let retry_after = (status == StatusCode::TOO_MANY_REQUESTS).then_some(1);
                Before::Refuse { status, retry_after }
            }
            _ => Before::Pass,
        }
    }

    fn after(&self, asked: &Asked, _: &Answered) -> After {
        let is_lost = self.kind == Kind::LoseAnswers
            && asked.method != http::Method::GET
            && self.chance.lock().unwrap().random_bool(0.3);
        if is_lost { After::Lose } else { After::Pass }
    }
}

impl Trial {
    async fn new(api_server: &[&str], environment: &[(&str, PathBuf)]) -> Self {
        let chance = chance();
        let seconds = std::env::var("BINDERY_FAULT_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        let programs = Programs::from_env().unwrap();
        let plane = ControlPlane::start_with(programs, Manager::ProtectionAlone, api_server).await.unwrap();
        let proxy = Proxy::start(&plane).await.unwrap();
        let client = plane.client().await.unwrap();
        let lasts = Duration::from_secs(seconds.unwrap_or(SECONDS));
        let load = Load::new(client.clone(), lasts).await;
        let mut replica = Replica::start_with(&proxy.kubeconfig(), "tried", &load.arguments(), environment);
        replica.until_leading().await;
        Self { plane, proxy, replica, load, chance, lasts, client }
    }

    /// Fails where a tenant was not served, with what the replica tells of it.
    async fn served(&self, outcome: Result<(), Unserved>) {
        let Err(Unserved { name, why }) = outcome else { return };
        let (log, metrics) = (self.replica.log(), self.replica.get("/metrics").await);
        let logged: Vec<_> = log.lines().filter(|line| line.contains(&name)).collect();
        let metrics: Vec<_> =
            metrics.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{")).collect();
        panic!("{why}\nlogged: {logged:#?}\nmetrics: {metrics:#?}");
    }

    /// Lets tenants come for a while.
    async fn receive(&mut self, time: Duration) {
        let outcome = self.load.run_for(time, &mut self.chance).await;
        self.served(outcome).await;
    }

    /// Lets tenants come while the weather is bad, and brings the world to rest after it.
    async fn endure(&mut self, weather: impl Weather, name: &str) {
        let looking = look(self.client.clone());
        self.proxy.set_weather(weather);
        self.receive(self.lasts).await;
        self.settle(looking, name).await;
    }

    /// Waits for all tenants, and for a world at rest.
    async fn settle(&mut self, looking: JoinHandle<()>, name: &str) {
        self.proxy.set_weather(Fair);
        let cleared = Instant::now();
        let outcome = self.load.until_served().await;
        self.served(outcome).await;
        self.until_rest().await;
        self.replica.check();
        self.check_log();
        assert!(!looking.is_finished(), "{:?}", looking.await);
        looking.abort();
        println!(
            "{name}: {} tenants, at rest {:.1?} after {:.0?}",
            self.load.count(),
            cleared.elapsed(),
            self.lasts
        );
    }

    /// Checks that every line about an object says which one it was: names are given again.
    fn check_log(&self) {
        let log = self.replica.log();
        let lines = log.lines().filter(|line| is_of_a_tenant(line));
        let unclear: Vec<_> = lines.filter(|line| !line.contains("uid=")).collect();
        assert!(unclear.is_empty(), "lines without a UID: {unclear:#?}");
    }

    /// What the replica tells of what it went through: writes and watches that failed, requests that were refused, answers
    /// that came late.
    async fn told(&self) -> [u64; 4] {
        [
            self.replica.metric("bindery_write_errors_total").await,
            self.replica.metric("bindery_watch_failures_total").await,
            self.replica.metric("bindery_requests_refused_total").await,
            self.replica.metric("bindery_requests_late_total").await,
        ]
    }

    /// How many replicas of each kind lead: the tried one, and the other.
    async fn leaders(&self, other: &Replica) -> (u64, u64) {
        (self.replica.metric("bindery_leader").await, other.metric("bindery_leader").await)
    }

    /// What of the volumes' data is not as it should be. A replica that stands down between a volume's provision and its
    /// creation leaves what it has provisioned if the claim goes at that moment, as upstream does; but it says so.
    async fn losses(&self) -> Vec<String> {
        let mut losses = self.load.losses().await;
        if !losses.is_empty() {
            let log = self.replica.log();
            let told: Vec<&str> = log.lines().filter(|line| line.contains(ABANDONED)).collect();
            losses.retain(|loss| {
                let uid = loss.split_once("/pvc-").and_then(|(_, rest)| rest.split(' ').next());
                !(loss.ends_with(LEFT) && uid.is_some_and(|uid| told.iter().any(|line| line.contains(uid))))
            });
        }
        losses
    }

    async fn until_rest(&self) {
        if let Err(wrong) = until_rest(&self.client, async |_| self.losses().await).await {
            panic!("the world comes to no rest: {wrong:#?}\n{}", self.replica.log());
        }
    }
}

/// Fails unless a line of the log has both texts.
fn assert_says(log: &str, texts: [&str; 2]) {
    assert!(log.lines().any(|line| texts.iter().all(|text| line.contains(text))), "no {texts:?} in {log}");
}

/// Fails at the first moment that shows harm; the API server may be gone meanwhile.
fn look(client: kube::Client) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            if let Ok(moment) = snapshot(&client).await {
                let harms = moment.harms();
                assert!(harms.is_empty(), "harm was done: {harms:#?}");
            }
        }
    })
}

#[tokio::test]
async fn what_is_lost_late_or_refused_on_the_way_is_made_good() {
    let mut trial = Trial::new(&[], &[]).await;
    let refusals =
        [StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::GATEWAY_TIMEOUT];
    let kinds = [Kind::Cut, Kind::Delay, Kind::LoseAnswers];
    for kind in kinds.into_iter().chain(refusals.map(Kind::Refuse)) {
        let (before, logged) = (trial.told().await, trial.replica.log().len());
        let storm = Storm { kind, chance: Mutex::new(StdRng::seed_from_u64(trial.chance.random())) };
        trial.endure(storm, &format!("{kind:?}")).await;
        let after = trial.told().await;
        let [write_errors, watch_failures, refused, late] =
            std::array::from_fn(|metric| after[metric] - before[metric]);
        println!(
            "{kind:?}: {write_errors} writes and {watch_failures} watches failed, {refused} requests refused, {late} late"
        );
        let log = &trial.replica.log()[logged..];
        match kind {
            Kind::Cut => {
                assert!(write_errors > 0 && watch_failures > 0);
                assert_says(log, ["sync failed", NO_ANSWER]);
                assert_says(log, ["watching failed", NO_ANSWER]);
            }
            // What comes late comes.
            Kind::Delay => {
                assert!(late > 0);
                // Once a minute at most: it may have been before.
                assert_says(&trial.replica.log(), ["the API server answers late", "took="]);
            }
            Kind::Refuse(status) => {
                assert!(write_errors > 0);
                // A server that is broken does not say that it is busy.
                assert_eq!(refused > 0, status != StatusCode::INTERNAL_SERVER_ERROR);
                // With the object that is tried again.
                let why = match status {
                    StatusCode::TOO_MANY_REQUESTS => "throttled: ".to_owned(),
                    _ => format!("the API server failed with status {}: ", status.as_str()),
                };
                assert_says(log, ["sync failed", &why]);
            }
            Kind::LoseAnswers => {
                assert!(write_errors > 0);
                assert_says(log, ["sync failed", NO_ANSWER]);
            }
        }
    }
}

#[tokio::test]
async fn an_api_server_that_is_killed_under_load_is_waited_for() {
    let mut trial = Trial::new(&[], &[]).await;
    let half = trial.lasts / 2;
    for _ in 0..2 {
        let looking = look(trial.client.clone());
        trial.receive(half).await;
        let coming = trial.load.run_for(half, &mut trial.chance);
        let (restarted, outcome) = tokio::join!(trial.plane.restart_api_server(), coming);
        restarted.unwrap();
        trial.served(outcome).await;
        trial.settle(looking, "API server killed").await;
    }
    let [write_errors, watch_failures, ..] = trial.told().await;
    println!("{write_errors} writes and {watch_failures} watches failed");
    assert!(watch_failures > 0);
    assert_says(&trial.replica.log(), ["watching failed", NO_ANSWER]);
}

#[tokio::test]
async fn a_watch_that_is_slower_than_compaction_lists_again() {
    // Watches of volumes and claims are etcd's own: only so does what was compacted count for them at once.
    let uncached = "--watch-cache-sizes=persistentvolumes#0,persistentvolumeclaims#0";
    let mut trial = Trial::new(&[uncached], &[]).await;
    let looking = look(trial.client.clone());
    trial.receive(trial.lasts / 2).await;
    trial.proxy.hold_watches(true);
    trial.receive(trial.lasts / 2).await;
    trial.plane.compact().await.unwrap();
    trial.proxy.hold_watches(false);
    trial.proxy.cut();
    trial.settle(looking, "etcd compacted").await;
    let log = trial.replica.log();
    assert!(trial.replica.metric("bindery_watches_expired_total").await > 0, "{log}");
    assert_says(&log, ["the watch has expired; listing again", "kind="]);
}

#[tokio::test]
async fn a_clock_that_jumps_stops_neither_the_leader_nor_the_next_one() {
    const HOUR: i64 = 3_600;
    let clock = Clock::new().unwrap();
    let mut trial = Trial::new(&[], &clock.environment()).await;
    let mut next = Replica::start_with(&trial.proxy.kubeconfig(), "next", &trial.load.arguments(), &[]);
    next.until_following().await;
    let looking = look(trial.client.clone());
    for ahead in [2 * HOUR, -HOUR, 0, 2 * HOUR] {
        clock.set(ahead).unwrap();
        trial.receive(trial.lasts / 4).await;
        assert_eq!(trial.leaders(&next).await, (1, 0), "{ahead} s ahead");
    }
    assert!(trial.replica.metric("bindery_clock_jumps_total").await > 0);
    let log = trial.replica.log();
    assert!(log.contains("the clock of this machine has jumped"), "{log}");
    // The Lease was renewed two hours from now.
    trial.replica.signal(Signal::KILL);
    let died = Instant::now();
    next.until_leading().await;
    println!("taken over after {:.1?}", died.elapsed());
    trial.replica = next;
    trial.settle(looking, "clock jumped").await;
}
