//! Replicas that keep certificates together for hours, while everything that can happen to them does.
//!
//! A failure prints the seed of its world: `BINDERY_SEED=… BINDERY_WORLDS=1 cargo test -p bindery-webhook
//! --test certificates` runs it again, `BINDERY_WORLDS=…` other numbers of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{HOUR, NAME, day, first, names, verify};
use bindery_webhook::certificates::{
    CertificateRecord, CertificateSettings, Data, Identity, Keeper, Stored, Trust, Vault, Written,
};

/// How long after a change the slowest API server sees it.
pub(crate) const LAG_MAX: Duration = Duration::from_secs(60);

/// The cluster.
#[derive(Default)]
pub(crate) struct World {
    secret: Option<Data>,
    /// What the webhook configuration trusts; the name of no webhook matters.
    bundle: Vec<u8>,
    /// All that it ever trusted, and since when.
    bundles: Vec<(Instant, Vec<u8>)>,
    version: u64,
    /// Tells of each version.
    versions: watch::Sender<u64>,
    /// No request succeeds.
    is_down: bool,
    /// Nobody may say who is trusted.
    keeps_bundle: bool,
    /// Writes that were carried out.
    writes: u64,
}

/// One replica's way to the cluster: slow, and late.
#[derive(Clone)]
struct Way {
    world: Arc<Mutex<World>>,
    /// Of requests.
    slow: Arc<Road>,
    /// Of what watches tell.
    late: Arc<Road>,
    changes: Arc<Notify>,
}

/// What is under way on it arrives after a random number of ticks.
struct Road {
    tick: Duration,
    random: Arc<Mutex<StdRng>>,
    /// How many ticks each has still to go, and who awaits it.
    under_way: Mutex<Vec<(u32, oneshot::Sender<()>)>>,
    begun: Notify,
}

/// Most ticks that anything takes.
const TICKS_MAX: u32 = 9;

impl Road {
    fn new(tick: Duration, random: &Arc<Mutex<StdRng>>) -> Arc<Self> {
        let random = Arc::clone(random);
        Arc::new(Self { tick, random, under_way: Mutex::default(), begun: Notify::new() })
    }

    /// Ends with the arrival.
    async fn pass(&self) {
        let (arrives, arrived) = oneshot::channel();
        let ticks = self.random.lock().unwrap().random_range(0..=TICKS_MAX);
        self.under_way.lock().unwrap().push((ticks, arrives));
        self.begun.notify_one();
        arrived.await.expect("the road is there for as long as its cluster");
    }

