//! Compares the index with a scan: over random worlds every query, page and tally is the same.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use bindery_core::{
    AccessModes, Cell, Cluster, ColumnRequirement, ColumnSet, DecisionLimits, Narrowed, Query, Requirement,
    Scanned, Slot, Text, Version, Volume, VolumeFact, VolumeIndex as _,
};
use bindery_kit::NoEnvironment;
use bindery_store::{LiveReads, Object, ObjectKey, Session, Store};
use proptest::prelude::*;
use support::{
    Model, Step, any_key, any_query, any_step, any_uid, any_volume, apply, gib, gone, query, unreadable,
    volume,
};

/// Columns that a scan shows.
fn columns() -> Arc<ColumnSet> {
    let labels = ["tier", "zone", "parity", "name"].map(|key| VolumeFact::Label(key.into()));
    let others = [VolumeFact::Topology("tier".into()), VolumeFact::ClassName];
    Arc::new(ColumnSet::new(labels.into_iter().chain(others).collect(), Default::default()))
}

/// The names of the volumes that a scan gives. Each row shows what its volume has.
fn scan(
    session: &mut Session<'_>,
    query: &Query,
    requirements: &[ColumnRequirement],
    columns: &Arc<ColumnSet>,
) -> Vec<Text> {
    let mut names = Vec::new();
    session.scan(query, requirements, columns, &mut |Scanned { volume, row, .. }| {
        let cells: Vec<Cell> = columns.cells(volume).collect();
        assert_eq!((row.capacity, row.cells), (volume.capacity.unwrap_or_default(), &*cells));
        names.push(volume.name.clone());
        ControlFlow::Continue(())
    });
    names
}

/// Carries the steps out on a store and on the model; every step is a newer version than those before. The
/// store keeps the columns from one of the steps on.
fn build(steps: Vec<Step>, kept_from: u64, columns: &Arc<ColumnSet>) -> (Store, Model) {
    let (store, mut model) = (Store::new(), Model::default());
    for (version, step) in (1_u64..).zip(steps) {
        if version == kept_from {
            store.keep_columns(Arc::clone(columns));
        }
        let name = |number: usize| Text::from(format!("v{number:02}"));
        let finish = |number: usize, volume: Volume| Volume {
            name: name(number),
            // As in an unreadable delivery: a write of another object is not laid over it.
            uid: "uid".into(),
            version: Version::from(&*version.to_string()),
            ..volume
        };
        match step {
            Step::Apply(number, volume) => {
                let volume = Arc::new(finish(number, volume));
                model.volumes.insert(name(number), Some(volume.clone()));
                apply(&store, volume);
            }
            Step::Break(number) => {
                model.volumes.insert(name(number), None);
                apply(&store, Object::Volume(name(number), unreadable("uid", version)));
            }
            Step::Assume(number, volume) => {
                let volume = Arc::new(finish(number, volume));
                if let Some(known) = model.volumes.get_mut(&name(number)) {
                    *known = Some(volume.clone());
                }
                store.assume_volume(volume);
            }
            Step::Remove(number) => {
                model.volumes.remove(&name(number));
                gone(&store, ObjectKey::Volume(name(number)));
            }
            Step::Reserve(number, key) => {
                let holder = model.picked.entry(name(number)).or_insert(key.clone()).clone();
                assert_eq!(store.reserve(&name(number), &key, &[]).is_ok(), holder == key);
            }
            Step::Unreserve(number, key) => {
                if model.picked.get(&name(number)) == Some(&key) {
                    model.picked.remove(&name(number));
                }
                store.unreserve(&name(number), &key);
            }
        }
    }
    (store, model)
}

