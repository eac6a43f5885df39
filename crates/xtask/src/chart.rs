//! `cargo xtask chart`: the generated parts of the Helm chart, and what its tests need.

mod readme;

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::tools::{self, Tool};
use crate::workspace;

/// Generate the table of values in the chart's README from values.yaml and its comments.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail if the table is out of date.
    #[arg(long)]
    check: bool,
}

/// Carries out `cargo xtask chart`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
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
        bail!("the table of charts/bindery/README.md is out of date: run `cargo xtask chart`");
    }
    let path = chart.join("README.md");
    fs::write(&path, fresh).with_context(|| format!("cannot write {}", path.display()))
}

/// Installs what the chart's tests need, and passes the paths to a command: Helm, and the definitions of the
/// custom resources that the chart contains.
pub(crate) fn offer(command: &mut Command) -> Result<()> {
    command.env("BINDERY_HELM", tools::install(Tool::Helm)?);
    command.env("BINDERY_DEFINITIONS", std::env::join_paths(tools::definitions()?)?);
    Ok(())
}
