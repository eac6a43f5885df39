//! A replica, which may be killed and started again, behind a proxy and with a clock of its own.

use std::fs;
use std::path::{Path, PathBuf};

use bindery_cluster::{Clock, Cluster, NoFaults, Proxy, Replica, assert_replays};
use bindery_journal::{Files, What};
use bindery_kit::resident_kib;
use rustix::process::Signal;

use crate::report::folder;

/// Long enough that no pause of the machine ends the term.
const LEASE: &str = "--lease-duration=15";

/// MiB of a file and of a journal: three fit on the disk.
const JOURNAL_SIZES: [&str; 2] = ["--journal-size=16", "--journal-keep=256"];

pub(crate) struct Place {
    pub(crate) proxy: Proxy,
    pub(crate) clock: Clock,
    /// `None` after a kill.
    replica: Option<Replica>,
    number: usize,
    starts: usize,
    /// The argument by which it serves the tenants.
    provisioning: String,
    journal: PathBuf,
}

impl Place {
    /// Starts a replica with a journal on a disk.
    pub(crate) async fn new(cluster: &Cluster, number: usize, provisioning: String, disk: &Path) -> Self {
        let (proxy, clock) = (cluster.proxy().await, Clock::new().unwrap());
        let journal = disk.join(format!("journal-{number}"));
        let mut place = Self { proxy, clock, replica: None, number, starts: 0, provisioning, journal };
        place.start();
        place
    }

    /// Starts a replica with a new identity, as a pod has.
    pub(crate) fn start(&mut self) {
        self.starts += 1;
        let journal = format!("--journal={}", self.journal.display());
        let arguments = [&[LEASE, &self.provisioning, &journal][..], &JOURNAL_SIZES].concat();
        let replica =
            Replica::start(&self.proxy.kubeconfig(), &self.identity(), &arguments, &self.clock.environment());
        self.replica = Some(replica);
    }

    pub(crate) fn replica(&mut self) -> &mut Replica {
        self.replica.as_mut().expect("it was started")
    }

    pub(crate) async fn kill(&mut self) {
        self.replica().signal(Signal::KILL);
        self.replica().wait().await;
        self.keep_log();
        self.replica = None;
    }

    /// Ends the replica when its records are written or lost. Checks that the gaps of its journal tell what
    /// was lost, and that the journal replays. Returns the number of its entries.
    pub(crate) async fn check_journal(&mut self) -> usize {
        let identity = self.identity();
        let all_are_written = async |replica: &Replica| {
            let count = async |what| replica.metric(&format!("bindery_journal_records_{what}_total")).await;
            (count("made").await == count("written").await + count("lost").await).then_some(())
        };
        self.replica().until("all records are written or lost", all_are_written).await;
        let lost = self.replica().metric("bindery_journal_records_lost_total").await;
        self.replica().terminate().await;
        let (mut told, mut entries) = (0, 0);
        // Without a file if it has never led.
        if let Ok(mut files) = Files::open(&self.journal) {
            while let Some(entry) = files.next() {
                entries += 1;
                let what = entry.unwrap().what;
                let is_of_replica = files.header().is_some_and(|header| header.replica == identity);
                told += match what {
                    What::Gap(gap) if is_of_replica => gap.lost,
                    _ => 0,
                };
            }
        }
        assert_eq!(told, lost, "records of {identity} in gaps, and by its metrics");
        assert_replays(&self.journal);
        entries
    }

    /// Ends the faults of its proxy.
    pub(crate) fn mend(&self) {
        self.proxy.set_faults(NoFaults);
        self.proxy.hold_watches(false);
    }

    /// Resident memory in MiB; `None` after a kill.
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 KiB")]
    pub(crate) fn memory_mib(&self) -> Option<f64> {
        self.replica.as_ref().map(|replica| resident_kib(replica.id()) as f64 / 1_024.0)
    }

    /// Whether its replica says that it leads.
    pub(crate) async fn leads(&self) -> bool {
        let Some(replica) = &self.replica else { return false };
        replica.try_get("/metrics").await.is_some_and(|metrics| metrics.contains("bindery_leader 1\n"))
    }

    fn identity(&self) -> String {
        format!("{}-{}", self.number, self.starts)
    }

    /// Copies the log to the report.
    fn keep_log(&self) {
        if let Some(replica) = &self.replica {
            fs::write(folder().join(format!("replica-{}.log", self.identity())), replica.log()).unwrap();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keep_log();
    }
}
