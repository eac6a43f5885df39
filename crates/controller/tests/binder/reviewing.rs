//! Reviews return findings about an object that a user is about to write, and have no other effect.

use std::sync::Arc;

use bindery_controller::{Purpose, Reads, ReviewError, Reviewed};
use bindery_core::{
    Action, Claim, Cluster, Decision, EngineFault, Failure, Finding, Key, Outcome, Quantity, Request, Rule,
    Source,
};
use bindery_engine::DefaultEngine;
use futures::future::join_all;

use crate::double::{Double, Scripted, binder, claim, holding, unsynced, volume};

/// A claim for 2 GiB that names volume `v`.
fn greedy(name: &str) -> Claim {
    Claim { volume_name: Some("v".into()), request: Quantity::bytes(2 << 30), ..claim(name) }
}

fn created(claim: Claim) -> Reviewed {
    Reviewed::Claim { new: Arc::new(claim), old: None }
}

#[tokio::test]
async fn any_number_of_reviews_beside_each_other_leave_no_trace() {
    let double = holding([volume("v")], []);
    let binder = binder(&double, DefaultEngine);
    let before = (double.activity(), binder.keys_waiting(), binder.metrics().decisions.get());
    let reviews = (0..64).map(|at| {
        let binder = Arc::clone(&binder);
        tokio::spawn(async move { binder.review(created(greedy(&format!("c{at}"))), Reads::Cached).await })
    });
    for ended in join_all(reviews).await {
        let findings = ended.expect("no review panics").expect("the store knows all");
        assert_eq!(findings.iter().map(|finding| finding.rule).collect::<Vec<_>>(), [Rule::VolumeTooSmall]);
    }
    let after = (double.activity(), binder.keys_waiting(), binder.metrics().decisions.get());
    assert_eq!(after, before, "nothing is read, written, told, journaled, queued or counted");
    assert_eq!(binder.store().picked_for("v"), None);
    // A review does not block a decision about the same object.
    let mut modest = greedy("c");
    modest.request = Quantity::bytes(1 << 30);
    double.add_claim(&modest);
    binder.store().deliver(bindery_store::Delivery::applied(modest.clone()));
    assert_eq!(binder.sync(&Key::Claim(modest.key)).await.result, Ok(()));
}

#[tokio::test]
async fn a_live_review_reads_every_claim_and_volume_from_the_cluster() {
    let double = holding([volume("v")], []);
    let binder = binder(&double, DefaultEngine);
    let mut grown = volume("v");
    grown.capacity = Some(Quantity::bytes(2 << 30));
    double.add_volume(&grown);
    let review = |reads| binder.review(created(greedy("c")), reads);
    assert_eq!(review(Reads::Cached).await.map(|findings| findings.len()), Ok(1));
    assert_eq!(double.reads(), []);
    assert_eq!(review(Reads::Live).await, Ok(Vec::new()));
    assert_eq!(double.reads(), [("v".to_owned(), Purpose::Engine)]);
    // A failed read is not an answer.
    double.fail_reads(1);
    let failed = Err(ReviewError::Failed(Failure::Read("no answer".into())));
    assert_eq!(review(Reads::Live).await, failed);
}

#[tokio::test]
async fn nothing_is_reviewed_before_the_lists_are_complete() {
    let double = Double::new();
    let binder = unsynced(&double, DefaultEngine);
    let answer = binder.review(created(greedy("c")), Reads::Cached).await;
    assert_eq!(answer, Err(ReviewError::NotSynced));
}

#[tokio::test]
async fn an_engine_that_fails_acts_or_reads_without_end_has_found_nothing() {
    type Engine = fn(&Request, &mut dyn Cluster) -> Result<Decision, EngineFault>;
    let engines: [(Engine, &str); 5] = [
        (|_, _| Err(EngineFault::Trapped("unreachable".to_owned())), "no review: the engine trapped"),
        (
            |_, _| {
                let enqueue = Action::EnqueueClaim(claim("c").key);
                Ok(Decision::new(vec![enqueue.into()], Outcome::Done))
            },
            "the guard refused the review: persistentvolumeclaim ns/c: a review writes nothing",
        ),
        (
            |_, _| Ok(Decision { requeue_after_ms: Some(1), ..Decision::done() }),
            "no review: the engine's answer has more than findings",
        ),
        (
            |_, cluster| {
                for at in 0.. {
                    cluster.volume(Source::Live, format!("v{at}").into())?;
                }
                Ok(Decision::done())
            },
            "no review: more than 8 live reads in one decision",
        ),
        (
            |_, cluster| {
                cluster.volume(Source::Overlay, "v".into())?;
                let (rule, volume) = (Rule::VolumeTooSmall, "v".into());
                let [found, wanted] = ["2Gi".into(), "1Gi".into()];
                let finding = Finding { rule, volume, claim: None, found, wanted };
                Ok(Decision { findings: vec![finding], ..Decision::done() })
            },
            "the guard refused the review: it finds volume-too-small of volume \"v\", and that is not so",
        ),
    ];
    for (engine, told) in engines {
        let double = holding([volume("v")], []);
        let binder = binder(&double, Scripted(engine));
        let mut named = claim("c");
        named.volume_name = Some("v".into());
        let error = binder.review(created(named), Reads::Live).await.expect_err("it has found nothing");
        assert!(error.to_string().starts_with(told), "{error}");
        assert_eq!(double.writes(), []);
    }
}
