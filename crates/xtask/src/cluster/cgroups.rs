//! The cgroup of a node's pods: the only thing of a node that the kernel does not take down with its namespaces.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Where cgroups are: one tree (version 2), or one for each controller (version 1).
const ROOT: &str = "/sys/fs/cgroup";
/// How long a cgroup may stay busy after its last process has ended.
const BUSY_MAX: Duration = Duration::from_secs(10);
const BUSY_EVERY: Duration = Duration::from_millis(20);

/// Makes a cgroup of this name at the top of every tree.
///
/// # Errors
/// When one cannot be made, most likely because cgroups are mounted read-only here.
pub(super) fn create(name: &str) -> Result<()> {
    let root = Path::new(ROOT);
    if let Ok(controllers) = fs::read_to_string(root.join("cgroup.controllers")) {
        // Version 2: what is below the root has the controllers that are handed down.
        for controller in controllers.split_whitespace() {
            let path = root.join("cgroup.subtree_control");
            fs::write(&path, format!("+{controller}"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    for tree in trees()? {
        let cgroup = tree.join(name);
        fs::create_dir_all(&cgroup).with_context(|| {
            format!("cannot create {}: a node needs cgroups that can be written", cgroup.display())
        })?;
    }
    Ok(())
}

/// Removes the cgroup of this name, and all below it, from every tree; nothing is done where there is none.
///
/// # Errors
/// When one cannot be removed.
pub(super) fn remove(name: &str) -> Result<()> {
    if !Path::new(ROOT).is_dir() {
        return Ok(());
    }
    for tree in trees()? {
        let cgroup = tree.join(name);
        if cgroup.is_dir() {
            remove_tree(&cgroup, Instant::now() + BUSY_MAX)?;
        }
    }
    Ok(())
}

fn remove_tree(cgroup: &Path, give_up: Instant) -> Result<()> {
    loop {
        // Each time anew: whoever was just ending may have made another one, which keeps this one busy.
        for entry in fs::read_dir(cgroup).with_context(|| format!("cannot list {}", cgroup.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                remove_tree(&entry.path(), give_up)?;
            }
        }
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < give_up => {
                std::thread::sleep(BUSY_EVERY);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            removed => return removed.with_context(|| format!("cannot remove {}", cgroup.display())),
        }
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
