//! A long run on a real cluster: tenants come and go while replicas, API server, etcd, connections, clocks
//! and the disk fail in turn.
//!
//! `cargo xtask soak cluster` runs it in a mount namespace, where it may mount a small disk.
//! `BINDERY_SOAK_PAIRS` is the number of pairs that are bound before it begins, and `BINDERY_SOAK_MINUTES` is
//! its length.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seed and progress are printed")]

mod disk;
mod fault;
#[path = "../serve/load.rs"]
mod load;
mod place;
mod plot;
mod report;

use std::time::Duration;

use bindery_cluster::{Cluster, Manager, Stock, poll, snapshot};
use bindery_kit::number_from_env;
use disk::Disk;
use fault::{Fault, LoseAnswers, answers_no_request, path_of};
use load::data::{Staying, missing};
use load::{LEFT, Load, chance, check_snapshots, is_abandoned};
use place::Place;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use report::{Report, Row};
use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Pairs that are bound before the run begins.
const PAIRS: u64 = 100_000;
/// Minutes for which faults are made.
const MINUTES: u64 = 60;
const REPLICAS: usize = 3;
/// Seconds between the beginnings of two faults.
const GAP: std::ops::RangeInclusive<u64> = 20..=60;
/// The least time between two faults, if the earlier one was long.
const GAP_MIN: Duration = Duration::from_secs(5);
/// How long a fault lasts: longer than a Lease.
const LASTS: Duration = Duration::from_secs(25);
/// Within this time after a fault, all tenants that wait are served. A replica notices that a watch is dead
/// after 90 s of silence.
const SERVED_WITHIN: Duration = Duration::from_secs(120);
/// Within this time a restored etcd and its API server are ready.
const RESTORED_WITHIN: Duration = Duration::from_secs(180);
/// The chance that a volume is deleted is this divided by the number of pairs: before it deletes a folder,
/// the plugin reads all volumes.
const DELETING: f64 = 60.0;
const SNAPSHOT_EVERY: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// As etcd's guide for a restore says.
const RAISED: [&str; 2] = ["--bump-revision=1000000", "--mark-compacted"];
const HOUR: i64 = 3_600;
/// At the end, a replica has at most this many times the memory that it had when it had listed all pairs, and
/// `MEMORY_MORE_MIB` more, which it needs to lead.
const MEMORY_FACTOR: f64 = 1.5;
const MEMORY_MORE_MIB: f64 = 64.0;

struct Soak {
    report: Report,
    // Fields are dropped in this order: replicas end before their disk is unmounted.
    places: Vec<Place>,
    load: Load,
    disk: Disk,
    cluster: Cluster,
    chance: StdRng,
    checking: JoinHandle<()>,
    pairs: usize,
    /// Tenants that have stayed for a round, and leave.
    old: Staying,
    /// After a restore of etcd, the tenants that it took back.
    forgotten: Option<Staying>,
}

impl Soak {
    async fn new(pairs: usize) -> Self {
        let chance = chance();
        let mut cluster = Cluster::start(Manager::Off).await;
        Stock { pairs, free: 0 }.seed(&mut cluster.plane).await.unwrap();
        cluster.plane.set_manager(Manager::ProtectionAlone).unwrap();
        let disk = Disk::new();
        let mut load = Load::in_folder(disk.folder(), &cluster, SERVED_WITHIN + RESTORED_WITHIN).await;
        load.deleting = (DELETING / figure(pairs)).min(0.5);
        let (mut places, mut report) = (Vec::new(), Report::new(pairs));
        for number in 0..REPLICAS {
            let mut place = Place::new(&cluster, number, load.argument(), disk.path()).await;
            place.replica().until_listed().await;
            report.listed.extend(place.memory_mib());
            places.push(place);
        }
        let checking = check_snapshots(cluster.client.clone(), SNAPSHOT_EVERY);
        let (old, forgotten) = (Staying::new(), None);
        Self { report, places, load, disk, cluster, chance, checking, pairs, old, forgotten }
    }

