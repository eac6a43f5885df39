//! The one image of a node, made of a static busybox: no registry is reachable from a node, and none is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{process, workspace};

/// The image's own name, for pods of tests, and for the sandboxes of all pods.
pub(super) const NAME: &str = "bindery.test/busybox:1";
/// The image that upstream's recycler pods name, whose shell busybox stands in for.
const RECYCLER: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
/// Where Debian's busybox-static puts it.
const BUSYBOX: &str = "/usr/bin/busybox";
/// Changes with what [`pack`] does.
const FORMAT: &str = "1";

/// The names that pods may give to the image.
pub(super) const NAMES: [&str; 2] = [NAME, RECYCLER];

/// The image as an archive, made once for each busybox.
///
/// # Errors
/// When busybox is missing or a file cannot be written.
pub(super) fn archive() -> Result<PathBuf> {
    let busybox = fs::read(BUSYBOX).with_context(|| format!("cannot read {BUSYBOX}"))?;
    let key = workspace::content_key([FORMAT.as_bytes(), NAMES.join(" ").as_bytes(), &busybox]);
    let folder = workspace::cache_folder()?.join("tools").join(format!("busybox-image-{}", &key[..12]));
    let archive = folder.join("image.tar");
    if !archive.is_file() {
        let unfinished = folder.with_extension(std::process::id().to_string());
        fs::create_dir_all(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
        pack(&unfinished)?;
        fs::create_dir_all(&folder)?;
        fs::rename(unfinished.join("image.tar"), &archive)
            .with_context(|| format!("cannot put an image at {}", archive.display()))?;
        fs::remove_dir_all(&unfinished)?;
    }
    Ok(archive)
}

/// Packs `image.tar` in a folder, as `docker save` would: one layer with busybox under the name of each of its applets.
fn pack(folder: &Path) -> Result<()> {
    let root = folder.join("root");
    let bin = root.join("bin");
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(root.join("tmp"))?;
    fs::copy(BUSYBOX, bin.join("busybox"))?;
    for applet in process::output(Command::new(BUSYBOX).arg("--list"))?.lines() {
        if applet != "busybox" {
            std::os::unix::fs::symlink("busybox", bin.join(applet))?;
        }
    }
    tar(folder, &root, "layer.tar", &["bin", "tmp"])?;
    let layer = fs::read(folder.join("layer.tar"))?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        // What a sandbox runs: it waits to be killed.
        "config": {"Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", workspace::sha256(&layer))]},
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": NAMES, "Layers": ["layer.tar"]}]);
    fs::write(folder.join("manifest.json"), manifest.to_string())?;
    tar(folder, folder, "image.tar", &["manifest.json", "config.json", "layer.tar"])
}

/// Packs some of a folder into an archive that depends on nothing but their content.
fn tar(target: &Path, folder: &Path, name: &str, members: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--create",
        "--file",
    ]);
    tar.arg(target.join(name)).arg("--directory").arg(folder).args(members);
    process::run(&mut tar)
}

/// This machine's, as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
