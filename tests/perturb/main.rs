//! Every request and every delivery of every scenario is disturbed in turn.
//!
//! A scenario runs with two replicas on the simulated API server, under a virtual clock. A first run numbers
//! every request and every frame of a watch. Then one of these points is chosen, and something is disturbed
//! from there on: see `script`. The kinds are disturbed one at a time, and for one replica only: what another
//! kind tells meanwhile is current. After that the laws of `law` hold at each write, the cluster comes to
//! rest, and it is what it was without the disturbance.
//!
//! A run that fails prints its script, shrunk; `BINDERY_SCRIPT=… cargo test -p bindery-perturb` runs it.
//! `BINDERY_SINGLES` and `BINDERY_PAIRS` set how many scripts a run tries, `BINDERY_SEED` which ones.
//! `cargo xtask soak pairs` tries all of them, in order: see `soak`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "counts are printed")]

mod delay;
mod kubelet;
mod law;
mod link;
mod network;
mod plugin;
mod replica;
mod run;
mod scenario;
mod script;
mod soak;
mod timeline;
mod upstream;
mod user;

use std::path::Path;
use std::sync::LazyLock;

use bindery_kit::{check_all, number_from_env};
use proptest::prelude::{Strategy as _, any};
use proptest::sample::Index;

use crate::run::{Failure, Outcome, run, with_second};
use crate::scenario::Scenario;
use crate::script::{Effect, Perturbation, Refusal, Script, restores};
use crate::soak::{Scripts, Singles};
use crate::timeline::Point;

/// Every scenario, and its outcome without disturbance. Left out is what breaks a law even so.
static UNDISTURBED: LazyLock<Vec<(&'static Scenario, Outcome)>> = LazyLock::new(|| {
    let undisturbed = |scenario| Some((scenario, undisturbed(scenario).ok()?));
    scenario::all().into_iter().filter_map(undisturbed).collect()
});

fn undisturbed(scenario: &'static Scenario) -> Result<Outcome, Failure> {
    run(scenario, &[])
}

/// The scenario of that name, and its outcome without disturbance.
fn named(name: &str) -> &'static (&'static Scenario, Outcome) {
    UNDISTURBED.iter().find(|(scenario, _)| scenario.name == name).expect("a script names a scenario")
}

/// Every single disturbance of each scenario.
fn singles() -> Vec<Singles> {
    let singles = |outcome: &Outcome| script::all(&outcome.points, outcome.active);
    UNDISTURBED.iter().map(|(scenario, outcome)| (*scenario, singles(outcome))).collect()
}

/// The common ones among these.
fn common(singles: &[Singles]) -> Vec<Singles> {
    let common = |((scenario, singles), (_, outcome)): (&Singles, &(_, Outcome))| {
        let is_common = |single: &Perturbation| single.is_common(&outcome.points);
        (*scenario, singles.iter().copied().filter(is_common).collect())
    };
    singles.iter().zip(UNDISTURBED.iter()).map(common).collect()
}

/// Runs a script.
///
/// # Errors
///
/// A law is broken, or the end is another one than without disturbances.
fn try_once(script: &Script) -> Result<(), Failure> {
    let (scenario, undisturbed) = named(&script.scenario);
    let Outcome { end, terms, points, .. } = run(scenario, &script.perturbations)?;
    if terms > undisturbed.terms && !may_end_a_term(&script.perturbations, &points) {
        let report = format!("replicas have begun to lead {terms} times\n{}", run::listed(&points));
        return Err(Failure { law: "one disturbance costs the leadership".to_owned(), report });
    }
    let expected = &undisturbed.end;
    if scenario.is_race() || restores(&script.perturbations) || end == *expected {
        return Ok(());
    }
    let report = format!("it ends with {end:?}, and undisturbed with {expected:?}");
    Err(Failure { law: "another end".to_owned(), report })
}

/// Whether a leader may stand down by these disturbances. One request must not cost the leadership, unless it
/// is a streamed list that is not answered: then another replica tries. The end of a watch must not cost it.
fn may_end_a_term(perturbations: &[Perturbation], points: &[Point]) -> bool {
    let [Perturbation { at, effect }] = perturbations else { return true };
    match effect {
        Effect::Cut { .. } | Effect::Expire { .. } => false,
        Effect::Swallow => points[*at].what.contains("sendInitialEvents"),
        _ => !effect.is_of_request(),
    }
}

/// Runs a script.
///
/// # Errors
///
/// It fails: the shrunk script, and what it breaks.
fn check(script: &Script) -> Result<(), String> {
    let Err(failure) = try_once(script) else { return Ok(()) };
    let breaks = |script: &Script| try_once(script).err().filter(|other| other.law == failure.law);
    let script = script.clone().shrunk(|simpler| breaks(simpler).is_some());
    let Failure { law, report } = breaks(&script).unwrap_or(failure.clone());
    Err(format!("{law}: BINDERY_SCRIPT='{}'\n{report}", serde_json::to_string(&script).unwrap()))
}

