//! What the journal has of policies.

use std::sync::{Arc, Mutex};

use bindery_controller::{Binder, Configuration, DecidedRecord, Journal, Parts};
use bindery_core::{ClaimFact, GuardRead, Key, ReclaimPolicy, Replayer, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::{AtMostTwice, Burning, ByLabel, KEEP, SameZone, keeps_labelled, policy, reclaim_rule};
use bindery_policy::{Chain, Judged, OnFailure, PolicyFault, ReclaimRule, Wish};

use crate::double::{Double, binder_of, claim, holding, parts, volume};
use crate::policies::{in_zone, key, zoned};
use crate::syncing::taken;

/// What was written down, in order.
#[derive(Default)]
struct Journaled(Mutex<Vec<DecidedRecord>>);

impl Journal for Journaled {
    fn decided(&self, record: DecidedRecord) {
        self.0.lock().expect("no holder panics").push(record);
    }
}

fn binder(double: &Double, chain: Chain) -> (Arc<Binder<Double>>, Arc<Journaled>) {
    let (policies, journal) = (Arc::new(chain), Arc::<Journaled>::default());
    let configuration = Configuration { policies, ..Configuration::default() };
    let sink: Option<Arc<dyn Journal>> = Some(Arc::<Journaled>::clone(&journal));
    (binder_of(Parts { configuration, journal: sink, ..parts(double, DefaultEngine) }), journal)
}

#[tokio::test]
async fn a_journal_has_what_policies_said_and_a_replay_needs_none() {
    let volumes = [in_zone(volume("b1"), "b"), in_zone(volume("a1"), "a")];
    let double = holding(volumes, ["c1", "c2"].map(zoned));
    let chain = || Chain::new(vec![policy("zone", SameZone), policy("size", AtMostTwice::judging())]);
    let (binder, journal) = binder(&double, chain());
    for name in ["c1", "c2"] {
        assert_eq!(binder.sync(&key(name)).await.result, Ok(()));
    }
    let journaled = journal.0.lock().unwrap();
    // The second claim gets nothing: no volume of its zone is left to judge.
    let volumes: Vec<_> = journaled
        .iter()
        .map(|DecidedRecord { evidence, policies, .. }| {
            let mut replayer = Replayer::new(&evidence.exchanges);
            let decision = bindery_core::Engine::decide(&DefaultEngine, &evidence.request, &mut replayer);
            assert_eq!(decision.unwrap(), evidence.decision);
            let policies = policies.as_ref().expect("policies apply");
            assert_eq!(policies.chain, chain().digest());
            assert_eq!(policies.ask_again(&chain()).differences, []);
            policies.matchers.iter().map(|said| said.volumes.len()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(volumes, [[1, 0], [0, 0]]);
}

#[tokio::test]
async fn a_journal_has_nothing_of_policies_where_none_applies() {
    let double = holding([volume("v"), taken("taken", "gone")], [claim("c")]);
    let mut elsewhere = policy("size", AtMostTwice::judging());
    elsewhere.matches.classes = vec!["fast".into()];
    for chain in [Chain::default(), Chain::new(vec![elsewhere])] {
        let (binder, journal) = binder(&double, chain);
        for key in [key("c"), Key::Volume("taken".into())] {
            assert_eq!(binder.sync(&key).await.result, Ok(()));
        }
        let journaled = journal.0.lock().unwrap();
        assert!(!journaled.is_empty() && journaled.iter().all(|record| record.policies.is_none()));
    }
}

#[tokio::test]
async fn a_journal_has_what_reclaimers_said_about_a_released_volume() {
    let double = holding([Volume { policy: ReclaimPolicy::Delete, ..taken("v", "c") }], []);
    let fails = ByLabel(|_| Err(PolicyFault::Trapped("unreachable".to_owned())));
    let fails = ReclaimRule { on_failure: OnFailure::Skip, order: -2, ..reclaim_rule("fails", fails) };
    let labelled = ReclaimRule { order: -1, ..reclaim_rule("labelled", keeps_labelled()) };
    let burning = |units| Burning { units, policy: ByLabel(|_| Ok(Wish::Keep)) };
    let keeps = reclaim_rule("keeps", burning(100));
    let never = ReclaimRule { order: 1, ..reclaim_rule("never", keeps_labelled()) };
    let rules = vec![labelled, keeps, fails, never];
    let (binder, journal) = binder(&double, Chain::default().with_reclaimers(rules));
    assert_eq!(binder.sync(&Key::Volume("v".into())).await.result, Ok(()));
    let journaled = journal.0.lock().unwrap();
    let policies = journaled[0].policies.as_ref().expect("policies apply");
    let said: Vec<_> = policies.reclaimers.iter().map(|said| (&*said.policy.name, said.judged)).collect();
    let answer = |wish| Judged { wish, reason: 0 };
    assert_eq!(said, [("labelled", answer(Wish::ByPolicy)), ("keeps", answer(Wish::Keep))]);
    assert_eq!(policies.reclaimers[0].policy.claim_facts, [ClaimFact::Label(KEEP.into())]);
    assert_eq!(&*policies.skipped[0].policy, "fails");
    let calls: Vec<_> = policies.calls.iter().map(|call| (&*call.policy, call.fuel_in_words())).collect();
    assert_eq!(calls, [("keeps", "100 units of fuel to judge the volume".to_owned())]);
    for (units, is_same) in [(100, true), (101, false)] {
        let chain = Chain::default().with_reclaimers(vec![reclaim_rule("keeps", burning(units))]);
        let again = policies.ask_again(&chain);
        assert_eq!((again.fuel_same == 1, again.fuel_differences.is_empty()), (is_same, is_same));
    }
    let deletes = reclaim_rule("keeps", ByLabel(|_| Ok(Wish::DeleteAfter(60))));
    let again = policies.ask_again(&Chain::default().with_reclaimers(vec![deletes]));
    let found: Vec<_> = again.differences.iter().map(|it| (it.then.as_str(), it.now.as_str())).collect();
    assert_eq!((found, again.not_asked), (vec![("Keep, said", "DeleteAfter(60), said")], 1));
}

#[tokio::test]
async fn a_journal_has_what_the_guard_had_read() {
    // An earlier decision has made the first two writes of the bind.
    let volume = taken("v", "c");
    let double = holding([volume.clone()], [claim("c")]);
    let (binder, journal) = binder(&double, Chain::default());
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    let journaled = journal.0.lock().unwrap();
    let uid = |read: &GuardRead| read.found.clone().unwrap().map(|(uid, _)| uid);
    let reads: Vec<_> = journaled[0].reads.iter().map(|read| (read.key.clone(), uid(read))).collect();
    assert_eq!(reads, [(Key::Volume("v".into()), Some(volume.uid))]);
}