    /// Lets tenants come for a while.
    async fn receive(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let part = SAMPLE_EVERY.min(end - Instant::now());
            self.load.run_for(part, &mut self.chance).await.unwrap();
            self.sample();
        }
    }

    fn sample(&mut self) {
        for (number, place) in self.places.iter().enumerate() {
            self.report.memory(number, place.memory_mib());
            // They would fill the memory.
            place.proxy.take_requests();
        }
        self.report.waits(self.load.take_waits());
    }

    /// The number of the replica that leads, besides this one.
    async fn leader(&self, besides: Option<usize>) -> usize {
        let leader = poll(async || {
            for (number, place) in self.places.iter().enumerate() {
                if besides != Some(number) && place.leads().await {
                    return Some(number);
                }
            }
            None
        });
        leader.await.expect("a replica leads in time")
    }

    /// Lets tenants come, makes a fault when it is due, and waits until Bindery has recovered. Returns when
    /// the fault began.
    async fn round(&mut self, fault: Fault, due: Instant) -> Instant {
        let gap = due.saturating_duration_since(Instant::now()).max(GAP_MIN);
        self.receive(gap).await;
        if fault == Fault::EtcdRestored {
            self.rest().await;
        }
        let before = self.load.count();
        let from = Instant::now();
        self.inflict(fault).await;
        let to = Instant::now();
        let tenants = self.load.count() - before;
        let (served, settled) = self.rest().await;
        let row = Row { fault, from, to, served, settled, tenants };
        println!("{}", self.report.push(row));
        self.report.write();
        from
    }

    /// Makes a fault while tenants come, and mends it.
    async fn inflict(&mut self, fault: Fault) {
        let any = self.chance.random_range(0..REPLICAS);
        match fault {
            Fault::LeaderKilled => {
                let leader = self.leader(None).await;
                self.places[leader].kill().await;
                self.receive(LASTS).await;
                self.leader(Some(leader)).await;
                self.places[leader].start();
            }
            Fault::LeaderStopped => {
                let leader = self.leader(None).await;
                self.places[leader].replica().signal(Signal::STOP);
                self.receive(LASTS).await;
                self.leader(Some(leader)).await;
                self.places[leader].replica().signal(Signal::CONT);
            }
            Fault::ApiServerKilled => {
                let coming = self.load.run_for(LASTS, &mut self.chance);
                let (restarted, came) = tokio::join!(self.cluster.plane.restart_api_server(), coming);
                restarted.unwrap();
                came.unwrap();
            }
            Fault::EtcdKilled => {
                self.cluster.plane.etcd().kill().unwrap();
                self.receive(LASTS).await;
                self.cluster.plane.restart_etcd().await.unwrap();
            }
            Fault::EtcdRestored => self.restore_etcd().await,
            Fault::RequestsLost => {
                self.places[any].proxy.set_faults(answers_no_request);
                self.receive(LASTS).await;
                self.places[any].mend();
            }
            Fault::AnswersLost => {
                self.places[any].proxy.set_faults(LoseAnswers);
                self.places[any].proxy.hold_watches(true);
                self.receive(LASTS).await;
                self.places[any].mend();
            }
            Fault::WatchesSilent => {
                let leader = self.leader(None).await;
                self.places[leader].proxy.stall_watches_of(path_of(&mut self.chance));
                self.receive(LASTS).await;
            }
            Fault::ClockJumps => {
                for ahead in [HOUR, 0] {
                    self.places[any].clock.set(ahead).unwrap();
                    self.receive(LASTS / 2).await;
                }
            }
            Fault::DiskFull => {
                self.disk.fill();
                self.receive(LASTS).await;
                self.disk.clear();
            }
        }
    }

    /// Restores a snapshot of now, when nothing is in flight, after tenants have come.
    async fn restore_etcd(&mut self) {
        let known = self.load.staying();
        let snapshot = self.cluster.plane.save_snapshot().await.unwrap();
        self.receive(LASTS).await;
        self.cluster.plane.api_server().kill().unwrap();
        self.forgotten = Some(self.load.forget_all_but(known).await);
        let restored = self.cluster.plane.restore_snapshot(&snapshot, &RAISED);
        tokio::time::timeout(RESTORED_WITHIN, restored).await.expect("etcd is restored in time").unwrap();
        // These wait for the replicas to notice.
        self.receive(GAP_MIN).await;
    }

    /// Waits until all tenants are served and the cluster has settled, and lets old tenants leave. Returns
    /// when the last tenant was served, and when the cluster had settled.
    async fn rest(&mut self) -> (Instant, Instant) {
        let served = tokio::time::timeout(SERVED_WITHIN, self.load.until_served()).await;
        served.expect("all tenants are served in time").unwrap();
        let served = Instant::now();
        let losses = async |_: &_| {
            let mut losses = self.load.losses().await;
            let is_kept = |loss: &str| self.forgotten.is_some() && loss.ends_with(LEFT);
            losses.retain(|loss| !is_abandoned(loss) && !is_kept(loss));
            losses.extend(self.forgotten.iter().flat_map(missing));
            losses
        };
        self.cluster.until_settled(losses).await.unwrap();
        let settled = Instant::now();
        assert!(!self.checking.is_finished(), "{:?}", (&mut self.checking).await);
        self.load.evict(&std::mem::take(&mut self.old)).await;
        self.old = self.load.staying();
        self.forgotten = None;
        for place in &mut self.places {
            place.replica().until_listed().await;
        }
        self.sample();
        (served, settled)
    }

    /// Lets all tenants leave, and checks what is left: the pairs from before, and what was journaled.
    async fn end(&mut self) {
        self.rest().await;
        self.rest().await;
        let moment = snapshot(&self.cluster.client).await.unwrap();
        assert_eq!(moment.violations(), []);
        // One more, which they are copies of.
        assert_eq!(moment.counts(), (self.pairs + 1, self.pairs + 1));
        for (number, place) in self.places.iter().enumerate() {
            let (now, listed) = (place.memory_mib().unwrap(), self.report.listed[number]);
            self.report.at_end.push(now);
            let most = listed * MEMORY_FACTOR + MEMORY_MORE_MIB;
            println!("replica {number}: {listed:.0} MiB after it had listed, {now:.0} MiB at the end");
            assert!(now <= most, "replica {number} has {now} MiB, more than {most}");
        }
        let mut entries = 0;
        for place in &mut self.places {
            entries += place.check_journal().await;
        }
        assert!(entries > 0, "no replica has journaled anything");
    }
}

#[expect(clippy::cast_precision_loss, reason = "the counts of a run are far below 2^52")]
fn figure(number: usize) -> f64 {
    number as f64
}

#[tokio::test]
async fn whatever_fails_nothing_is_lost_and_memory_is_what_it_was() {
    let pairs = number_from_env("BINDERY_SOAK_PAIRS").unwrap_or(PAIRS);
    let minutes = number_from_env("BINDERY_SOAK_MINUTES").unwrap_or(MINUTES);
    let mut soak = Soak::new(usize::try_from(pairs).unwrap()).await;
    let (mut from, mut faults) = (Instant::now(), Vec::new());
    let end = from + Duration::from_secs(60 * minutes);
    while Instant::now() < end {
        if faults.is_empty() {
            faults = Fault::ALL.to_vec();
            faults.shuffle(&mut soak.chance);
        }
        let due = from + Duration::from_secs(soak.chance.random_range(GAP));
        from = soak.round(faults.pop().unwrap(), due).await;
    }
    soak.end().await;
    soak.report.write();
}
