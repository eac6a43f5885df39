//! A released version of `wit/` does not change, because components that people have built must keep linking.
//! `wit/VERSIONS` has lines of the released versions; one without lines is not released and may change.
//!
//! The digest covers the parsed package without doc comments, printed in one canonical form. So doc comments
//! and the layout of files may change, but types, functions and versions may not.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use sha2::{Digest, Sha256};
use wit_component::{OutputToString, WitPrinter};
use wit_parser::{Resolve, Stability, TypeDefKind, WorldItem};

/// Version, name of an interface or world, and digest, as in a line of `wit/VERSIONS`.
type Line = (String, String, String);

const HOW_TO_STEP: &str = "\
A type, case, field or signature that changed needs a new minor version, something that was only added needs a
new patch version: components that people have built link against the contract as it was. To step:
  1. for a new minor version only: copy the folder of the last one, and change the copy; add it to `FOLDERS`
     of this test; add a module like crates/host/src/contract/v0_2.rs, and its number to `served` in load.rs;
  2. set the version in every `package` line of the folder and in `VERSION` of crates/cli/src/main.rs, and
     `@since` of what is new;
  3. when it is released, add the lines that this test prints to wit/VERSIONS, and list the change in
     CHANGELOG.md. Committed lines stay as they are: the history is compared.";

/// The minor versions in `wit/`.
const FOLDERS: [&str; 2] = ["0.1", "0.2"];

fn wit() -> PathBuf {
    PathBuf::from(env!("BINDERY_CHECKOUT")).join("wit")
}

/// Every version.
fn parsed() -> [Resolve; 2] {
    FOLDERS.map(|folder| {
        let mut resolve = Resolve::default();
        resolve.push_dir(wit().join(folder)).unwrap_or_else(|error| panic!("wit/{folder}: {error:#}"));
        resolve
    })
}

/// Every interface and world of the package with the digest of its canonical text.
fn digests(resolve: &Resolve) -> Vec<Line> {
    let (_, package) = resolve.packages.iter().next().expect("wit/ has a package");
    let version = package.name.version.as_ref().expect("the package has a version").to_string();
    let line = |part: String, text: &str| {
        let digest = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        (version.clone(), part, digest)
    };
    let interfaces = package.interfaces.iter().map(|(name, id)| {
        let mut printer = WitPrinter::new(OutputToString::default());
        printer.emit_docs(false).print_interface(resolve, *id).expect("an interface prints");
        line(format!("interface {name}"), &String::from(printer.output))
    });
    let worlds = package.worlds.iter().map(|(name, id)| {
        // A world is identified by its imports and exports; the interfaces have lines of their own.
        let world = &resolve.worlds[*id];
        let imports: Vec<_> = world.imports.keys().map(|key| resolve.name_world_key(key)).collect();
        let exports: Vec<_> = world.exports.keys().map(|key| resolve.name_world_key(key)).collect();
        line(format!("world {name}"), &format!("import {imports:?} export {exports:?}"))
    });
    interfaces.chain(worlds).collect()
}

fn recorded() -> Vec<Line> {
    lines_of(&std::fs::read_to_string(wit().join("VERSIONS")).expect("wit/VERSIONS is there"))
}

fn lines_of(versions: &str) -> Vec<Line> {
    versions
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            [version, kind, name, digest] => {
                ((*version).to_owned(), format!("{kind} {name}"), (*digest).to_owned())
            }
            _ => panic!("wit/VERSIONS: {line:?} is not `version kind name digest`"),
        })
        .collect()
}

#[test]
fn a_released_version_of_the_contract_does_not_change() {
    let released = recorded();
    assert!(released.iter().any(|line| line.0 == "0.1.0"), "0.1.0 is released");
    for resolve in parsed() {
        let mut now = digests(&resolve);
        let version = now[0].0.clone();
        let lines: String = now.iter().map(|(v, name, digest)| format!("{v} {name} {digest}\n")).collect();
        let mut then: Vec<_> = released.iter().filter(|line| line.0 == version).cloned().collect();
        if then.is_empty() {
            tell(&format!("{version} is not released; with its release wit/VERSIONS gets\n{lines}"));
            continue;
        }
        now.sort();
        then.sort();
        let changed: Vec<_> = now.iter().filter(|line| !then.contains(line)).map(|line| &line.1).collect();
        let gone: Vec<_> =
            then.iter().filter(|line| !now.iter().any(|now| now.1 == line.1)).map(|line| &line.1).collect();
        assert!(
            changed.is_empty() && gone.is_empty(),
            "wit/ is not what {version} was: changed {changed:?}, gone {gone:?}\n{HOW_TO_STEP}\n\n{lines}"
        );
    }
}

