//! `bindery policy new`: a folder with a policy to begin with.
//!
//! It is a copy of a policy that ships, under another name, so that what authors begin with is tested.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_core::is_dns_label;
use clap::ValueEnum;

use crate::output;

/// Most characters of a name.
const NAME_MAX: usize = 63;

/// The files of every policy.
const COMMON: [(&str, &str); 2] = [
    ("wit/facts.wit", include_str!("../../../../wit/0.2/facts.wit")),
    (".gitignore", "*.wasm\n.venv/\nnode_modules/\n__pycache__/\ntarget/\n"),
];

/// The files of every matcher: its world, and the document that loads it.
const MATCHER: [(&str, &str); 3] = [
    ("wit/match.wit", include_str!("../../../../wit/0.2/match.wit")),
    ("wit/world.wit", MATCHER_WORLD),
    ("policy.yaml", MATCHER_DOCUMENT),
];

const MATCHER_WORLD: &str = "\
package bindery:policy@0.2.0;

/// A policy that rejects and scores volumes. It imports no function.
@since(version = 0.2.0)
world matcher {
  export match;
}
";

const MATCHER_DOCUMENT: &str = "\
apiVersion: policy.bindery.dev/v1alpha1
kind: MatchPolicy
metadata:
  name: NAME
spec:
  module: NAME.wasm
  settings: {}
";

/// The files of every reclaimer, as those of a matcher.
const RECLAIMER: [(&str, &str); 3] = [
    ("wit/reclaim.wit", include_str!("../../../../wit/0.2/reclaim.wit")),
    ("wit/world.wit", RECLAIMER_WORLD),
    ("policy.yaml", RECLAIMER_DOCUMENT),
];

const RECLAIMER_WORLD: &str = "\
package bindery:policy@0.2.0;

/// A policy that says what becomes of volumes whose claims are gone. It imports no function.
@since(version = 0.2.0)
world reclaimer {
  export reclaim;
}
";

const RECLAIMER_DOCUMENT: &str = "\
apiVersion: policy.bindery.dev/v1alpha1
kind: ReclaimPolicy
metadata:
  name: NAME
spec:
  module: NAME.wasm
  settings: {}
";

const RUST_MANIFEST: &str = "\
[package]
name = \"NAME\"
description = \"NAME\"
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
/// It begins as a copy of a policy of Bindery's. A matcher is one of `same-zone` in Rust, `prefer-owner` in
/// JavaScript, or `wear` in Python; a reclaimer is one of `keep-labelled`, in Rust. Change it, and the cases
/// in `cases/`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The language of the policy.
    #[arg(long, value_enum)]
    language: Language,
    /// What the policy does.
    #[arg(long, value_enum, default_value_t = PolicyKind::Matcher)]
    kind: PolicyKind,
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

#[derive(Clone, Copy, ValueEnum)]
enum PolicyKind {
    /// Rejects and scores volumes that a claim may get.
    Matcher,
    /// Says what becomes of volumes whose claims are gone.
    Reclaimer,
}

/// Files by their paths, and what they contain.
type Files = Vec<(&'static str, &'static str)>;

/// The policy that is copied, and its files.
fn template(language: Language, kind: PolicyKind) -> Result<(&'static str, Files)> {
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
    let (policy, mut files): (_, Files) = match (language, kind) {
        (Language::Rust, PolicyKind::Matcher) => {
            files!("same-zone": "src/lib.rs", "src/bindings.rs", "settings.json", "cases/cases.yaml")
        }
        (Language::Rust, PolicyKind::Reclaimer) => {
            files!("keep-labelled": "src/lib.rs", "src/bindings.rs", "settings.json", "cases/cases.yaml")
        }
        (Language::JavaScript, PolicyKind::Matcher) => files!(
            "prefer-owner": "policy.js", "build.mjs", "package.json", "package-lock.json", "cases/cases.yaml"
        ),
        (Language::Python, PolicyKind::Matcher) => {
            files!("wear": "policy.py", "requirements.txt", "cases/cases.yaml")
        }
        (Language::JavaScript | Language::Python, PolicyKind::Reclaimer) => {
            bail!("there is no reclaimer to begin with in this language yet: write --language rust")
        }
    };
    if let Language::Rust = language {
        files.extend([("Cargo.toml", RUST_MANIFEST), ("Cargo.lock", include_str!("rust.lock"))]);
    }
    files.extend(COMMON);
    files.extend(match kind {
        PolicyKind::Matcher => MATCHER,
        PolicyKind::Reclaimer => RECLAIMER,
    });
    Ok((policy, files))
}

/// Runs `bindery policy new`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let name = &arguments.name;
    // A package in Rust begins with a letter.
    if !is_dns_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        bail!("{name:?} is not a name: write lower-case letters, digits and hyphens, at most {NAME_MAX}");
    }
    let (policy, files) = template(arguments.language, arguments.kind)?;
    let folder = PathBuf::from(name);
    fs::create_dir(&folder).with_context(|| {
        format!("the folder {name} cannot be made; give another name, or remove what is there")
    })?;
    for (file, text) in files {
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
         bindery policy test {name}/{name}.wasm  # holds it against {name}/cases\n\
         bindery plan -f CLUSTER.yaml --policy {name}/policy.yaml  # shows what it would change\n"
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
