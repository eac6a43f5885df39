//! An engine from a registry, on a real API server.

use bindery_cluster::{condition, is_bound_to};
use serde_json::json;

use super::registry::World;

#[tokio::test]
async fn a_signed_engine_of_a_registry_decides_after_a_restart_without_it() {
    let world = World::new().await;
    let ours = world.path("ours.pub");
    let mut replica = world.start("first", &ours);
    replica.until_leading().await;
    for (name, size) in [("small", "1Gi"), ("medium", "5Gi"), ("large", "9Gi")] {
        world.cluster.create_available_volume(name, size).await;
    }
    let module = world.push_signed("engine-worst-fit", &[]).await;
    world.policies.apply("Engine", "worst-fit", json!({"module": module.to_string()})).await;
    let status = world.policies.until_ready("Engine", "worst-fit", "Loaded").await;
    assert_eq!(condition(&status, "Verified")["reason"], "Signed");
    world.cluster.create_claim("c", "1Gi").await;
    world.cluster.until_claim("c", is_bound_to("large")).await;
    replica.terminate().await;

    world.registry.hang();
    world.cluster.create_claim("d", "1Gi").await;
    let mut replica = world.start("second", &ours);
    world.cluster.until_claim("d", is_bound_to("medium")).await;
    replica.terminate().await;
}
