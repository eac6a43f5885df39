//! Swaps of policies and engines on a real API server: while leaders are killed, what claims get follows the
//! generation before or the one after, and the next leader finishes the change; under load no claim is lost,
//! and no memory is left.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bindery_cluster::{
    Cluster, Manager, NoFaults, PATIENCE, Replica, Request, is_bound_to, is_in_phase, phase, poll,
};
use bindery_kit::{number_from_env, resident_kib};
use http::Method;
use rand::rngs::StdRng;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kills::{KillAtWrite, Moment, TwoReplicas};
use crate::load::{Load, chance};

/// Two replicas with policies of a cluster, each with a cache folder of its own.
struct Trial {
    cluster: Cluster,
    replicas: TwoReplicas,
    _folder: TempDir,
}

impl Trial {
    async fn new() -> Self {
        let cluster = Cluster::start(Manager::WithoutBinder).await;
        cluster.policies().install().await;
        let folder = TempDir::new().unwrap();
        let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
        let caches = folder.path().to_owned();
        let arguments = move |number: usize| {
            let cache = format!("--engine-cache={}", caches.join(number.to_string()).display());
            vec!["--policy-objects=true".to_owned(), format!("--policies={shipped}"), cache]
        };
        let replicas = TwoReplicas::start(cluster.proxy().await, arguments).await;
        Self { cluster, replicas, _folder: folder }
    }

    /// Has volumes be at most `times` as large as their claims. Returns the write at which the leader was
    /// killed; `None` if the change has no such write.
    async fn change_with_kill(&mut self, times: usize, nth: usize, moment: Moment) -> Option<String> {
        let (faults, mut kills) = KillAtWrite::new(&self.replicas.leader, is_status_of_policy, nth, moment);
        self.replicas.proxy.set_faults(faults);
        self.apply(times).await;
        let policies = self.cluster.policies();
        let write = tokio::select! {
            write = kills.recv() => write.expect("the faults stay"),
            _ = policies.until_ready("MatchPolicy", "size", "Loaded") => {
                self.replicas.proxy.set_faults(NoFaults);
                // The very last write may have triggered the kill.
                kills.try_recv().ok()?
            }
        };
        self.replicas.proxy.set_faults(NoFaults);
        self.replicas.take_over().await;
        Some(write)
    }

    async fn apply(&self, times: usize) {
        let spec = json!({"module": "builtin:at-most-n-times", "settings": {"times": times}});
        self.cluster.policies().apply("MatchPolicy", "size", spec).await;
    }
}

fn is_status_of_policy(request: &Request) -> bool {
    request.method != Method::GET && request.path.ends_with("/matchpolicies/size/status")
}

#[tokio::test]
async fn a_leader_killed_at_any_write_of_a_policys_change_loses_no_rule() {
    let mut trial = Trial::new().await;
    // No generation gives it to a claim of 1Gi.
    trial.cluster.create_available_volume("huge", "1Ti").await;
    trial.apply(1).await;
    trial.cluster.policies().until_ready("MatchPolicy", "size", "Loaded").await;
    let mut times = 1;
    for nth in 1.. {
        let mut writes = 0;
        for moment in [Moment::Before, Moment::After] {
            times += 1;
            let name = format!("v{times}");
            // The generation before rejects it, and this one allows it.
            trial.cluster.create_available_volume(&name, &format!("{times}Gi")).await;
            trial.cluster.create_claim(&name, "1Gi").await;
            let write = trial.change_with_kill(times, nth, moment).await;
            trial.cluster.until_claim(&name, is_bound_to(&name)).await;
            let status = trial.cluster.policies().until_ready("MatchPolicy", "size", "Loaded").await;
            assert_eq!(status["lastGood"]["spec"]["settings"]["times"], times);
            println!("write {nth} of generation {times}, {moment:?} it: {write:?}");
            writes += usize::from(write.is_some());
        }
        if writes == 0 {
            assert!(nth > 1, "a change writes status");
            break;
        }
    }
    assert_eq!(phase(&trial.cluster.volumes.get("huge").await.unwrap()), "Available");
}

/// The processes that a process has started.
fn children(of: u32) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let parent = |process: &PathBuf| -> Option<u32> {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    processes.filter(|process| parent(process) == Some(of)).collect()
}

#[tokio::test]
async fn a_leader_killed_while_an_engine_compiles_leaves_it_to_the_next() {
    let mut trial = Trial::new().await;
    for (name, size) in [("small", "1Gi"), ("medium", "5Gi"), ("large", "9Gi")] {
        trial.cluster.create_available_volume(name, size).await;
    }
    let module = std::env::var("BINDERY_EXAMPLE_ENGINE").expect("`cargo xtask test` builds the engine");
    trial.cluster.policies().apply("Engine", "worst-fit", json!({"module": module})).await;
    let leader = trial.replicas.leader.id();
    poll(async || children(leader).pop()).await.expect("the leader starts a compiler");
    trial.replicas.leader.signal(Signal::KILL);
    let status: Value = trial.cluster.policies().of("Engine").get("worst-fit").await.unwrap().data;
    assert!(status["status"]["lastGood"].is_null(), "it was compiled before the kill: {status}");
    trial.replicas.take_over().await;
    trial.cluster.policies().until_ready("Engine", "worst-fit", "Loaded").await;
    trial.cluster.create_claim("c", "1Gi").await;
    trial.cluster.until_volume("large", is_in_phase("Bound")).await;
}

