//! Leaders that are killed at each write of a bind or of a volume's life in turn: before the API server gets
//! the write, and after the write but before its answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bindery_cluster::{
    Cluster, Faults, Manager, NoFaults, Proxy, Replica, Request, RequestFault, Response, ResponseFault,
    folders_in, is_bound, is_bound_to, provisioning_in,
};
use bindery_invariants::Snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::steer::{create_steered, is_forgotten};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The API server never gets the write.
    Before,
    /// The API server makes the write, and its answer is lost.
    After,
}

/// Kills the leader at its `nth` write of those that count.
pub(crate) struct KillAtWrite {
    leader: Pid,
    counts: fn(&Request) -> bool,
    nth: usize,
    moment: Moment,
    writes: AtomicUsize,
    killing_request: Mutex<Option<u64>>,
    killed: mpsc::UnboundedSender<String>,
}

impl KillAtWrite {
    /// The faults, and the write at which the leader is killed.
    pub(crate) fn new(
        leader: &Replica,
        counts: fn(&Request) -> bool,
        nth: usize,
        moment: Moment,
    ) -> (Self, mpsc::UnboundedReceiver<String>) {
        let leader = Pid::from_raw(i32::try_from(leader.id()).unwrap()).unwrap();
        let (killed, kills) = mpsc::unbounded_channel();
        let (writes, killing_request) = (AtomicUsize::new(0), Mutex::default());
        (Self { leader, counts, nth, moment, writes, killing_request, killed }, kills)
    }

    fn kill(&self, request: &Request) {
        kill_process(self.leader, Signal::KILL).unwrap();
        let _ = self.killed.send(format!("{} {}", request.method, request.path));
    }
}

impl Faults for KillAtWrite {
    fn on_request(&self, request: &Request) -> RequestFault {
        if !(self.counts)(request) || self.writes.fetch_add(1, Ordering::Relaxed) + 1 != self.nth {
            return RequestFault::None;
        }
        if self.moment == Moment::Before {
            self.kill(request);
            return RequestFault::Cut;
        }
        *self.killing_request.lock().unwrap() = Some(request.number);
        RequestFault::None
    }

    fn on_response(&self, request: &Request, _: &Response) -> ResponseFault {
        if *self.killing_request.lock().unwrap() != Some(request.number) {
            return ResponseFault::None;
        }
        self.kill(request);
        ResponseFault::Lose
    }
}

/// What the leader does when it is killed.
#[derive(Clone, Copy, Debug)]
enum Work {
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
    /// In mode steer it reserves a volume, which upstream binds.
    Steer,
}

/// A leader, and the replica that follows it.
pub(crate) struct TwoReplicas {
    pub(crate) proxy: Proxy,
    pub(crate) leader: Replica,
    next: Replica,
    replicas: usize,
    /// The arguments of a replica by its number.
    arguments: Box<dyn Fn(usize) -> Vec<String>>,
}

impl TwoReplicas {
    pub(crate) async fn start(proxy: Proxy, arguments: impl Fn(usize) -> Vec<String> + 'static) -> Self {
        let [leader, next] = [0, 1].map(|number| replica(&proxy, &arguments(number), number));
        let mut replicas = Self { proxy, leader, next, replicas: 2, arguments: Box::new(arguments) };
        // Either may have been first.
        if replicas.leader.until_any_leads(&mut replicas.next).await {
            std::mem::swap(&mut replicas.leader, &mut replicas.next);
        }
        replicas
    }

    /// Waits until the leader is dead and the next replica leads, and starts another one.
    pub(crate) async fn take_over(&mut self) {
        self.leader.wait().await;
        self.next.until_leading().await;
        let following = replica(&self.proxy, &(self.arguments)(self.replicas), self.replicas);
        self.replicas += 1;
        self.leader = std::mem::replace(&mut self.next, following);
    }
}

struct Trial {
    cluster: Cluster,
    folder: TempDir,
    replicas: TwoReplicas,
}

impl Trial {
    async fn new(work: Work) -> Self {
        let is_steering = matches!(work, Work::Steer);
        let manager = if is_steering { Manager::Whole } else { Manager::ProtectionAlone };
        let cluster = Cluster::start(manager).await;
        let proxy = cluster.proxy().await;
        cluster.create_class("made").await;
        let folder = TempDir::new().unwrap();
        let mode = if is_steering { "--mode=steer" } else { "--mode=own" };
        let arguments = vec![provisioning_in(folder.path()), mode.to_owned()];
        let replicas = TwoReplicas::start(proxy, move |_| arguments.clone()).await;
        Self { cluster, folder, replicas }
    }

