//! `cargo xtask image`: Bindery's container image, for several platforms, as one archive.
//!
//! The image has no system below it: `/bindery`, which is static, the default engine's component, the bill of
//! what both are made of, and the licences. The same checkout makes the same digest on machines of one
//! architecture, with the same toolchain: the files are built without this machine's paths, and the only time
//! in the image is the commit's. A machine of another architecture has another compiler, which need not make
//! the same bytes.

mod bom;
mod compiled;
mod linked;
mod notices;
mod parts;
mod program;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::oci::{self, Image, Platform, Tree};
use crate::{components, packages, process, workspace};

/// Where the image's name is known to be looked for, as the chart's values have it.
const REPOSITORY: &str = "ghcr.io/bindery/bindery";
/// Where the default engine's component lies in an image.
const ENGINE: &str = "bindery-engine.wasm";
/// Who runs it: the number that is nobody's by custom, so that Kubernetes can see that it is not root.
const USER: &str = "65532:65532";

/// Build Bindery's container image and print its archive's path and its digest.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Platforms that the image is for.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["amd64", "arm64"])]
    platforms: Vec<Platform>,
    /// Profile of cargo: `dist` is what is released, `image-test` is built sooner.
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// An image on disk.
pub(crate) struct Built {
    /// Its archive, an image layout in a tar file.
    pub(crate) archive: PathBuf,
    /// What names it, `sha256:…`.
    pub(crate) digest: String,
}

/// Carries out `cargo xtask image`.
///
/// # Errors
/// As [`build`].
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let built = build(&arguments.platforms, &arguments.profile)?;
    crate::say(format_args!("{} {}", built.archive.display(), built.digest));
    Ok(())
}

/// Builds the image for some platforms.
///
/// # Errors
/// When this is no system that an image can be built on, there is no toolchain for a platform (the errors say
/// what to do), something does not compile, or a file cannot be written.
pub(crate) fn build(platforms: &[Platform], profile: &str) -> Result<Built> {
    check(std::env::consts::OS, platforms, process::exists("dpkg-query", "--version")?)?;
    let about = About::read()?;
    let engine = components::build()?;
    let folder = workspace::target_folder()?.join("image").join(profile);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut platforms = platforms.to_vec();
    platforms.sort();
    platforms.dedup();
    let programs = program::build_all(&platforms, profile)?;
    let mut images = Vec::new();
    for (platform, program) in platforms.into_iter().zip(programs) {
        let parts = parts::list(&program)?;
        let bill = bom::write(&parts, &about.version)?;
        let name = format!("bindery-{}-{}.cdx.json", about.version, platform.name());
        workspace::replace(&folder.join(name), &bill)?;
        let mut layer = Tree::default();
        layer.program(program::NAME, workspace::read(&program.path)?);
        layer.file(ENGINE, workspace::read(&engine)?);
        layer.file("bindery.cdx.json", bill);
        layer.file("LICENSE", workspace::read(&workspace::root().join("LICENSE"))?);
        layer.file("licenses.txt", notices::write(&parts)?);
        images.push(Image { platform, layer, run: about.run(), created: about.created.clone() });
    }
    let name = format!("{REPOSITORY}:{}", about.version);
    let oci::Archive { bytes, digest } = oci::archive(&images, &[&name], &about.labels)?;
    let archive = folder.join(format!("bindery-{}.tar", about.version));
    workspace::replace(&archive, &bytes)?;
    Ok(Built { archive, digest })
}

/// Whether an image can be built here, before an hour is spent on it.
fn check(system: &str, platforms: &[Platform], has_dpkg: bool) -> Result<()> {
    const REMEDY: &str = "build it on Debian or Ubuntu, or in a container of one";
    if system != "linux" {
        // What compiles for the processor would do so for this system.
        bail!("images are built on Linux, and this is {system}: {REMEDY}");
    }
    let native = platforms.iter().find(|&&platform| Platform::here() == Some(platform));
    if let (Some(native), false) = (native, has_dpkg) {
        bail!(
            "there is no dpkg-query, which tells what libraries of the system are in the image for {}: {REMEDY}",
            native.name()
        );
    }
    Ok(())
}

/// What an image says of itself.
struct About {
    version: String,
    created: String,
    /// The annotations that the image specification names.
    labels: Value,
}

impl About {
    /// What the checkout says.
    fn read() -> Result<Self> {
        let package = packages::ours(workspace::metadata()?, program::NAME)?;
        let text = |field: &str| packages::text(package, field);
        let time = ["show", "--no-patch", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"];
        let created = git(&time)?.unwrap_or_else(|| oci::BEGINNING.to_owned());
        let mut labels = json!({
            "org.opencontainers.image.title": "Bindery",
            "org.opencontainers.image.description": text("description")?,
            "org.opencontainers.image.licenses": text("license")?,
            "org.opencontainers.image.source": text("repository")?,
            "org.opencontainers.image.version": text("version")?,
            "org.opencontainers.image.created": created,
        });
        // What is not committed is told, too.
        if let Some(revision) = git(&["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])? {
            labels["org.opencontainers.image.revision"] = json!(revision);
        }
        Ok(Self { version: text("version")?.to_owned(), created, labels })
    }

    /// How an image is run.
    fn run(&self) -> Value {
        json!({"User": USER, "Entrypoint": [format!("/{}", program::NAME)], "Labels": self.labels})
    }
}

/// What git says of the checkout; nothing where this is none, or one that git does not look into because it
/// is another user's. What it complains of is shown.
fn git(arguments: &[&str]) -> Result<Option<String>> {
    if !workspace::root().join(".git").exists() || !process::exists("git", "--version")? {
        return Ok(None);
    }
    let mut git = Command::new("git");
    let printed = process::output(git.args(arguments).env("TZ", "UTC").current_dir(workspace::root()));
    Ok(printed.ok().map(|printed| printed.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_build_an_image_is_told_so_at_once() {
        let here = Platform::here().unwrap();
        let other = if here == Platform::Amd64 { Platform::Arm64 } else { Platform::Amd64 };
        check("linux", &[here, other], true).unwrap();
        check("linux", &[other], false).unwrap();
        for (system, platform, has_dpkg, told) in [
            ("macos", other, true, "this is macos: build it on Debian"),
            ("linux", here, false, "no dpkg-query"),
        ] {
            let why = check(system, &[platform], has_dpkg).unwrap_err().to_string();
            assert!(why.contains(told), "{why}");
        }
    }
}