    /// Lets everything arrive, for as long as it is polled. While nothing is under way, no time passes for
    /// it.
    async fn run(self: Arc<Self>) {
        loop {
            self.begun.notified().await;
            let mut ticks = tokio::time::interval(self.tick);
            while !self.under_way.lock().unwrap().is_empty() {
                ticks.tick().await;
                let mut under_way = self.under_way.lock().unwrap();
                for (_, arrives) in under_way.extract_if(.., |(left, _)| *left == 0) {
                    // Who awaited it may have been killed.
                    let _ = arrives.send(());
                }
                under_way.iter_mut().for_each(|(left, _)| *left -= 1);
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the API server is down")]
struct Down;

impl Way {
    async fn pass(&self) -> Result<(), Down> {
        self.slow.pass().await;
        if self.world.lock().unwrap().is_down { Err(Down) } else { Ok(()) }
    }

    fn write(&self, over: u64, change: impl FnOnce(&mut World)) -> Written {
        let mut world = self.world.lock().unwrap();
        if over != world.version {
            return Written::Conflict;
        }
        world.writes += 1;
        world.change(change);
        Written::Done
    }
}

impl World {
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.version += 1;
        self.versions.send_replace(self.version);
        let bundle = self.bundle.clone();
        self.bundles.push((Instant::now(), bundle));
    }

    /// Whether all API servers have seen that somebody is trusted, and see nothing of the time before any
    /// more.
    fn is_seen_by_all(&self) -> bool {
        let trusting = self.bundles.iter().rev().take_while(|(_, bundle)| !bundle.is_empty());
        trusting.last().is_some_and(|(at, _)| *at + LAG_MAX <= Instant::now())
    }

    /// What an API server trusts that sees everything so much later.
    fn trusted(&self, lag: Duration) -> &[u8] {
        let seen = self.bundles.iter().rev().find(|(at, _)| *at + lag <= Instant::now());
        seen.map_or(&[], |(_, bundle)| bundle)
    }
}

impl Vault for Way {
    // One for everything: any change makes every write in flight a conflict.
    type Version = u64;
    type Error = Down;

    fn is_misset(Down: &Down) -> bool {
        false
    }

    async fn stored(&self) -> Result<Option<Stored<u64>>, Down> {
        self.pass().await?;
        let world = self.world.lock().unwrap();
        Ok(world.secret.clone().map(|data| Stored { data, version: world.version }))
    }

    async fn store(&self, data: &Data, over: Option<&u64>) -> Result<Written, Down> {
        self.pass().await?;
        let version = self.world.lock().unwrap().version;
        let is_there = self.world.lock().unwrap().secret.is_some();
        let over = match over {
            None if is_there => return Ok(Written::Conflict),
            None => version,
            Some(over) => *over,
        };
        Ok(self.write(over, |world| world.secret = Some(data.clone())))
    }

    async fn trust(&self) -> Result<Option<Trust<u64>>, Down> {
        self.pass().await?;
        let world = self.world.lock().unwrap();
        let bundles = BTreeMap::from([("bindery".to_owned(), world.bundle.clone())]);
        Ok(Some(Trust { bundles, version: world.version }))
    }

    async fn entrust(&self, authorities: &[u8], over: &Trust<u64>) -> Result<Written, Down> {
        self.pass().await?;
        if self.world.lock().unwrap().keeps_bundle {
            return Err(Down);
        }
        Ok(self.write(over.version, |world| world.bundle = authorities.to_vec()))
    }
}

pub(crate) struct Replica {
    shown: Arc<Mutex<Identity>>,
    keeping: JoinHandle<()>,
    watching: JoinHandle<()>,
    record: Arc<CertificateRecord>,
}

impl Replica {
    /// Starts a replica whose clock differs from the true one.
    async fn start(way: &Way, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        let way = Way { changes: Arc::default(), ..way.clone() };
        let settings = CertificateSettings { names: names(), lifetime: HOUR };
        let record = Arc::<CertificateRecord>::default();
        let (keeper, first) = Keeper::open(way.clone(), settings, clock, Arc::clone(&record)).await.unwrap();
        let shown = Arc::new(Mutex::new(first));
        let show = Arc::clone(&shown);
        let changes = Arc::clone(&way.changes);
        let keeping = keeper.run(changes, move |identity| *show.lock().unwrap() = identity.clone());
        Self { shown, keeping: tokio::spawn(keeping), watching: tokio::spawn(tell_changes(way)), record }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.keeping.abort();
        self.watching.abort();
    }
}

/// A watch, which is late and tells of many changes at once.
async fn tell_changes(way: Way) {
    let mut versions = way.world.lock().unwrap().versions.subscribe();
    // It begins with what is there.
    versions.mark_changed();
    while versions.changed().await.is_ok() {
        way.late.pass().await;
        versions.mark_unchanged();
        way.changes.notify_one();
    }
}

/// What happens to a cluster, beside time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    /// The API server is down for minutes.
    Outage,
    /// A replica is killed and another takes its place.
    Restart(usize),
    /// Somebody deletes the Secret.
    Deleted,
    /// Somebody writes nonsense into it.
    Spoilt,
    /// Somebody puts another authority beside the certificate in it.
    Mixed,
    /// Somebody puts the webhook configuration back as it was at first: without any authority.
    Reset,
}

impl Mishap {
    fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..6) {
            0 => Self::Outage,
            1 => Self::Deleted,
            2 => Self::Spoilt,
            3 => Self::Mixed,
            4 => Self::Reset,
            _ => Self::Restart(random.random_range(0..3)),
        }
    }
}

/// What is kept, but for the authority that vouches for the newest certificate: it is another one, and
/// trusted.
fn mixed(mut data: Data) -> Data {
    let stranger = first(day(0)).data().remove("ca.crt").unwrap();
    if let (Some(chain), Some(authorities)) = (data.get("tls.crt"), data.get("ca.crt")) {
        let leaf = String::from_utf8_lossy(chain);
        let leaf = leaf.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
        let (chain, authorities) =
            ([leaf.as_bytes(), &stranger].concat(), [authorities.as_slice(), &stranger].concat());
        data.extend([("tls.crt".to_owned(), chain), ("ca.crt".to_owned(), authorities)]);
    }
    data
}

