//! What policies require of the columns of volumes decides which keys a volume wakes.

use std::cell::RefCell;
use std::sync::Arc;

use bindery_core::{ColumnRequirement, Narrowed, ReclaimPolicy, SelectorOperator, Volume, VolumeFact};
use bindery_store::{Dispatcher, Fact, Offer, Store, Subscriptions, Wanted, WantedSets};

use crate::support::{apply, gib, query, volume};

/// Counts the keys that are asked.
struct Counting<'a>(&'a Store, RefCell<usize>);

impl Dispatcher<usize> for Counting<'_> {
    fn free(&self, volume: &str) -> Option<Arc<Volume>> {
        self.0.free_volume(volume)
    }

    fn ask(&self, _: &usize, _: Offer) -> bool {
        *self.1.borrow_mut() += 1;
        true
    }
}

/// Changes one column of a volume.
type Change = fn(&mut Volume);

/// How often a key that requires something is asked: when the volume appears, and after its change.
fn asked(narrowed: Narrowed, change: Change) -> [usize; 2] {
    let (store, subscriptions) = (Store::default(), Subscriptions::new());
    let dispatcher = Counting(&store, RefCell::default());
    let (query, sets, narrowed) = (Arc::new(query()), WantedSets::Exact, Arc::new(narrowed));
    let mut wanted = Fact::Candidates(Wanted { query, sets, narrowed: None });
    wanted.narrow(&narrowed);
    assert!(!subscriptions.subscribe(1, store.revision(), vec![wanted]));
    let mut changed = volume("v", 2);
    change(&mut changed);
    [volume("v", 1), changed].map(|volume| {
        subscriptions.wake(&apply(&store, volume), Offer::New, &dispatcher, |_| true);
        *dispatcher.1.borrow()
    })
}

#[test]
fn a_volume_wakes_a_key_once_its_columns_are_as_policies_require() {
    fn set(volume: &mut Volume, fact: VolumeFact) {
        volume.facts.set(fact, Some("x".into()));
    }
    let cases: [(VolumeFact, &str, Change); 6] = [
        (VolumeFact::Label("k".into()), "x", |volume| _ = volume.labels.insert("k".into(), "x".into())),
        (VolumeFact::Annotation("k".into()), "x", |volume| set(volume, VolumeFact::Annotation("k".into()))),
        (VolumeFact::Topology("k".into()), "x", |volume| set(volume, VolumeFact::Topology("k".into()))),
        (VolumeFact::Driver, "x", |volume| set(volume, VolumeFact::Driver)),
        (VolumeFact::Source, "x", |volume| volume.source = "x".into()),
        (VolumeFact::ReclaimPolicy, "Recycle", |volume| volume.policy = ReclaimPolicy::Recycle),
    ];
    for (column, value, change) in cases {
        let (operator, values) = (SelectorOperator::In, vec![value.into()]);
        let columns = vec![ColumnRequirement { column: column.clone(), operator, values }];
        assert_eq!(asked(Narrowed { columns, at_most: None }, change), [0, 1], "{column:?}");
    }
    let at_most = Narrowed { at_most: Some(gib(1)), ..Narrowed::default() };
    assert_eq!(asked(at_most.clone(), |volume| volume.labels = [("k".into(), "x".into())].into()), [1, 2]);
    assert_eq!(asked(at_most, |volume| volume.capacity = Some(gib(2))), [1, 1]);
}
