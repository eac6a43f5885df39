//! The world of engines in one version of the contract: questions and decisions. This file is compiled with
//! the bindings of each version, which name the same types alike.

use bindery_core::guard::{FINDINGS_MAX, STEPS_MAX, TALLIES_MAX};
use bindery_core::{Decision, NEAREST_MAX, Request, Stop, Subject, Timestamp};
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};
use wasmtime::{Error, Result, Store, bail};

use super::bindings::bindery::policy::{actions, cluster, types};
use super::bindings::exports::bindery::policy::decide;
use super::carry::decisions::lower_progress;
use super::carry::{Carry, IllTyped};
use super::{INTERFACE, bindings};
use crate::call::Call;
use crate::contract::Decided;
use crate::contract::function::Function;

/// An engine of this version, ready to be instantiated.
pub(crate) struct Prepared {
    component: InstancePre<Call>,
    sync_claim: Function<(Timestamp, types::Claim), actions::Decision>,
    sync_volume: Function<(Timestamp, types::Volume), actions::Decision>,
    sync_operation: Function<(Timestamp, decide::Progress), actions::Decision>,
    review_claim: Function<(Timestamp, types::Claim, Option<types::Claim>), actions::Decision>,
    review_volume: Function<(Timestamp, types::Volume, Option<types::Volume>), actions::Decision>,
}

impl Prepared {
    /// Links the imports of an engine, and checks its exports with their types.
    pub(crate) fn new(component: &Component) -> Result<Self> {
        let mut linker = Linker::new(component.engine());
        bindings::Engine::add_to_linker::<_, HasSelf<Call>>(&mut linker, |call| call)?;
        let component = linker.instantiate_pre(component)?;
        let Some(interface) = component.component().get_export_index(None, INTERFACE) else {
            bail!("it exports no {INTERFACE}");
        };
        Ok(Self {
            sync_claim: Function::of(&component, &interface, "sync-claim")?,
            sync_volume: Function::of(&component, &interface, "sync-volume")?,
            sync_operation: Function::of(&component, &interface, "sync-operation")?,
            review_claim: Function::of(&component, &interface, "review-claim")?,
            review_volume: Function::of(&component, &interface, "review-volume")?,
            component,
        })
    }

    /// Instantiates the engine in `store` and has it decide.
    pub(crate) fn decide(&self, store: &mut Store<Call>, request: &Request) -> Result<Decided> {
        let engine = self.component.instantiate(&mut *store)?;
        let now = request.now;
        let decision = match &request.subject {
            Subject::SyncClaim(claim) => self.sync_claim.call(store, &engine, (now, claim.lower())),
            Subject::SyncVolume(volume) => self.sync_volume.call(store, &engine, (now, volume.lower())),
            Subject::SyncClaimOperation(progress) => {
                let object = decide::Operated::Claim(progress.object.lower());
                self.sync_operation.call(store, &engine, (now, lower_progress(progress, object)))
            }
            Subject::SyncVolumeOperation(progress) => {
                let object = decide::Operated::Volume(progress.object.lower());
                self.sync_operation.call(store, &engine, (now, lower_progress(progress, object)))
            }
            Subject::ReviewClaim { new, old } => {
                self.review_claim.call(store, &engine, (now, new.lower(), old.lower()))
            }
            Subject::ReviewVolume { new, old } => {
                self.review_volume.call(store, &engine, (now, new.lower(), old.lower()))
            }
        }?;
        Ok(check_size(&decision)
            .and_then(|()| Decision::lift(decision).map_err(|IllTyped(what)| format!("it has {what}"))))
    }
}

/// Bounds the lists of a decision before they are converted; the guard, which sees decisions of native
/// engines too, has the same bounds.
pub(super) fn check_size(decision: &actions::Decision) -> std::result::Result<(), String> {
    let nearest = decision.tallies.iter().map(|tally| tally.nearest.len()).max().unwrap_or_default();
    for (found, max, what) in [
        (decision.steps.len(), STEPS_MAX, "steps"),
        (decision.tallies.len(), TALLIES_MAX, "tallies"),
        (decision.findings.len(), FINDINGS_MAX, "findings"),
        (nearest, NEAREST_MAX, "nearest volumes in a tally"),
    ] {
        if found > max {
            return Err(format!("it has {found} {what}; the limit is {max}"));
        }
    }
    Ok(())
}

