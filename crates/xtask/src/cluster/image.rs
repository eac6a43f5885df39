//! The one image of a node, made of this machine's own programs: no registry is reachable from a node, and none is needed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{process, workspace};

/// The image's own name, for pods of tests, and for the sandboxes of all pods.
pub(super) const NAME: &str = "bindery.test/busybox:1";
/// The image that upstream's recycler pods name: Debian, whose shell and `find` are in ours.
const RECYCLER: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
/// The names that pods may give to the image.
pub(super) const NAMES: [&str; 2] = [NAME, RECYCLER];

/// Where Debian's busybox-static puts it.
const BUSYBOX: &str = "/usr/bin/busybox";
/// Programs that are taken as they are, with the libraries that they need: what a recycler pod calls, and busybox's `find`
/// cannot delete.
const PROGRAMS: [(&str, &str); 2] = [("/bin/dash", "bin/sh"), ("/usr/bin/find", "bin/find")];
/// Changes with what [`pack`] does.
const FORMAT: &str = "2";

/// The image as an archive, made once for each state of the programs in it.
///
/// # Errors
/// When a program is missing or a file cannot be written.
pub(super) fn archive() -> Result<PathBuf> {
    let files = files()?;
    let mut parts = vec![FORMAT.into(), NAMES.join(" ").into_bytes(), read(BUSYBOX.as_ref())?];
    for (from, to) in &files {
        parts.extend([to.as_os_str().as_encoded_bytes().to_vec(), read(from)?]);
    }
    let key = workspace::content_key(parts);
    let folder = workspace::cache_folder()?.join("tools").join(format!("busybox-image-{}", &key[..12]));
    let archive = folder.join("image.tar");
    if !archive.is_file() {
        let unfinished = folder.with_extension(std::process::id().to_string());
        fs::create_dir_all(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
        pack(&unfinished, &files)?;
        fs::create_dir_all(&folder)?;
        fs::rename(unfinished.join("image.tar"), &archive)
            .with_context(|| format!("cannot put an image at {}", archive.display()))?;
        fs::remove_dir_all(&unfinished)?;
    }
    Ok(archive)
}

/// The programs and their libraries: where each is, and where it goes below the image's root.
fn files() -> Result<BTreeSet<(PathBuf, PathBuf)>> {
    let mut files = BTreeSet::new();
    for (program, place) in PROGRAMS {
        files.insert((PathBuf::from(program), PathBuf::from(place)));
        // Lines of `name => path (address)`, or `path (address)` for the loader.
        for line in process::output(Command::new("ldd").arg(program))?.lines() {
            if let Some(library) = line.split_whitespace().find_map(|word| word.strip_prefix('/')) {
                files.insert((Path::new("/").join(library), PathBuf::from(library)));
            }
        }
    }
    Ok(files)
}

/// Packs `image.tar` in a folder, as `docker save` would: one layer with busybox under the names of its applets, and the
/// files in the place of those that they replace.
fn pack(folder: &Path, files: &BTreeSet<(PathBuf, PathBuf)>) -> Result<()> {
    let root = folder.join("root");
    let bin = root.join("bin");
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(root.join("tmp"))?;
    fs::copy(BUSYBOX, bin.join("busybox"))?;
    for (from, to) in files {
        let to = root.join(to);
        fs::create_dir_all(to.parent().context("a file must lie in a folder")?)?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    for applet in process::output(Command::new(BUSYBOX).arg("--list"))?.lines() {
        if !bin.join(applet).exists() {
            symlink("busybox", bin.join(applet))?;
        }
    }
    tar(folder, &root, "layer.tar", &["."])?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        // What a sandbox runs: it waits to be killed.
        "config": {"Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"]},
        "rootfs": {
            "type": "layers",
            "diff_ids": [format!("sha256:{}", workspace::sha256(&read(&folder.join("layer.tar"))?))],
        },
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": NAMES, "Layers": ["layer.tar"]}]);
    fs::write(folder.join("manifest.json"), manifest.to_string())?;
    tar(folder, folder, "image.tar", &["manifest.json", "config.json", "layer.tar"])
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
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