/// Swaps under load, and as many without; `cargo xtask soak swaps` sets a higher number (`BINDERY_SWAPS`).
const SWAPS: u64 = 20;
/// Claims that are bound during each swap whose cost is counted.
const CLAIMS: usize = 10;
/// Swaps without load before memory is read for the first time, so that the allocator has settled.
const SETTLING: u64 = 40;
/// Memory that all swaps together may leave, in KiB.
const LEFT_KIB: u64 = 10 << 10;

/// A replica whose engine and policy are swapped in turn.
struct Swapping {
    cluster: Arc<Cluster>,
    load: Load,
    chance: StdRng,
    replica: Replica,
    swaps: u64,
}

impl Swapping {
    async fn new() -> Self {
        let (cluster, chance) = (Cluster::start(Manager::ProtectionAlone).await, chance());
        cluster.policies().install().await;
        let load = Load::new(&cluster, PATIENCE).await;
        let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
        let flags = [&load.argument(), "--policy-objects=true", "--policies", &shipped];
        let mut replica = cluster.replica_with("first", &flags);
        replica.until_leading().await;
        Self { cluster: Arc::new(cluster), load, chance, replica, swaps: 0 }
    }

    /// The decisions and the writes so far.
    async fn counts(&self) -> [u64; 2] {
        [
            self.replica.metric("bindery_decisions_total").await,
            self.replica.metric("bindery_writes_total").await,
        ]
    }

    /// Swaps engine or policy to another one, while tenants come for this time.
    async fn swap(&mut self, load: Duration) {
        let (policies, half) = (self.cluster.policies(), self.swaps / 2);
        let (kind, reason) = if self.swaps.is_multiple_of(2) {
            let settings = json!({"times": 100 + half % 100});
            let spec = json!({"module": "builtin:at-most-n-times", "settings": settings});
            policies.apply("MatchPolicy", "size", spec).await;
            ("MatchPolicy", "Loaded")
        } else {
            let module = std::env::var("BINDERY_EXAMPLE_ENGINE").unwrap();
            let (mode, reason) = if half.is_multiple_of(2) { ("enforce", "Loaded") } else { ("off", "Off") };
            policies.apply("Engine", "size", json!({"module": module, "mode": mode})).await;
            ("Engine", reason)
        };
        self.load.run_for(load, &mut self.chance).await.unwrap();
        policies.until_ready(kind, "size", reason).await;
        self.swaps += 1;
    }
}

#[tokio::test]
async fn swaps_under_load_lose_no_claim_and_leave_no_memory() {
    let mut swapping = Swapping::new().await;
    let swaps = number_from_env("BINDERY_SWAPS").unwrap_or(SWAPS);
    for _ in 0..swaps {
        swapping.swap(Duration::from_millis(100)).await;
    }
    swapping.load.until_settled(&swapping.cluster).await;
    for metric in ["bindery_refusals_total", "bindery_engine_faults_total", "bindery_foreign_writes_total"] {
        assert_eq!(swapping.replica.metric(metric).await, 0, "{metric}: {}", swapping.replica.log());
    }
    let waits = swapping.replica.metric("bindery_policy_waits_total{policy=\"size\"}").await;
    assert_eq!(waits, 0, "{}", swapping.replica.log());

    // Memory without a load: what tenants need varies by more than swaps may leave.
    let mut before = 0;
    for _ in 0..SETTLING {
        swapping.swap(Duration::ZERO).await;
        before = before.max(resident_kib(swapping.replica.id()));
    }
    for _ in 0..swaps {
        swapping.swap(Duration::ZERO).await;
    }
    let after = resident_kib(swapping.replica.id());
    println!("{swaps} swaps twice, {} tenants, {before} KiB before, {after} after", swapping.load.count());
    assert!(after <= before + LEFT_KIB, "{before} KiB before, {after} KiB after");
}

/// Each volume is available before its claim comes, so a bind takes four writes.
#[tokio::test]
async fn swaps_change_neither_writes_nor_events_of_binds() {
    let mut swapping = Swapping::new().await;
    let cluster = Arc::clone(&swapping.cluster);
    let swaps = number_from_env("BINDERY_SWAPS").unwrap_or(SWAPS);
    let volumes: Vec<_> = (0..2 * swaps * CLAIMS as u64).map(|volume| format!("v{volume}")).collect();
    for volume in &volumes {
        cluster.create_volume(volume, "1Gi").await;
    }
    for volume in &volumes {
        cluster.until_volume(volume, is_in_phase("Available")).await;
    }
    let bind = async |prefix: String| {
        for claim in 0..CLAIMS {
            cluster.create_claim(&format!("{prefix}-{claim}"), "1Gi").await;
        }
        cluster.until_pairs_are_bound(&format!("{prefix}-"), CLAIMS).await;
    };
    let mut costs = Vec::new();
    for is_swapped in [false, true] {
        let before = swapping.counts().await;
        for nth in 0..swaps {
            let binding = bind(format!("c-{is_swapped}-{nth}"));
            if is_swapped {
                tokio::join!(binding, swapping.swap(Duration::ZERO));
            } else {
                binding.await;
            }
        }
        let after = swapping.counts().await;
        costs.push([after[0] - before[0], after[1] - before[1]]);
    }
    let claims = swaps * CLAIMS as u64;
    let [[alone, writes], [beside, writes_beside]] = costs[..] else { unreachable!() };
    println!("{claims} claims: {alone} decisions; during {swaps} swaps: {beside}");
    assert_eq!((writes, writes_beside), (4 * claims, 4 * claims));
    for metric in ["bindery_write_errors_total", "bindery_conflicts_total"] {
        assert_eq!(swapping.replica.metric(metric).await, 0, "{metric}: {}", swapping.replica.log());
    }
    assert!(cluster.events().await.is_empty(), "{:?}", cluster.events().await);
}
