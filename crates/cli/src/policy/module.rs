//! The component of a policy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bindery_host::{Limits, Options, PolicyHost};
use bindery_policy::Matcher;

/// What names of shipped policies begin with.
const BUILTIN: &str = "builtin:";

#[derive(clap::Args)]
pub(crate) struct ModuleArgument {
    /// The policy: the file of a component, or `builtin:NAME` for one that ships, such as
    /// `builtin:same-zone`.
    #[arg(value_name = "builtin:NAME|FILE")]
    module: String,
    /// The folder of the policies that ship. By default `policies` beside this program.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_POLICIES")]
    policies: Option<PathBuf>,
}

impl ModuleArgument {
    /// The component's file.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let Some(name) = self.module.strip_prefix(BUILTIN) else { return Ok(PathBuf::from(&self.module)) };
        let beside = std::env::current_exe().ok().map(|program| program.with_file_name("policies"));
        let Some(folder) = self.policies.clone().or(beside) else {
            bail!("the folder of the policies that ship is unknown: name it by --policies")
        };
        let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        let path = folder.join(format!("{name}.wasm"));
        if !is_name || !path.is_file() {
            bail!("{BUILTIN}{name} does not ship in {}: {}", folder.display(), shipped(&folder));
        }
        Ok(path)
    }

    /// Loads the policy.
    pub(crate) fn load(&self) -> Result<Arc<dyn Matcher>> {
        let path = self.path()?;
        let host = PolicyHost::new(&Options::default())?;
        // A busy machine must not change what a policy says.
        let limits = Limits { time: Limits::unhurried().time, ..Limits::policy() };
        let matcher = host.load_file(&path, limits);
        Ok(Arc::new(matcher.with_context(|| format!("the policy {}", path.display()))?))
    }
}

/// What is in the folder of the policies that ship.
fn shipped(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| {
        Some(
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".wasm")
                .filter(|name| *name != "bindery-engine")?
                .to_owned(),
        )
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) }
}