    async fn kill_at_every_write_of(&mut self, work: Work) {
        for nth in 1.. {
            for moment in [Moment::Before, Moment::After] {
                let name = format!("{work:?}-{nth}-{moment:?}").to_lowercase();
                let Some((write, takeover)) = self.kill_at(work, nth, moment, &name).await else {
                    assert!(nth > 2, "{work:?} takes several writes");
                    return;
                };
                println!(
                    "{work:?}: killed at write {nth}, {moment:?} it: {write}; taken over after {takeover:.1?}"
                );
            }
        }
    }

    /// Kills the leader at one write of this work, and waits until the next replica has finished the work.
    /// Returns the write and the time of the takeover; `None` if the work has no such write.
    async fn kill_at(
        &mut self,
        work: Work,
        nth: usize,
        moment: Moment,
        name: &str,
    ) -> Option<(String, Duration)> {
        if matches!(work, Work::Delete) {
            self.cluster.create_claim_of("made", name, None).await;
            self.cluster.until_claim(name, is_bound).await;
            self.until_done(Work::Make, name).await;
        }
        let (faults, mut kills) = KillAtWrite::new(&self.replicas.leader, Request::is_write, nth, moment);
        self.replicas.proxy.set_faults(faults);
        self.begin(work, name).await;
        let write = tokio::select! {
            write = kills.recv() => write.expect("the faults stay"),
            () = self.until_done(work, name) => {
                self.replicas.proxy.set_faults(NoFaults);
                // The very last write may have triggered the kill.
                kills.try_recv().ok()?
            }
        };
        let died = Instant::now();
        self.replicas.proxy.set_faults(NoFaults);
        self.replicas.take_over().await;
        let takeover = died.elapsed();
        self.until_done(work, name).await;
        Some((write, takeover))
    }

    async fn begin(&self, work: Work, name: &str) {
        let cluster = &self.cluster;
        match work {
            Work::Find => {
                cluster.create_volume_of(name, name, json!(null)).await;
                cluster.create_claim_of(name, name, None).await;
            }
            Work::Named => {
                cluster.create_volume_of("other", name, json!(null)).await;
                cluster.create_claim_of("other", name, Some(name)).await;
            }
            Work::Reserved => {
                cluster.create_volume_of("other", name, json!({"namespace": "default", "name": name})).await;
                cluster.create_claim_of("other", name, None).await;
            }
            Work::Make => cluster.create_claim_of("made", name, None).await,
            Work::Delete => cluster.delete_claim(name).await,
            Work::Steer => {
                cluster.create_volume_of(name, name, json!(null)).await;
                create_steered(cluster, name, json!({"storageClassName": name})).await;
            }
        }
    }

    /// Waits until the work is done and the cluster has settled.
    async fn until_done(&self, work: Work, name: &str) {
        match work {
            Work::Delete => self.cluster.until_no_claim(name).await,
            Work::Steer => {
                self.cluster.until_claim(name, is_bound_to(name)).await;
                self.cluster.until_volume(name, is_forgotten).await;
            }
            _ => drop(self.cluster.until_claim(name, is_bound).await),
        }
        let further = async |moment: &Snapshot| {
            // Volumes of deleted claims are deleted with their data.
            let made = folders_in(self.folder.path()).len();
            let (volumes, claims) = moment.counts();
            let is_left = matches!(work, Work::Make | Work::Delete) && (volumes != claims || made != claims);
            is_left
                .then(|| format!("{claims} claims, {volumes} volumes, {made} folders"))
                .into_iter()
                .collect()
        };
        if let Err(wrong) = self.cluster.until_settled(further).await {
            panic!("{name} is not done: {wrong:#?}\n{}", self.replicas.leader.log());
        }
    }
}

fn replica(proxy: &Proxy, arguments: &[String], number: usize) -> Replica {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Replica::behind(proxy, &number.to_string(), &arguments)
}

async fn kill_at_every_write_of(work: Work) {
    Trial::new(work).await.kill_at_every_write_of(work).await;
}

// Takeovers are mostly waiting, so several clusters run side by side.
#[tokio::test]
async fn a_leader_killed_at_any_write_of_a_bind_leaves_nothing_half_done() {
    tokio::join!(
        kill_at_every_write_of(Work::Find),
        kill_at_every_write_of(Work::Named),
        kill_at_every_write_of(Work::Reserved)
    );
}

#[tokio::test]
async fn a_leader_killed_at_any_write_of_a_volumes_life_leaves_nothing() {
    tokio::join!(kill_at_every_write_of(Work::Make), kill_at_every_write_of(Work::Delete));
}

#[tokio::test]
async fn a_leader_killed_at_any_write_of_mode_steer_leaves_no_reservation() {
    kill_at_every_write_of(Work::Steer).await;
}
