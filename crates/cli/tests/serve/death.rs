//! Leaders that die: killed at random moments under load, or stopped for longer than their Lease and resumed.

use std::time::Instant;

use bindery_cluster::{ControlPlane, Manager, Programs};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;

use super::world::{Replica, World, is_bound};

/// Leaders that are killed. `cargo xtask soak` kills more (`BINDERY_KILLS`).
const KILLS: usize = 20;
/// Most claims that are created between two kills.
const CLAIMS_MAX: usize = 12;

/// A random choice that can be made again: the seed is printed, and taken from `BINDERY_SEED` where that is set.
pub(crate) fn chance() -> StdRng {
    let seed = std::env::var("BINDERY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    println!("BINDERY_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

#[tokio::test]
async fn a_leader_that_is_killed_loses_no_claim_and_binds_none_twice() {
    let mut chance = chance();
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let mut leader = Replica::start(&plane, "0");
    leader.until_leading().await;
    let kills = std::env::var("BINDERY_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let (mut pairs, mut takeovers) = (0, Vec::new());
    for kill in 1..=kills {
        let mut next = Replica::start(&plane, &kill.to_string());
        let claims = chance.random_range(1..=CLAIMS_MAX);
        for pair in pairs..pairs + claims {
            world.create_volume(&format!("v{pair}"), "1Gi").await;
        }
        for pair in pairs..pairs + claims {
            world.create_claim(&format!("c{pair}"), "1Gi").await;
        }
        // Any moment from before the first write to after the last: a bind takes some ten milliseconds.
        let bound = chance.random_range(0..=claims);
        for pair in pairs..pairs + bound {
            world.until_claim(&format!("c{pair}"), is_bound).await;
        }
        pairs += claims;
        leader.signal(Signal::KILL);
        let died = Instant::now();
        next.until_leading().await;
        takeovers.push(died.elapsed());
        leader = next;
    }
    for pair in 0..pairs {
        world.until_claim(&format!("c{pair}"), is_bound).await;
    }
    world.check_pairs(pairs).await;
    assert_eq!(leader.metric("bindery_foreign_writes_total").await, 0, "{}", leader.log());
    println!("takeovers after {takeovers:.1?}");
}

#[tokio::test]
async fn a_leader_that_slept_through_its_lease_does_no_harm() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let mut sleeper = Replica::start(&plane, "sleeper");
    sleeper.until_leading().await;
    for pair in 0..20 {
        world.create_volume(&format!("v{pair}"), "1Gi").await;
        world.create_claim(&format!("c{pair}"), "1Gi").await;
    }
    // In the middle of its work, as far as that can be hit.
    sleeper.signal(Signal::STOP);
    let mut next = Replica::start(&plane, "next");
    next.until_leading().await;
    sleeper.signal(Signal::CONT);
    for pair in 20..40 {
        world.create_volume(&format!("v{pair}"), "1Gi").await;
        world.create_claim(&format!("c{pair}"), "1Gi").await;
    }
    for pair in 0..40 {
        world.until_claim(&format!("c{pair}"), is_bound).await;
    }
    world.check_pairs(40).await;
    sleeper.until_following().await;
    for replica in [sleeper, next] {
        assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0, "{}", replica.log());
    }
}
