//! Every request and every delivery of every scenario is disturbed in turn.
//!
//! A scenario runs with two replicas on the simulated API server, under a virtual clock. A first run numbers
//! every request and every frame of a watch. Then one of these points is chosen, and something is disturbed
//! from there on: see `script`. The kinds are disturbed one at a time, and for one replica only: what another
//! kind tells meanwhile is current. After that the laws of `law` hold at each write, the cluster comes to
//! rest, and it is what it was without the disturbance.
//!
//! A run that fails prints its script; `BINDERY_SCRIPT=… cargo test -p bindery-perturb` runs it again.
//! `BINDERY_SINGLES` and `BINDERY_PAIRS` set how many scripts a run tries, `BINDERY_SEED` which ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "counts are printed")]

mod delay;
mod law;
mod network;
mod plugin;
mod replica;
mod run;
mod scenario;
mod script;
mod timeline;
mod user;

use std::sync::LazyLock;

use bindery_kit::check_all;
use proptest::collection::vec;
use proptest::prelude::{Strategy as _, any};
use proptest::sample::Index;

use crate::run::{AfterRestore, Outcome, run};
use crate::scenario::{SCENARIOS, Scenario};
use crate::script::{Effect, Perturbation, Script, restores};

/// The outcome of each scenario, in order, that nothing disturbs.
static UNDISTURBED: LazyLock<Vec<Outcome>> = LazyLock::new(|| SCENARIOS.iter().map(undisturbed).collect());

fn undisturbed(scenario: &Scenario) -> Outcome {
    run(scenario, &[], AfterRestore::Noticed)
        .unwrap_or_else(|error| panic!("{}, undisturbed: {error}", scenario.name))
}

/// Runs a script.
///
/// # Errors
///
/// A law is broken, or the end is another one than without disturbances.
fn check(script: &Script, after_restore: AfterRestore) -> Result<(), String> {
    let at = SCENARIOS.iter().position(|scenario| scenario.name == script.scenario);
    let at = at.expect("a script names a scenario");
    let (scenario, expected) = (&SCENARIOS[at], &UNDISTURBED[at].end);
    let may_differ = scenario.is_race() || restores(&script.perturbations);
    let ended = run(scenario, &script.perturbations, after_restore).and_then(|outcome| {
        if may_differ || outcome.end == *expected {
            return Ok(());
        }
        Err(format!("it ends with {:?}, and undisturbed with {expected:?}", outcome.end))
    });
    ended.map_err(|error| format!("BINDERY_SCRIPT='{}'\n{error}", serde_json::to_string(script).unwrap()))
}

#[test]
fn scenarios_without_disturbance_break_no_law() {
    for (scenario, outcome) in SCENARIOS.iter().zip(&*UNDISTURBED) {
        println!("{} points, {} in all: {}", outcome.active, outcome.points.len(), scenario.name);
        assert!(outcome.active > 0, "{}: nothing is written", scenario.name);
    }
}

#[test]
fn a_run_depends_on_its_script_alone() {
    for (scenario, first) in SCENARIOS.iter().zip(&*UNDISTURBED) {
        let second = undisturbed(scenario);
        let differs = first.points.iter().zip(&second.points).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{}: a point is another one the second time", scenario.name);
        assert_eq!(first.points.len(), second.points.len(), "{}", scenario.name);
    }
}

#[test]
fn a_single_disturbance_breaks_no_law_and_changes_no_end() {
    if let Ok(script) = std::env::var("BINDERY_SCRIPT") {
        return repeat(&serde_json::from_str(&script).expect("BINDERY_SCRIPT is a script in JSON"));
    }
    check_scripts(1, ("BINDERY_SINGLES", 1_500));
}

#[test]
fn two_disturbances_break_no_law_and_change_no_end() {
    check_scripts(2, ("BINDERY_PAIRS", 500));
}

/// Checks random scripts of that many disturbances.
fn check_scripts(length: usize, count: (&str, u32)) {
    let singles = UNDISTURBED.iter().map(|outcome| script::all(outcome.active));
    let known: Vec<(&Scenario, Vec<Perturbation>)> = SCENARIOS.iter().zip(singles).collect();
    let scripts = (any::<Index>(), vec(any::<Index>(), length)).prop_map(|(scenario, chosen)| {
        let (scenario, singles) = scenario.get(&known);
        let perturbations = chosen.iter().map(|index| *index.get(singles)).collect();
        Script { scenario: scenario.name.to_owned(), perturbations }
    });
    check_all(&scripts, count, |script| check(script, AfterRestore::Missed));
}

#[test]
fn scripts_that_failed_once_break_no_law() {
    use Effect::{Hold, Refuse, Restore};
    let (replica, kind) = (0, 0);
    for (scenario, at, effect) in [
        // The claim was written Lost, because the cache did not have its volume.
        ("a bound pair is restored from a backup", 29, Hold { replica, kind, points: 100 }),
        // The leader wrote for a version that etcd had given out a second time, again and again.
        ("a claim finds a volume", 35, Restore { points: 4 }),
        // The leader missed the restore, and took the volume for Available.
        ("a claim waits for its consumer, and the scheduler reserves", 35, Restore { points: 1 }),
        ("a claim is made again under its name", 56, Restore { points: 1 }),
        // The deletion of an asset was not tried again.
        ("a claim is deleted while its volume is provisioned", 66, Refuse(409)),
    ] {
        repeat(&Script { scenario: scenario.to_owned(), perturbations: vec![Perturbation { at, effect }] });
    }
}

fn repeat(script: &Script) {
    if let Err(error) = check(script, AfterRestore::Noticed) {
        panic!("{error}");
    }
}
