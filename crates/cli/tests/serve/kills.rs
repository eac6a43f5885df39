//! Leaders that are killed at a write: at each write of a bind or of a release in turn, before the API server
//! gets it, and after it was carried out but before its answer comes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bindery_cluster::{
    After, Answered, Asked, Before, ControlPlane, Fair, Manager, Programs, Proxy, Weather,
};
use bindery_invariants::Snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::world::{Replica, World, folders_in, is_bound, provisioning_in, until_rest};

/// When a leader is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The API server never gets the write.
    Before,
    /// The write is carried out, and nobody hears of it.
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
    fn spring(&self, asked: &Asked) {
        kill_process(self.leader, Signal::KILL).unwrap();
        let _ = self.sprung.send(format!("{} {}", asked.method, asked.path));
    }
}

impl Weather for Trap {
    fn before(&self, asked: &Asked) -> Before {
        if !asked.is_write() || self.writes.fetch_add(1, Ordering::Relaxed) + 1 != self.nth {
            return Before::Pass;
        }
        if self.moment == Moment::Before {
            self.spring(asked);
            return Before::Cut;
        }
        *self.deadly.lock().unwrap() = Some(asked.number);
        Before::Pass
    }

    fn after(&self, asked: &Asked, _: &Answered) -> After {
        if *self.deadly.lock().unwrap() != Some(asked.number) {
            return After::Pass;
        }
        self.spring(asked);
        After::Lose
    }
}

/// What the leader is killed at.
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
    /// It deletes a volume that it made, whose claim has gone.
    Delete,
}

/// A cluster with two replicas.
struct Stage {
    plane: ControlPlane,
    proxy: Proxy,
    world: World,
    folder: TempDir,
    leader: Replica,
    next: Replica,
    replicas: usize,
}

impl Stage {
    async fn new() -> Self {
        let plane =
            ControlPlane::start(Programs::from_env().unwrap(), Manager::ProtectionAlone).await.unwrap();
        let proxy = Proxy::start(&plane).await.unwrap();
        let world = World::new(&plane).await;
        world.create_class("made").await;
        let folder = TempDir::new().unwrap();
        let leader = replica(&proxy, &folder, 0);
        let mut stage =
            Self { next: replica(&proxy, &folder, 1), leader, plane, proxy, world, folder, replicas: 2 };
        // Either may have been first.
        if stage.leader.until_any_leads(&mut stage.next).await {
            std::mem::swap(&mut stage.leader, &mut stage.next);
        }
        stage
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

    /// Kills the leader at one write of a deed, and has the next replica finish it. Answers the write and how
    /// long the takeover took; nothing where the deed has no such write.
    async fn kill_at(
        &mut self,
        deed: Deed,
        nth: usize,
        moment: Moment,
        name: &str,
    ) -> Option<(String, Duration)> {
        if matches!(deed, Deed::Delete) {
            self.world.create_claim_of("made", name, None).await;
            self.world.until_claim(name, is_bound).await;
            self.until_done(Deed::Make, name).await;
        }
        let leader = self.leader.pid();
        let (sprung, mut springs) = mpsc::unbounded_channel();
        let (writes, deadly) = (AtomicUsize::new(0), Mutex::default());
        self.proxy.set_weather(Trap { leader, nth, moment, writes, deadly, sprung });
        self.begin(deed, name).await;
        let write = tokio::select! {
            write = springs.recv() => write.expect("the trap is set"),
            () = self.until_done(deed, name) => {
                self.proxy.set_weather(Fair);
                // The last write may have been the last of all.
                springs.try_recv().ok()?
            }
        };
        let died = Instant::now();
        self.proxy.set_weather(Fair);
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
        let world = &self.world;
        match deed {
            Deed::Find => {
                world.create_volume_of(name, name, json!(null)).await;
                world.create_claim_of(name, name, None).await;
            }
            Deed::Named => {
                world.create_volume_of("other", name, json!(null)).await;
                world.create_claim_of("other", name, Some(name)).await;
            }
            Deed::Reserved => {
                world.create_volume_of("other", name, json!({"namespace": "default", "name": name})).await;
                world.create_claim_of("other", name, None).await;
            }
            Deed::Make => world.create_claim_of("made", name, None).await,
            Deed::Delete => world.delete_claim(name).await,
        }
    }

    /// Ends when the deed is done and the world is at rest.
    async fn until_done(&self, deed: Deed, name: &str) {
        match deed {
            Deed::Delete => self.world.until_no_claim(name).await,
            _ => drop(self.world.until_claim(name, is_bound).await),
        }
        let client = self.plane.client().await.unwrap();
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
        if let Err(wrong) = until_rest(&client, further).await {
            panic!("{name} is not done: {wrong:#?}\n{}", self.next.log());
        }
    }
}

fn replica(proxy: &Proxy, folder: &TempDir, number: usize) -> Replica {
    Replica::start_with(&proxy.kubeconfig(), &number.to_string(), &provisioning_in(folder.path()), &[])
}

async fn kill_at_every_write_of(deed: Deed) {
    Stage::new().await.kill_at_every_write_of(deed).await;
}

// Takeovers are mostly waiting, so clusters run side by side.
#[tokio::test]
async fn a_leader_that_is_killed_at_any_write_of_a_bind_leaves_nothing_half_done() {
    tokio::join!(
        kill_at_every_write_of(Deed::Find),
        kill_at_every_write_of(Deed::Named),
        kill_at_every_write_of(Deed::Reserved)
    );
}

#[tokio::test]
async fn a_leader_that_is_killed_at_any_write_of_a_volumes_life_leaves_nothing_behind() {
    tokio::join!(kill_at_every_write_of(Deed::Make), kill_at_every_write_of(Deed::Delete));
}
