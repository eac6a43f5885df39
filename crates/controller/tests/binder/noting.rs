//! What is noted on volumes for reclaimers.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::Parts;
use bindery_core::{CLAIM_FACTS, ReclaimPolicy, Requirement, SelectorOperator, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::{ByLabel, keeps_labelled, reclaim_rule};
use bindery_policy::{Matches, ReclaimRule, Wish};
use bindery_store::{Delivery, Object};

use crate::disk::Disk;
use crate::double::{Double, binder_of, holding, parts};
use crate::reclaiming::{DAY, after_a_day, annotated, binder, bound, kept_for, pair, sync};

/// Claims of namespaces with the label `env: prod`.
fn in_prod() -> Matches {
    let (operator, values) = (SelectorOperator::In, vec!["prod".into()]);
    Matches { namespace: vec![Requirement { key: "env".into(), operator, values }], ..Matches::default() }
}

#[tokio::test(start_paused = true)]
async fn notes_of_many_volumes_are_written_at_most_twenty_in_a_second() {
    let double = Double::new();
    for number in 0..3 {
        let (volume, claim) = (format!("v{number}"), format!("c{number}"));
        double.add_volume(&bound(&volume, &claim));
        double.add_claim(&pair(&claim, &volume, "true"));
    }
    let binder = binder(&double, vec![reclaim_rule("keep", keeps_labelled())]);
    let mut waits = Vec::new();
    for volume in ["v0", "v1", "v2", "v1"] {
        waits.push(sync(&binder, volume).await.requeue_after);
    }
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(waits, [None, millis(50), millis(100), millis(50)]);
    assert_eq!(double.writes().len(), 1);
    tokio::time::advance(Duration::from_millis(50)).await;
    assert_eq!(sync(&binder, "v1").await.requeue_after, None);
    assert_eq!(double.writes().len(), 2);
}

#[tokio::test]
async fn a_noted_label_of_a_namespace_outlives_the_namespace() {
    let rule = ReclaimRule { matches: in_prod(), ..reclaim_rule("keep", keeps_labelled()) };
    let mut volume = bound("v", "c");
    let note = r#"{"uid":"uid-c","facts":{"label:keep":"true","namespaceLabel:env":"prod"}}"#;
    annotated(&mut volume, CLAIM_FACTS, note);
    let double = holding([volume], [pair("c", "v", "true")]);
    assert_eq!(sync(&binder(&double, vec![rule]), "v").await.result, Ok(()));
    assert_eq!(double.writes(), []);
}

#[tokio::test]
async fn a_namespace_that_is_made_again_does_not_change_what_was_noted() {
    let keeps = ReclaimRule { matches: in_prod(), ..reclaim_rule("keep", ByLabel(|_| Ok(Wish::Keep))) };
    let later = ReclaimRule { order: 1, ..after_a_day() };
    let mut volume = kept_for(DAY);
    let note = r#"{"uid":"uid-c","facts":{"label:keep":null,"namespaceLabel:env":"prod"}}"#;
    annotated(&mut volume, CLAIM_FACTS, note);
    let double = holding([volume], []);
    let binder = binder(&double, vec![keeps, later]);
    let namespace = Object::Namespace("ns".into(), Arc::default());
    binder.intake().deliver(Delivery::applied(namespace));
    assert_eq!(sync(&binder, "v").await.result, Ok(()));
    assert_eq!(double.writes(), []);
}

#[tokio::test]
async fn a_reclaimer_that_is_not_loaded_keeps_what_it_had_noted() {
    let broken =
        ReclaimRule { reclaimer: Err("the file is gone".into()), ..reclaim_rule("keep", keeps_labelled()) };
    let mut volume = bound("v", "c");
    annotated(&mut volume, CLAIM_FACTS, r#"{"uid":"uid-c","facts":{"label:keep":"true"}}"#);
    let double = holding([volume], [pair("c", "v", "true")]);
    assert_eq!(sync(&binder(&double, vec![broken]), "v").await.result, Ok(()));
    assert_eq!(double.writes(), []);
}

/// The note in the cache is about the claim before: the volume was given to another one since, which is gone
/// too.
#[tokio::test]
async fn a_volume_that_was_read_live_gets_no_policy_by_the_cached_note() {
    let cached = Volume { policy: ReclaimPolicy::Recycle, ..kept_for(60) };
    let double = holding([cached.clone()], []);
    let configuration = Disk::new(&double).configuration();
    let binder = binder_of(Parts { configuration, ..parts(&double, DefaultEngine) });
    let mut synced = sync(&binder, "v").await;
    let mut given = cached;
    given.claim_ref.as_mut().expect("it is bound").uid = Some("uid-of-the-next".into());
    double.change(|objects| objects.put_volume(given));
    assert!(binder.perform(synced.operations.remove(0)).await.is_ok());
    assert_eq!(double.write_names(), ["unbind volume", "set volume phase"]);
    assert_eq!(double.volume("v").policy, ReclaimPolicy::Recycle);
}
