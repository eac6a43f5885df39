//! One sync.

use std::sync::Arc;

use bindery_controller::{Purpose, REASON_UNWRITABLE, SyncError, WriteError};
use bindery_core::{
    Action, Answer, ClaimKey, ClaimPhase, ClaimRef, Cluster, Decision, EngineFault, Lookup, Message, Outcome,
    Question, Request, Source, Step, Stop, Subject, VolumePhase,
};
use bindery_engine::DefaultEngine;

use crate::double::{Scripted, begin, binder, claim, holding, unsynced, volume};
use crate::operating::key as volume_key;
use crate::policies::key as claim_key;

/// A volume that carries the UID of a claim.
pub(crate) fn taken(name: &str, by: &str) -> bindery_core::Volume {
    let mut volume = volume(name);
    volume.claim_ref = Some(ClaimRef {
        namespace: "ns".into(),
        name: by.into(),
        uid: Some(format!("uid-{by}").as_str().into()),
    });
    volume.phase = VolumePhase::Bound;
    volume
}

#[tokio::test]
async fn nothing_is_decided_before_the_lists_are_complete() {
    let double = holding([], [claim("c1")]);
    let binder = unsynced(&double, DefaultEngine);
    let synced = binder.sync(&claim_key("c1")).await;
    assert_eq!(synced.result, Err(SyncError::NotSynced));
    assert_eq!(binder.metrics().decisions.get(), 0);
}

#[tokio::test]
async fn a_bind_sends_the_versions_that_its_own_writes_returned() {
    let double = holding([volume("v1")], [claim("c1")]);
    let binder = binder(&double, DefaultEngine);
    let synced = binder.sync(&claim_key("c1")).await;
    assert_eq!(synced.result, Ok(()));
    assert_eq!(
        double.write_names(),
        ["reserve volume", "set volume phase", "bind claim", "set claim status"]
    );
    // The decision's own writes show the state of the volume.
    assert_eq!(double.reads(), []);
    match &double.writes()[1].action {
        Action::SetVolumePhase { volume, .. } => assert_eq!(&*volume.version.0, "100"),
        other => panic!("{other:?}"),
    }
    assert_eq!(double.claim("c1").status.phase, ClaimPhase::Bound);
    assert_eq!(binder.store().picked_for("v1"), None);
    // Own writes are laid over the cache, so a second sync finds nothing to do.
    assert_eq!(binder.sync(&claim_key("c1")).await.result, Ok(()));
    assert_eq!(binder.sync(&volume_key()).await.result, Ok(()));
    assert_eq!(double.writes().len(), 4);
}

#[tokio::test]
async fn after_a_write_that_failed_nothing_follows() {
    for nth in 1..=4 {
        let double = holding([volume("v1")], [claim("c1")]);
        let binder = binder(&double, DefaultEngine);
        double.fail_write(nth, WriteError::Conflict("changed".to_owned()));
        let synced = binder.sync(&claim_key("c1")).await;
        let error = synced.result.unwrap_err();
        assert!(error.is_conflict(), "{error}");
        assert_eq!(double.writes().len(), nth);
        assert_eq!(binder.store().picked_for("v1"), None);
        assert_eq!(binder.sync(&claim_key("c1")).await.result, Ok(()));
        assert_eq!(double.writes().len(), 5);
        assert_eq!(double.volume("v1").phase, VolumePhase::Bound);
    }
}

/// As by a policy that wants a label of every volume, or without the right to write.
#[tokio::test]
async fn a_write_that_the_api_server_does_not_take_is_told_at_the_object() {
    let refusals = [
        (WriteError::Invalid("a policy wants a label".to_owned()), 1),
        (WriteError::Forbidden("cannot patch".to_owned()), 1),
        (WriteError::Conflict("changed".to_owned()), 0),
        (WriteError::Failed("no answer".to_owned()), 0),
    ];
    for (error, told) in refusals {
        let double = holding([volume("v1")], [claim("c1")]);
        let binder = binder(&double, DefaultEngine);
        double.fail_write(1, error.clone());
        assert!(binder.sync(&claim_key("c1")).await.result.is_err());
        assert_eq!(double.reasons(), vec![REASON_UNWRITABLE; told], "{error}");
    }
}

#[tokio::test]
async fn an_engine_that_fails_writes_nothing() {
    let double = holding([], [claim("c1")]);
    let fault = EngineFault::Trapped("out of bounds".to_owned());
    let answer = fault.clone();
    let binder = binder(&double, Scripted(move |_: &Request, _: &mut dyn Cluster| Err(answer.clone())));
    assert_eq!(binder.sync(&claim_key("c1")).await.result, Err(SyncError::Engine(fault)));
    assert_eq!(binder.metrics().engine_faults.get(), 1);
    // The next decision is another engine's.
    let broken = binder.swap_engine(Arc::new(DefaultEngine));
    assert_eq!(broken.digest(), "scripted");
    assert_eq!(binder.sync(&claim_key("c1")).await.result, Ok(()));
}

#[tokio::test]
async fn a_refused_decision_is_told_and_not_carried_out() {
    let double = holding([taken("v1", "c1")], []);
    let binder = binder(
        &double,
        Scripted(|request: &Request, _: &mut dyn Cluster| match &request.subject {
            Subject::SyncVolume(volume) => {
                let delete = Action::DeleteVolume { volume: volume.target() };
                Ok(Decision::new(vec![Step::from(delete)], Outcome::Done))
            }
            other => panic!("{other:?}"),
        }),
    );
    let error = binder.sync(&volume_key()).await.result.unwrap_err();
    assert!(matches!(error, SyncError::Refused(_)), "{error}");
    assert_eq!(double.writes(), []);
    assert_eq!(double.reasons(), ["DecisionRefused"]);
    assert_eq!(binder.metrics().refusals.get(), 1);
}

