use bindery_core::{
    Answer, ClaimKey, Cluster, Decision, Engine as _, EngineFault, Question, Request, Stop, Subject,
};
use bindery_kit::{AllowsAll, Scripted, claim, policy};
use bindery_policy::{Chain, MATCH_POLICY, ObjectStatus, RECLAIM_POLICY};
use bindery_sim::{Sim, SimOptions};
use serde_json::{Value, json};

use super::*;
use crate::engine::CacheArgument;
use crate::policies::registry::RegistryModules;
use crate::tests::arguments_of;

fn object(kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "policy.bindery.dev/v1alpha1", "kind": kind,
        "metadata": {"name": "keep", "uid": "u", "generation": 3}, "spec": spec,
    })
}

#[test]
fn a_policy_that_is_off_takes_no_name_from_another_kind() {
    let loaded = |mode: &str| -> LoadedObjects {
        let objects = [(MATCH_POLICY, mode), (RECLAIM_POLICY, "enforce")];
        let objects = objects.map(|(kind, mode)| object(kind, json!({"module": "builtin:m", "mode": mode})));
        objects.into_iter().map(|object| (object_name(&object), LoadedObject::new(object))).collect()
    };
    let name = (RECLAIM_POLICY.to_owned(), "keep".to_owned());
    let taken = ["enforce", "shadow", "off"].map(|mode| is_taken(&name, &Chain::default(), &loaded(mode)));
    assert_eq!(taken, [true, false, false]);
}

#[test]
fn given_a_share_in_the_spec_in_effect_its_shadow_has_it() {
    let loaded = |(name, spec): (&str, Value)| {
        let object = object(MATCH_POLICY, json!({"module": "builtin:m"}));
        let spec = spec.as_object().unwrap().clone();
        let last_good = Some(LastGood { generation: 2, digest: "sha256:0".into(), spec });
        let effect = Effect::Match(policy(name, AllowsAll));
        let loaded = LoadedObject { effect, last_good, ..LoadedObject::new(object) };
        ((MATCH_POLICY.to_owned(), name.to_owned()), loaded)
    };
    let quarter = json!({"mode": "shadow", "samplePercent": 25});
    let objects = [("all", json!({"mode": "shadow"})), ("quarter", quarter)].map(loaded);
    let shadows = shadows(&objects.into(), true);
    assert_eq!(shadows.iter().map(|shadow| shadow.sample_percent).collect::<Vec<_>>(), [100, 25]);
}

#[test]
fn an_object_that_is_being_loaded_keeps_its_earlier_generations() {
    let good = |generation| LastGood { generation, digest: "sha256:0".into(), spec: serde_json::Map::new() };
    let rolled_back = RolledBack { generation: 3, digest: "sha256:1".into() };
    let known = ObjectStatus {
        last_good: Some(good(2)),
        history: vec![good(1)],
        rolled_back: Some(rolled_back.clone()),
        ..ObjectStatus::default()
    };
    let awaiting = LoadedObject::awaiting(object(MATCH_POLICY, json!({"module": "builtin:m"})), None, &known);
    assert_eq!((awaiting.last_good, awaiting.history), (None, vec![good(1)]));
    assert_eq!(awaiting.rolled_back, Some(rolled_back));
}

/// An engine whose calls for claims of these namespaces fail.
fn fails_in(namespaces: &'static [&'static str]) -> Effect {
    let decide = move |request: &Request, _: &mut dyn Cluster| {
        let namespace = request.subject.synced_namespace().unwrap();
        match namespaces.contains(&&*namespace) {
            true => Err(EngineFault::Trapped("unreachable".to_owned())),
            false => Ok(Decision::done()),
        }
    };
    Effect::Engine(Arc::new(ObservedEngine::new(Arc::new(Scripted(decide)))))
}

/// Generation 2 of an engine, whose first calls, for claims of three namespaces, have failed in these.
fn engine_that_failed_in(namespaces: &'static [&'static str]) -> LoadedObject {
    let good = |generation| LastGood { generation, digest: "sha256:0".into(), spec: serde_json::Map::new() };
    let effect = fails_in(namespaces);
    let Effect::Engine(engine) = &effect else { unreachable!() };
    for namespace in ["a", "b", "c"].repeat(5) {
        let claim = claim(ClaimKey { namespace: namespace.into(), name: "c".into() });
        let request = Request { now: 0, subject: Subject::SyncClaim(Arc::new(claim)) };
        // The fault is counted.
        let _ = engine.decide(&request, &mut Unasked);
    }
    let (last_good, history) = (Some(good(2)), vec![good(1)]);
    let new = LoadedObject::new(object(ENGINE, json!({"module": "builtin:e"})));
    LoadedObject { effect, last_good, history, before: Some(fails_in(&[])), ..new }
}

/// A cluster that is asked nothing.
struct Unasked;

impl Cluster for Unasked {
    fn ask(&mut self, _: Question) -> Result<Answer, Stop> {
        Err(Stop::Nonsense("a question"))
    }
}

#[tokio::test]
async fn given_an_engine_that_failed_in_three_namespaces_the_one_before_is_back() {
    let cache: CacheArgument = arguments_of(&[]);
    let hosts = Hosts::new(&cache, &arguments_of(&[]), RegistryModules::offline(&cache)).unwrap();
    let client = kube::Client::new(Sim::new(SimOptions::default()).service(), "default");
    let (objects, _) = PolicyObjects::new(&ApiClient::from(client));
    let known = ObjectStatus::default();
    // A tenant takes back no engine.
    for namespaces in [&["a"][..], &["a", "b"]] {
        assert!(!engine_that_failed_in(namespaces).has_failed(&known), "{namespaces:?}");
    }
    let failed = engine_that_failed_in(&["a", "b", "c"]);
    assert!(failed.has_failed(&known));

    let mut back = failed.clone();
    back.roll_back(&hosts, &objects).await;
    assert_eq!(back.fault.as_ref().map(|fault| fault.cause), Some(Cause::RolledBack));
    assert_eq!(back.rolled_back.as_ref().map(|rolled_back| rolled_back.generation), Some(2));
    assert_eq!(back.last_good.as_ref().map(|good| good.generation), Some(1));
    let before = |loaded: &LoadedObject| match &loaded.effect {
        Effect::Engine(engine) => Some(engine.calls.get()),
        _ => None,
    };
    assert_eq!((before(&failed), before(&back)), (Some(15), Some(0)));
    assert!(!back.has_failed(&known), "it is taken back once");

    // The first one gives way to the engine of the settings.
    let mut alone = LoadedObject { history: Vec::new(), before: None, ..failed };
    assert!(alone.has_failed(&known));
    alone.roll_back(&hosts, &objects).await;
    assert!(matches!(alone.effect, Effect::None) && alone.last_good.is_none());
    assert_eq!(alone.fault.map(|fault| fault.cause), Some(Cause::RolledBack));
}
