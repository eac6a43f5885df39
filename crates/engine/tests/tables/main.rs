//! The cases of upstream's functions, one by one, over a small cluster.
//!
//! A row has a cluster, and the decision as lines of text (see [`lines`]). Every decision is also replayed
//! from its questions and answers, and must be the same.

mod claim;
mod cluster;
mod find;
mod lines;
mod operations;
mod review;
mod status;
mod volume;

use std::sync::Arc;

use bindery_core::{
    AccessMode, BindingMode, Claim, ClaimKey, ClaimPhase, ClaimRef, ClaimStatus, Class, Decision, Engine,
    Recorder, Replayer, Request, Subject, Volume,
};
use bindery_kit::gib as gi;

use crate::cluster::ListCluster;

/// An Available 5Gi volume with ReadWriteOnce and no class, then changed.
fn volume(name: &str, change: impl FnOnce(&mut Volume)) -> Volume {
    let mut volume = Volume { capacity: Some(gi(5)), ..bindery_kit::volume(name) };
    change(&mut volume);
    volume
}

/// A Pending claim in namespace `ns` for 5Gi with ReadWriteOnce and no class, then changed.
fn claim(name: &str, change: impl FnOnce(&mut Claim)) -> Claim {
    let mut claim = Claim { request: gi(5), ..bindery_kit::claim(ClaimKey::new("ns", name)) };
    change(&mut claim);
    claim
}

/// A class of an external provisioner with immediate binding, then changed.
fn class(name: &str, change: impl FnOnce(&mut Class)) -> Class {
    let mut class = bindery_kit::class(name, "vendor.example/disk", Some(BindingMode::Immediate));
    change(&mut class);
    class
}

/// A claimRef that names the claim with its UID.
fn bound_to(claim: &str) -> Option<ClaimRef> {
    Some(ClaimRef { uid: Some(format!("uid-{claim}").as_str().into()), ..reserved_by_name(claim) })
}

fn reserved_for(claim: &str) -> Option<ClaimRef> {
    Some(reserved_by_name(claim))
}

fn reserved_by_name(claim: &str) -> ClaimRef {
    ClaimRef { namespace: "ns".into(), name: claim.into(), uid: None }
}

/// A claim that is bound to `volume`, with its status.
fn bound_claim(name: &str, volume: &str) -> Claim {
    claim(name, |c| {
        c.volume_name = Some(volume.into());
        c.annotations.bind_completed = true;
        c.status = ClaimStatus {
            phase: ClaimPhase::Bound,
            access_modes: vec![AccessMode::ReadWriteOnce],
            has_capacity: true,
            capacity: Some(gi(5)),
            attributes_class: None,
        };
    })
}

/// Decides, and replays the decision.
fn decide(cluster: &mut ListCluster, subject: Subject) -> Decision {
    let request = Request { now: 0, subject };
    let mut recorder = Recorder::new(cluster);
    let decision = bindery_engine::decide(&request, &mut recorder).expect("no question stops the call");
    let exchanges = recorder.into_exchanges();
    let mut replayer = Replayer::new(&exchanges);
    assert_eq!(bindery_engine::decide(&request, &mut replayer), Ok(decision.clone()));
    assert!(replayer.is_exhausted());
    cluster.asked = exchanges.iter().map(|exchange| lines::question(&exchange.question)).collect();
    decision
}

#[track_caller]
fn check_claim(cluster: &mut ListCluster, claim: &Claim, expected: &[&str]) {
    let decision = decide(cluster, Subject::SyncClaim(Arc::new(claim.clone())));
    assert_eq!(lines::decision(&decision), expected);
}

#[track_caller]
fn check_volume(cluster: &mut ListCluster, volume: &Volume, expected: &[&str]) {
    let decision = decide(cluster, Subject::SyncVolume(Arc::new(volume.clone())));
    assert_eq!(lines::decision(&decision), expected);
}

#[test]
fn evidence_names_the_engine_and_its_version() {
    let named = bindery_engine::DefaultEngine.digest().split_once('/');
    assert_eq!(named, Some(("bindery-engine", env!("CARGO_PKG_VERSION"))));
}
