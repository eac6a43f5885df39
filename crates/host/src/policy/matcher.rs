//! Matchers: components of the world `matcher`.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bindery_policy::{Candidates, ClaimView, Fueled, Matcher, Metadata, Narrowing, PolicyFault, Verdicts};
use wasmtime::Store;
use wasmtime::component::{Component, HasSelf, Linker};

use super::carry::{self, Lower as _};
use super::{Loaded, PolicyCall, ROWS_MAX, described};
use crate::Stats;
use crate::load::LoadError;

pub(super) mod bindings {
    #![allow(missing_docs, unreachable_pub, reason = "generated code; wit/ has the documentation")]
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

    wasmtime::component::bindgen!({
        path: "../../wit/0.2",
        world: "matcher",
    });
}

use self::bindings::{MatcherPre, bindery};

/// A matcher in a component. Every call runs in a fresh instance, which is dropped afterwards.
pub struct ComponentMatcher {
    metadata: Metadata,
    loaded: Loaded<MatcherPre<PolicyCall>>,
}

impl bindery::policy::facts::Host for PolicyCall {}

/// Links a component and checks its exports.
pub(super) fn link(
    linker: &mut Linker<PolicyCall>,
    component: &Component,
) -> wasmtime::Result<MatcherPre<PolicyCall>> {
    bindings::Matcher::add_to_linker::<_, HasSelf<PolicyCall>>(linker, |call| call)?;
    MatcherPre::new(linker.instantiate_pre(component)?)
}

impl Loaded<MatcherPre<PolicyCall>> {
    /// Calls a function in a fresh instance.
    fn call<T>(
        &self,
        function: impl FnOnce(&bindings::Matcher, &mut Store<PolicyCall>) -> wasmtime::Result<T>,
    ) -> (Result<T, PolicyFault>, Stats) {
        self.calls.call(|store| function(&self.component.instantiate(&mut *store)?, store))
    }
}

impl ComponentMatcher {
    pub(super) fn new(loaded: Loaded<MatcherPre<PolicyCall>>) -> Result<Self, LoadError> {
        let answer = loaded.call(|matcher, store| matcher.bindery_policy_match_().call_describe(store)).0;
        Ok(Self { metadata: described(answer)?, loaded })
    }

    /// The most that one call has used so far.
    pub(super) fn most(&self) -> Stats {
        *self.loaded.calls.most.lock()
    }

    /// As [`Matcher::judge`], with what the call used; of several calls the sum of the fuel, and the most
    /// of the rest.
    pub fn judge_with_stats(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> (Result<Verdicts, PolicyFault>, Stats) {
        let mut verdicts = Verdicts::default();
        let mut stats = Stats::default();
        for from in (0..candidates.whole.len()).step_by(ROWS_MAX) {
            let rows = from..(from + ROWS_MAX).min(candidates.whole.len());
            let rows = if rows.len() == candidates.whole.len() {
                Cow::Borrowed(candidates)
            } else {
                Cow::Owned(candidates.rows(rows))
            };
            let (answer, used) = self.loaded.call(|matcher, store| {
                let (claim, rows) = (claim.lower(), rows.lower());
                matcher.bindery_policy_match_().call_judge(store, settings, &claim, &rows)
            });
            stats = Stats { fuel: stats.fuel + used.fuel, ..stats.max(&used) };
            let answer = answer.map(Verdicts::from).and_then(|answer| {
                answer.verdicts(&self.metadata, rows.whole.len())?;
                Ok(answer)
            });
            match answer {
                Ok(Verdicts { reasons, scores }) => {
                    verdicts.reasons.extend(reasons);
                    verdicts.scores.extend(scores);
                }
                Err(fault) => return (Err(fault), stats),
            }
        }
        (Ok(verdicts), stats)
    }
}

impl Matcher for ComponentMatcher {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn digest(&self) -> &str {
        &self.loaded.digest
    }

    fn fuel(&self) -> u64 {
        self.loaded.calls.fuel.load(Ordering::Relaxed)
    }

    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault> {
        self.loaded.call(|matcher, store| matcher.bindery_policy_match_().call_check(store, settings)).0
    }

    fn narrow(&self, settings: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
        self.narrow_with_fuel(settings, claim).0
    }

    fn narrow_with_fuel(&self, settings: &str, claim: &ClaimView) -> Fueled<Narrowing> {
        let claim = claim.lower();
        let (answer, used) = self
            .loaded
            .call(|matcher, store| matcher.bindery_policy_match_().call_narrow(store, settings, &claim));
        let narrowing = answer.and_then(carry::narrowing).and_then(|narrowing| {
            narrowing.check(&self.metadata)?;
            Ok(narrowing)
        });
        (narrowing, Some(used.fuel))
    }

    fn judge(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> Result<Verdicts, PolicyFault> {
        self.judge_with_stats(settings, claim, candidates).0
    }

    fn judge_with_fuel(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> Fueled<Verdicts> {
        let (verdicts, used) = self.judge_with_stats(settings, claim, candidates);
        (verdicts, Some(used.fuel))
    }
}