/// An answer in the contract's types; a stop ends the call.
fn answer<T: Carry>(answer: std::result::Result<T, Stop>) -> Result<T::Wit> {
    answer.map(|answer| answer.lower()).map_err(Error::new)
}

/// An argument in core's types; an invalid one ends the call.
fn argument<T: Carry>(wit: T::Wit) -> Result<T> {
    T::lift(wit).map_err(|IllTyped(what)| Error::new(Stop::Nonsense(what)))
}

impl types::Host for Call {}
impl bindings::bindery::policy::events::Host for Call {}
impl actions::Host for Call {}

impl cluster::Host for Call {
    fn get_claim(&mut self, source: cluster::Source, key: types::ClaimKey) -> Result<cluster::ClaimLookup> {
        answer(self.cluster().claim(argument(source)?, argument(key)?))
    }

    fn get_volume(&mut self, source: cluster::Source, name: String) -> Result<cluster::VolumeLookup> {
        answer(self.cluster().volume(argument(source)?, argument(name)?))
    }

    fn list_pods(&mut self, key: types::ClaimKey) -> Result<std::result::Result<Vec<cluster::Pod>, String>> {
        answer(self.cluster().pods(argument(key)?))
    }

    fn get_node(&mut self, name: String) -> Result<cluster::NodeLookup> {
        answer(self.cluster().node(argument(name)?))
    }

    fn get_class(&mut self, name: String) -> Result<cluster::ClassLookup> {
        answer(self.cluster().class(argument(name)?))
    }

    fn list_default_classes(&mut self) -> Result<std::result::Result<Vec<String>, String>> {
        answer(self.cluster().default_classes())
    }

    fn get_plugin(&mut self, name: String) -> Result<Option<cluster::Plugin>> {
        answer(self.cluster().plugin(argument(name)?))
    }

    fn match_plugin(&mut self, volume: String) -> Result<cluster::PluginMatch> {
        answer(self.cluster().plugin_for_volume(argument(volume)?))
    }

    fn check_plugin(
        &mut self,
        name: String,
        operation: types::PluginOperation,
    ) -> Result<std::result::Result<(), String>> {
        answer(self.cluster().plugin_ready(argument(name)?, argument(operation)?))
    }

    fn get_migration(&mut self, plugin: String) -> Result<cluster::Migration> {
        answer(self.cluster().migration(argument(plugin)?))
    }

    fn has_dynamic_provisioning(&mut self) -> Result<bool> {
        answer(self.cluster().dynamic_provisioning())
    }

    fn get_operation_state(
        &mut self,
        kind: types::OperationKind,
        uid: String,
    ) -> Result<cluster::OperationState> {
        answer(self.cluster().operation(argument(kind)?, argument(uid)?))
    }

    fn list_access_sets(&mut self, containing: u32) -> Result<Vec<u32>> {
        answer(self.cluster().access_sets(argument(containing)?))
    }

    fn list_candidates(
        &mut self,
        query: cluster::Query,
        after: Option<u32>,
        limit: u32,
    ) -> Result<cluster::Page> {
        answer(self.cluster().candidates(argument(query)?, argument(after)?, limit))
    }

    fn list_reserved(&mut self, key: types::ClaimKey, uid: String) -> Result<Vec<u32>> {
        answer(self.cluster().reserved_for(argument(key)?, argument(uid)?))
    }

    fn identify(&mut self, handle: u32) -> Result<types::VolumeTarget> {
        answer(self.cluster().identify(argument(handle)?))
    }

    fn describe(&mut self, handle: u32) -> Result<types::Volume> {
        answer(self.cluster().describe(argument(handle)?))
    }

    fn list_tallies(&mut self, query: cluster::Query) -> Result<Vec<types::Tally>> {
        answer(self.cluster().tallies(argument(query)?))
    }

    since_0_2! {
        {
            fn get_verdict(&mut self, volume: String) -> Result<cluster::Verdict> {
                answer(self.cluster().verdict(argument(volume)?))
            }

            fn get_reclaim(&mut self, volume: String) -> Result<cluster::ReclaimVerdict> {
                answer(self.cluster().reclaim(argument(volume)?))
            }
        } else {}
    }
}
