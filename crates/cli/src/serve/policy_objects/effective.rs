//! The condition `Effective`: whether an object takes part in decisions.

use std::sync::Arc;

use bindery_core::{BindingMode, Claim, Lookup, Volume, named_cases};
use bindery_policy::{
    Chain, ENGINE, FormerClaim, ObjectStatus, Policy, RECLAIM_POLICY, ReclaimRule, RelatedObjects,
};
use bindery_store::Store;
use tokio::task::block_in_place;

use super::super::mode::ModeArgument;
use super::ConfiguredObjects;
use super::status::Told;
use crate::policies::object::{Effect, LoadedObject, ObjectName, TAKEN, is_taken};

/// What an object in mode `shadow` does.
const IN_SHADOW: &str = "it decides beside what is in effect, and nothing of it is carried out: \
                         status.shadow and `bindery diff` show what it would change";

named_cases! {
    /// What an object in effect reaches; its name is the reason of the condition.
    Reach {
        /// Decisions.
        Enforced = "Enforced";
        /// Only claims whose volumes the scheduler chooses.
        WaitsForConsumer = "WaitsForConsumer";
        /// None of the claims or volumes in the cluster.
        NothingMatches = "NothingMatches";
    }
}

impl Reach {
    fn message(self, kind: &str, mode: ModeArgument) -> &'static str {
        match self {
            Self::Enforced => "it takes part in every decision that it matches",
            Self::WaitsForConsumer => {
                "the classes of what it matches wait for a consumer, and it matches no steered claim: the \
                 scheduler chooses these volumes, and knows no policy"
            }
            Self::NothingMatches if kind == RECLAIM_POLICY => "it matches no volume that a claim has or had",
            Self::NothingMatches if mode == ModeArgument::Steer => "it matches no steered claim",
            Self::NothingMatches => "it matches no claim",
        }
    }

    /// What a policy reaches of these claims.
    fn of_claims(policy: &Policy, store: &Store, mode: ModeArgument) -> Self {
        let classes = &policy.matches.classes;
        let all_wait = !classes.is_empty() && classes.iter().all(|class| waits(store, class));
        if mode == ModeArgument::Own && !all_wait && policy.metrics.calls.get() > 0 {
            return Self::Enforced;
        }
        let mut reach = if all_wait { Self::WaitsForConsumer } else { Self::NothingMatches };
        for claim in store.claims().iter().filter(|claim| applies(policy, claim, store)) {
            let is_waiting = waits(store, claim.class_or_empty());
            if claim.steered || mode == ModeArgument::Own && !is_waiting {
                return Self::Enforced;
            }
            if is_waiting {
                reach = Self::WaitsForConsumer;
            }
        }
        reach
    }

    /// What a reclaimer reaches of these volumes: those that have a claim, or had one.
    fn of_volumes(rule: &ReclaimRule, store: &Store) -> Self {
        let chain = Chain::default().with_reclaimers(vec![rule.clone()]);
        let applies = |volume: &Arc<Volume>| may_apply(&chain, rule, volume, store);
        let reaches = rule.metrics.calls.get() > 0 || store.volumes().iter().any(applies);
        if reaches { Self::Enforced } else { Self::NothingMatches }
    }
}

/// Whether the scheduler chooses the volumes of the claims of a class.
fn waits(store: &Store, class: &str) -> bool {
    let mode = Some(BindingMode::WaitForFirstConsumer);
    matches!(store.class(class), Lookup::Found(class) if class.binding_mode == mode)
}

/// Whether a policy applies to a claim, or may.
fn applies(policy: &Policy, claim: &Claim, store: &Store) -> bool {
    let applies = |related: &RelatedObjects<'_>| policy.applies(claim, related).unwrap_or(true);
    policy.matches.has_class(claim.class_or_empty()) && RelatedObjects::of(claim, store, applies)
}

/// Whether a reclaimer, the one of the chain, applies to a volume that has a claim or had one, or may.
fn may_apply(chain: &Chain, rule: &ReclaimRule, volume: &Volume, store: &Store) -> bool {
    let last = || FormerClaim::of_volume(chain, volume, store);
    volume.claim_ref.is_some()
        && rule.matches.has_class(&volume.class)
        && rule.applies(volume, last().as_ref()) != Some(false)
}

