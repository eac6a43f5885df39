//! The components of policies.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_core::is_dns_label;
use bindery_host::{ComponentPolicy, Limits, Options, PolicyHost};
use bindery_registry::check_size;
use bindery_registry::limits::MODULE_MAX;

use crate::engine::CacheArgument;

/// What names of shipped policies begin with.
pub(crate) const BUILTIN: &str = "builtin:";
/// What names of modules in a registry begin with.
pub(crate) const REGISTRY: &str = "oci://";
/// What names of modules in ConfigMaps begin with.
pub(crate) const CONFIG_MAP: &str = "configmap:";
/// How many calls of policies run at the same time.
const CONCURRENCY: u32 = 4;

/// The component of a policy.
#[derive(clap::Args)]
pub(crate) struct ModuleArgument {
    /// The policy: the file of a component, or `builtin:NAME` for one that ships, such as
    /// `builtin:same-zone`.
    #[arg(value_name = "builtin:NAME|FILE")]
    module: String,
    #[command(flatten)]
    shipped: ShippedArgument,
    #[command(flatten)]
    pub(super) cache: CacheArgument,
}

/// Where the policies that ship are.
#[derive(Clone, clap::Args)]
pub(crate) struct ShippedArgument {
    /// The folder of the policies that ship. By default `policies` beside this program.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_POLICIES")]
    policies: Option<PathBuf>,
}

impl ModuleArgument {
    /// The component's file.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        self.shipped.path(&self.module, Path::new(""))
    }

    /// Loads the policy.
    pub(crate) fn load(&self) -> Result<ComponentPolicy> {
        load(&host(&self.cache)?, &self.path()?)
    }
}

/// A host for policies.
pub(crate) fn host(cache: &CacheArgument) -> Result<PolicyHost> {
    let options = Options { concurrency: CONCURRENCY, ..cache.options() };
    PolicyHost::new(&options).context("policies cannot be run")
}

/// Reads a component of a policy or an engine. The host of its kind may allow fewer bytes.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    if path.is_dir() {
        let files = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let module = files.filter(|file| file.extension().is_some_and(|it| it == "wasm")).min();
        let module = module.unwrap_or_else(|| path.join("NAME.wasm"));
        bail!("{} is a folder; name the module in it, {}", path.display(), module.display());
    }
    // Opening a pipe, or reading a device, may never end.
    if path.exists() && !path.is_file() {
        bail!("{} is not a regular file; name a component's file, or {BUILTIN}NAME", path.display());
    }
    let what = format!("the component {}", path.display());
    let mut bytes = Vec::new();
    let size = File::open(path).and_then(|file| {
        let size = file.metadata()?.len();
        file.take(MODULE_MAX as u64).read_to_end(&mut bytes)?;
        Ok(size)
    });
    check_size(&what, size.with_context(|| format!("{what} cannot be read"))?)?;
    Ok(bytes)
}

/// Loads a policy from a file.
pub(crate) fn load(host: &PolicyHost, path: &Path) -> Result<ComponentPolicy> {
    host.load(&read(path)?, Limits::policy()).map_err(|error| anyhow!("{}: {error}", path.display()))
}

impl ShippedArgument {
    /// The file of a module: `builtin:NAME`, or a file, relative to `folder`.
    pub(crate) fn path(&self, module: &str, folder: &Path) -> Result<PathBuf> {
        if module.starts_with(REGISTRY) {
            bail!(
                "{module}: only cluster objects name modules in registries; `bindery policy pull --output` \
                 fetches the file: name that"
            );
        }
        if module.starts_with(CONFIG_MAP) {
            bail!("{module}: only cluster objects name modules in ConfigMaps; name a file");
        }
        let Some(name) = module.strip_prefix(BUILTIN) else { return Ok(folder.join(module)) };
        let beside = std::env::current_exe().ok().map(|program| program.with_file_name("policies"));
        let Some(folder) = self.policies.clone().or(beside) else {
            bail!("the folder of the policies that ship is unknown: name it by --policies")
        };
        let path = folder.join(format!("{name}.wasm"));
        if !is_dns_label(name) || !path.is_file() {
            bail!(
                "there is no {BUILTIN}{name} in {}, which has {}; name another folder by --policies",
                folder.display(),
                shipped(&folder)
            );
        }
        Ok(path)
    }
}

/// The policies in a folder, as text.
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
    if names.is_empty() { "no policy".to_owned() } else { names.join(", ") }
}
