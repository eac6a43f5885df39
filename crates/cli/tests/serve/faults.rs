//! What goes wrong between Bindery and its cluster, under load.
//!
//! Each kind of fault lasts for [`SECONDS`], or for as many as `BINDERY_FAULT_SECONDS` says (`cargo xtask
//! soak faults`). Meanwhile no moment shows harm. Then the sky clears, all tenants are served, and the world
//! comes to rest without a violation. The checker knows nothing of Bindery.

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
use super::world::{PATIENCE, Replica, until_rest};

/// How long each kind of fault lasts, unless told otherwise.
const SECONDS: u64 = 6;
/// By which the replica says, with the claim's UID, that it may leave what it has provisioned.
const ABANDONED: &str = "abandoned when the volume was provisioned";
/// By which it says that a connection was lost.
const NO_ANSWER: &str = "no answer from the API server";
/// How often a moment is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is special about a trial.
#[derive(Default)]
struct Setting<'a> {
    /// Further arguments of the API server.
    api_server: &'a [&'a str],
    /// Further arguments of replicas.
    replica: &'a [&'a str],
    /// Environment of the tried replica.
    environment: &'a [(&'a str, PathBuf)],
    /// For how long the API server may be gone, besides its faults.
    gone: Duration,
}

/// Bindery behind a proxy, under load.
struct Trial {
    plane: ControlPlane,
    proxy: Proxy,
    replica: Replica,
    /// With which another replica serves the same tenants.
    arguments: Vec<String>,
    load: Load,
    chance: StdRng,
    lasts: Duration,
    client: kube::Client,
}

