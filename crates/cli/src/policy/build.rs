//! `bindery policy build`: the component of a folder that `bindery policy new` made.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use wit_component::ComponentEncoder;

use super::module;
use crate::engine::CacheArgument;
use crate::output;

/// The target of a component that imports nothing.
const TARGET: &str = "wasm32-unknown-unknown";

/// Build the component of a policy.
///
/// The folder tells the language: `Cargo.toml` for Rust, `package.json` for JavaScript, `requirements.txt`
/// for Python. The first build fetches the packages that the folder pins; later ones need no network.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder of the policy.
    #[arg(default_value = ".")]
    folder: PathBuf,
    #[command(flatten)]
    cache: CacheArgument,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = fs::canonicalize(&arguments.folder);
    let folder = folder.with_context(|| format!("there is no folder {}", arguments.folder.display()))?;
    let has = |file: &str| folder.join(file).is_file();
    let component = if has("Cargo.toml") {
        build_rust(&folder)?
    } else if has("package.json") {
        build_javascript(&folder)?
    } else if has("requirements.txt") {
        build_python(&folder)?
    } else {
        bail!(
            "{} is no folder of a policy: it has no Cargo.toml, package.json or requirements.txt",
            folder.display()
        )
    };
    let host = module::host(&arguments.cache)?;
    let matcher = module::load(&host, &component)?;
    let size = fs::metadata(&component)?.len();
    output::print(&format!("{}: {size} bytes, {}\n", component.display(), matcher.digest()))?;
    Ok(ExitCode::SUCCESS)
}

/// A module by cargo, encoded as a component.
fn build_rust(folder: &Path) -> Result<PathBuf> {
    let libraries = output_of(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))?;
    if !Path::new(libraries.trim_end()).is_dir() {
        bail!("Rust cannot compile for {TARGET}; `rustup target add {TARGET}` adds it");
    }
    let target = folder.join("target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--target", TARGET, "--target-dir"]).arg(&target);
    run_in(folder, &mut cargo)?;
    let metadata = output_of(
        Command::new("cargo").args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(folder),
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let name = metadata["packages"][0]["name"].as_str().context("cargo names no package")?;
    let module = target.join(TARGET).join("release").join(format!("{}.wasm", name.replace('-', "_")));
    let module = fs::read(&module).with_context(|| format!("{} cannot be read", module.display()))?;
    let component = ComponentEncoder::default().validate(true).module(&module)?.encode()?;
    let path = folder.join(format!("{name}.wasm"));
    fs::write(&path, component).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// A component by componentize-js, which `build.mjs` calls.
fn build_javascript(folder: &Path) -> Result<PathBuf> {
    if !folder.join("node_modules").is_dir() {
        run_in(folder, Command::new("npm").args(["ci", "--no-audit", "--no-fund"]))?;
    }
    run_in(folder, Command::new("node").arg("build.mjs"))?;
    let package: Value = serde_json::from_slice(&fs::read(folder.join("package.json"))?)?;
    let name = package["name"].as_str().context("package.json has no name")?;
    Ok(folder.join(format!("{name}.wasm")))
}

/// A component by componentize-py.
fn build_python(folder: &Path) -> Result<PathBuf> {
    let environment = folder.join(".venv");
    let componentize = environment.join("bin/componentize-py");
    if !componentize.is_file() {
        run_in(folder, Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let mut install = Command::new(environment.join("bin/pip"));
        run_in(folder, install.args(["install", "--quiet", "--requirement", "requirements.txt"]))?;
    }
    let name = folder.file_name().context("the folder has no name")?;
    let component = folder.join(name).with_added_extension("wasm");
    let mut build = Command::new(componentize);
    build.args(["-d", "wit", "-w", "matcher", "componentize", "--stub-wasi", "policy", "-o"]).arg(&component);
    run_in(folder, &mut build)?;
    Ok(component)
}

/// Runs a program of a toolchain; its output goes to standard error.
fn run_in(folder: &Path, command: &mut Command) -> Result<()> {
    let status = started(command.current_dir(folder).stdout(std::io::stderr()).status(), command)?;
    if !status.success() {
        bail!("{} failed: {status}", command.get_program().display());
    }
    Ok(())
}

/// What a program prints.
fn output_of(command: &mut Command) -> Result<String> {
    let output = started(command.output(), command)?;
    if !output.status.success() {
        bail!("{} failed: {}", command.get_program().display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn started<T>(result: std::io::Result<T>, command: &Command) -> Result<T> {
    let program = command.get_program().display();
    result.map_err(|error| match (error.kind(), program.to_string().as_str()) {
        (ErrorKind::NotFound, "cargo" | "rustc") => {
            anyhow::anyhow!("{program} is not installed; https://rustup.rs installs Rust")
        }
        (ErrorKind::NotFound, "node" | "npm") => {
            anyhow::anyhow!("{program} is not installed; https://nodejs.org has it")
        }
        (ErrorKind::NotFound, "python3") => anyhow::anyhow!("python3 is not installed"),
        _ => anyhow::Error::new(error).context(format!("{program} cannot be started")),
    })
}
