//! `cargo xtask chart`: what in the Helm chart is made from other files, and what its tests need.

mod readme;
mod schemas;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::tools::{self, Tool};
use crate::workspace;

/// Make the table of values in the chart's README from values.yaml and its comments.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail where the table is not what would be made.
    #[arg(long)]
    check: bool,
    /// Only print the folder with the JSON schemas of Kubernetes that manifests are held against.
    #[arg(long, conflicts_with = "check")]
    schemas: bool,
}

/// Carries out `cargo xtask chart`.
///
/// # Errors
/// When values.yaml has a value without a comment or is not written as [`readme`] reads it, when a file
/// cannot be read or written, and with `--check` when the table is stale.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.schemas {
        crate::say(format_args!("{}", schemas()?.display()));
        return Ok(());
    }
    let chart = workspace::root().join("charts/bindery");
    let read = |name: &str| {
        let path = chart.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (values, present) = (read("values.yaml")?, read("README.md")?);
    let fresh = readme::with_table(&present, &values)?;
    if fresh == present {
        return Ok(());
    }
    if arguments.check {
        bail!("the table of charts/bindery/README.md is stale: run `cargo xtask chart`");
    }
    let path = chart.join("README.md");
    fs::write(&path, fresh).with_context(|| format!("cannot write {}", path.display()))
}

/// Installs what the chart's tests need, and tells a command where it is: Helm, kubeconform with the schemas
/// that it reads, and the definitions of the custom resources of others.
///
/// # Errors
/// As [`tools::install`], and when the schemas cannot be made.
pub(crate) fn offer(command: &mut Command) -> Result<()> {
    command.env("BINDERY_HELM", tools::install(Tool::Helm)?);
    command.env("BINDERY_KUBECONFORM", tools::install(Tool::Kubeconform)?);
    command.env("BINDERY_SCHEMAS", schemas()?);
    command.env("BINDERY_DEFINITIONS", std::env::join_paths(tools::definitions()?)?);
    Ok(())
}

/// The folder with the schemas of the Kubernetes that is pinned, made once for each version.
fn schemas() -> Result<PathBuf> {
    let module = tools::kubernetes_module()?;
    let source = module.folder.join("api/openapi-spec/swagger.json");
    let text = workspace::read(&source)?;
    let key = workspace::content_key([&text[..], schemas::FORMAT.as_bytes()]);
    let folder =
        workspace::cache_folder()?.join("schemas").join(format!("{}-{}", module.version, &key[..12]));
    workspace::folder_once(&folder, |unfinished| {
        eprintln!(
            "making the schemas of Kubernetes {}, once; they are kept in {}",
            module.version,
            folder.display()
        );
        for (name, schema) in schemas::of(&serde_json::from_slice(&text)?)? {
            let path = unfinished.join(name);
            fs::write(&path, schema.to_string())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    })?;
    Ok(folder)
}
