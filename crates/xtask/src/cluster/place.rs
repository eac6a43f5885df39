//! The files of a cluster: one folder for each cluster, below `clusters` in the cache.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace;

/// The maximal length of a name, which becomes part of a cgroup's name.
const NAME_LENGTH_MAX: usize = 40;
/// The file that exists while the whole cluster is up.
const RECORD: &str = "cluster.json";

/// The folder of a cluster, which need not exist.
pub(super) struct Place {
    name: String,
    folder: PathBuf,
}

/// Parses a cluster's name.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > NAME_LENGTH_MAX || !text.chars().all(is_plain) {
        return Err(format!("at most {NAME_LENGTH_MAX} lower-case letters, digits and dashes are allowed"));
    }
    Ok(text.to_owned())
}

/// The folder of all clusters, made if it is missing.
fn clusters() -> Result<PathBuf> {
    let folder = workspace::cache_folder()?.join("clusters");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Servers are started in other folders, and must find it.
    fs::canonicalize(&folder).with_context(|| format!("cannot find {}", folder.display()))
}

impl Place {
    /// The place of the cluster with this name.
    pub(super) fn of(name: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), folder: clusters()?.join(name) })
    }

    /// The places of all existing clusters.
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

    /// The path of a file in the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The kubeconfig for this machine's clients.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// The line that makes kubectl use the cluster.
    pub(super) fn export(&self) -> String {
        format!("export KUBECONFIG={}", self.kubeconfig().display())
    }

    /// The command line for another command on this cluster.
    pub(super) fn command(&self, command: &str) -> String {
        match self.name.as_str() {
            "default" => format!("cargo xtask cluster {command}"),
            name => format!("cargo xtask cluster {command} --name {name}"),
        }
    }

    /// The cgroup of the cluster's pods. No other cluster on this machine has this name, not even one of
    /// another cache.
    pub(super) fn cgroup(&self) -> String {
        let key = workspace::content_key([self.folder.as_os_str().as_encoded_bytes()]);
        format!("bindery-{}-{}", self.name, &key[..8])
    }

    /// Locks the folder of all clusters until the file is dropped, waiting while another process holds the
    /// lock.
    pub(super) fn lock() -> Result<File> {
        let path = clusters()?;
        let clusters = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        if clusters.try_lock().is_err() {
            eprintln!("waiting for another `cargo xtask cluster`");
            clusters.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(clusters)
    }

    /// Whether something was started here and not removed.
    pub(super) fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// Makes the folder. Only its owner may read it, since it contains keys.
    pub(super) fn create(&self) -> Result<()> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))
    }

    /// Fails if the cluster belongs to another user, whose processes we could not find.
    pub(super) fn check_owner(&self) -> Result<()> {
        let folder = fs::metadata(&self.folder);
        let owner = folder.with_context(|| format!("cannot read {}", self.folder.display()))?.uid();
        let user = rustix::process::geteuid();
        if !user.is_root() && user.as_raw() != owner {
            bail!("cluster {} belongs to user {owner}: remove it as that user or as root", self.name);
        }
        Ok(())
    }

    /// Writes a file of the folder.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.file(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Records that the whole cluster is up.
    pub(super) fn write_record(&self, record: &Value) -> Result<()> {
        workspace::replace(&self.file(RECORD), record.to_string().as_bytes())
    }

    /// What was recorded when the cluster was up; `None` if it never was.
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

    /// Removes the folder.
    pub(super) fn remove(&self) -> Result<()> {
        // A process that an earlier run killed is no longer found, and may still make a last file.
        super::retry_while(ErrorKind::DirectoryNotEmpty, || fs::remove_dir_all(&self.folder))
            .with_context(|| format!("cannot remove {}", self.folder.display()))
    }
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
    fn two_clusters_never_share_a_cgroup() {
        let place = |folder: &str| Place { name: "default".to_owned(), folder: PathBuf::from(folder) };
        assert_ne!(place("/a/default").cgroup(), place("/b/default").cgroup());
        assert_eq!(place("/a/default").cgroup(), place("/a/default").cgroup());
    }
}
