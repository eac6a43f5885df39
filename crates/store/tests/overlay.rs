//! Own writes laid over the watch cache: a simple model, and the races that upstream's caches had.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    Claim, ClaimKey, Cluster, DecisionLimits, Lookup, Source, Stop, Text, Uid, Version, Volume,
};
use bindery_kit::NoEnvironment;
use bindery_store::{
    Change, Fact, Kind, LiveReads, NotReserved, Object, ObjectKey, Observed, ObservedPod, PodContent, Store,
};
use proptest::prelude::*;
use support::{apply, claim, gone, list, pod_key, unreadable, volume};

fn key(name: &str) -> ClaimKey {
    ClaimKey::new("ns", name)
}

fn changes(change: &Change, fact: &Fact) -> bool {
    change.all_facts().any(|changed| changed == *fact)
}

/// A delivery or an own write of the only volume, whose UID is its incarnation.
#[derive(Clone, Debug)]
enum Step {
    Watch {
        version: u64,
        incarnation: u8,
        readable: bool,
    },
    Write {
        version: u64,
        incarnation: u8,
    },
    Gone,
    ListBegins,
    /// The list that began last is complete.
    Relist {
        version: Option<u64>,
        incarnation: u8,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let version = 1..12_u64;
    prop_oneof![
        4 => (version.clone(), 0..2_u8, prop::bool::weighted(0.8))
            .prop_map(|(version, incarnation, readable)| Step::Watch { version, incarnation, readable }),
        4 => (version.clone(), 0..2_u8)
            .prop_map(|(version, incarnation)| Step::Write { version, incarnation }),
        1 => Just(Step::Gone),
        1 => Just(Step::ListBegins),
        1 => (prop::option::of(version), 0..2_u8)
            .prop_map(|(version, incarnation)| Step::Relist { version, incarnation }),
    ]
}

fn incarnation(version: u64, number: u8) -> Volume {
    Volume { uid: Uid::from(&*format!("uid-{number}")), ..volume("v", version) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    /// The model: the last delivery of the watch, and the newest own write since the watch knows the object.
    /// The write ends with the object, with a delivery as new as it, and with a list that began after it.
    #[test]
    fn the_overlay_is_the_newer_of_watch_and_own_write(
        steps in prop::collection::vec(any_step(), 0..24),
    ) {
        let store = Store::new();
        let mut watch: Option<(u64, u8, Lookup<Arc<Volume>>)> = None;
        let mut write: Option<(u64, u8, Arc<Volume>)> = None;
        let mut is_write_listed = false;
        for step in steps {
            match step {
                Step::Watch { version, incarnation: number, readable: is_readable } => {
                    let object = Arc::new(incarnation(version, number));
                    let observed = if is_readable {
                        Observed::Readable(object.clone())
                    } else {
                        unreadable(&format!("uid-{number}"), version)
                    };
                    let expected = watch.as_ref().is_none_or(|(known, ..)| *known <= version);
                    prop_assert_eq!(apply(&store, Object::Volume("v".into(), observed)).fresh, expected);
                    if expected {
                        let why = "spec.capacity: no quantity".into();
                        let found = if is_readable { Lookup::Found(object) } else { Lookup::Unreadable(why) };
                        watch = Some((version, number, found));
                    }
                }
                Step::Write { version, incarnation: number } => {
                    let object = Arc::new(incarnation(version, number));
                    let newest = write.as_ref().map_or(0, |(version, ..)| *version);
                    let expected = watch.as_ref().is_some_and(|(known, incarnation, _)| {
                        version > newest.max(*known) && number == *incarnation
                    });
                    prop_assert_eq!(store.assume_volume(object.clone()).fresh, expected);
                    if expected {
                        write = Some((version, number, object));
                        is_write_listed = false;
                    }
                }
                Step::Gone => {
                    gone(&store, ObjectKey::Volume("v".into()));
                    watch = None;
                }
                Step::ListBegins => {
                    store.list_begins(Kind::Volume);
                    is_write_listed = true;
                }
                Step::Relist { version, incarnation: number } => {
                    let listed = version.map(|version| incarnation(version, number));
                    list(&store, Kind::Volume, listed.clone());
                    let listed = version.zip(listed);
                    watch = listed.map(|(v, volume)| (v, number, Lookup::Found(Arc::new(volume))));
                    write = write.filter(|_| !is_write_listed);
                }
            }
            write = write.filter(|(version, incarnation, _)| {
                watch.as_ref().is_some_and(|(known, number, _)| version > known && incarnation == number)
            });
            let cache = watch.as_ref().map_or(Lookup::Absent, |(.., found)| found.clone());
            let overlay = write.as_ref().map_or(cache.clone(), |(.., object)| Lookup::Found(object.clone()));
            prop_assert_eq!(store.volume(Source::Cache, "v"), cache);
            prop_assert_eq!(store.volume(Source::Overlay, "v"), overlay);
        }
    }
}

fn found(store: &Store, source: Source) -> Option<Version> {
    match store.volume(source, "v") {
        Lookup::Found(volume) => Some(volume.version.clone()),
        _ => None,
    }
}

/// kubernetes #124224: a write returns after the watch has seen the deletion.
#[test]
fn a_late_write_does_not_bring_a_deleted_object_back() {
    let store = Store::new();
    apply(&store, volume("v", 1));
    let change = gone(&store, ObjectKey::Volume("v".into()));
    assert_eq!(change.objects[0].gone(), Some(&volume("v", 1).uid));
    let change = store.assume_volume(Arc::new(volume("v", 9)));
    assert!(!change.fresh && change.is_empty());
    assert_eq!(store.volume(Source::Overlay, "v"), Lookup::Absent);

    apply(&store, claim(&key("c"), 1));
    gone(&store, ObjectKey::Claim(key("c")));
    assert!(!store.assume_claim(Arc::new(claim(&key("c"), 9))).fresh);
    assert_eq!(store.claim(Source::Overlay, &key("c")), Lookup::Absent);
}

/// Versions are compared as numbers, an equal version counts as new, and of versions that cannot be compared
/// the last one wins.
#[test]
fn versions_are_numbers_and_equal_ones_pass() {
    let store = Store::new();
    let apply = |version: &str| {
        let volume = Volume { version: Version::from(version), ..volume("v", 1) };
        apply(&store, volume).fresh
    };
    assert!(apply("9"));
    assert!(apply("10"));
    assert!(apply("10"));
    assert!(!apply("9"));
    assert!(apply("opaque"));
    assert!(apply("3"));
    assert_eq!(found(&store, Source::Cache), Some(Version::from("3")));
}

/// After a restore of etcd versions start again below those that were seen: a list overrides the cache, and
/// own writes that were answered before it began.
#[test]
fn a_complete_list_is_believed_even_where_it_is_older() {
    let store = Store::new();
    apply(&store, volume("v", 100));
    store.assume_volume(Arc::new(volume("v", 101)));
    apply(&store, volume("w", 99));
    apply(&store, claim(&key("c"), 98));
    store.assume_claim(Arc::new(claim(&key("c"), 102)));
    store.list_begins(Kind::Volume);
    store.list_begins(Kind::Claim);
    let change = list(&store, Kind::Volume, [volume("v", 7)]);
    assert!(changes(&change, &Fact::Volume(Source::Cache, "w".into())));
    assert!(changes(&change, &Fact::Volume(Source::Overlay, "v".into())));
    let gone: Vec<_> = change.objects.iter().filter_map(|object| object.gone()).collect();
    assert_eq!(gone, [&volume("w", 99).uid]);
    assert_eq!(found(&store, Source::Cache), Some(Version::from("7")));
    assert_eq!(found(&store, Source::Overlay), Some(Version::from("7")));
    let change = list(&store, Kind::Claim, [claim(&key("c"), 8)]);
    assert!(changes(&change, &Fact::Claim(Source::Overlay, key("c"))));
    assert_eq!(store.claim(Source::Overlay, &key("c")), store.claim(Source::Cache, &key("c")));
}

/// The overlay has the object that the server returned, and an equal version in the watch ends it.
#[test]
fn the_echo_of_a_write_changes_the_cache_and_not_the_overlay() {
    let store = Store::new();
    apply(&store, volume("v", 1));
    let written = store.assume_volume(Arc::new(volume("v", 2)));
    assert!(written.all_facts().eq([Fact::Volume(Source::Overlay, "v".into())]));
    let echo = apply(&store, volume("v", 2));
    assert!(echo.fresh && echo.all_facts().eq([Fact::Volume(Source::Cache, "v".into())]));
    let resync = apply(&store, volume("v", 2));
    assert!(resync.fresh && resync.is_empty());
    assert_eq!(resync.revision, echo.revision);
}

/// A deletion and a new object of the same name may arrive as one update; the old write ends with the old
/// object.
#[test]
fn a_write_of_an_earlier_incarnation_is_not_laid_over_a_later_one() {
    let store = Store::new();
    apply(&store, incarnation(1, 0));
    store.assume_volume(Arc::new(incarnation(2, 0)));
    let change = apply(&store, incarnation(5, 1));
    assert!(changes(&change, &Fact::Volume(Source::Overlay, "v".into())));
    assert!(!store.assume_volume(Arc::new(incarnation(3, 0))).fresh);
    assert!(matches!(store.volume(Source::Overlay, "v"), Lookup::Found(v) if v.uid == Uid::from("uid-1")));
}

#[test]
fn what_cannot_be_read_is_unreadable_and_not_absent() {
    let store = Store::new();
    apply(&store, Object::Volume("v".into(), unreadable("uid-v", 3)));
    apply(&store, Object::Claim(key("c"), unreadable("u", 3)));
    let why = || "spec.capacity: no quantity".into();
    assert_eq!(store.volume(Source::Overlay, "v"), Lookup::Unreadable(why()));
    assert_eq!(store.claim(Source::Cache, &key("c")), Lookup::Unreadable(why()));
    assert!(store.unreadable_volume("v").is_some() && store.unreadable_claim(&key("c")).is_some());
    assert!(store.volumes().is_empty() && store.claims().is_empty());
    assert_eq!(store.claim_keys(), [key("c")]);

    // A newer own write can be read, until the watch delivers an unreadable object.
    store.assume_volume(Arc::new(volume("v", 4)));
    assert_eq!(found(&store, Source::Overlay), Some(Version::from("4")));
    apply(&store, Object::Volume("v".into(), unreadable("u", 4)));
    assert_eq!(store.volume(Source::Overlay, "v"), Lookup::Unreadable(why()));
}

#[test]
fn nothing_is_synced_before_all_kinds_are() {
    for (keeps_namespaces, kinds) in [(false, &Kind::ALWAYS[..]), (true, &Kind::ALL)] {
        let store = Store::new();
        if keeps_namespaces {
            store.keep_namespaces();
        }
        assert_eq!(store.kinds(), kinds);
        for kind in kinds {
            assert!(!store.synced());
            list(&store, *kind, [] as [Object; 0]);
        }
        assert!(store.synced());
    }
}

#[test]
fn labels_of_namespaces_are_known_once_they_are_kept() {
    let labelled = |name: &str, team: &str| {
        Object::Namespace(name.into(), Arc::new([("team".into(), team.into())].into()))
    };
    let store = Store::new();
    list(&store, Kind::Namespace, [labelled("a", "x")]);
    assert!(matches!(store.namespace_labels("a"), Lookup::Failed(_)), "no policy reads them");

    store.keep_namespaces();
    let changed = |change: Change| change.facts;
    let facts = |names: &[&str]| names.iter().map(|name| Fact::Namespace((*name).into())).collect::<Vec<_>>();
    assert_eq!(changed(list(&store, Kind::Namespace, [labelled("a", "x")])), facts(&["a"]));
    assert_eq!(changed(apply(&store, labelled("a", "x"))), []);
    assert_eq!(changed(apply(&store, labelled("a", "y"))), facts(&["a"]));
    assert_eq!(store.namespace_labels("a"), Lookup::Found(Arc::new([("team".into(), "y".into())].into())));
    assert_eq!(changed(list(&store, Kind::Namespace, [labelled("b", "x")])), facts(&["a", "b"]));
    assert_eq!(store.namespace_labels("a"), Lookup::Absent);
    assert_eq!(changed(gone(&store, ObjectKey::Namespace("b".into()))), facts(&["b"]));
}

#[test]
fn a_reservation_is_for_one_claim_until_that_one_ends_it() {
    let store = Store::new();
    apply(&store, volume("v", 1));
    store.reserve("v", &key("a"), &[]).unwrap();
    store.reserve("v", &key("a"), &[]).unwrap();
    assert_eq!(store.reserve("v", &key("b"), &[]).unwrap_err(), NotReserved::PickedFor(key("a")));
    assert!(store.unreserve("v", &key("b")).is_empty());
    assert_eq!(store.picked_for("v"), Some(key("a")));
    let change: Change = store.unreserve("v", &key("a"));
    assert_eq!(change.offers.iter().map(|volume| &*volume.name).collect::<Vec<_>>(), ["v"]);
    store.reserve("v", &key("b"), &[]).unwrap();
}

#[test]
fn default_classes_come_newest_first_and_an_unreadable_class_may_be_one() {
    let class = |name: &str, created, default| bindery_core::Class {
        default,
        created,
        ..bindery_kit::class(name, "p", None)
    };
    let store = Store::new();
    for (name, created, default) in [("b", 5, true), ("a", 5, true), ("new", 9, true), ("other", 10, false)] {
        apply(&store, class(name, created, default));
    }
    let defaults = || ask(&store, |cluster| cluster.default_classes());
    assert_eq!(defaults(), Ok(["new", "a", "b"].map(Text::from).to_vec()));
    let change = apply(&store, class("other", 11, false));
    assert_eq!(change.facts, [Fact::Class("other".into())]);
    let change = apply(&store, Object::Class("odd".into(), unreadable("u", 1)));
    assert_eq!(change.facts, [Fact::Class("odd".into()), Fact::DefaultClasses]);
    assert!(defaults().unwrap_err().contains("odd"));
    assert!(gone(&store, ObjectKey::Class("odd".into())).facts.contains(&Fact::DefaultClasses));
}

/// The answer to a question of an engine.
fn ask<T>(store: &Store, question: impl FnOnce(&mut dyn Cluster) -> Result<T, Stop>) -> T {
    let live = LiveReads::default();
    let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
    question(&mut session).expect("the store answers every question from its cache")
}

fn pod(name: &str, claims: &[&str], scheduled: bool) -> ObservedPod {
    let claims = claims.iter().map(|claim| (*claim).into()).collect();
    let content = Ok(PodContent { claims, scheduled, terminated: false });
    ObservedPod { namespace: "ns".into(), name: name.into(), content }
}

#[test]
fn pods_are_found_by_the_claims_that_they_reference() {
    let names = |store: &Store, claim: &str| -> BTreeMap<String, bool> {
        let pods = ask(store, |cluster| cluster.pods(key(claim))).unwrap().into_iter();
        pods.map(|pod| (pod.name.to_string(), pod.scheduled)).collect()
    };
    let store = Store::new();
    apply(&store, pod("p", &["a", "b", "a"], false));
    apply(&store, pod("q", &["b"], true));
    assert!(apply(&store, pod("r", &[], true)).is_empty());
    assert_eq!(names(&store, "b"), BTreeMap::from([("p".to_owned(), false), ("q".to_owned(), true)]));
    let change = apply(&store, pod("p", &["a"], true));
    assert_eq!(change.facts, [Fact::Pods(key("a")), Fact::Pods(key("b"))]);
    assert_eq!(names(&store, "a"), BTreeMap::from([("p".to_owned(), true)]));
    assert!(apply(&store, pod("p", &["a"], true)).is_empty());
    assert_eq!(list(&store, Kind::Pod, [pod("p", &["a"], true)]).facts, [Fact::Pods(key("b"))]);
    assert_eq!(gone(&store, pod_key("p")).facts, [Fact::Pods(key("a"))]);
    assert!(names(&store, "a").is_empty());
}

#[test]
fn a_pod_that_cannot_be_read_may_use_every_claim_of_its_namespace() {
    let broken = |name: &str, why: &str| ObservedPod { content: Err(why.into()), ..pod(name, &[], false) };
    let store = Store::new();
    let using = |claim: &str| ask(&store, |cluster| cluster.pods(key(claim))).map(|pods| pods.len());
    let unknown = |name: &str, why: &str| -> Result<usize, Text> {
        Err(format!("pod \"ns/{name}\" cannot be read, and may use the claim: {why}").into())
    };
    let of_all = || Fact::UnreadablePods("ns".into());
    apply(&store, pod("p", &["a"], true));
    // The pod used the claim before the pod became unreadable.
    let change = apply(&store, broken("p", "spec"));
    assert_eq!(change.facts, [Fact::Pods(key("a")), of_all()]);
    assert_eq!((using("a"), using("b")), (unknown("p", "spec"), unknown("p", "spec")));
    assert_eq!(ask(&store, |cluster| cluster.pods(ClaimKey::new("other", "a"))), Ok(Vec::new()));
    assert!(apply(&store, broken("q", "status")).is_empty());
    assert_eq!(gone(&store, pod_key("p")).facts, [of_all()]);
    assert_eq!(using("a"), unknown("q", "status"));
    // As in a list, and as in a watch once it can be read.
    let listed = [pod("p", &["a"], true), broken("q", "spec")];
    assert_eq!(list(&store, Kind::Pod, listed).facts, [Fact::Pods(key("a")), of_all()]);
    assert_eq!(using("a"), unknown("q", "spec"));
    assert_eq!(apply(&store, pod("q", &["b"], true)).facts, [Fact::Pods(key("b")), of_all()]);
    assert_eq!((using("a"), using("b"), using("c")), (Ok(1), Ok(1), Ok(0)));
}

#[test]
fn claims_are_laid_over_as_volumes_are() {
    let store = Store::new();
    let version = |source| match store.claim(source, &key("c")) {
        Lookup::Found(claim) => claim.version.to_string(),
        other => format!("{other:?}"),
    };
    let at = |version| Arc::new(Claim { deleting: version > 2, ..claim(&key("c"), version) });
    apply(&store, at(1));
    assert!(store.assume_claim(at(3)).fresh);
    assert!(!store.assume_claim(at(2)).fresh);
    assert_eq!((version(Source::Overlay), version(Source::Cache)), ("3".into(), "1".into()));
    assert!(!changes(&apply(&store, at(2)), &Fact::Claim(Source::Overlay, key("c"))));
    apply(&store, at(4));
    assert_eq!((version(Source::Overlay), version(Source::Cache)), ("4".into(), "4".into()));
    let change = list(&store, Kind::Claim, [] as [Object; 0]);
    assert_eq!((change.all_facts().count(), change.objects[0].gone()), (2, Some(&at(4).uid)));
}
