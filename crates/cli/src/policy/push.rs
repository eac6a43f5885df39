//! `bindery policy push`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_host::{Host, Limits};
use bindery_registry::{
    Access, Artifact, Digest, Extra, Layout, Name, Reference, Repository, copy, push, put_tag,
};

use super::module::ModuleArgument;
use super::registry::RegistryArguments;
use super::{cases, module};
use crate::{block_on, output};

/// The page beside a module.
const PAGE: &str = "README.md";
/// Annotations that say what an artifact is.
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";
const DESCRIPTION: &str = "org.opencontainers.image.description";

/// Push a policy or an engine to a registry.
///
/// The golden cases in the folder `cases` beside the module, and README.md beside it, go along. Prints the
/// reference with the digest, which documents and objects name as their module. A folder with an OCI layout,
/// as `bindery policy pull --to` makes, is pushed as it is, with its signatures.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleArgument,
    /// Where it goes.
    #[arg(value_name = "oci://HOST/REPOSITORY:TAG")]
    to: Reference,
    /// Push no cases and no page.
    #[arg(long)]
    bare: bool,
    /// An annotation of the manifest, such as org.opencontainers.image.source=URL. Repeat it for several.
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    annotation: Vec<(String, String)>,
    #[command(flatten)]
    registry: RegistryArguments,
}

fn annotation(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("give KEY=VALUE")?;
    let is_bindery = key.starts_with("dev.bindery.");
    if key.is_empty() || is_bindery {
        Err("give another key".to_owned())
    } else {
        Ok((key.into(), value.into()))
    }
}

/// Runs `bindery policy push`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let to = &arguments.to;
    let path = arguments.module.path()?;
    let repository =
        || arguments.registry.client_of_user()?.repository(to, Access::Push).map_err(anyhow::Error::from);
    let digest = if path.is_dir() {
        block_on(async { push_layout(&path, &repository()?, to).await })?
    } else {
        if to.digest().is_some() {
            bail!("{to}: the digest is not known before the push; leave it out");
        }
        let artifact = artifact(arguments, &path)?;
        block_on(async { Ok(push(&repository()?, &artifact, to.tag()).await?) })?
    };
    output::print(&format!("{}\n", to.with_digest(digest)))?;
    Ok(ExitCode::SUCCESS)
}

async fn push_layout(folder: &Path, to: &dyn Repository, reference: &Reference) -> Result<Digest> {
    let name = reference.name();
    let name = name.with_context(|| format!("{reference}: name a tag or a digest of the layout"))?;
    let digest = copy(&Layout::new(folder), to, &name).await?;
    // Registries remove what no tag names.
    if let (Name::Digest(_), Some(tag)) = (&name, reference.tag()) {
        put_tag(to, digest, tag).await?;
    }
    Ok(digest)
}

fn artifact(arguments: &Arguments, path: &Path) -> Result<Artifact> {
    // Once, so that what is pushed is what was looked at.
    let module = module::read(path)?;
    let (mut annotations, exports) = describe(&arguments.module, path, &module)?;
    annotations.extend(arguments.annotation.iter().cloned());
    let read = |path: &Path| -> Result<Extra> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Extra { name, bytes })
    };
    let (mut extras, mut page) = (Vec::new(), None);
    if !arguments.bare {
        let folder = cases::folder_beside(path);
        let files = if folder.is_dir() { cases::read(&[folder])? } else { Vec::new() };
        extras = files.iter().map(|file| read(&file.path)).collect::<Result<_>>()?;
        let beside: PathBuf = path.with_file_name(PAGE);
        page = beside.is_file().then(|| read(&beside)).transpose()?;
    }
    Ok(Artifact { module, exports, cases: extras, page, annotations })
}

/// The annotations of a module, and what it exports. What is neither a policy nor an engine is refused.
fn describe(
    argument: &ModuleArgument,
    path: &Path,
    module: &[u8],
) -> Result<(BTreeMap<String, String>, Vec<String>)> {
    use bindery_host::ComponentPolicy::{Matcher, Reclaimer};
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let host = module::host(&argument.cache)?;
    let policy = match host.load(module, Limits::policy()) {
        Ok(policy) => policy,
        Err(error) => {
            if Host::new(&argument.cache.options())?.load(module, Limits::default()).is_err() {
                return Err(error).with_context(|| format!("{} is no policy", path.display()));
            }
            return Ok((
                BTreeMap::from([(TITLE.to_owned(), stem)]),
                vec!["bindery:policy/engine".to_owned()],
            ));
        }
    };
    let metadata = policy.metadata();
    let annotations =
        [(TITLE, &metadata.name), (VERSION, &metadata.version), (DESCRIPTION, &metadata.description)];
    let export = match policy {
        Matcher(_) => "bindery:policy/match@0.2.0",
        Reclaimer(_) => "bindery:policy/reclaim@0.2.0",
    };
    let annotations = annotations.into_iter().map(|(key, text)| (key.to_owned(), text.to_string()));
    Ok((annotations.collect(), vec![export.to_owned()]))
}
