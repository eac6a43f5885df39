//! Replicas with clocks that differ, and the cluster that keeps their Secret and trusts their authority.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{HOUR, NAME, day, first, names, verify};
use bindery_kit::poll;
use bindery_webhook::certificates::{
    CertificateSettings, CertificateStatus, CertificateStorage, Data, Identity, Keeper,
};

/// How late the slowest API server sees a change.
pub(super) const LAG_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct World {
    pub(super) secret: Option<Data>,
    /// The authorities that the webhook configuration trusts.
    pub(super) bundle: Vec<u8>,
    /// All that it has trusted, and since when.
    pub(super) bundles: Vec<(Instant, Vec<u8>)>,
    pub(super) version: u64,
    pub(super) versions: watch::Sender<u64>,
    /// No request succeeds.
    pub(super) is_down: bool,
    /// Writes of the webhook configuration fail.
    pub(super) keeps_bundle: bool,
    /// One of the webhook configurations is missing.
    pub(super) lacks_one: bool,
    pub(super) writes: u64,
}

/// A replica's connection to the cluster.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) world: Arc<Mutex<World>>,
    /// Delays requests.
    slow: Delay,
    /// Delays watch events.
    late: Delay,
    changes: Arc<Notify>,
}

/// Delays, each of a random number of ticks.
#[derive(Clone)]
struct Delay {
    tick: Duration,
    random: Arc<Mutex<StdRng>>,
}

const TICKS_MAX: u32 = 9;

