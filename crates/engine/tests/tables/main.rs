//! The cases of upstream's functions, over a small cluster, as tables of text ([`table`]).
//!
//! Every decision is also replayed from its questions and answers, and must be the same.

mod cluster;
mod lines;
mod table;

use std::sync::Arc;

use bindery_core::{
    Action, Decision, Engine as _, Operation, OperationKind, Point, Progress, Recorder, Replayer, Request,
    Returned, Stop, Subject, Text,
};

use crate::cluster::ListCluster;

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

/// `syncClaim`: U1 to U10 and B1 to B5.
#[test]
fn a_claim_is_synced_as_the_table_says() {
    table::check(include_str!("claim.txt"));
}

/// `updateClaimStatus`: which fields of a claim's status change, and when.
#[test]
fn the_status_of_a_claim_is_updated_as_the_table_says() {
    table::check(include_str!("status.txt"));
}

/// Which volume a claim gets.
#[test]
fn a_volume_is_found_as_the_table_says() {
    table::check(include_str!("find.txt"));
}

/// `syncVolume`: V1 to V9, step 0 and the start of reclaiming.
#[test]
fn a_volume_is_synced_as_the_table_says() {
    table::check(include_str!("volume.txt"));
}

/// Operations, step by step.
#[test]
fn an_operation_goes_on_as_the_table_says() {
    table::check(include_str!("operations.txt"));
}

/// Reviews of claims and volumes that are about to be written.
#[test]
fn a_review_finds_what_the_table_says() {
    table::check(include_str!("review.txt"));
}

#[test]
fn pages_grow_to_a_limit_and_end_with_the_rows() {
    // One row more than pages of growing limits hold.
    let names: Vec<Text> = (0..4681).map(|number| format!("v{number:04}").into()).collect();
    let volumes = names.iter().map(|name| table::volume(name)).collect::<Vec<_>>();
    let mut cluster = ListCluster::new(volumes, []);
    let mut decide = |in_flight: &[Text]| {
        cluster.in_flight = in_flight.to_vec();
        let decision = decide(&mut cluster, Subject::SyncClaim(Arc::new(table::claim("c"))));
        let pages = cluster.asked.iter().filter_map(|asked| asked.strip_prefix("candidates 1 "));
        assert_eq!(pages.collect::<Vec<_>>(), ["8", "64", "512", "4096", "4096"]);
        decision
    };
    assert_eq!(lines::decision(&decide(&names[..4680]))[0], "reserve v4680 for c mark");
    // Where no row can be taken, no page is asked for after the last one.
    let tallies = decide(&names).tallies;
    assert_eq!((tallies[0].count, tallies[0].nearest.len()), (4681, 16));
}

#[test]
fn the_event_of_a_waiting_recycling_names_each_running_pod_once() {
    let (decision, _) = table::decided(
        "Recycle volume v claim_ref=c/uid-c phase=Released policy=Recycle; plugin kubernetes.io/mock; \
         pod p scheduled; pod a scheduled; pod a scheduled; pod z scheduled terminated",
    );
    let Action::Emit(event) = &decision.steps[0].action else { panic!("{decision:?}") };
    assert_eq!(event.kind.to_string(), "Volume is used by pods: ns/a,ns/p");
}

#[test]
fn a_point_of_another_operation_is_a_fault_of_the_host() {
    let nonsense = |subject| {
        let request = Request { now: 0, subject };
        let stop = bindery_engine::decide(&request, &mut ListCluster::new([], [])).unwrap_err();
        assert!(matches!(stop, Stop::Nonsense(_)), "{stop:?}");
    };
    use OperationKind::{Delete, Provision, ProvisionExternal, Recycle};
    for (kind, of_claim, of_volume) in [
        (Delete, Point::Start, Point::Provisioned),
        (Recycle, Point::Start, Point::Provisioned),
        (Provision, Point::Recycled, Point::Start),
        (ProvisionExternal, Point::Recycled, Point::Start),
    ] {
        let operation = || Operation { kind, plugin: "".into(), uid: "uid".into() };
        let (fresh, returned) = (None, Returned::Success);
        let (object, point) = (table::claim("c"), of_claim);
        let progress = Progress { operation: operation(), object, fresh, point, returned };
        nonsense(Subject::SyncClaimOperation(progress));
        let (fresh, returned) = (None, Returned::Success);
        let (object, point) = (table::volume("v"), of_volume);
        let progress = Progress { operation: operation(), object, fresh, point, returned };
        nonsense(Subject::SyncVolumeOperation(progress));
    }
}

#[test]
fn evidence_names_the_engine_and_its_version() {
    let named = bindery_engine::DefaultEngine.digest().split_once('/');
    assert_eq!(named, Some(("bindery-engine", env!("CARGO_PKG_VERSION"))));
}
