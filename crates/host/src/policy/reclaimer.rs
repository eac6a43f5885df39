//! Reclaimers: components of the world `reclaimer`.

use std::sync::atomic::Ordering;

use bindery_policy::{Fueled, Judged, Metadata, PolicyFault, Reclaimer, Released};
use wasmtime::Store;
use wasmtime::component::{Component, HasSelf, Linker};

use super::carry::Lower as _;
use super::{Loaded, PolicyCall, described};
use crate::Stats;
use crate::load::LoadError;

pub(super) mod bindings {
    #![allow(missing_docs, unreachable_pub, reason = "generated code; wit/ has the documentation")]
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

    wasmtime::component::bindgen!({
        path: "../../wit/0.2",
        world: "reclaimer",
        with: { "bindery:policy/facts": super::super::matcher::bindings::bindery::policy::facts },
    });
}

use self::bindings::ReclaimerPre;

/// A reclaimer in a component. Every call runs in a fresh instance, which is dropped afterwards.
pub struct ComponentReclaimer {
    metadata: Metadata,
    loaded: Loaded<ReclaimerPre<PolicyCall>>,
}

/// Links a component and checks its exports.
pub(super) fn link(
    linker: &mut Linker<PolicyCall>,
    component: &Component,
) -> wasmtime::Result<ReclaimerPre<PolicyCall>> {
    bindings::Reclaimer::add_to_linker::<_, HasSelf<PolicyCall>>(linker, |call| call)?;
    ReclaimerPre::new(linker.instantiate_pre(component)?)
}

impl Loaded<ReclaimerPre<PolicyCall>> {
    /// Calls a function in a fresh instance.
    fn call<T>(
        &self,
        function: impl FnOnce(&bindings::Reclaimer, &mut Store<PolicyCall>) -> wasmtime::Result<T>,
    ) -> (Result<T, PolicyFault>, Stats) {
        self.calls.call(|store| function(&self.component.instantiate(&mut *store)?, store))
    }
}

impl ComponentReclaimer {
    pub(super) fn new(loaded: Loaded<ReclaimerPre<PolicyCall>>) -> Result<Self, LoadError> {
        let answer =
            loaded.call(|reclaimer, store| reclaimer.bindery_policy_reclaim().call_describe(store)).0;
        let metadata = described(answer)?;
        if metadata.spread.is_some() || metadata.scores {
            let why = "a reclaimer declares no spread and does not score";
            return Err(LoadError::Metadata(why.to_owned()));
        }
        Ok(Self { metadata, loaded })
    }

    /// The most that one call has used so far.
    pub(super) fn most(&self) -> Stats {
        *self.loaded.calls.most.lock()
    }
}

impl Reclaimer for ComponentReclaimer {
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
        self.loaded.call(|reclaimer, store| reclaimer.bindery_policy_reclaim().call_check(store, settings)).0
    }

    fn judge(&self, settings: &str, shown: &Released) -> Result<Judged, PolicyFault> {
        self.judge_with_fuel(settings, shown).0
    }

    fn judge_with_fuel(&self, settings: &str, shown: &Released) -> Fueled<Judged> {
        let (volume, claim) = shown.lower();
        let (answer, used) = self.loaded.call(|reclaimer, store| {
            reclaimer.bindery_policy_reclaim().call_judge(store, settings, &volume, claim.as_ref())
        });
        let judged = answer.and_then(|answer| Judged::from(answer).check(&self.metadata));
        (judged, Some(used.fuel))
    }
}