/// What a replica tells of what it goes through.
struct Told {
    /// Writes and watches that failed, requests that were refused, answers that came late.
    counts: [u64; 4],
    /// How much it has logged, in bytes.
    logged: usize,
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
    async fn new(setting: Setting<'_>) -> Self {
        let chance = chance();
        let seconds = std::env::var("BINDERY_FAULT_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        let programs = Programs::from_env().unwrap();
        let manager = Manager::ProtectionAlone;
        let plane = ControlPlane::start_with(programs, manager, setting.api_server).await.unwrap();
        let proxy = Proxy::start(&plane).await.unwrap();
        let client = plane.client().await.unwrap();
        let lasts = Duration::from_secs(seconds.unwrap_or(SECONDS));
        let load = Load::new(client.clone(), lasts + setting.gone).await;
        let further = setting.replica.iter().map(|&argument| argument.to_owned());
        let arguments: Vec<_> = load.arguments().into_iter().chain(further).collect();
        let mut replica = Replica::start_with(&proxy.kubeconfig(), "tried", &arguments, setting.environment);
        replica.until_leading().await;
        Self { arguments, plane, proxy, replica, load, chance, lasts, client }
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

    /// Lets tenants come while the weather is bad, until the replica has told of it all, and brings the world
    /// to rest after it.
    async fn endure(&mut self, kind: Kind) {
        let before = self.told().await;
        let looking = look(self.client.clone());
        let chance = Mutex::new(StdRng::seed_from_u64(self.chance.random()));
        self.proxy.set_weather(Storm { kind, chance });
        self.receive(self.lasts).await;
        // Whether a rare fault comes within that time is left to chance.
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.untold(kind, &before).await.is_empty() {
            self.receive(LOOK_EVERY).await;
        }
        self.settle(looking, &format!("{kind:?}")).await;
        let now = self.told().await;
        let [write_errors, watch_failures, refused, late] =
            std::array::from_fn(|metric| now.counts[metric] - before.counts[metric]);
        println!(
            "{kind:?}: {write_errors} writes and {watch_failures} watches failed, {refused} requests refused, {late} late"
        );
        let untold = self.untold(kind, &before).await;
        assert!(untold.is_empty(), "{kind:?}: {untold:?} in {}", self.replica.log());
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

    /// What of such a fault the replica does not tell: nothing where all is well.
    async fn untold(&self, kind: Kind, before: &Told) -> Vec<&'static str> {
        let (now, log) = (self.told().await, self.replica.log());
        let [write_errors, watch_failures, refused, late] =
            std::array::from_fn(|metric| now.counts[metric] > before.counts[metric]);
        let since = &log[before.logged..];
        let told = match kind {
            Kind::Cut => vec![
                ("writes that failed", write_errors),
                ("watches that failed", watch_failures),
                ("why a sync failed", says(since, ["sync failed", NO_ANSWER])),
                ("why a watch failed", says(since, ["watching failed", NO_ANSWER])),
            ],
            // What comes late comes. It is said once a minute at most: it may have been before.
            Kind::Delay => vec![
                ("requests that were late", late),
                ("that the API server is late", says(&log, ["the API server answers late", "took="])),
            ],
            Kind::Refuse(status) => {
                // With the object that is tried again.
                let why = match status {
                    StatusCode::TOO_MANY_REQUESTS => "throttled: ".to_owned(),
                    _ => format!("the API server failed with status {}: ", status.as_str()),
                };
                vec![
                    ("writes that failed", write_errors),
                    // A server that is broken does not say that it is busy.
                    ("whether it is busy", refused == (status != StatusCode::INTERNAL_SERVER_ERROR)),
                    ("why a sync failed", says(since, ["sync failed", &why])),
                ]
            }
            Kind::LoseAnswers => vec![
                ("writes that failed", write_errors),
                ("why a sync failed", says(since, ["sync failed", NO_ANSWER])),
            ],
        };
        told.into_iter().filter(|(_, is_told)| !is_told).map(|(what, _)| what).collect()
    }

    /// What the replica has told by now.
    async fn told(&self) -> Told {
        let counts = [
            self.replica.metric("bindery_write_errors_total").await,
            self.replica.metric("bindery_watch_failures_total").await,
            self.replica.metric("bindery_requests_refused_total").await,
            self.replica.metric("bindery_requests_late_total").await,
        ];
        Told { counts, logged: self.replica.log().len() }
    }

    /// How many replicas of each kind lead: the tried one, and the other.
    async fn leaders(&self, other: &Replica) -> (u64, u64) {
        (self.replica.metric("bindery_leader").await, other.metric("bindery_leader").await)
    }

    /// What of the volumes' data is not as it should be. A replica that stands down between a volume's
    /// provision and its creation leaves what it has provisioned if the claim goes at that moment, as
    /// upstream does; but it says so.
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

/// Whether a line of the log has both texts.
fn says(log: &str, texts: [&str; 2]) -> bool {
    log.lines().any(|line| texts.iter().all(|text| line.contains(text)))
}

/// Fails unless a line of the log has both texts.
fn assert_says(log: &str, texts: [&str; 2]) {
    assert!(says(log, texts), "no {texts:?} in {log}");
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
    let mut trial = Trial::new(Setting::default()).await;
    let refusals =
        [StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::GATEWAY_TIMEOUT];
    let kinds = [Kind::Cut, Kind::Delay, Kind::LoseAnswers];
    for kind in kinds.into_iter().chain(refusals.map(Kind::Refuse)) {
        trial.endure(kind).await;
    }
}

#[tokio::test]
async fn an_api_server_that_is_killed_under_load_is_waited_for() {
    // Nobody is served before it is back.
    let mut trial = Trial::new(Setting { gone: PATIENCE, ..Setting::default() }).await;
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
    let [write_errors, watch_failures, ..] = trial.told().await.counts;
    println!("{write_errors} writes and {watch_failures} watches failed");
    assert!(watch_failures > 0);
    assert_says(&trial.replica.log(), ["watching failed", NO_ANSWER]);
}

#[tokio::test]
async fn a_watch_that_is_slower_than_compaction_lists_again() {
    // Watches of volumes and claims are etcd's own: only so does what was compacted count for them at once.
    let uncached = "--watch-cache-sizes=persistentvolumes#0,persistentvolumeclaims#0";
    let mut trial = Trial::new(Setting { api_server: &[uncached], ..Setting::default() }).await;
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
    // So long that no pause of the machine ends a term: the clock is not to either.
    let lease = ["--lease-duration=30"];
    let environment = clock.environment();
    let mut trial =
        Trial::new(Setting { replica: &lease, environment: &environment, ..Setting::default() }).await;
    let mut next = Replica::start_with(&trial.proxy.kubeconfig(), "next", &trial.arguments, &[]);
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
