//! `cargo xtask image`: Bindery's container image, for several platforms, as one archive.
//!
//! The image contains no operating system: only `/bindery`, which is static, the default engine's component,
//! the bill of materials and the licences. The same checkout and toolchain make the same digest on machines
//! of one architecture: the files are compiled without this machine's paths, and the only time in the image
//! is the commit's. The compiler of another architecture need not make the same bytes.

mod bom;
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
use crate::{components, packages, process, timing, workspace};

/// The repository in the image's name, as in the chart's values.
const REPOSITORY: &str = "ghcr.io/bindery/bindery";
/// The path of the default engine's component in the image.
const ENGINE: &str = "bindery-engine.wasm";
/// User and group of the program. A number lets Kubernetes check that the user is not root.
const USER: &str = "65532:65532";

/// Build Bindery's container image and print its archive's path and its digest. Programs and bills of
/// materials are beside the archive.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Platforms that the image is for.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["amd64", "arm64"])]
    platforms: Vec<Platform>,
    /// Profile of cargo: `dist` is released, `image-test` builds faster.
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// An image on disk.
pub(crate) struct Built {
    /// Its archive, an OCI image layout in a tar file.
    pub(crate) archive: PathBuf,
    /// Its digest, `sha256:…`.
    pub(crate) digest: String,
}

/// Carries out `cargo xtask image`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let built = build(&arguments.platforms, &arguments.profile)?;
    crate::say(format_args!("{} {}", built.archive.display(), built.digest));
    Ok(())
}

/// Builds the image for some platforms.
pub(crate) fn build(platforms: &[Platform], profile: &str) -> Result<Built> {
    check(std::env::consts::OS, platforms, process::exists("dpkg-query", "--version")?)?;
    let about = About::read()?;
    let engine = components::build()?;
    let policies = components::policies()?;
    let folder = workspace::target_folder()?.join("image").join(profile);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut platforms = platforms.to_vec();
    platforms.sort();
    platforms.dedup();
    let mut images = Vec::new();
    for platform in platforms {
        let part = timing::begin(&format!("build the image for {}", platform.name()));
        let program = program::build(platform, profile)?;
        drop(part);
        let parts = parts::list(&program)?;
        let bill = bom::write(&parts, &about.version)?;
        let name = format!("bindery-{}-linux-{}", about.version, platform.name());
        let content = workspace::read(&program.path)?;
        workspace::replace(&folder.join(&name), &content)?;
        workspace::replace(&folder.join(format!("{name}.cdx.json")), &bill)?;
        let mut layer = Tree::default();
        layer.program(program::NAME, content);
        layer.file(ENGINE, workspace::read(&engine)?);
        for name in components::POLICIES {
            let policy = format!("{name}.wasm");
            layer.file(format!("policies/{policy}"), workspace::read(&policies.join(policy))?);
        }
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

/// Checks that an image can be built on this system, before an hour is spent on it.
fn check(system: &str, platforms: &[Platform], has_dpkg: bool) -> Result<()> {
    const REMEDY: &str = "build it on Debian or Ubuntu, or in a container of one";
    if system != "linux" {
        bail!("images are built on Linux, and this is {system}: {REMEDY}");
    }
    let native = platforms.iter().find(|&&platform| Platform::here() == Some(platform));
    if let (Some(native), false) = (native, has_dpkg) {
        bail!(
            "there is no dpkg-query, which names the system's libraries in the image for {}: {REMEDY}",
            native.name()
        );
    }
    Ok(())
}

/// An image's description of itself.
struct About {
    version: String,
    created: String,
    /// Annotations of the image specification.
    labels: Value,
}

impl About {
    /// Reads it from the checkout.
    fn read() -> Result<Self> {
        let package = packages::ours(program::NAME)?;
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
        // `-dirty` shows that something is not committed.
        if let Some(revision) = git(&["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])? {
            labels["org.opencontainers.image.revision"] = json!(revision);
        }
        Ok(Self { version: text("version")?.to_owned(), created, labels })
    }

    /// The `config` of the image configuration.
    fn run(&self) -> Value {
        json!({"User": USER, "Entrypoint": [format!("/{}", program::NAME)], "Labels": self.labels})
    }
}

/// The output of git in the checkout. `None` if the checkout is not a repository, or if git refuses to read
/// it because it belongs to another user; git's message is shown.
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
    fn a_system_that_cannot_build_an_image_is_refused_with_a_remedy() {
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