#[test]
fn scenarios_without_disturbance_break_no_law() {
    let mut failed = Vec::new();
    for scenario in scenario::all() {
        match undisturbed(scenario) {
            Ok(outcome) if outcome.active > 0 => {
                let singles = script::all(&outcome.points, outcome.active).len();
                println!("{} points, {singles} disturbances: {}", outcome.active, scenario.name);
            }
            Ok(_) => failed.push(format!("{}: nothing is written", scenario.name)),
            Err(Failure { report, .. }) => failed.push(format!("{}: {report}", scenario.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_run_depends_on_its_script_alone() {
    for (scenario, first) in UNDISTURBED.iter().filter(|(scenario, _)| !scenario.has_policies()) {
        let second = undisturbed(scenario).expect("it broke no law the first time");
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
    check_scripts(false, ("BINDERY_SINGLES", 1_500));
}

#[test]
fn two_disturbances_break_no_law_and_change_no_end() {
    check_scripts(true, ("BINDERY_PAIRS", 500));
}

/// Checks random scripts of one disturbance, or of two.
fn check_scripts(are_pairs: bool, count: (&str, u32)) {
    let known = singles();
    let chosen = (any::<Index>(), any::<Index>(), any::<[usize; 2]>());
    let scripts = chosen.prop_map(|(scenario, first, [number, second])| {
        let (scenario, singles) = scenario.get(&known);
        let first = first.get(singles).of_any_length(number);
        if are_pairs {
            return with_second(scenario, first, second);
        }
        Script { scenario: scenario.name.to_owned(), perturbations: vec![first] }
    });
    // A script shrinks itself.
    let scripts = scripts.no_shrink();
    check_all(&scripts, count, check);
}

#[test]
fn all_scripts_of_a_soak_break_no_law() {
    let Ok(file) = std::env::var("BINDERY_PROGRESS") else { return };
    let count = number_from_env("BINDERY_SCRIPTS").expect("the number of scripts is set with the file");
    assert_eq!(UNDISTURBED.len(), scenario::all().len(), "a scenario breaks a law without disturbance");
    let (singles, count) = (singles(), usize::try_from(count).expect("a number of scripts"));
    let common = common(&singles);
    let scripts = Scripts::new(singles, common, count);
    let failed = soak::run(&scripts, Path::new(&file), check);
    assert!(failed.is_empty(), "{} scripts failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn scripts_that_failed_once_break_no_law() {
    use Effect::{Expire, Hold, LoseAnswer, Refuse, Repeat, Restore, Swallow};
    /// Points after the last write.
    const AT_REST: usize = 2;
    let (replica, kind) = (0, 0);
    for (name, effect) in [
        // The claim was written Lost, because the cache did not have its volume.
        ("a bound pair is restored from a backup", Hold { replica, kind, points: 100 }),
        // The leader wrote for a version that etcd had given out a second time, again and again.
        ("a claim finds a volume", Restore { points: 4 }),
        // The leader missed the restore, and took the volume for Available, or for gone.
        ("a bound volume is removed by force", Restore { points: 27 }),
        ("a claim waits for its consumer, and the scheduler reserves", Restore { points: 1 }),
        ("a claim is made again under its name", Restore { points: 1 }),
        // The leader wrote to a volume that the restore had taken back, again and again.
        ("a lost claim gets its volume back", Restore { points: 4 }),
        // The leader took a volume for deleted whose deletion a restore had taken back.
        ("another binder is seen, and the operator acknowledges", Restore { points: 2 }),
        // The leader took a volume for gone that the restore had brought back, and whose user had deleted it.
        ("a deleted volume stays until its claim is deleted", Restore { points: 12 }),
        // The deletion of an asset was not tried again.
        ("a claim is deleted while its volume is provisioned", Refuse(Refusal::Conflict)),
        // The text of a proxy was taken for the answer to a deletion.
        ("a claim gets another volume while one is provisioned for it", Refuse(Refusal::Unreadable)),
        // The leader stood down when a renewal conflicted twice, because its Lease was annotated meanwhile.
        ("another binder is seen, and the operator acknowledges", Refuse(Refusal::Conflict)),
        // The leader gave the Lease away when a read that it waited for was not answered.
        ("a claim finds a volume", Swallow),
        // Two claims that awaited a list passed a volume to each other without a pause.
        ("choices of an earlier leader are withdrawn", Expire { replica, kind }),
        // The leader reserved a second volume, because the answer to the first reservation was lost.
        ("a better volume comes while one is reserved", LoseAnswer),
        // A proxy sent the first reservation twice.
        ("a better volume comes while one is reserved", Repeat),
    ] {
        for at in 0..named(name).1.active + AT_REST {
            repeat(&Script { scenario: name.to_owned(), perturbations: vec![Perturbation { at, effect }] });
        }
    }
}

fn repeat(script: &Script) {
    if let Err(error) = check(script) {
        panic!("{error}");
    }
}

#[test]
fn a_script_is_shrunk_to_what_still_fails() {
    let hold = |at, points| Perturbation { at, effect: Effect::Hold { replica: 0, kind: 1, points } };
    let script = |perturbations| Script { scenario: "any".to_owned(), perturbations };
    let fails = |script: &Script| script.perturbations.iter().any(|known| known.at >= 6);
    let crash = Perturbation { at: 3, effect: Effect::Crash { replica: 1 } };
    assert_eq!(script(vec![crash, hold(40, 100)]).shrunk(fails), script(vec![hold(6, 3)]));
}