/// Clocks of replicas differ from the true one by so many minutes. A certificate is not shown in its last
/// ten.
const CLOCKS: [i64; 3] = [-8, 0, 8];
/// Most minutes for which a clock is as right as can be expected.
const RIGHT: u64 = 8;

pub(crate) struct Cluster {
    way: Way,
    pub(crate) began: Instant,
    /// How many minutes the clock of each replica goes ahead.
    clocks: [i64; 3],
    pub(crate) replicas: Vec<Replica>,
    _roads: JoinSet<()>,
}

impl Cluster {
    /// One without replicas.
    fn of(world: World, random: &Arc<Mutex<StdRng>>) -> Self {
        Self::with(world, CLOCKS, random)
    }

    /// One without replicas, and with these clocks.
    pub(crate) fn with(world: World, clocks: [i64; 3], random: &Arc<Mutex<StdRng>>) -> Self {
        let [slow, late] = [5, 300].map(|millis| Road::new(Duration::from_millis(millis), random));
        let roads = [&slow, &late].map(|road| Arc::clone(road).run()).into_iter().collect();
        let way = Way { world: Arc::new(Mutex::new(world)), slow, late, changes: Arc::default() };
        Self { way, began: Instant::now(), clocks, replicas: Vec::new(), _roads: roads }
    }

    async fn start(random: &Arc<Mutex<StdRng>>) -> Self {
        let mut cluster = Self::of(World::default(), random);
        let (first, second, third) = tokio::join!(cluster.replica(0), cluster.replica(1), cluster.replica(2));
        cluster.replicas = vec![first, second, third];
        cluster
    }

    /// Starts a replica with the clock of that number.
    pub(crate) async fn replica(&self, number: usize) -> Replica {
        let (began, ahead) = (self.began, self.clocks[number]);
        let clock = move || {
            let true_time = day(0) + began.elapsed();
            let offset = Duration::from_secs(60 * ahead.unsigned_abs());
            if ahead < 0 { true_time - offset } else { true_time + offset }
        };
        Replica::start(&self.way, clock).await
    }

    pub(crate) async fn suffer(&mut self, mishap: Mishap) {
        let change = |change: fn(&mut World)| self.way.world.lock().unwrap().change(change);
        match mishap {
            Mishap::Outage => {
                change(|world| world.is_down = true);
                self.check_for(Duration::from_secs(240)).await;
                self.way.world.lock().unwrap().change(|world| world.is_down = false);
            }
            Mishap::Restart(number) => {
                let replica = self.replica(number).await;
                self.replicas[number] = replica;
            }
            Mishap::Deleted => change(|world| world.secret = None),
            Mishap::Spoilt => change(|world| {
                let garbage = b"-----BEGIN NONSENSE-----".to_vec();
                world.secret = Some(Data::from([("tls.crt".to_owned(), garbage)]));
            }),
            Mishap::Mixed => change(|world| world.secret = world.secret.take().map(mixed)),
            Mishap::Reset => {
                change(|world| world.bundle.clear());
                // Nobody can be trusted until replicas have seen it, and API servers that they have.
                self.until_trusted(Duration::from_secs(5) + LAG_MAX).await;
            }
        }
    }

    /// How often anything was written.
    pub(crate) fn writes(&self) -> u64 {
        self.way.world.lock().unwrap().writes
    }

    /// Waits until somebody is trusted, and all API servers have seen it: within this time.
    async fn until_trusted(&self, within: Duration) {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let began = Instant::now();
        while !self.way.world.lock().unwrap().is_seen_by_all() {
            assert!(began.elapsed() <= within, "nobody is trusted after {:?}", self.began.elapsed());
            ticks.tick().await;
        }
    }

    /// Checks again and again that every replica whose clock is right is accepted.
    pub(crate) async fn check_for(&self, time: Duration) {
        let mut ticks = tokio::time::interval(Duration::from_secs(20));
        let until = Instant::now() + time;
        while Instant::now() < until {
            ticks.tick().await;
            assert_eq!(self.refusals(), [""; 0], "at {:?}", self.began.elapsed());
        }
    }

