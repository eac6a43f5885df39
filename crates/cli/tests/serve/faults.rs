//! Faults between Bindery and its cluster, under load.
//!
//! Each fault lasts for [`SECONDS`], or for `BINDERY_FAULT_SECONDS` (`cargo xtask soak faults`). Meanwhile no
//! snapshot of the cluster shows harm. Afterwards all tenants are served, and the cluster settles without a
//! violation. The checker shares no code with Bindery.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use bindery_cluster::{
    Clock, Cluster, Faults, Manager, NoFaults, PATIENCE, Proxy, Replica, Request, RequestFault, Response,
    ResponseFault,
};
use bindery_kit::number_from_env;
use http::StatusCode;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::load::{Load, Unserved, chance, check_snapshots, is_abandoned, names_a_tenant};

/// How long each fault lasts by default.
const SECONDS: u64 = 6;
/// Log message, with the claim's UID, about a provisioned folder that may be left.
const LEAVES: &str = "ended while provisioning";
/// Log message about a lost connection.
const NO_ANSWER: &str = "no answer from the API server";
const SNAPSHOT_EVERY: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Setting<'a> {
    api_server: &'a [&'a str],
    replica: &'a [&'a str],
    environment: &'a [(&'a str, PathBuf)],
    /// Whether the replica is in mode steer, beside upstream's binder.
    is_steering: bool,
    /// How long the API server may be down, besides its faults.
    gone: Duration,
}

struct Trial {
    cluster: Cluster,
    proxy: Proxy,
    replica: Replica,
    /// Arguments of a replica that serves the same tenants.
    arguments: Vec<String>,
    load: Load,
    chance: StdRng,
    lasts: Duration,
}

/// What a replica has reported so far.
struct Reported {
    /// Failed writes, failed watches, refused requests, late answers.
    counts: [u64; 4],
    logged: usize,
}

struct RandomFaults {
    fault: Fault,
    chance: Mutex<StdRng>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Cut,
    Delay,
    Refuse(StatusCode),
    LoseAnswers,
}

impl Faults for RandomFaults {
    fn on_request(&self, _: &Request) -> RequestFault {
        let mut chance = self.chance.lock().unwrap();
        match self.fault {
            Fault::Cut if chance.random_bool(0.005) => RequestFault::CutAll,
            Fault::Cut if chance.random_bool(0.1) => RequestFault::Cut,
            Fault::Delay if chance.random_bool(0.3) => {
                RequestFault::Delay(Duration::from_millis(chance.random_range(10..1_500)))
            }
            Fault::Refuse(status) if chance.random_bool(0.1) => {
                let retry_after = (status == StatusCode::TOO_MANY_REQUESTS).then_some(1);
                RequestFault::Refuse { status, retry_after }
            }
            _ => RequestFault::None,
        }
    }

    fn on_response(&self, request: &Request, _: &Response) -> ResponseFault {
        let is_lost = self.fault == Fault::LoseAnswers
            && request.method != http::Method::GET
            && self.chance.lock().unwrap().random_bool(0.3);
        if is_lost { ResponseFault::Lose } else { ResponseFault::None }
    }
}

impl Trial {
    async fn new(setting: Setting<'_>) -> Self {
        let chance = chance();
        let manager = if setting.is_steering { Manager::Whole } else { Manager::ProtectionAlone };
        let cluster = Cluster::start_with(manager, setting.api_server).await;
        let proxy = cluster.proxy().await;
        let lasts = Duration::from_secs(number_from_env("BINDERY_FAULT_SECONDS").unwrap_or(SECONDS));
        let mut load = Load::new(&cluster, lasts + setting.gone).await;
        load.is_beside_upstream = setting.is_steering;
        let further = setting.replica.iter().map(|&argument| argument.to_owned());
        let arguments: Vec<_> = std::iter::once(load.argument()).chain(further).collect();
        let texts: Vec<_> = arguments.iter().map(String::as_str).collect();
        let mut replica = Replica::start(&proxy.kubeconfig(), "tried", &texts, setting.environment);
        replica.until_leading().await;
        Self { arguments, cluster, proxy, replica, load, chance, lasts }
    }

