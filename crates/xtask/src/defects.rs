//! `cargo xtask defects`: shows that the tests catch known bugs.
//!
//! Each file of `tests/defects/` is a patch that brings back one bug which a volume binder really had. Its
//! head describes the bug, names upstream's report, and names the tests that catch it. Each patch is applied
//! in turn to a copy of the checkout. All tests that it names must fail with it, and pass without it.
//!
//! The copy is in cargo's target folder and has a target folder of its own. Cargo tells builds apart by file
//! times only, so it might otherwise take the build of a defect for one of the checkout.

mod copy;
mod patch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

pub(crate) use self::copy::Copy;
use self::patch::{Defect, Test};
use crate::{say, workspace};

/// The patch with which `cargo xtask soak rules` takes rules of the guard out.
pub(crate) const RULES: &str = "tests/model/rules.patch";

/// Bring back known bugs, one after the other, and show which test catches each.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only defects whose name contains one of these.
    names: Vec<String>,
}

/// Carries out `cargo xtask defects`. Every defect is tried, even if one is missed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let is_asked =
        |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|part| name.contains(part));
    let defects: Vec<Defect> =
        patch::read_all(workspace::root())?.into_iter().filter(|defect| is_asked(&defect.name)).collect();
    if defects.is_empty() {
        bail!("no file of tests/defects has a name that contains one of these");
    }
    let copy = Copy::make(workspace::root(), &workspace::target_folder()?.join("defects"))?;
    say(format_args!("{} defects; first, their tests on the unchanged copy", defects.len()));
    without_defects(copy.root(), &defects)?;
    let mut missed = 0;
    for defect in &defects {
        let began = Instant::now();
        let outcome = match copy.with(&defect.file, || must_fail(copy.root(), defect)) {
            Ok(()) => "caught",
            Err(error) => {
                eprintln!("{}: {error:#}", defect.name);
                missed += 1;
                "MISSED"
            }
        };
        let tests: Vec<String> = defect.tests.iter().map(ToString::to_string).collect();
        let seconds = began.elapsed().as_secs_f64();
        say(format_args!("{outcome}  {}  ({seconds:.1} s)  {}", defect.name, tests.join(", ")));
    }
    say(format_args!("{} caught, {missed} missed", defects.len() - missed));
    if missed > 0 {
        bail!("{missed} defects were not caught");
    }
    Ok(())
}

/// Runs all named tests on the unchanged copy: a test that fails anyway, or does not exist, catches nothing.
fn without_defects(root: &Path, defects: &[Defect]) -> Result<()> {
    let mut names: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for test in defects.iter().flat_map(|defect| &defect.tests) {
        names.entry((&test.package, &test.target)).or_default().insert(&test.name);
    }
    for ((package, target), names) in names {
        let results = test(root, package, target, &names)?;
        let bad: Vec<&str> = names.into_iter().filter(|name| results.get(*name) != Some(&true)).collect();
        if !bad.is_empty() {
            bail!("without a defect, these tests of {package} do not pass or do not exist: {bad:?}");
        }
    }
    Ok(())
}

/// Runs the tests of a defect, on the copy that has it.
fn must_fail(root: &Path, defect: &Defect) -> Result<()> {
    for Test { package, target, name } in &defect.tests {
        match test(root, package, target, &BTreeSet::from([name.as_str()]))?.get(name) {
            Some(false) => {}
            Some(true) => bail!("{name} of {package} passes"),
            None => bail!("{name} of {package} was not run"),
        }
    }
    Ok(())
}

/// Runs tests of one target of a package, and returns for each whether it passed. Fails if they do not run to
/// their end, because the copy does not compile or a test ends the process.
fn test(root: &Path, package: &str, target: &str, names: &BTreeSet<&str>) -> Result<BTreeMap<String, bool>> {
    let output = workspace::cargo()
        .args(["test", "--quiet", "-p", package, "--test", target])
        .args(["--", "--exact", "--format=pretty"])
        .args(names)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", workspace::target_folder()?.join("defects-build"))
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !printed.lines().any(|line| line.starts_with("test result: ")) {
        bail!("the tests of {package} were not run:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(results(&printed))
}

/// Reads the results that the test harness prints.
fn results(printed: &str) -> BTreeMap<String, bool> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    lines.map(|(name, result)| (name.to_owned(), result == "ok")).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_output_of_the_harness_names_passed_and_failed_tests() {
        let printed =
            "\nrunning 2 tests\ntest a::b ... ok\ntest c ... FAILED\n\ntest result: FAILED. 1 passed\n";
        let expected = [("a::b".to_owned(), true), ("c".to_owned(), false)];
        assert_eq!(results(printed), BTreeMap::from(expected));
    }

    /// So the change that breaks a patch is refused, long before the defects run.
    #[test]
    fn every_defect_applies_to_the_checkout_and_names_its_tests() {
        let root = workspace::root();
        let defects = patch::read_all(root).expect("every head is complete");
        assert!(defects.len() >= 15, "{} defects", defects.len());
        must_apply(&root.join(RULES));
        for defect in defects {
            must_apply(&defect.file);
            for test in defect.tests {
                let function = test.name.rsplit("::").next().expect("a name");
                assert!(is_somewhere(root, function), "{}: there is no test {function}", defect.name);
            }
        }
    }

    fn must_apply(patch: &Path) {
        let mut command = Command::new("git");
        command.current_dir(workspace::root()).args(["apply", "--check"]).arg(patch);
        let output = command.output().expect("git is there");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} does not apply: {errors}", patch.display());
    }

    fn is_somewhere(root: &Path, function: &str) -> bool {
        let mut command = Command::new("git");
        command.current_dir(root).args(["grep", "--quiet", "--fixed-strings", &format!("fn {function}(")]);
        command.status().expect("git is there").success()
    }
}
