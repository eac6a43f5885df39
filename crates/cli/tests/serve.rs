//! `bindery serve` on a real API server: etcd and kube-apiserver, upstream's controllers without its binder.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seeds are printed")]

#[path = "serve/attributes.rs"]
mod attributes;
#[path = "serve/cache.rs"]
mod cache;
#[path = "serve/class.rs"]
mod class;
#[path = "serve/credentials.rs"]
mod credentials;
#[path = "serve/death.rs"]
mod death;
#[path = "serve/events.rs"]
mod events;
#[path = "serve/faults.rs"]
mod faults;
#[path = "serve/idle.rs"]
mod idle;
#[path = "serve/kills.rs"]
mod kills;
#[path = "serve/leading.rs"]
mod leading;
#[path = "serve/load.rs"]
mod load;
#[path = "serve/reclaim.rs"]
mod reclaim;
#[path = "serve/restored.rs"]
mod restored;
#[path = "serve/watches.rs"]
mod watches;
#[path = "serve/world.rs"]
mod world;

use bindery_cluster::{ControlPlane, Manager, Programs};
use http::StatusCode;
use rustix::process::Signal;

use self::world::{Replica, World, is_bound_to};

#[tokio::test]
async fn a_claim_is_bound_released_and_its_volume_kept() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let _replica = Replica::start(&plane, "first");
    world.create_volume("small", "1Gi").await;
    world.create_volume("large", "5Gi").await;
    world.until_volume("small", |volume| world::phase(volume) == "Available").await;
    world.until_volume("large", |volume| world::phase(volume) == "Available").await;
    world.create_claim("c", "2Gi").await;
    let claim = world.until_claim("c", is_bound_to("large")).await;
    assert_eq!(claim.status.unwrap().capacity.unwrap()["storage"].0, "5Gi");
    world.delete_claim("c").await;
    world.until_volume("large", |volume| world::phase(volume) == "Released").await;
    world.create_claim("d", "1Gi").await;
    world.until_claim("d", is_bound_to("small")).await;
}

#[tokio::test]
async fn the_next_replica_takes_over_when_the_leader_ends() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let mut first = Replica::start(&plane, "first");
    first.until_leading().await;
    let mut second = Replica::start(&plane, "second");
    first.signal(Signal::TERM);
    assert!(first.wait().await.success());
    second.until_leading().await;
    world.create_volume("v", "1Gi").await;
    world.create_claim("c", "1Gi").await;
    world.until_claim("c", is_bound_to("v")).await;
}

#[tokio::test]
async fn it_tells_how_it_is_and_what_it_did() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let world = World::new(&plane).await;
    let mut replica = Replica::start(&plane, "first");
    replica.until_leading().await;
    world.create_volume("v", "1Gi").await;
    world.create_claim("c", "1Gi").await;
    world.until_claim("c", is_bound_to("v")).await;
    assert_eq!(replica.probe("/livez").await, (StatusCode::OK, "ok".to_owned()));
    let ready = "[+]lists ok\n[+]credentials ok\n[+]writes ok\n[+]candidate ok\n[+]watches last heard: ";
    let (status, told) = replica.until_told("/readyz?verbose", ready).await;
    assert_eq!((status, told.lines().last()), (StatusCode::OK, Some("readyz check passed")), "{told}");
    for sample in ["bindery_leader 1\n", "bindery_lists_complete 1\n"] {
        replica.until_metrics(sample).await;
    }
    assert_eq!(replica.metric("bindery_refusals_total").await, 0);
}

#[tokio::test]
async fn a_setting_that_cannot_be_used_is_named_at_the_start() {
    for (arguments, named) in [
        (vec!["--kubeconfig", "/nonexistent"], "--kubeconfig /nonexistent"),
        (vec!["--lease-duration", "1"], "--lease-duration"),
        (vec!["--in-flight", "0"], "--in-flight"),
        (vec!["--engine", "/nonexistent", "--kubeconfig", "/nonexistent"], "/nonexistent"),
        (vec![], "--kubeconfig (BINDERY_KUBECONFIG)"),
    ] {
        let (status, complaint) = world::serve_in_vain(&arguments);
        assert_eq!(status, Some(2), "{complaint}");
        assert!(complaint.contains(named), "no {named:?} in {complaint}");
    }
}
