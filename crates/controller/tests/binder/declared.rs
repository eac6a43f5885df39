//! Facts that policies declare: a change wakes the claims that it is about.

use std::sync::Arc;
use std::time::Duration;

use bindery_core::{BindingMode, Claim, ClaimFact, Class, Facts, Requirement, SelectorOperator, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::{Fails, SameZone, ZONE, class, policy};
use bindery_policy::{
    Candidates, ClaimView, Matcher, Matches, Metadata, Narrowing, Policy, PolicyFault, Verdicts,
};
use bindery_store::{Delivery, Object};
use tokio::time::Instant;

use crate::double::{claim, holding, volume};
use crate::operating::run_during;
use crate::policies::{binder, bound_to, in_zone};

#[tokio::test(start_paused = true)]
async fn a_changed_label_of_its_namespace_wakes_a_claim() {
    let (operator, values) = (SelectorOperator::In, vec!["database".into()]);
    let namespace = vec![Requirement { key: "team".into(), operator, values }];
    let matches = Matches { namespace, ..Matches::default() };
    let double = holding([], [claim("c")]);
    let policies = vec![Policy { matches, ..policy("fails", Fails) }];
    let binder = binder(&double, DefaultEngine, policies);
    let label = |team: &str| {
        let labels = Arc::new([("team".into(), team.into())].into());
        binder.intake().deliver(Delivery::applied(Object::Namespace("ns".into(), labels)));
    };
    label("web");
    run_during(&binder, async {
        double.rest().await;
        assert_eq!(double.reasons(), ["FailedBinding"]);
        let begin = Instant::now();
        label("database");
        double.until("the policy fails", || double.reasons() == ["FailedBinding", "PolicyFailed"]).await;
        // By the virtual clock: the claim waited for no timer.
        assert!(begin.elapsed() <= Duration::from_millis(5), "{:?}", begin.elapsed());
    })
    .await;
}

/// Requires the zone that a fact of the claim names.
struct ZoneOf(Metadata);

impl Matcher for ZoneOf {
    fn metadata(&self) -> &Metadata {
        &self.0
    }

    fn digest(&self) -> &str {
        "zone of"
    }

    fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
        Ok(Ok(()))
    }

    fn narrow(&self, settings: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
        SameZone.narrow(settings, claim)
    }

    fn judge(&self, _: &str, _: &ClaimView, _: &Candidates) -> Result<Verdicts, PolicyFault> {
        panic!("it only narrows")
    }
}

#[tokio::test(start_paused = true)]
async fn each_declared_fact_of_a_claim_wakes_it_when_it_changes() {
    let zone = || bindery_core::Text::from(ZONE);
    for fact in [
        ClaimFact::Label(zone()),
        ClaimFact::Annotation(zone()),
        ClaimFact::OwnerName,
        ClaimFact::NamespaceLabel(zone()),
        ClaimFact::ClassParameter(zone()),
    ] {
        let has = |value: &str| [(fact.clone(), value.into())].into_iter().collect::<Facts<ClaimFact>>();
        let double = holding(
            [in_zone(Volume { class: "c".into(), ..volume("v") }, "b")],
            [Claim { class: Some("c".into()), facts: has("a"), ..claim("c") }],
        );
        let metadata = Metadata { claim_facts: vec![fact.clone()], ..SameZone.metadata().clone() };
        let binder = binder(&double, DefaultEngine, vec![policy("zone", ZoneOf(metadata))]);
        double.watch(binder.intake(), Duration::ZERO);
        let tell = |value: &str| match &fact {
            ClaimFact::NamespaceLabel(key) => {
                let labels = Arc::new([(key.clone(), value.into())].into());
                binder.intake().deliver(Delivery::applied(Object::Namespace("ns".into(), labels)));
            }
            ClaimFact::ClassParameter(_) => {
                let class = class("c", "nobody", Some(BindingMode::Immediate));
                binder.intake().deliver(Delivery::applied(Class { parameters: has(value), ..class }));
            }
            _ => double.change(|objects| {
                let old = objects.claims.values().next().expect("there is one").clone();
                objects.put_claim(Claim { facts: has(value), ..Claim::clone(&old) });
            }),
        };
        tell("a");
        run_during(&binder, async {
            double.rest().await;
            assert_eq!(bound_to(&binder, "c"), None, "{fact:?}");
            let begin = Instant::now();
            tell("b");
            double.until("c is bound", || bound_to(&binder, "c").as_deref() == Some("v")).await;
            // By the virtual clock: the claim waited for no timer.
            assert!(begin.elapsed() <= Duration::from_millis(5), "{fact:?}: {:?}", begin.elapsed());
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_the_labels_of_its_namespace_that_a_policy_reads() {
    let metadata =
        Metadata { claim_facts: vec![ClaimFact::NamespaceLabel(ZONE.into())], ..SameZone.metadata().clone() };
    let double = holding([in_zone(volume("v"), "b")], [claim("c")]);
    let binder = binder(&double, DefaultEngine, vec![policy("zone", ZoneOf(metadata))]);
    double.watch(binder.intake(), Duration::ZERO);
    run_during(&binder, async {
        // Then the next try by itself is seconds away.
        double.until("it waits", || binder.metrics().sync_errors.get() >= 12).await;
        let message = &double.messages()[0];
        assert!(message.contains("the labels of namespace ns: it is not known yet"), "{message}");
        let begin = Instant::now();
        let labels = Arc::new([(ZONE.into(), "b".into())].into());
        binder.intake().deliver(Delivery::applied(Object::Namespace("ns".into(), labels)));
        double.until("c is bound", || bound_to(&binder, "c").as_deref() == Some("v")).await;
        assert!(begin.elapsed() <= Duration::from_millis(5), "{:?}", begin.elapsed());
    })
    .await;
}
