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

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bindery_kit::number_from_env;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::run::{AfterRestore, Outcome, run};
use crate::scenario::{SCENARIOS, Scenario};
use crate::script::{Effect, Perturbation, Script};

/// Scripts of one disturbance, and of two, that a run of the suite tries.
const SINGLES: u64 = 1_500;
const PAIRS: u64 = 500;

fn undisturbed(scenario: &Scenario) -> Outcome {
    run(scenario, &[], AfterRestore::Noticed)
        .unwrap_or_else(|error| panic!("{}, undisturbed: {error}", scenario.name))
}

/// Runs a script.
///
/// # Errors
///
/// A law is broken, or the end is another one than without disturbances.
fn check(
    scenario: &Scenario,
    expected: &Outcome,
    perturbations: &[Perturbation],
    after_restore: AfterRestore,
) -> Result<(), String> {
    let outcome = run(scenario, perturbations, after_restore).and_then(|outcome| {
        let is_restored = perturbations.iter().any(|perturbation| perturbation.effect.is_restore());
        let is_same = outcome.end == expected.end || scenario.is_race() || is_restored;
        let ends = || format!("it ends with {:?}, and undisturbed with {:?}", outcome.end, expected.end);
        if is_same { Ok(()) } else { Err(ends()) }
    });
    outcome.map_err(|error| {
        let script = Script { scenario: scenario.name.to_owned(), perturbations: perturbations.to_vec() };
        format!("BINDERY_SCRIPT='{}'\n{error}", serde_json::to_string(&script).unwrap())
    })
}

#[test]
fn scenarios_without_disturbance_break_no_law() {
    for scenario in SCENARIOS {
        let outcome = undisturbed(scenario);
        println!("{} points, {} in all: {}", outcome.active, outcome.points.len(), scenario.name);
        assert!(outcome.active > 0, "{}: nothing is written", scenario.name);
    }
}

#[test]
fn a_run_depends_on_its_script_alone() {
    for scenario in SCENARIOS {
        let (first, second) = (undisturbed(scenario), undisturbed(scenario));
        let differs = first.points.iter().zip(&second.points).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{}: a point is another one the second time", scenario.name);
    }
}

#[test]
fn a_single_disturbance_breaks_no_law_and_changes_no_end() {
    if let Ok(script) = std::env::var("BINDERY_SCRIPT") {
        return repeat(&serde_json::from_str(&script).expect("BINDERY_SCRIPT is a script in JSON"));
    }
    try_scripts(1, number_from_env("BINDERY_SINGLES").unwrap_or(SINGLES));
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

#[test]
fn two_disturbances_break_no_law_and_change_no_end() {
    try_scripts(2, number_from_env("BINDERY_PAIRS").unwrap_or(PAIRS));
}

/// Tries scripts of that many disturbances, chosen by a seed that is printed.
fn try_scripts(length: usize, scripts: u64) {
    let seed = number_from_env("BINDERY_SEED").unwrap_or_else(|| rand::rng().random());
    println!("BINDERY_SEED={seed}");
    let known: Vec<(&Scenario, Outcome, Vec<Perturbation>)> = SCENARIOS
        .iter()
        .map(|scenario| {
            let outcome = undisturbed(scenario);
            let singles = script::all(outcome.active);
            (scenario, outcome, singles)
        })
        .collect();
    let random = Mutex::new(StdRng::seed_from_u64(seed));
    let choose = || {
        let mut random = random.lock();
        let (scenario, expected, singles) = known.choose(&mut *random).expect("there are scenarios");
        let chosen = (0..length).map(|_| *singles.choose(&mut *random).expect("there are points"));
        (*scenario, expected, chosen.collect::<Vec<_>>())
    };
    let (tried, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        while tried.fetch_add(1, Ordering::Relaxed) < scripts {
            let (scenario, expected, chosen) = choose();
            if let Err(error) = check(scenario, expected, &chosen, AfterRestore::Missed) {
                println!("{error}\n");
                failures.lock().push(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let all: usize = known.iter().map(|(.., singles)| singles.len()).sum();
    println!("{scripts} scripts of {length} tried; there are {all} singles");
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{} scripts failed, the first:\n{}", failures.len(), failures[0]);
}

fn repeat(script: &Script) {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == script.scenario);
    let scenario = scenario.expect("a scenario of BINDERY_SCRIPT");
    if let Err(error) = check(scenario, &undisturbed(scenario), &script.perturbations, AfterRestore::Noticed)
    {
        panic!("{error}");
    }
}
