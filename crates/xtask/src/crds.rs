//! `cargo xtask crds`: the definitions of Bindery's kinds, from the types of their fields.

use std::fs;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

use crate::{process, workspace};

/// The program that prints the definitions. It is not part of this one, which is compiled before everything
/// else.
pub(crate) const GENERATOR: [&str; 6] =
    ["--package", "bindery-policy", "--features", "schema", "--example", "crds"];

const FOLDER: &str = "charts/bindery/files/crds";

/// Generate the definitions of Bindery's kinds in the chart from the types in crates/policy.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail if a definition is out of date.
    #[arg(long)]
    check: bool,
}

/// Carries out `cargo xtask crds`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let printed = process::output(workspace::cargo().args(["run", "--quiet"]).args(GENERATOR))?;
    let definitions: Map<String, Value> =
        serde_json::from_str(&printed).context("the generator did not print an object")?;
    let folder = workspace::root().join(FOLDER);
    for (name, definition) in definitions {
        let path = folder.join(&name);
        let fresh = serde_json::to_string_pretty(&definition)? + "\n";
        if fs::read_to_string(&path).is_ok_and(|present| present == fresh) {
            continue;
        }
        if arguments.check {
            bail!("{FOLDER}/{name} is out of date: run `cargo xtask crds`");
        }
        fs::create_dir_all(&folder)?;
        fs::write(&path, fresh).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