/// A committed line never changes: the test compares the history, so a new digest pasted over that of a
/// published version is found.
#[test]
fn a_line_that_was_committed_stays_as_it_was() {
    let now = recorded();
    let versions: Vec<_> = now.iter().map(|(version, name, _)| (version, name)).collect();
    for (at, line) in versions.iter().enumerate() {
        assert!(!versions[..at].contains(line), "wit/VERSIONS has two lines of {} {}", line.0, line.1);
    }
    let commits = match git(&["log", "--format=%H", "--", "wit/VERSIONS"]) {
        Ok(commits) => commits,
        Err(why) => {
            return tell(&format!("wit/VERSIONS is not held against its history, which is not here: {why}"));
        }
    };
    if git(&["rev-parse", "--is-shallow-repository"]).is_ok_and(|answer| answer.trim() == "true") {
        tell("wit/VERSIONS is held against a part of its history only: this clone is shallow");
    }
    let then = commits.lines().flat_map(|commit| {
        // A commit that removed the file has none.
        let text = git(&["show", &format!("{commit}:./wit/VERSIONS")]).unwrap_or_default();
        lines_of(&text).into_iter().map(|line| (commit.to_owned(), line)).collect::<Vec<_>>()
    });
    let then: Vec<_> = then.collect();
    assert_eq!(rewritten(&then, &now), Vec::<String>::new(), "wit/VERSIONS: {HOW_TO_STEP}");

    // The same with a digest pasted over the very first line.
    let Some((_, first)) = then.last() else { return };
    let mut pasted = now.clone();
    for line in pasted.iter_mut().filter(|line| *line == first) {
        line.2 = "0".repeat(64);
    }
    assert!(!rewritten(&then, &pasted).is_empty(), "a pasted digest is not found");
}

/// Lines of past commits that are missing now, as messages.
fn rewritten(then: &[(String, Line)], now: &[Line]) -> Vec<String> {
    let lost = then.iter().filter(|(_, line)| !now.contains(line));
    lost.map(|(commit, (version, name, digest))| {
        format!("{version} {name} was {digest} in commit {commit}, and is not any more")
    })
    .collect()
}

/// What git answers in the checkout.
///
/// # Errors
///
/// Git is missing or cannot read this checkout; the text says why.
fn git(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    let output = command.current_dir(wit().join("..")).args(arguments).output();
    let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Prints to standard error directly, because the harness hides the output of a passing test.
fn tell(what: &str) {
    // If this fails, there is nothing else to do.
    let _ = writeln!(std::io::stderr(), "{}", what.trim_end());
}

#[test]
fn every_item_says_since_when_and_is_documented() {
    for resolve in parsed() {
        check_items(&resolve);
    }
}

fn check_items(resolve: &Resolve) {
    let (_, package) = resolve.packages.iter().next().expect("there is a package");
    let version = package.name.version.clone().expect("it has a version");
    let since =
        |stability: &Stability| matches!(stability, Stability::Stable { since, .. } if *since <= version);
    for (name, id) in &package.interfaces {
        let interface = &resolve.interfaces[*id];
        assert!(since(&interface.stability) && interface.docs.contents.is_some(), "interface {name}");
        for (function, item) in &interface.functions {
            assert!(since(&item.stability) && item.docs.contents.is_some(), "{name}.{function}");
        }
        for (ty, id) in &interface.types {
            let item = &resolve.types[*id];
            if matches!(item.kind, TypeDefKind::Type(wit_parser::Type::Id(_))) {
                continue; // Brought in by `use`, documented where it is defined.
            }
            assert!(since(&item.stability) && item.docs.contents.is_some(), "{name}.{ty}");
            assert_eq!(undocumented(&item.kind), Vec::<String>::new(), "{name}.{ty}");
        }
    }
    for (name, id) in &package.worlds {
        let world = &resolve.worlds[*id];
        assert!(since(&world.stability) && world.docs.contents.is_some(), "world {name}");
    }
}

/// Fields and cases without a doc comment; panics on what a closed contract does not have.
fn undocumented(kind: &TypeDefKind) -> Vec<String> {
    let parts: Vec<_> = match kind {
        TypeDefKind::Record(record) => record.fields.iter().map(|f| (&f.name, &f.docs)).collect(),
        TypeDefKind::Variant(variant) => variant.cases.iter().map(|c| (&c.name, &c.docs)).collect(),
        TypeDefKind::Enum(cases) => cases.cases.iter().map(|c| (&c.name, &c.docs)).collect(),
        TypeDefKind::Type(_) => Vec::new(),
        other => panic!("the contract has no {}", other.as_str()),
    };
    parts.into_iter().filter(|(_, docs)| docs.contents.is_none()).map(|(name, _)| name.clone()).collect()
}

#[test]
fn a_world_imports_nothing_but_this_package() {
    for resolve in parsed() {
        for (_, world) in &resolve.worlds {
            for (key, item) in &world.imports {
                let name = resolve.name_world_key(key);
                assert!(matches!(item, WorldItem::Interface { .. }), "{name} in world {}", world.name);
                assert!(name.starts_with("bindery:policy/"), "{name} in world {}", world.name);
            }
        }
    }
}
