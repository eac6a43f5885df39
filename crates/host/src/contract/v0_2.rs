//! Version 0.2 of the contract.

mod bindings {
    #![allow(missing_docs, unreachable_pub, reason = "generated code; wit/ has the documentation")]
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

    wasmtime::component::bindgen!({
        path: "../../wit/0.2",
        world: "engine",
        imports: { default: trappable },
    });
}

/// The interface that an engine exports. wasmtime finds later patch versions under this name too.
const INTERFACE: &str = "bindery:policy/decide@0.2.0";

macro_rules! since_0_2 {
    ({ $($new:tt)* } else { $($old:tt)* }) => { $($new)* };
}

// The same file as in the component: see there.
#[cfg_attr(not(test), expect(dead_code, reason = "the component's half of the progress of an operation"))]
#[path = "../../../component/src/carry.rs"]
mod carry;
// The same file for each version.
#[path = "engine_world.rs"]
mod engine_world;

pub(crate) use engine_world::Prepared;

#[cfg(test)]
#[path = "../../../../tests/random.rs"]
mod random;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::Arc;

    use bindery_core::guard::{FINDINGS_MAX, STEPS_MAX, TALLIES_MAX};
    use bindery_core::{
        AccessModes, Action, Claim, ClaimKey, Class, Decision, Event, Finding, Lookup, MatchVerdict,
        Migration, NEAREST_MAX, OperationState, Outcome, Page, Plugin, PluginMatch, Pod, Progress, Quantity,
        Query, Reason, ReclaimVerdict, Step, Subject, Tally, Text, Volume, VolumeTarget,
    };

    use super::bindings::bindery::policy::types;
    use super::bindings::exports::bindery::policy::decide;
    use super::carry::Carry;
    use super::carry::decisions::{lift_progress, lower_progress};
    use super::engine_world::check_size;
    use super::random::{Random, Sample};

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
        crosses::<MatchVerdict>();
        crosses::<ReclaimVerdict>();
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
