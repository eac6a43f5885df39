//! Version 0.1 of the contract: bindings, questions and decisions.

mod function;

use bindery_core::guard::{FINDINGS_MAX, STEPS_MAX, TALLIES_MAX};
use bindery_core::{Cluster, Decision, NEAREST_MAX, Request, Stop, Subject, Timestamp};
use wasmtime::component::{HasSelf, InstancePre, Linker};
use wasmtime::{Error, Result, Store, bail};

use self::bindings::bindery::policy::{actions, cluster, types};
use self::bindings::exports::bindery::policy::decide;
use self::carry::decisions::lower_progress;
use self::carry::{Carry, IllTyped};
use self::function::Function;
use crate::call::Call;

mod bindings {
    #![allow(missing_docs, unreachable_pub, reason = "generated code; wit/ has the documentation")]
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

    wasmtime::component::bindgen!({
        path: "../../wit/0.1",
        world: "engine",
        imports: { default: trappable },
    });
}

// The same file as in the component: see there.
#[cfg_attr(not(test), expect(dead_code, reason = "the component's half of the progress of an operation"))]
#[path = "../../component/src/carry.rs"]
mod carry;

/// An engine of this version, ready to be instantiated.
pub(crate) struct Prepared {
    component: InstancePre<Call>,
    sync_claim: Function<(Timestamp, types::Claim), actions::Decision>,
    sync_volume: Function<(Timestamp, types::Volume), actions::Decision>,
    sync_operation: Function<(Timestamp, decide::Progress), actions::Decision>,
    review_claim: Function<(Timestamp, types::Claim, Option<types::Claim>), actions::Decision>,
    review_volume: Function<(Timestamp, types::Volume, Option<types::Volume>), actions::Decision>,
}

/// The interface that an engine exports. wasmtime finds later patch versions under this name too.
const INTERFACE: &str = "bindery:policy/decide@0.1.0";

/// A decision, or what is wrong with the answer.
pub(crate) type Decided = std::result::Result<Decision, String>;

/// Links the imports of an engine of this version.
pub(crate) fn offer(linker: &mut Linker<Call>) -> Result<()> {
    bindings::Engine::add_to_linker::<_, HasSelf<Call>>(linker, |call| call)
}

impl Prepared {
    /// Checks the exports, with their types.
    pub(crate) fn new(component: InstancePre<Call>) -> Result<Self> {
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
fn check_size(decision: &actions::Decision) -> std::result::Result<(), String> {
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

impl Call {
    fn cluster(&mut self) -> &mut dyn Cluster {
        self
    }
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
}

#[cfg(test)]
#[path = "../../../tests/random.rs"]
mod random;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::Arc;

    use bindery_core::{
        AccessModes, Action, Claim, ClaimKey, Class, Event, Finding, Lookup, Migration, OperationState,
        Outcome, Page, Plugin, PluginMatch, Pod, Progress, Quantity, Query, Reason, Step, Tally, Text,
        Volume, VolumeTarget,
    };

    use super::carry::decisions::lift_progress;
    use super::random::{Random, Sample};
    use super::*;

    /// Values per type; each has its number as its seed.
    const VALUES: u64 = 2_000;

    /// Compared as printed, because quantities in different notations are equal.
    fn crosses<T: Carry + Sample + Debug>() {
        for seed in 0..VALUES {
            let value: T = Random(seed).value();
            let back = T::lift(value.lower()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{value:?}"), "seed {seed}");
        }
    }

    #[test]
    fn values_survive_the_round_trip_through_the_contract() {
        crosses::<Arc<Claim>>();
        crosses::<Lookup<Arc<Volume>>>();
        crosses::<Lookup<Arc<Claim>>>();
        crosses::<Lookup<Arc<Class>>>();
        crosses::<Lookup<()>>();
        crosses::<std::result::Result<Vec<Pod>, Text>>();
        crosses::<std::result::Result<Vec<Text>, Text>>();
        crosses::<std::result::Result<(), Text>>();
        crosses::<Option<Plugin>>();
        crosses::<PluginMatch>();
        crosses::<Migration>();
        crosses::<OperationState>();
        crosses::<Page>();
        crosses::<VolumeTarget>();
        crosses::<Vec<Tally>>();
        crosses::<Query>();
        crosses::<Event>();
        crosses::<Decision>();
    }

    #[test]
    fn operations_survive_the_round_trip_with_their_objects() {
        for seed in 0..VALUES {
            let progress: Progress<Claim> = Random(seed).value();
            let object = decide::Operated::Claim(progress.object.lower());
            let back = lift_progress(lower_progress(&progress, object)).unwrap();
            assert_eq!(
                format!("{back:?}"),
                format!("{:?}", Subject::SyncClaimOperation(progress)),
                "seed {seed}"
            );
            let progress: Progress<Volume> = Random(seed).value();
            let object = decide::Operated::Volume(progress.object.lower());
            let back = lift_progress(lower_progress(&progress, object)).unwrap();
            assert_eq!(
                format!("{back:?}"),
                format!("{:?}", Subject::SyncVolumeOperation(progress)),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn labels_and_foreign_finalizers_stay_on_the_host() {
        let volume: Volume = Random(1).value();
        let mut full = volume.clone();
        full.labels.insert("tier".into(), "gold".into());
        full.finalizers.push("kubernetes.io/pv-protection".into());
        assert_eq!(Volume::lift(full.lower()), Ok(volume));
    }

    #[test]
    fn invalid_quantities_and_access_modes_are_refused() {
        let quantity =
            types::Quantity { whole: 1, nanos: 1_000_000_000, format: types::QuantityFormat::BinarySi };
        assert!(Quantity::lift(quantity).is_err());
        assert!(AccessModes::lift(16).is_err());
    }

    #[test]
    fn a_decision_may_be_as_large_as_each_bound_and_no_larger() {
        let decision = |steps: usize, tallies: usize, nearest: usize, findings: usize| {
            let step = Step::from(Action::EnqueueClaim(ClaimKey::new("default", "data")));
            let tally = Tally { reason: Reason::TooSmall, count: 20, nearest: vec!["v".into(); nearest] };
            let finding: Finding = Random(1).value();
            let mut decision = Decision::new(vec![step; steps], Outcome::Done);
            decision.tallies = vec![tally; tallies];
            decision.findings = vec![finding; findings];
            check_size(&decision.lower())
        };
        let (steps, tallies, nearest, findings) = (STEPS_MAX, TALLIES_MAX, NEAREST_MAX, FINDINGS_MAX);
        assert_eq!(decision(steps, tallies, nearest, findings), Ok(()));
        for (found, sentence) in [
            (decision(steps + 1, 0, 0, 0), "it has 65 steps; the limit is 64"),
            (decision(0, tallies + 1, 0, 0), "it has 14 tallies; the limit is 13"),
            (decision(0, 1, nearest + 1, 0), "it has 17 nearest volumes in a tally; the limit is 16"),
            (decision(0, 0, 0, findings + 1), "it has 65 findings; the limit is 64"),
        ] {
            assert_eq!(found, Err(sentence.to_owned()));
        }
    }
}
