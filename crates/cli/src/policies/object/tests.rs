use bindery_core::{
    Answer, ClaimKey, Cluster, Decision, Engine as _, EngineFault, Question, Request, Stop, Subject,
};
use bindery_kit::{AllowsAll, Scripted, claim, keeps_labelled, policy, reclaim_rule};
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

/// The namespaces of the first calls.
const CALLED: [&str; 3] = ["a", "b", "c"];

/// Generation 2 of an object, which has put the first of these into effect in place of the second.
fn second_generation(kind: &str, [effect, before]: [Effect; 2]) -> LoadedObject {
    let good = |generation| LastGood { generation, digest: "sha256:0".into(), spec: serde_json::Map::new() };
    let (last_good, history) = (Some(good(2)), vec![good(1)]);
    let new = LoadedObject::new(object(kind, json!({"module": "builtin:m"})));
    LoadedObject { effect, last_good, history, before: Some(before), ..new }
}

/// An engine whose first calls have failed in these namespaces.
fn engine_that_failed_in(namespaces: &'static [&'static str]) -> LoadedObject {
    let effect = fails_in(namespaces);
    let Effect::Engine(engine) = &effect else { unreachable!() };
    for namespace in CALLED.repeat(5) {
        let claim = claim(ClaimKey { namespace: namespace.into(), name: "c".into() });
        let request = Request { now: 0, subject: Subject::SyncClaim(Arc::new(claim)) };
        // The fault is counted.
        let _ = engine.decide(&request, &mut Unasked);
    }
    second_generation(ENGINE, [effect, fails_in(&[])])
}

/// A reclaimer whose first calls have failed in these namespaces.
fn reclaimer_that_failed_in(namespaces: &'static [&'static str]) -> LoadedObject {
    let [failed, before] = [(); 2].map(|()| reclaim_rule("keep", keeps_labelled()));
    for namespace in CALLED.repeat(5) {
        failed.metrics.calls.inc();
        failed.metrics.probation.record(&namespace.into(), namespaces.contains(&namespace));
    }
    second_generation(RECLAIM_POLICY, [failed, before].map(Effect::Reclaim))
}

/// A cluster that is asked nothing.
struct Unasked;

impl Cluster for Unasked {
    fn ask(&mut self, _: Question) -> Result<Answer, Stop> {
        Err(Stop::Nonsense("a question"))
    }
}

#[tokio::test]
async fn given_failures_in_three_namespaces_the_generation_before_is_back() {
    let cache: CacheArgument = arguments_of(&[]);
    let hosts = Hosts::new(&cache, &arguments_of(&[]), RegistryModules::offline(&cache)).unwrap();
    let client = kube::Client::new(Sim::new(SimOptions::default()).service(), "default");
    let (objects, _) = PolicyObjects::new(&ApiClient::from(client));
    let known = ObjectStatus::default();
    let calls = |loaded: &LoadedObject| match &loaded.effect {
        Effect::Engine(engine) => Some(engine.calls.get()),
        Effect::Reclaim(rule) => Some(rule.metrics.calls.get()),
        Effect::Match(_) | Effect::None => None,
    };
    for failed_in in [engine_that_failed_in, reclaimer_that_failed_in] {
        // A tenant takes nothing back.
        for namespaces in [&["a"][..], &["a", "b"]] {
            assert!(!failed_in(namespaces).has_failed(&known), "{namespaces:?}");
        }
        let failed = failed_in(&CALLED);
        assert!(failed.has_failed(&known));

        let mut back = failed.clone();
        back.roll_back(&hosts, &objects).await;
        assert_eq!(back.fault.as_ref().map(|fault| fault.cause), Some(Cause::RolledBack));
        assert_eq!(back.rolled_back.as_ref().map(|rolled_back| rolled_back.generation), Some(2));
        assert_eq!(back.last_good.as_ref().map(|good| good.generation), Some(1));
        assert_eq!((calls(&failed), calls(&back)), (Some(15), Some(0)));
        assert!(!back.has_failed(&known), "it is taken back once");
    }

    // The first engine gives way to that of the settings. Without a reclaimer all volumes would wait.
    let alone = |failed| LoadedObject { history: Vec::new(), before: None, ..failed };
    assert!(!alone(reclaimer_that_failed_in(&CALLED)).has_failed(&known));
    let mut engine = alone(engine_that_failed_in(&CALLED));
    assert!(engine.has_failed(&known));
    engine.roll_back(&hosts, &objects).await;
    assert!(matches!(engine.effect, Effect::None) && engine.last_good.is_none());
    assert_eq!(engine.fault.map(|fault| fault.cause), Some(Cause::RolledBack));
}