/// All candidates, by pages of these sizes.
fn pages(
    cluster: &mut dyn Cluster,
    query: &Query,
    limit: u32,
) -> Vec<(bindery_core::Handle, u64, u32, Slot)> {
    let mut rows = Vec::new();
    loop {
        let after = rows.last().map(|row: &(bindery_core::Handle, u64, u32, Slot)| row.0);
        let page = cluster.candidates(query.clone(), after, limit).unwrap();
        assert!(page.handles.len() <= limit as usize);
        assert!(
            [page.whole.len(), page.nanos.len(), page.slots.len()].iter().all(|l| *l == page.handles.len())
        );
        let columns = page.handles.into_iter().zip(page.whole).zip(page.nanos).zip(page.slots);
        rows.extend(columns.map(|(((handle, whole), nanos), slot)| (handle, whole, nanos, slot)));
        if !page.more {
            return rows;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_question_is_answered_as_by_a_scan(
        steps in prop::collection::vec(any_step(24, any_volume, [6, 1, 3, 1, 1, 1]), 0..80),
        queries in prop::collection::vec((any_query(), 1..5_u32), 4),
        (key, uid) in (any_key(), any_uid()),
        known in any::<bool>(),
        kept_from in 0..80_u64,
    ) {
        let shown = columns();
        let (store, model) = build(steps, kept_from, &shown);
        let live = LiveReads::new();
        let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
        let asker = known.then(|| (key.clone(), uid.clone()));
        if let Some((key, uid)) = asker.clone() {
            session = session.for_claim(key, uid);
        }
        for bits in 0..16 {
            let set = AccessModes::from_bits(bits).unwrap();
            let sets = (&mut session as &mut dyn Cluster).access_sets(set).unwrap();
            prop_assert_eq!(sets, model.access_sets(set));
        }
        let reserved = (&mut session as &mut dyn Cluster).reserved_for(key.clone(), uid.clone()).unwrap();
        let names: Vec<Text> = reserved.iter().map(|handle| session.name(*handle).unwrap()).collect();
        prop_assert_eq!(names, model.reserved_for(&key, &uid));
        for (query, limit) in queries {
            let rows = pages(&mut session, &query, limit);
            let expected = model.candidates(&query, asker.as_ref().map(|asker| &asker.0));
            prop_assert_eq!(rows.len(), expected.len());
            for ((handle, whole, nanos, slot), (name, free)) in rows.into_iter().zip(expected) {
                let described = (&mut session as &mut dyn Cluster).describe(handle).unwrap();
                let target = (&mut session as &mut dyn Cluster).identify(handle).unwrap();
                prop_assert_eq!(&described.name, &name);
                prop_assert_eq!(target, described.target());
                let capacity = described.capacity.unwrap_or_default();
                prop_assert_eq!((whole, nanos), (capacity.whole, capacity.nanos));
                prop_assert_eq!(slot == Slot::Free, free);
            }
            let tallies = (&mut session as &mut dyn Cluster).tallies(query.clone()).unwrap();
            prop_assert_eq!(tallies, model.tallies(&query, asker.as_ref()));
            let columns = query.labels.iter().map(|Requirement { key, operator, values }| ColumnRequirement {
                column: VolumeFact::Topology(key.clone()),
                operator: *operator,
                values: values.clone(),
            });
            let narrowed = Narrowed { columns: columns.collect(), at_most: None };
            let query = Query { labels: Vec::new(), ..query };
            let found = scan(&mut session, &query, &narrowed.columns, &shown);
            let is_met = |name: &Text| narrowed.is_met_by(model.volumes[name].as_ref().unwrap());
            let expected = model.candidates(&query, None).into_iter().map(|(name, _)| name).filter(is_met);
            prop_assert_eq!(found, expected.collect::<Vec<Text>>());
        }
    }
}

/// Enough volumes for chunks to be split and merged, with labels that have to follow.
#[test]
fn thousands_of_volumes_keep_order_and_labels_as_they_come_and_go() {
    let (store, mut model, columns) = (Store::new(), Model::default(), columns());
    store.keep_columns(Arc::clone(&columns));
    // Deterministic and out of order: multiples of a number that is prime to the length.
    let shuffled = |step: usize| (0..4_000_usize).map(move |n| n * step % 4_000);
    for number in shuffled(1_237) {
        let mut volume = volume(&format!("v{number:04}"), 1);
        volume.capacity = Some(gib(1 + number as u64 / 100));
        volume.labels.insert("parity".into(), if number % 2 == 0 { "even" } else { "odd" }.into());
        volume.labels.insert("name".into(), volume.name.clone());
        apply(&store, volume.clone());
        model.volumes.insert(volume.name.clone(), Some(Arc::new(volume)));
    }
    let check = |store: &Store, model: &Model| {
        let live = LiveReads::new();
        let limits = DecisionLimits { rows: 1_000_000, ..DecisionLimits::default() };
        let mut session = store.session(&NoEnvironment, &live, limits);
        let all = model.candidates(&query(), None).into_iter().map(|row| row.0);
        assert_eq!(scan(&mut session, &query(), &[], &columns), all.collect::<Vec<Text>>());
        for (key, value) in [("parity", "even"), ("name", "v3999"), ("name", "v0007")] {
            let requirement = bindery_core::Requirement {
                key: key.into(),
                operator: bindery_core::SelectorOperator::In,
                values: vec![value.into()],
            };
            for query in [
                Query { labels: vec![requirement.clone()], ..query() },
                Query { at_least: gib(20), labels: vec![requirement.clone()], ..query() },
                Query { at_least: gib(20), ..query() },
            ] {
                let rows = pages(&mut session, &query, 700);
                let names: Vec<Text> = rows.iter().map(|row| session.name(row.0).unwrap()).collect();
                let expected = model.candidates(&query, None).into_iter().map(|row| row.0);
                assert_eq!(names, expected.collect::<Vec<Text>>());
                let tallies = (&mut session as &mut dyn Cluster).tallies(query.clone()).unwrap();
                assert_eq!(tallies, model.tallies(&query, None));
            }
        }
    };
    check(&store, &model);
    for (count, number) in shuffled(2_741).enumerate() {
        let name = Text::from(format!("v{number:04}"));
        gone(&store, ObjectKey::Volume(name.clone()));
        model.volumes.remove(&name);
        if count % 997 == 0 {
            check(&store, &model);
        }
    }
    check(&store, &model);
}
