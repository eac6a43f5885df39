//! The only image of a node, made of this machine's programs, since a node reaches no registry.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::oci::{self, Image, Platform, Tree};
use crate::{process, workspace};

/// The image's name for the pods of tests, and for the sandboxes of all pods.
pub(super) const NAME: &str = "bindery.test/busybox:1";
/// The name in upstream's recycler pods: an image of Debian, whose shell and `find` are in ours.
const RECYCLER: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
/// The names that pods may use for the image.
pub(super) const NAMES: [&str; 2] = [NAME, RECYCLER];

/// The path in Debian's busybox-static.
const BUSYBOX: &str = "/usr/bin/busybox";
/// Programs of Debian that a recycler pod calls, with their places in the image. Busybox's `find` cannot
/// delete.
const PROGRAMS: [(&str, &str); 2] = [("/bin/dash", "bin/sh"), ("/usr/bin/find", "bin/find")];
/// Changes with what [`pack`] does.
const FORMAT: &str = "3";

/// The image as an archive, made again only when a program in it has changed.
pub(super) fn archive() -> Result<PathBuf> {
    let files = files()?;
    let mut parts = vec![FORMAT.into(), NAMES.join(" ").into_bytes(), workspace::read(BUSYBOX.as_ref())?];
    for (from, to) in &files {
        parts.extend([to.as_os_str().as_encoded_bytes().to_vec(), workspace::read(from)?]);
    }
    let key = workspace::content_key(parts);
    let folder = workspace::cache_folder()?.join("tools").join(format!("busybox-image-{}", &key[..12]));
    let archive = folder.join("image.tar");
    if !archive.is_file() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        workspace::replace(&archive, &pack(&files)?)?;
    }
    Ok(archive)
}

/// The programs and their libraries: the path of each, and its place in the image.
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

/// The image: busybox, links to it for its applets, and the files, which replace some of these links.
fn pack(files: &BTreeSet<(PathBuf, PathBuf)>) -> Result<Vec<u8>> {
    let mut layer = Tree::default();
    layer.shared_folder("tmp");
    layer.program("bin/busybox", workspace::read(BUSYBOX.as_ref())?);
    for (from, to) in files {
        layer.program(to, workspace::read(from)?);
    }
    for applet in process::output(Command::new(BUSYBOX).arg("--list"))?.lines() {
        let path = Path::new("bin").join(applet);
        if !layer.contains(&path) {
            layer.link(path, "busybox");
        }
    }
    let image = Image {
        platform: Platform::here().context("images are made for amd64 and arm64 only")?,
        layer,
        // A sandbox runs this and waits to be killed.
        run: json!({"Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"]}),
        created: oci::BEGINNING.to_owned(),
    };
    Ok(oci::archive(&[image], &NAMES, &json!({}))?.bytes)
}
