//! `bindery policy new`: a folder with a policy to begin with.
//!
//! It is a copy of a policy that ships, under another name, so that what authors begin with is tested.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_policy::is_name;
use clap::ValueEnum;

use crate::output;

/// Most characters of a name.
const NAME_MAX: usize = 63;

/// The world of policies; the rest of the contract is as in `wit/`.
const WORLD: &str = "\
package bindery:policy@0.2.0;

/// A policy that rejects and scores volumes. It imports no function.
@since(version = 0.2.0)
world matcher {
  export match;
}
";

/// The files of every policy.
const COMMON: [(&str, &str); 5] = [
    ("wit/facts.wit", include_str!("../../../../wit/0.2/facts.wit")),
    ("wit/match.wit", include_str!("../../../../wit/0.2/match.wit")),
    ("wit/world.wit", WORLD),
    (".gitignore", "*.wasm\n.venv/\nnode_modules/\n__pycache__/\ntarget/\n"),
    ("policy.yaml", DOCUMENT),
];

/// The document that loads the policy.
const DOCUMENT: &str = "\
apiVersion: policy.bindery.dev/v1alpha1
kind: MatchPolicy
metadata:
  name: NAME
spec:
  module: NAME.wasm
  settings: {}
";

const RUST_MANIFEST: &str = "\
[package]
name = \"NAME\"
description = \"Gives a claim only volumes of the zone that its label names.\"
version = \"0.1.0\"
edition = \"2024\"

[lib]
crate-type = [\"cdylib\"]

[dependencies]
serde = { version = \"1\", features = [\"derive\"] }
serde_json = \"1\"
wit-bindgen = { version = \"0.63\", default-features = false, features = [\"macros\", \"realloc\"] }

[profile.release]
opt-level = \"s\"
lto = true
codegen-units = 1
panic = \"abort\"
strip = true

# Not a member of a workspace above.
[workspace]
";

/// Begin a policy: make a folder that `bindery policy build` builds.
///
/// It begins as a copy of a policy that ships: `same-zone` in Rust, `prefer-owner` in JavaScript, `wear` in
/// Python. Change it, and the cases in `cases/`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The language of the policy.
    #[arg(long, value_enum)]
    language: Language,
    /// The name of the policy and of its folder: lower-case letters, digits and hyphens.
    name: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Language {
    Rust,
    #[value(name = "javascript")]
    JavaScript,
    Python,
}

impl Language {
    /// The policy that is copied, and its files.
    fn template(self) -> (&'static str, Vec<(&'static str, &'static str)>) {
        macro_rules! text {
            ($policy:literal, $file:literal) => {
                include_str!(concat!("../../../../policies/", $policy, "/", $file))
            };
        }
        macro_rules! files {
            ($policy:literal: $($file:literal),*) => {
                ($policy, vec![$(($file, text!($policy, $file))),*])
            };
        }
        match self {
            Self::Rust => {
                let (policy, mut files) =
                    files!("same-zone": "src/lib.rs", "src/bindings.rs", "settings.json", "cases/cases.yaml");
                files.extend([("Cargo.toml", RUST_MANIFEST), ("Cargo.lock", include_str!("rust.lock"))]);
                (policy, files)
            }
            Self::JavaScript => files!(
                "prefer-owner": "policy.js", "build.mjs", "package.json", "package-lock.json",
                "cases/cases.yaml"
            ),
            Self::Python => files!("wear": "policy.py", "requirements.txt", "cases/cases.yaml"),
        }
    }
}

/// Runs `bindery policy new`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let name = &arguments.name;
    // A package in Rust begins with a letter.
    if !is_name(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        bail!("{name:?} is not a name: write lower-case letters, digits and hyphens, at most {NAME_MAX}");
    }
    let folder = PathBuf::from(name);
    fs::create_dir(&folder).with_context(|| format!("the folder {name} cannot be made"))?;
    let (policy, files) = arguments.language.template();
    for (file, text) in COMMON.into_iter().chain(files) {
        let path = folder.join(file);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(&folder))?;
            fs::write(&path, renamed(text, policy, name))
        };
        write().with_context(|| format!("{} cannot be written", path.display()))?;
    }
    output::print(&format!(
        "{name} is a copy of the policy {policy}.\n\
         bindery policy build {name}             # makes {name}/{name}.wasm\n\
         bindery policy test {name}/{name}.wasm  # holds it against {name}/cases\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The text of a template with the policy's name, and with the contract in the folder `wit`.
fn renamed(text: &str, policy: &str, name: &str) -> String {
    let quoted = |text: String, quote: char| {
        text.replace(&format!("{quote}{policy}{quote}"), &format!("{quote}{name}{quote}"))
    };
    let text = text.replace("../../wit/0.2", "wit").replace("NAME", name);
    quoted(quoted(text, '"'), '\'')
}
