//! A replica whose clock is wrong by hours.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::HOUR;
use super::replicas::{Cluster, LAG_MAX, Mishap, World};

#[tokio::test(start_paused = true)]
async fn a_clock_far_off_fails_its_own_replica_only() {
    for (hours, seed) in [2, -2, 30, -30, 2_000, -2_000].into_iter().zip(0..) {
        println!("{hours} hours ahead");
        let random = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        let mut cluster = Cluster::with(World::default(), [60 * hours, 0, 8], &random);
        // It makes the first certificate.
        for number in 0..3 {
            let replica = cluster.replica(number).await;
            cluster.replicas.push(replica);
        }
        cluster.until_accepted(LAG_MAX + Duration::from_secs(5)).await;
        cluster.check_for(3 * HOUR).await;
        // Restarts change nothing.
        for number in [1, 0, 2] {
            cluster.suffer(Mishap::Restart(number)).await;
            cluster.check_for(HOUR / 2).await;
        }
        // Each clock has its renewals, each of a Secret and a bundle, and neither undoes the other's.
        let renewals = cluster.began.elapsed().as_secs() / (HOUR.as_secs() / 2) * 2;
        let writes = cluster.writes();
        assert!(writes <= 2 * renewals + 8, "{writes} writes, {renewals} renewals");
    }
}