impl Delay {
    async fn pass(&self) {
        let ticks = self.random.lock().unwrap().random_range(0..=TICKS_MAX);
        let mut interval = tokio::time::interval(self.tick);
        // The first tick comes at once.
        for _ in 0..=ticks {
            interval.tick().await;
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the API server is down")]
pub(super) struct Down;

impl Connection {
    async fn pass(&self) -> Result<(), Down> {
        self.slow.pass().await;
        if self.world.lock().unwrap().is_down { Err(Down) } else { Ok(()) }
    }

    /// Whether the write was accepted.
    fn write(&self, over: u64, change: impl FnOnce(&mut World)) -> bool {
        let mut world = self.world.lock().unwrap();
        let is_current = over == world.version;
        if is_current {
            world.writes += 1;
            world.change(change);
        }
        is_current
    }
}

impl World {
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.version += 1;
        self.versions.send_replace(self.version);
        let bundle = self.bundle.clone();
        self.bundles.push((Instant::now(), bundle));
    }

    /// Whether all API servers have seen a trusted authority.
    fn is_seen_by_all(&self) -> bool {
        let trusting = self.bundles.iter().rev().take_while(|(_, bundle)| !bundle.is_empty());
        trusting.last().is_some_and(|(at, _)| *at + LAG_MAX <= Instant::now())
    }

    /// The authorities that an API server trusts if it sees changes this late.
    fn trusted(&self, lag: Duration) -> &[u8] {
        let seen = self.bundles.iter().rev().find(|(at, _)| *at + lag <= Instant::now());
        seen.map_or(&[], |(_, bundle)| bundle)
    }
}

impl CertificateStorage for Connection {
    // One version of both objects: any change makes every write in flight a conflict.
    type Version = u64;
    type Error = Down;

    fn is_permanent(Down: &Down) -> bool {
        false
    }

    async fn read_secret(&self) -> Result<Option<(Data, u64)>, Down> {
        self.pass().await?;
        let world = self.world.lock().unwrap();
        Ok(world.secret.clone().map(|data| (data, world.version)))
    }

    async fn write_secret(&self, data: &Data, over: Option<&u64>) -> Result<bool, Down> {
        self.pass().await?;
        let (version, exists) = {
            let world = self.world.lock().unwrap();
            (world.version, world.secret.is_some())
        };
        let over = match over {
            None if exists => return Ok(false),
            None => version,
            Some(over) => *over,
        };
        Ok(self.write(over, |world| world.secret = Some(data.clone())))
    }

    async fn read_bundles(&self) -> Result<Option<(BTreeMap<String, Vec<u8>>, u64)>, Down> {
        self.pass().await?;
        let world = self.world.lock().unwrap();
        Ok(Some((BTreeMap::from([("bindery".to_owned(), world.bundle.clone())]), world.version)))
    }

    fn are_all_there(&self, _: &u64) -> bool {
        !self.world.lock().unwrap().lacks_one
    }

    async fn write_bundles(&self, authorities: &[u8], over: &u64) -> Result<bool, Down> {
        self.pass().await?;
        if self.world.lock().unwrap().keeps_bundle {
            return Err(Down);
        }
        Ok(self.write(*over, |world| world.bundle = authorities.to_vec()))
    }
}

pub(super) struct Replica {
    pub(super) shown: Arc<Mutex<Identity>>,
    keeping: JoinHandle<()>,
    watching: JoinHandle<()>,
    pub(super) status: Arc<CertificateStatus>,
}

impl Replica {
    async fn start(connection: &Connection, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        let connection = Connection { changes: Arc::default(), ..connection.clone() };
        let settings = CertificateSettings { names: names(), lifetime: HOUR };
        let status = Arc::<CertificateStatus>::default();
        let (keeper, first) =
            Keeper::open(connection.clone(), settings, clock, Arc::clone(&status)).await.unwrap();
        let shown = Arc::new(Mutex::new(first));
        let show = Arc::clone(&shown);
        let changes = Arc::clone(&connection.changes);
        let keeping = keeper.run(changes, move |identity| *show.lock().unwrap() = identity.clone());
        Self {
            shown,
            keeping: tokio::spawn(keeping),
            watching: tokio::spawn(tell_changes(connection)),
            status,
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.keeping.abort();
        self.watching.abort();
    }
}

/// A watch that is late and merges changes.
async fn tell_changes(connection: Connection) {
    let mut versions = connection.world.lock().unwrap().versions.subscribe();
    // A watch begins with the present state.
    versions.mark_changed();
    while versions.changed().await.is_ok() {
        connection.late.pass().await;
        versions.mark_unchanged();
        connection.changes.notify_one();
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Mishap {
    /// The API server is down for minutes.
    Outage,
    /// A replica is killed, and another one replaces it.
    Restart(usize),
    /// A person deletes the Secret.
    Deleted,
    /// A person writes nonsense into it.
    Spoilt,
    /// A person replaces the authority of the certificate in it.
    Mixed,
    /// A person applies the webhook configuration again, without an authority.
    Reset,
}

impl Mishap {
    pub(super) fn any(random: &mut StdRng) -> Self {
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

/// The data with another, trusted authority instead of the newest certificate's.
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

/// By how many minutes the clocks of replicas are ahead. A certificate is not shown in its last ten minutes.
const CLOCKS: [i64; 3] = [-8, 0, 8];
/// Most minutes by which a right clock may be wrong.
const RIGHT: u64 = 8;

pub(super) struct Cluster {
    pub(super) connection: Connection,
    pub(super) began: Instant,
    /// How many minutes the clock of each replica goes ahead.
    clocks: [i64; 3],
    pub(super) replicas: Vec<Replica>,
}

impl Cluster {
    /// A cluster without replicas.
    pub(super) fn of(world: World, random: &Arc<Mutex<StdRng>>) -> Self {
        Self::with(world, CLOCKS, random)
    }

    pub(super) fn with(world: World, clocks: [i64; 3], random: &Arc<Mutex<StdRng>>) -> Self {
        let [slow, late] =
            [5, 300].map(|millis| Delay { tick: Duration::from_millis(millis), random: Arc::clone(random) });
        let connection =
            Connection { world: Arc::new(Mutex::new(world)), slow, late, changes: Arc::default() };
        Self { connection, began: Instant::now(), clocks, replicas: Vec::new() }
    }

    pub(super) async fn start(random: &Arc<Mutex<StdRng>>) -> Self {
        let mut cluster = Self::of(World::default(), random);
        let (first, second, third) = tokio::join!(cluster.replica(0), cluster.replica(1), cluster.replica(2));
        cluster.replicas = vec![first, second, third];
        cluster
    }

    /// Starts a replica with the clock of that number.
    pub(super) async fn replica(&self, number: usize) -> Replica {
        let (began, ahead) = (self.began, self.clocks[number]);
        let clock = move || {
            let true_time = day(0) + began.elapsed();
            let offset = Duration::from_secs(60 * ahead.unsigned_abs());
            if ahead < 0 { true_time - offset } else { true_time + offset }
        };
        Replica::start(&self.connection, clock).await
    }

    pub(super) async fn suffer(&mut self, mishap: Mishap) {
        let change = |change: fn(&mut World)| self.connection.world.lock().unwrap().change(change);
        match mishap {
            Mishap::Outage => {
                change(|world| world.is_down = true);
                self.check_for(Duration::from_secs(240)).await;
                self.connection.world.lock().unwrap().change(|world| world.is_down = false);
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
                // A certificate is trusted only after replicas have seen it, and API servers have seen their
                // repair.
                self.until_trusted(Duration::from_secs(5) + LAG_MAX).await;
            }
        }
    }

    pub(super) fn writes(&self) -> u64 {
        self.connection.world.lock().unwrap().writes
    }

    /// Waits until all API servers have seen a trusted authority: within this time.
    pub(super) async fn until_trusted(&self, within: Duration) {
        let is_seen = async || self.connection.world.lock().unwrap().is_seen_by_all().then_some(());
        let trusted = poll(Duration::from_millis(100), within, is_seen).await;
        assert!(trusted.is_some(), "no authority is trusted after {:?}", self.began.elapsed());
    }

    /// Checks for this long that every replica with a right clock is accepted.
    pub(super) async fn check_for(&self, time: Duration) {
        let mut ticks = tokio::time::interval(Duration::from_secs(20));
        let until = Instant::now() + time;
        while Instant::now() < until {
            ticks.tick().await;
            assert_eq!(self.refusals(), [""; 0], "at {:?}", self.began.elapsed());
        }
    }

    /// Waits until every replica with a right clock is accepted: within this time.
    pub(super) async fn until_accepted(&self, within: Duration) {
        let is_accepted = async || self.refusals().is_empty().then_some(());
        let accepted = poll(Duration::from_secs(1), within, is_accepted).await;
        assert!(accepted.is_some(), "{:?}", self.refusals());
    }

    /// The replicas with a right clock that the fastest or the slowest API server refuses.
    fn refusals(&self) -> Vec<String> {
        let now = day(0) + self.began.elapsed();
        let world = self.connection.world.lock().unwrap();
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