impl ConfiguredObjects {
    /// Whether an object takes part in decisions. What it matches is looked at when it comes into effect, and
    /// at ticks if the cluster has changed; otherwise that stays as it is known.
    pub(super) fn effective(
        &self,
        name: &ObjectName,
        loaded: &LoadedObject,
        known: &ObjectStatus,
        store: &Store,
        is_tick: bool,
    ) -> Told {
        if let Some((reason, message)) = self.has_no_effect(name, loaded) {
            return Told { kind: "Effective", status: "False", reason, message: message.to_owned() };
        }
        let generation = loaded.object["metadata"]["generation"].as_i64();
        let known =
            known.condition("Effective").filter(|known| Some(known.observed_generation) == generation);
        let known = known.and_then(|known| Reach::ALL.into_iter().find(|it| *it.name() == *known.reason));
        let has_changed = is_tick && self.looked_at != Some(store.revision());
        let reach = known.filter(|_| !has_changed).unwrap_or_else(|| {
            // There may be a hundred thousand.
            block_in_place(|| match &loaded.effect {
                Effect::Match(policy) => Reach::of_claims(policy, store, self.mode),
                Effect::Reclaim(rule) => Reach::of_volumes(rule, store),
                Effect::Engine(_) | Effect::None => Reach::Enforced,
            })
        });
        let status = if reach == Reach::Enforced { "True" } else { "False" };
        let message = reach.message(&name.0, self.mode).to_owned();
        Told { kind: "Effective", status, reason: reach.name(), message }
    }

    /// Why an object has no effect, whatever it matches.
    fn has_no_effect(
        &self,
        name: &ObjectName,
        loaded: &LoadedObject,
    ) -> Option<(&'static str, &'static str)> {
        let is_reclaimer = name.0 == RECLAIM_POLICY;
        let is_other = || self.engine().is_some_and(|(active, _)| active != name);
        Some(if loaded.is_off() {
            ("Off", "spec.mode is off")
        } else if is_reclaimer && self.mode == ModeArgument::Steer {
            ("Steer", "upstream reclaims volumes in mode steer")
        } else if name.0 == ENGINE && !loaded.is_shadow() && is_other() {
            ("AnotherEngine", "another Engine is in effect: turn that one off")
        } else if is_taken(name, &self.base.policies, &self.loaded) {
            ("NameTaken", TAKEN)
        } else if loaded.last_good.is_none() {
            ("NotReady", "no generation of it is loaded")
        } else if loaded.is_shadow() {
            ("Shadow", IN_SHADOW)
        } else if is_reclaimer && !self.deciding().asks_reclaimers() {
            (
                "Engine01",
                "the engine in effect is made for contract 0.1, and asks no reclaimer: apply a newer one",
            )
        } else {
            return None;
        })
    }
}

#[cfg(test)]
mod tests {
    use bindery_engine::DefaultEngine;
    use bindery_kube::ApiClient;
    use bindery_policy::MATCH_POLICY;
    use bindery_sim::{Sim, SimOptions};
    use serde_json::json;

    use super::super::Components;
    use super::*;
    use crate::tests::arguments_of;

    #[tokio::test]
    async fn given_an_object_without_effect_its_condition_says_why() {
        let client = ApiClient::from(kube::Client::new(Sim::new(SimOptions::default()).service(), "default"));
        for (mode, kind, spec, expected) in [
            ("own", MATCH_POLICY, json!({"mode": "off"}), "Off"),
            ("own", MATCH_POLICY, json!({}), "NotReady"),
            ("own", RECLAIM_POLICY, json!({}), "NotReady"),
            ("steer", RECLAIM_POLICY, json!({}), "Steer"),
        ] {
            let arguments = Arc::new(arguments_of(&["--identity=me", "--mode", mode]));
            let (policies, shadows) = Default::default();
            let base = Components { engine: Arc::new(DefaultEngine), policies, shadows };
            let (objects, _) = ConfiguredObjects::new(&arguments, &client, base).unwrap();
            let loaded = LoadedObject::new(json!({"kind": kind, "spec": spec}));
            let told = objects.has_no_effect(&(kind.to_owned(), "m".to_owned()), &loaded);
            assert_eq!(told.map(|(reason, _)| reason), Some(expected), "{mode} {kind}");
        }
    }
}