#[tokio::test]
async fn a_live_read_stops_the_decision_and_is_answered_to_the_next() {
    let double = holding([taken("v1", "c1")], []);
    let binder = binder(&double, DefaultEngine);
    // The cache has not seen the claim yet.
    let mut late = claim("c1");
    late.volume_name = Some("v1".into());
    double.add_claim(&late);
    assert_eq!(binder.sync(&volume_key()).await.result, Ok(()));
    assert_eq!(double.reads(), [("ns/c1".to_owned(), Purpose::Engine)]);
    assert_eq!(double.writes(), []);
}

#[tokio::test]
async fn a_release_that_the_engine_did_not_prove_is_proved_by_the_guard() {
    let release = |request: &Request, _: &mut dyn Cluster| match &request.subject {
        Subject::SyncVolume(volume) => {
            let phase = VolumePhase::Released;
            let release = Action::SetVolumePhase { volume: volume.target(), phase, message: Message::Empty };
            Ok(Decision::new(vec![Step::from(release)], Outcome::Done))
        }
        other => panic!("{other:?}"),
    };
    let world = || {
        let double = holding([taken("v1", "c1")], []);
        (binder(&double, Scripted(release)), double)
    };
    let guard_read = ("ns/c1".to_owned(), Purpose::Guard);

    let (binder, double) = world();
    assert_eq!(binder.sync(&volume_key()).await.result, Ok(()));
    assert_eq!((double.reads(), double.writes().len()), (vec![guard_read.clone()], 1));

    // The claim lives after all.
    let (binder, double) = world();
    double.add_claim(&claim("c1"));
    assert!(matches!(binder.sync(&volume_key()).await.result, Err(SyncError::Stale { .. })));
    assert_eq!((double.reads(), double.writes()), (vec![guard_read.clone()], Vec::new()));

    // A read that fails is made once more; then the decision is unproven.
    let (binder, double) = world();
    double.fail_reads(1);
    assert_eq!(binder.sync(&volume_key()).await.result, Ok(()));
    assert_eq!(double.reads(), [guard_read.clone(), guard_read.clone()]);
    let (binder, double) = world();
    double.fail_reads(2);
    assert!(matches!(binder.sync(&volume_key()).await.result, Err(SyncError::Unproven(_))));
    assert_eq!((double.reads().len(), double.writes()), (2, Vec::new()));
    // That does not count as a refusal, and no event is recorded.
    assert_eq!((binder.metrics().refusals.get(), double.reasons()), (0, Vec::new()));
}

#[tokio::test]
async fn an_engine_cannot_read_for_ever() {
    let double = holding([], [claim("c1")]);
    let endless = |_: &Request, cluster: &mut dyn Cluster| {
        for number in 0.. {
            let key = ClaimKey::new("ns", format!("c{number}"));
            match cluster.ask(Question::Claim(Source::Live, key))? {
                Answer::Claim(_) => {}
                other => panic!("{other:?}"),
            }
        }
        Ok(Decision::done())
    };
    let binder = binder(&double, Scripted(endless));
    let fault = EngineFault::from(Stop::TooMany { what: "live reads", max: 8 });
    assert_eq!(binder.sync(&claim_key("c1")).await.result, Err(SyncError::Engine(fault)));
}

#[tokio::test]
async fn a_decision_that_the_cluster_outdates_each_time_is_tried_four_times() {
    let double = holding([volume("v1")], [claim("c1")]);
    let engine = |request: &Request, cluster: &mut dyn Cluster| {
        let volume = cluster.volume(Source::Overlay, "v1".into())?;
        match (&request.subject, volume) {
            (Subject::SyncClaim(claim), Lookup::Found(volume)) => {
                let (volume, claim) = (volume.target(), claim.target());
                let reserve = Action::ReserveVolume { volume, claim, mark: true };
                Ok(Decision::new(vec![Step::from(reserve)], Outcome::Done))
            }
            other => panic!("{other:?}"),
        }
    };
    let binder = binder(&double, Scripted(engine));
    // The decision of another claim has picked the volume, and stays in flight.
    binder.store().reserve("v1", &ClaimKey::new("ns", "c2"), &[]).unwrap();
    let result = binder.sync(&claim_key("c1")).await.result;
    assert!(matches!(result, Err(SyncError::Stale { attempts: 4, .. })), "{result:?}");
    assert_eq!((binder.metrics().decisions.get(), double.writes()), (4, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn of_two_claims_one_gets_the_volume_and_the_other_waits_for_it() {
    let double = holding([volume("v1")], [claim("c1"), claim("c2")]);
    let binder = binder(&double, DefaultEngine);
    let held = Arc::clone(&double.gate).acquire_many_owned(1_000).await.unwrap();
    let first = begin(&binder, claim_key("c1"));
    tokio::task::yield_now().await;
    assert_eq!(binder.store().picked_for("v1"), Some(ClaimKey::new("ns", "c1")));
    // It neither picks the volume nor says that there is none.
    let second = binder.sync(&claim_key("c2")).await;
    assert_eq!(second.result, Ok(()));
    assert!(!second.decision.unwrap().actions().any(|action| matches!(action, Action::ReserveVolume { .. })));
    drop(held);
    assert_eq!(first.await.unwrap(), Ok(()));
    assert_eq!(binder.store().picked_for("v1"), None);
    assert_eq!(double.claim("c1").status.phase, ClaimPhase::Bound);
    assert_eq!(double.claim("c2").status.phase, ClaimPhase::Pending);
}