    /// Waits until every replica whose clock is right is accepted: within this time.
    pub(crate) async fn until_accepted(&self, within: Duration) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        let began = Instant::now();
        while !self.refusals().is_empty() {
            assert!(began.elapsed() <= within, "{:?}", self.refusals());
            ticks.tick().await;
        }
    }

    /// How the quickest and the slowest API server refuse replicas whose clock is right.
    fn refusals(&self) -> Vec<String> {
        let now = day(0) + self.began.elapsed();
        let world = self.way.world.lock().unwrap();
        let mut refusals = Vec::new();
        for (number, replica) in self.replicas.iter().enumerate() {
            if self.clocks[number].unsigned_abs() > RIGHT {
                continue;
            }
            let shown = replica.shown.lock().unwrap();
            for lag in [Duration::ZERO, LAG_MAX] {
                if let Err(error) = verify(world.trusted(lag), &shown, NAME, now) {
                    refusals.push(format!("replica {number}, {lag:?} late: {error}"));
                }
            }
        }
        refusals
    }
}

/// Worlds in a run.
const WORLDS: u64 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

#[tokio::test(start_paused = true)]
async fn every_certificate_that_is_shown_is_trusted_whatever_happens() {
    let first = number("BINDERY_SEED").unwrap_or_else(rand::random);
    for seed in (0..number("BINDERY_WORLDS").unwrap_or(WORLDS)).map(|world| first.wrapping_add(world)) {
        println!("BINDERY_SEED={seed} BINDERY_WORLDS=1");
        live_through(seed).await;
    }
}

/// Has a cluster suffer one mishap after the other.
async fn live_through(seed: u64) {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
    let mut cluster = Cluster::start(&random).await;
    cluster.until_trusted(LAG_MAX).await;
    for _ in 0..24 {
        // The next one comes before anything has settled after the last, or after all has.
        let quiet = if random.lock().unwrap().random() { 1..300 } else { 300..1_200 };
        let quiet = random.lock().unwrap().random_range(quiet);
        cluster.check_for(Duration::from_secs(quiet)).await;
        let mishap = Mishap::any(&mut random.lock().unwrap());
        println!("{:?}: {mishap:?}", cluster.began.elapsed());
        cluster.suffer(mishap).await;
    }
    cluster.check_for(HOUR).await;
    // Through renewals: the certificates of the beginning have long expired.
    assert!(cluster.began.elapsed() > 2 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_at_once_agree_and_an_idle_cluster_is_left_alone() {
    for seed in 0..20 {
        agree_and_rest(seed).await;
    }
}

async fn agree_and_rest(seed: u64) {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
    let cluster = Cluster::start(&random).await;
    cluster.until_trusted(LAG_MAX).await;
    // Nothing is due: of the forty minutes before a renewal, sixteen may be over at once by somebody else's
    // clock.
    cluster.check_for(Duration::from_secs(20 * 60)).await;
    let shown: Vec<_> =
        cluster.replicas.iter().map(|replica| replica.shown.lock().unwrap().clone()).collect();
    assert!(shown.iter().all(|identity| *identity == shown[0]), "seed {seed}");
    assert_eq!(cluster.way.world.lock().unwrap().writes, 2, "one Secret and one bundle; seed {seed}");
    for replica in &cluster.replicas {
        assert_eq!((replica.record.changes(), replica.record.failures()), (0, 0));
        assert_eq!(replica.record.trusted(), Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_trusted_says_so() {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
    let cluster = Cluster::of(World { keeps_bundle: true, ..World::default() }, &random);
    let replica = cluster.replica(1).await;
    assert_eq!(replica.record.trusted(), Some(false));
    cluster.way.world.lock().unwrap().keeps_bundle = false;
    cluster.until_trusted(HOUR).await;
    assert_eq!(replica.record.trusted(), Some(true));

    // Somebody takes the authority away, and nobody may put it back.
    cluster.way.world.lock().unwrap().change(|world| {
        world.keeps_bundle = true;
        world.bundle.clear();
    });
    let failures = replica.record.failures();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    while replica.record.failures() == failures {
        ticks.tick().await;
    }
    assert_eq!(replica.record.trusted(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_starts_while_nothing_can_be_kept_shows_one_that_is_not_trusted() {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
    let cluster = Cluster::of(World { is_down: true, ..World::default() }, &random);
    let replica = cluster.replica(1).await;
    let first = replica.shown.lock().unwrap().clone();
    assert_eq!((replica.record.trusted(), replica.record.failures()), (Some(false), 1));
    assert!(replica.record.expires().is_some());
    cluster.way.world.lock().unwrap().is_down = false;
    cluster.until_trusted(HOUR).await;
    assert_eq!(replica.record.trusted(), Some(true));
    assert_ne!(*replica.shown.lock().unwrap(), first);
}
