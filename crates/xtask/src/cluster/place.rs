//! Where a cluster's files are: one folder for each cluster, below `clusters` in the cache.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::removal;
use crate::workspace;

/// A name's length at most: it becomes part of a cgroup's name.
const NAME_LENGTH_MAX: usize = 40;
/// Written when all of a cluster runs.
const RECORD: &str = "cluster.json";

/// The folder of a cluster, which need not exist.
pub(super) struct Place {
    name: String,
    folder: PathBuf,
}

/// Held while clusters are started or removed; dropping it lets the next one in.
pub(super) struct Lock {
    _clusters: File,
}

/// Reads a cluster's name from the command line.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > NAME_LENGTH_MAX || !text.chars().all(is_plain) {
        return Err(format!("at most {NAME_LENGTH_MAX} lower-case letters, digits and dashes are allowed"));
    }
    Ok(text.to_owned())
}

impl Place {
    /// The place of the cluster of this name.
    ///
    /// # Errors
    /// When there is no cache folder.
    pub(super) fn of(name: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), folder: clusters()?.join(name) })
    }

    /// The places of all clusters that there are.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(super) fn all() -> Result<Vec<Self>> {
        let clusters = clusters()?;
        let mut places = Vec::new();
        for entry in fs::read_dir(&clusters).with_context(|| format!("cannot list {}", clusters.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            places.push(Self { folder: clusters.join(&name), name });
        }
        places.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(places)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of this name in the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file by which clients find the cluster.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// The line that makes kubectl use the cluster.
    pub(super) fn export(&self) -> String {
        format!("export KUBECONFIG={}", self.kubeconfig().display())
    }

    /// What to type for another command on this cluster.
    pub(super) fn command(&self, command: &str) -> String {
        match self.name.as_str() {
            "default" => format!("cargo xtask cluster {command}"),
            name => format!("cargo xtask cluster {command} --name {name}"),
        }
    }

    /// Name of the cgroup of the cluster's pods, which no other cluster of this machine has, of other caches
    /// neither.
    pub(super) fn cgroup(&self) -> String {
        let key = workspace::content_key([self.folder.as_os_str().as_encoded_bytes()]);
        format!("bindery-{}-{}", self.name, &key[..8])
    }

    /// Waits until no other process starts or removes a cluster, and keeps others from it.
    ///
    /// # Errors
    /// When the folder of all clusters cannot be made or locked.
    pub(super) fn lock(&self) -> Result<Lock> {
        let path = clusters()?;
        let clusters = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        if clusters.try_lock().is_err() {
            eprintln!("waiting for another `cargo xtask cluster`");
            clusters.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(Lock { _clusters: clusters })
    }

    /// Whether anything was ever started here and not removed.
    pub(super) fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// Makes the folder; nobody else may look into it, it holds keys.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn create(&self) -> Result<()> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))
    }

    /// Fails where somebody else's processes would not be seen, and so not be ended.
    ///
    /// # Errors
    /// When the cluster is another user's, and we are not root.
    pub(super) fn check_owner(&self) -> Result<()> {
        let owner = fs::metadata(&self.folder)
            .with_context(|| format!("cannot look at {}", self.folder.display()))?
            .uid();
        let user = rustix::process::geteuid();
        if !user.is_root() && user.as_raw() != owner {
            bail!("cluster {} is that of user {owner}: remove it as that user or root", self.name);
        }
        Ok(())
    }

    /// Writes a file of the folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.file(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes down that all runs, in one step.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write_record(&self, record: &Value) -> Result<()> {
        let unfinished = format!(".{RECORD}");
        self.write(&unfinished, record.to_string())?;
        fs::rename(self.file(&unfinished), self.file(RECORD)).context("the cluster cannot be written down")
    }

    /// What was written down when all ran; nothing where it never did.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub(super) fn record(&self) -> Result<Option<Value>> {
        let path = self.file(RECORD);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let record = serde_json::from_str(&text);
                Ok(Some(record.with_context(|| format!("{} is not JSON", path.display()))?))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Removes the folder and all that is in it.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub(super) fn remove(&self) -> Result<()> {
        // A process that an earlier run has killed cannot be seen any more, and may still make a last file.
        removal::insist(ErrorKind::DirectoryNotEmpty, || fs::remove_dir_all(&self.folder))
            .with_context(|| format!("cannot remove {}", self.folder.display()))
    }
}

fn clusters() -> Result<PathBuf> {
    let clusters = workspace::cache_folder()?.join("clusters");
    fs::create_dir_all(&clusters).with_context(|| format!("cannot create {}", clusters.display()))?;
    // One folder has one name: it is compared.
    clusters.canonicalize().with_context(|| format!("cannot find {}", clusters.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_plain_word() {
        assert_eq!(name("node-1").unwrap(), "node-1");
        for bad in ["", "..", "a/b", "A", "a b", &"a".repeat(41)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn clusters_share_no_cgroup() {
        let place = |folder: &str| Place { name: "default".to_owned(), folder: PathBuf::from(folder) };
        assert_ne!(place("/a/default").cgroup(), place("/b/default").cgroup());
        assert_eq!(place("/a/default").cgroup(), place("/a/default").cgroup());
    }
}
