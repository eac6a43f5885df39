//! Replicas that share certificates for hours, through random mishaps.
//!
//! A failure prints its seed: `BINDERY_SEED=… BINDERY_WORLDS=1 cargo test -p bindery-webhook --test
//! certificates` repeats it. `BINDERY_WORLDS` is the number of random worlds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bindery_kit::{number_from_env, poll};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::HOUR;
use super::replicas::{Cluster, LAG_MAX, Mishap, World};

const WORLDS: u64 = 8;

#[tokio::test(start_paused = true)]
async fn every_shown_certificate_is_trusted_through_all_mishaps() {
    let first = number_from_env("BINDERY_SEED").unwrap_or_else(rand::random);
    for seed in
        (0..number_from_env("BINDERY_WORLDS").unwrap_or(WORLDS)).map(|world| first.wrapping_add(world))
    {
        println!("BINDERY_SEED={seed} BINDERY_WORLDS=1");
        run_mishaps(seed).await;
    }
}

async fn run_mishaps(seed: u64) {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
    let mut cluster = Cluster::start(&random).await;
    cluster.until_trusted(LAG_MAX).await;
    for _ in 0..24 {
        // Half of the mishaps come before the last one has settled.
        let quiet = if random.lock().unwrap().random() { 1..300 } else { 300..1_200 };
        let quiet = random.lock().unwrap().random_range(quiet);
        cluster.check_for(Duration::from_secs(quiet)).await;
        let mishap = Mishap::any(&mut random.lock().unwrap());
        println!("{:?}: {mishap:?}", cluster.began.elapsed());
        cluster.suffer(mishap).await;
    }
    cluster.check_for(HOUR).await;
    // The first certificates have long expired.
    assert!(cluster.began.elapsed() > 2 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_together_agree_and_then_write_nothing() {
    for seed in 0..20 {
        agree_and_rest(seed).await;
    }
}

async fn agree_and_rest(seed: u64) {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
    let cluster = Cluster::start(&random).await;
    cluster.until_trusted(LAG_MAX).await;
    // No renewal is due: of the forty minutes before it, sixteen may have passed by another clock.
    cluster.check_for(Duration::from_secs(20 * 60)).await;
    let shown: Vec<_> =
        cluster.replicas.iter().map(|replica| replica.shown.lock().unwrap().clone()).collect();
    assert!(shown.iter().all(|identity| *identity == shown[0]), "seed {seed}");
    assert_eq!(cluster.writes(), 2, "one Secret and one bundle; seed {seed}");
    for replica in &cluster.replicas {
        assert_eq!((replica.status.changes(), replica.status.failures()), (0, 0));
        assert_eq!(replica.status.trusted(), Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_not_trusted_reports_it() {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
    let cluster = Cluster::of(World { keeps_bundle: true, ..World::default() }, &random);
    let replica = cluster.replica(1).await;
    assert_eq!(replica.status.trusted(), Some(false));
    cluster.connection.world.lock().unwrap().keeps_bundle = false;
    cluster.until_trusted(HOUR).await;
    assert_eq!(replica.status.trusted(), Some(true));

    // A person removes the authority, and Bindery may not restore it.
    cluster.connection.world.lock().unwrap().change(|world| {
        world.keeps_bundle = true;
        world.bundle.clear();
    });
    let failures = replica.status.failures();
    let has_failed = async || (replica.status.failures() > failures).then_some(());
    poll(Duration::from_secs(1), HOUR, has_failed).await.expect("the failed write is counted");
    assert_eq!(replica.status.trusted(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn given_a_configuration_when_it_is_gone_then_a_replica_reports_it() {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
    let cluster = Cluster::of(World { lacks_one: true, ..World::default() }, &random);
    let replica = cluster.replica(1).await;
    assert_eq!(replica.status.trusted(), Some(false));
    assert!(!cluster.connection.world.lock().unwrap().bundle.is_empty(), "the other one trusts it");
    for is_gone in [false, true] {
        cluster.connection.world.lock().unwrap().change(|world| world.lacks_one = is_gone);
        let is_told = async || (replica.status.trusted() == Some(!is_gone)).then_some(());
        poll(Duration::from_secs(1), HOUR, is_told).await.expect("the change is told");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_secret_a_replica_shows_an_untrusted_certificate() {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
    let cluster = Cluster::of(World { is_down: true, ..World::default() }, &random);
    let replica = cluster.replica(1).await;
    let first = replica.shown.lock().unwrap().clone();
    assert_eq!((replica.status.trusted(), replica.status.failures()), (Some(false), 1));
    assert!(replica.status.expires().is_some());
    cluster.connection.world.lock().unwrap().is_down = false;
    cluster.until_trusted(HOUR).await;
    assert_eq!(replica.status.trusted(), Some(true));
    assert_ne!(*replica.shown.lock().unwrap(), first);
}