    /// Fails if a tenant was not served, with the log and metrics of the replica.
    async fn served(&self, outcome: Result<(), Unserved>) {
        let Err(Unserved { name, why }) = outcome else { return };
        let (log, metrics) = (self.replica.log(), self.replica.get("/metrics").await);
        let logged: Vec<_> = log.lines().filter(|line| line.contains(&name)).collect();
        let metrics: Vec<_> =
            metrics.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{")).collect();
        panic!("{why}\nlogged: {logged:#?}\nmetrics: {metrics:#?}");
    }

    async fn receive(&mut self, time: Duration) {
        let outcome = self.load.run_for(time, &mut self.chance).await;
        self.served(outcome).await;
    }

    fn check_snapshots(&self) -> JoinHandle<()> {
        check_snapshots(self.cluster.client.clone(), SNAPSHOT_EVERY)
    }

    /// Lets tenants come during the fault until the replica has reported it, and waits until the cluster has
    /// settled.
    async fn endure(&mut self, fault: Fault) {
        let before = self.reported().await;
        let checking = self.check_snapshots();
        let chance = Mutex::new(StdRng::seed_from_u64(self.chance.random()));
        self.proxy.set_faults(RandomFaults { fault, chance });
        self.receive(self.lasts).await;
        // Rare faults may take longer.
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.unreported(fault, &before).await.is_empty() {
            self.receive(SNAPSHOT_EVERY).await;
        }
        self.settle(checking, &format!("{fault:?}")).await;
        let now = self.reported().await;
        let [write_errors, watch_failures, refused, late] =
            std::array::from_fn(|metric| now.counts[metric] - before.counts[metric]);
        println!(
            "{fault:?}: {write_errors} writes and {watch_failures} watches failed, {refused} requests \
             refused, {late} late"
        );
        let unreported = self.unreported(fault, &before).await;
        assert!(unreported.is_empty(), "{fault:?}: {unreported:?} in {}", self.replica.log());
    }

    /// Ends the fault; waits until all tenants are served and the cluster has settled.
    async fn settle(&mut self, checking: JoinHandle<()>, name: &str) {
        self.proxy.set_faults(NoFaults);
        let cleared = Instant::now();
        let outcome = self.load.until_served().await;
        self.served(outcome).await;
        self.until_settled().await;
        self.replica.check();
        self.check_log();
        assert!(!checking.is_finished(), "{:?}", checking.await);
        checking.abort();
        println!(
            "{name}: {} tenants, settled {:.1?} after {:.0?}",
            self.load.count(),
            cleared.elapsed(),
            self.lasts
        );
    }

    /// Checks that every line about an object has its UID, because names are reused.
    fn check_log(&self) {
        let log = self.replica.log();
        let lines = log.lines().filter(|line| names_a_tenant(line));
        let unclear: Vec<_> = lines.filter(|line| !line.contains("uid=")).collect();
        assert!(unclear.is_empty(), "lines without a UID: {unclear:#?}");
    }

    /// What the replica has not reported of a fault.
    async fn unreported(&self, fault: Fault, before: &Reported) -> Vec<&'static str> {
        let (now, log) = (self.reported().await, self.replica.log());
        let [write_errors, watch_failures, refused, late] =
            std::array::from_fn(|metric| now.counts[metric] > before.counts[metric]);
        let since = &log[before.logged..];
        let reported = match fault {
            Fault::Cut => vec![
                ("writes that failed", write_errors),
                ("watches that failed", watch_failures),
                ("why a sync failed", says(since, ["sync failed", NO_ANSWER])),
                ("why a watch failed", says(since, ["watching failed", NO_ANSWER])),
            ],
            // Logged once a minute at most, so perhaps before this fault.
            Fault::Delay => vec![
                ("requests that were late", late),
                ("that the API server is late", says(&log, ["the API server answers late", "took="])),
            ],
            Fault::Refuse(status) => {
                let why = match status {
                    StatusCode::TOO_MANY_REQUESTS => "throttled: ".to_owned(),
                    _ => format!("the API server failed with status {}: ", status.as_str()),
                };
                vec![
                    ("writes that failed", write_errors),
                    // Status 500 does not mean busy.
                    ("whether it is busy", refused == (status != StatusCode::INTERNAL_SERVER_ERROR)),
                    ("why a sync failed", says(since, ["sync failed", &why])),
                ]
            }
            Fault::LoseAnswers => vec![
                ("writes that failed", write_errors),
                ("why a sync failed", says(since, ["sync failed", NO_ANSWER])),
            ],
        };
        reported.into_iter().filter(|(_, is_reported)| !is_reported).map(|(what, _)| what).collect()
    }

