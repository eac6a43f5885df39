//! Leaders that are killed at each write of a bind or of a volume's life in turn: before the API server gets
//! the write, and after the write but before its answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bindery_cluster::{
    Cluster, Faults, Manager, NoFaults, Proxy, Replica, Request, RequestFault, Response, ResponseFault,
    folders_in, is_bound, provisioning_in,
};
use bindery_invariants::Snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

/// When a leader is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The API server never gets the write.
    Before,
    /// The API server makes the write, and its answer is lost.
    After,
}

/// Kills the leader at its `nth` write of a volume or a claim.
struct Trap {
    leader: Pid,
    nth: usize,
    moment: Moment,
    writes: AtomicUsize,
    /// Number of the request that kills.
    deadly: Mutex<Option<u64>>,
    sprung: mpsc::UnboundedSender<String>,
}

impl Trap {
    fn spring(&self, request: &Request) {
        kill_process(self.leader, Signal::KILL).unwrap();
        let _ = self.sprung.send(format!("{} {}", request.method, request.path));
    }
}

impl Faults for Trap {
    fn on_request(&self, request: &Request) -> RequestFault {
        if !request.is_write() || self.writes.fetch_add(1, Ordering::Relaxed) + 1 != self.nth {
            return RequestFault::None;
        }
        if self.moment == Moment::Before {
            self.spring(request);
            return RequestFault::Cut;
        }
        *self.deadly.lock().unwrap() = Some(request.number);
        RequestFault::None
    }

    fn on_response(&self, request: &Request, _: &Response) -> ResponseFault {
        if *self.deadly.lock().unwrap() != Some(request.number) {
            return ResponseFault::None;
        }
        self.spring(request);
        ResponseFault::Lose
    }
}

/// What the leader does when it is killed.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// It finds a volume for a claim.
    Find,
    /// The claim names the volume.
    Named,
    /// The volume names the claim.
    Reserved,
    /// It provisions a volume for a claim.
    Make,
    /// It deletes a provisioned volume, whose claim is gone.
    Delete,
}

/// A cluster with two replicas.
struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    folder: TempDir,
    leader: Replica,
    next: Replica,
    replicas: usize,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::start(Manager::ProtectionAlone).await;
        let proxy = cluster.proxy().await;
        cluster.create_class("made").await;
        let folder = TempDir::new().unwrap();
        let leader = replica(&proxy, &folder, 0);
        let next = replica(&proxy, &folder, 1);
        let mut scene = Self { cluster, proxy, folder, leader, next, replicas: 2 };
        // Either may have been first.
        if scene.leader.until_any_leads(&mut scene.next).await {
            std::mem::swap(&mut scene.leader, &mut scene.next);
        }
        scene
    }

    /// Kills the leader at every write of a deed in turn.
    async fn kill_at_every_write_of(&mut self, deed: Deed) {
        for nth in 1.. {
            for moment in [Moment::Before, Moment::After] {
                let name = format!("{deed:?}-{nth}-{moment:?}").to_lowercase();
                let Some((write, takeover)) = self.kill_at(deed, nth, moment, &name).await else {
                    assert!(nth > 2, "{deed:?} takes several writes");
                    return;
                };
                println!(
                    "{deed:?}: killed at write {nth}, {moment:?} it: {write}; taken over after {takeover:.1?}"
                );
            }
        }
    }

    /// Kills the leader at one write of a deed, and waits until the next replica has finished the deed.
    /// Returns the write and the time of the takeover; `None` if the deed has no such write.
    async fn kill_at(
        &mut self,
        deed: Deed,
        nth: usize,
        moment: Moment,
        name: &str,
    ) -> Option<(String, Duration)> {
        if matches!(deed, Deed::Delete) {
            self.cluster.create_claim_of("made", name, None).await;
            self.cluster.until_claim(name, is_bound).await;
            self.until_done(Deed::Make, name).await;
        }
        let leader = self.leader.pid();
        let (sprung, mut springs) = mpsc::unbounded_channel();
        let (writes, deadly) = (AtomicUsize::new(0), Mutex::default());
        self.proxy.set_faults(Trap { leader, nth, moment, writes, deadly, sprung });
        self.begin(deed, name).await;
        let write = tokio::select! {
            write = springs.recv() => write.expect("the trap is set"),
            () = self.until_done(deed, name) => {
                self.proxy.set_faults(NoFaults);
                // The very last write may have triggered the kill.
                springs.try_recv().ok()?
            }
        };
        let died = Instant::now();
        self.proxy.set_faults(NoFaults);
        self.leader.wait().await;
        self.next.until_leading().await;
        let takeover = died.elapsed();
        self.until_done(deed, name).await;
        let following = replica(&self.proxy, &self.folder, self.replicas);
        self.replicas += 1;
        self.leader = std::mem::replace(&mut self.next, following);
        Some((write, takeover))
    }

    async fn begin(&self, deed: Deed, name: &str) {
        let cluster = &self.cluster;
        match deed {
            Deed::Find => {
                cluster.create_volume_of(name, name, json!(null)).await;
                cluster.create_claim_of(name, name, None).await;
            }
            Deed::Named => {
                cluster.create_volume_of("other", name, json!(null)).await;
                cluster.create_claim_of("other", name, Some(name)).await;
            }
            Deed::Reserved => {
                cluster.create_volume_of("other", name, json!({"namespace": "default", "name": name})).await;
                cluster.create_claim_of("other", name, None).await;
            }
            Deed::Make => cluster.create_claim_of("made", name, None).await,
            Deed::Delete => cluster.delete_claim(name).await,
        }
    }

    /// Waits until the deed is done and the cluster has settled.
    async fn until_done(&self, deed: Deed, name: &str) {
        match deed {
            Deed::Delete => self.cluster.until_no_claim(name).await,
            _ => drop(self.cluster.until_claim(name, is_bound).await),
        }
        let further = async |moment: &Snapshot| {
            // Volumes of claims that have gone are deleted, with what is in them.
            let made = folders_in(self.folder.path()).len();
            let (volumes, claims) = moment.counts();
            let is_left = matches!(deed, Deed::Make | Deed::Delete) && (volumes != claims || made != claims);
            is_left
                .then(|| format!("{claims} claims, {volumes} volumes, {made} folders"))
                .into_iter()
                .collect()
        };
        if let Err(wrong) = self.cluster.until_settled(further).await {
            panic!("{name} is not done: {wrong:#?}\n{}", self.next.log());
        }
    }
}

fn replica(proxy: &Proxy, folder: &TempDir, number: usize) -> Replica {
    Replica::behind(proxy, &number.to_string(), &[&provisioning_in(folder.path())])
}

async fn kill_at_every_write_of(deed: Deed) {
    Scene::new().await.kill_at_every_write_of(deed).await;
}

// Takeovers are mostly waiting, so several clusters run side by side.
#[tokio::test]
async fn a_leader_killed_at_any_write_of_a_bind_leaves_nothing_half_done() {
    tokio::join!(
        kill_at_every_write_of(Deed::Find),
        kill_at_every_write_of(Deed::Named),
        kill_at_every_write_of(Deed::Reserved)
    );
}

#[tokio::test]
async fn a_leader_killed_at_any_write_of_a_volumes_life_leaves_nothing() {
    tokio::join!(kill_at_every_write_of(Deed::Make), kill_at_every_write_of(Deed::Delete));
}
