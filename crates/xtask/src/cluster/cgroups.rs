//! The cgroup of a node's pods: the only thing of a node that the kernel does not remove with its namespaces.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The mount point of cgroups: one tree (version 2), or one for each controller (version 1).
const ROOT: &str = "/sys/fs/cgroup";

/// Makes a cgroup of this name at the top of every tree.
pub(super) fn create(name: &str) -> Result<()> {
    let root = Path::new(ROOT);
    if let Ok(controllers) = fs::read_to_string(root.join("cgroup.controllers")) {
        // In version 2, a cgroup below the root has only the controllers that the root hands down.
        for controller in controllers.split_whitespace() {
            let path = root.join("cgroup.subtree_control");
            fs::write(&path, format!("+{controller}"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    for tree in trees()? {
        let cgroup = tree.join(name);
        fs::create_dir_all(&cgroup)
            .with_context(|| format!("cannot create {}: a node needs writable cgroups", cgroup.display()))?;
    }
    Ok(())
}

/// Removes the cgroup of this name, and all below it, from every tree, if it exists.
pub(super) fn remove(name: &str) -> Result<()> {
    if !Path::new(ROOT).is_dir() {
        return Ok(());
    }
    for tree in trees()? {
        let cgroup = tree.join(name);
        if cgroup.is_dir() {
            // A cgroup stays busy for a moment after its last process has ended.
            super::retry_while(ErrorKind::ResourceBusy, || remove_tree(&cgroup))
                .with_context(|| format!("cannot remove {}", cgroup.display()))?;
        }
    }
    Ok(())
}

fn remove_tree(cgroup: &Path) -> io::Result<()> {
    let remove = || {
        for entry in fs::read_dir(cgroup)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                remove_tree(&entry.path())?;
            }
        }
        fs::remove_dir(cgroup)
    };
    match remove() {
        // containerd may remove it at the same time.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn trees() -> Result<Vec<PathBuf>> {
    let root = PathBuf::from(ROOT);
    let is_tree = |path: &Path| path.join("cgroup.procs").is_file();
    if is_tree(&root) {
        return Ok(vec![root]);
    }
    let mut trees = Vec::new();
    for entry in fs::read_dir(&root).with_context(|| format!("cannot list {ROOT}"))? {
        let path = entry?.path();
        // `cpu` and `cpuacct` may be links to one tree.
        if is_tree(&path) && !path.is_symlink() {
            trees.push(path);
        }
    }
    if trees.is_empty() {
        bail!("there are no cgroups at {ROOT}: a node needs them");
    }
    Ok(trees)
}