    async fn reported(&self) -> Reported {
        let counts = [
            self.replica.metric("bindery_write_errors_total").await,
            self.replica.metric("bindery_watch_failures_total").await,
            self.replica.metric("bindery_requests_refused_total").await,
            self.replica.metric("bindery_requests_late_total").await,
        ];
        Reported { counts, logged: self.replica.log().len() }
    }

    /// Whether the tried replica leads, and whether the other does.
    async fn leaders(&self, other: &Replica) -> (u64, u64) {
        (self.replica.metric("bindery_leader").await, other.metric("bindery_leader").await)
    }

    /// Errors in the data of volumes. As upstream does, a replica that steps down while it provisions a
    /// folder, or before it has created the volume, leaves the folder if the claim goes meanwhile; it logs
    /// that.
    async fn losses(&self) -> Vec<String> {
        let mut losses = self.load.losses().await;
        if !losses.is_empty() {
            let log = self.replica.log();
            let left: Vec<&str> = log.lines().filter(|line| line.contains(LEAVES)).collect();
            losses.retain(|loss| {
                let uid = loss.split_once("/pvc-").and_then(|(_, rest)| rest.split(' ').next());
                !(is_abandoned(loss) && uid.is_some_and(|uid| left.iter().any(|line| line.contains(uid))))
            });
        }
        losses
    }

    async fn until_settled(&self) {
        if let Err(wrong) = self.cluster.until_settled(async |_| self.losses().await).await {
            panic!("the cluster does not settle: {wrong:#?}\n{}", self.replica.log());
        }
    }
}

/// Whether a line of the log has both texts.
fn says(log: &str, texts: [&str; 2]) -> bool {
    log.lines().any(|line| texts.iter().all(|text| line.contains(text)))
}

fn assert_says(log: &str, texts: [&str; 2]) {
    assert!(says(log, texts), "no {texts:?} in {log}");
}

#[tokio::test]
async fn requests_that_are_lost_late_or_refused_do_no_harm_and_are_retried() {
    let mut trial = Trial::new(Setting::default()).await;
    let refusals =
        [StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::GATEWAY_TIMEOUT];
    let faults = [Fault::Cut, Fault::Delay, Fault::LoseAnswers];
    for fault in faults.into_iter().chain(refusals.map(Fault::Refuse)) {
        trial.endure(fault).await;
    }
}

#[tokio::test]
async fn faults_in_mode_steer_lose_no_volume_and_leave_no_reservation() {
    let setting = Setting { replica: &["--mode=steer"], is_steering: true, ..Setting::default() };
    let mut trial = Trial::new(setting).await;
    trial.lasts /= 2;
    let refusals = [StatusCode::TOO_MANY_REQUESTS, StatusCode::GATEWAY_TIMEOUT].map(Fault::Refuse);
    for fault in [Fault::Cut, Fault::Delay, Fault::LoseAnswers].into_iter().chain(refusals) {
        trial.endure(fault).await;
    }
    assert!(trial.replica.metric("bindery_steer_reservations_total").await > 0);
    assert_eq!(trial.replica.metric("bindery_refusals_total").await, 0);
}

#[tokio::test]
async fn an_api_server_that_is_killed_under_load_is_waited_for() {
    // Tenants are served when it is back.
    let mut trial = Trial::new(Setting { gone: PATIENCE, ..Setting::default() }).await;
    let half = trial.lasts / 2;
    for _ in 0..2 {
        let checking = trial.check_snapshots();
        trial.receive(half).await;
        let coming = trial.load.run_for(half, &mut trial.chance);
        let (restarted, outcome) = tokio::join!(trial.cluster.plane.restart_api_server(), coming);
        restarted.unwrap();
        trial.served(outcome).await;
        trial.settle(checking, "API server killed").await;
    }
    let [write_errors, watch_failures, ..] = trial.reported().await.counts;
    println!("{write_errors} writes and {watch_failures} watches failed");
    assert!(watch_failures > 0);
    assert_says(&trial.replica.log(), ["watching failed", NO_ANSWER]);
}

#[tokio::test]
async fn a_watch_that_is_slower_than_compaction_lists_again() {
    // Without the watch cache, a compaction of etcd expires watches at once.
    let uncached = "--watch-cache-sizes=persistentvolumes#0,persistentvolumeclaims#0";
    // A replica that leads again lists anew, and its watches are then no longer behind the compaction.
    let setting =
        Setting { replica: &["--lease-duration=15"], api_server: &[uncached], ..Setting::default() };
    let mut trial = Trial::new(setting).await;
    let checking = trial.check_snapshots();
    trial.receive(trial.lasts / 2).await;
    trial.proxy.hold_watches(true);
    trial.receive(trial.lasts / 2).await;
    trial.cluster.plane.compact().await.unwrap();
    // Cut first: a watch that received the held events would no longer be behind the compaction.
    trial.proxy.cut();
    trial.proxy.hold_watches(false);
    trial.settle(checking, "etcd compacted").await;
    let log = trial.replica.log();
    assert!(trial.replica.metric("bindery_watches_expired_total").await > 0, "{log}");
    assert_says(&log, ["the watch has expired; listing again", "kind="]);
}

#[tokio::test]
async fn a_clock_that_jumps_stops_neither_the_leader_nor_the_next_one() {
    const HOUR: i64 = 3_600;
    let clock = Clock::new().unwrap();
    // Long enough that no pause of the machine ends the term.
    let lease = ["--lease-duration=15"];
    let environment = clock.environment();
    let mut trial =
        Trial::new(Setting { replica: &lease, environment: &environment, ..Setting::default() }).await;
    let further: Vec<_> = trial.arguments.iter().map(String::as_str).collect();
    let mut next = Replica::behind(&trial.proxy, "next", &further);
    next.until_following().await;
    let checking = trial.check_snapshots();
    for ahead in [2 * HOUR, -HOUR, 0, 2 * HOUR] {
        clock.set(ahead).unwrap();
        trial.receive(trial.lasts / 4).await;
        assert_eq!(trial.leaders(&next).await, (1, 0), "{ahead} s ahead");
    }
    assert!(trial.replica.metric("bindery_clock_jumps_total").await > 0);
    let log = trial.replica.log();
    assert!(log.contains("the clock of this machine has jumped"), "{log}");
    // A leader that is killed while it provisions for a claim that goes leaves the folder, as upstream does.
    let served = trial.load.until_served().await;
    trial.served(served).await;
    trial.until_settled().await;
    // The Lease was last renewed two hours ahead.
    trial.replica.signal(Signal::KILL);
    let died = Instant::now();
    next.until_leading().await;
    println!("taken over after {:.1?}", died.elapsed());
    trial.replica = next;
    trial.receive(trial.lasts / 4).await;
    trial.settle(checking, "clock jumped").await;
}
