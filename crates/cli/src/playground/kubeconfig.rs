//! The kubeconfig of a playground, which exists while it runs.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::yaml;

/// Name of cluster, user and context in the kubeconfig of a playground.
const NAME: &str = "bindery-playground";

/// A kubeconfig on disk, readable by this user alone. Dropping it removes the file, unless another playground
/// has replaced it or the user has added clusters or users.
pub(super) struct Kubeconfig {
    pub(super) path: PathBuf,
    server: String,
}

impl Kubeconfig {
    /// Writes the kubeconfig for the server at this address atomically: to `path`, or into the user's cache
    /// folder. A file that no playground wrote is not replaced.
    pub(super) fn write(path: Option<&Path>, address: SocketAddr) -> Result<Self> {
        let path = match path {
            // Absolute, because the user copies the path to another terminal.
            Some(path) => {
                std::path::absolute(path).with_context(|| format!("--kubeconfig {}", path.display()))?
            }
            None => default_path(address)?,
        };
        let server = format!("http://{address}");
        write(&path, &content(&server)).with_context(|| {
            format!(
                "the kubeconfig {} cannot be written; name another place with --kubeconfig",
                path.display()
            )
        })?;
        Ok(Self { path, server })
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let is_ours = fs::read_to_string(&self.path)
            .is_ok_and(|text| servers(&text).is_some_and(|servers| servers == [self.server.as_str()]));
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the kubeconfig cannot be removed");
        }
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    let is_replaced = match fs::read_to_string(path) {
        Ok(present) if servers(&present).is_some() => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Ok(_) => bail!("there is a file that no playground wrote"),
        Err(error) => return Err(error.into()),
    };
    let folder = path.parent().context("it names no file")?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(content.as_bytes())?;
    if is_replaced {
        file.persist(path)?;
    } else {
        file.persist_noclobber(path)?;
    }
    Ok(())
}

/// The servers of a kubeconfig that names only playgrounds; `None` for every other file.
///
/// The text may differ from that of [`content`]: `kubectl config set-context --current --namespace NAME`
/// rewrites the file.
fn servers(text: &str) -> Option<Vec<String>> {
    let documents = yaml::documents(text).ok()?;
    let [document] = documents.as_slice() else { return None };
    let config = &document.content;
    let of_playgrounds = |list: &str| {
        let entries = config[list].as_array().filter(|entries| !entries.is_empty())?;
        entries.iter().all(|entry| entry["name"] == NAME).then_some(entries)
    };
    of_playgrounds("users")?;
    let server = |cluster: &Value| cluster["cluster"]["server"].as_str().map(str::to_owned);
    of_playgrounds("clusters")?.iter().map(server).collect()
}

/// The default path, which differs by port so that several playgrounds can run.
fn default_path(address: SocketAddr) -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let folder = cache
        .context("there is no cache folder for the kubeconfig: name a path with --kubeconfig")?
        .join("bindery");
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder).with_context(|| {
        format!("the folder {} cannot be created; name a path with --kubeconfig", folder.display())
    })?;
    Ok(folder.join(format!("playground-{}.kubeconfig", address.port())))
}

fn content(server: &str) -> String {
    format!(
        "# Written by bindery playground, which removes it when it ends.\n\
         apiVersion: v1\nkind: Config\ncurrent-context: {NAME}\n\
         clusters:\n  - name: {NAME}\n    cluster: {{server: \"{server}\"}}\n\
         contexts:\n  - name: {NAME}\n    context: {{cluster: {NAME}, user: {NAME}, namespace: default}}\n\
         users:\n  - name: {NAME}\n    user: {{}}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_kubeconfig_exists_while_it_is_held_and_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let kubeconfig = Kubeconfig::write(Some(&path), address(1)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(servers(&fs::read_to_string(&path).unwrap()).unwrap(), ["http://127.0.0.1:1"]);
        drop(kubeconfig);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_of_other_programs_and_playgrounds_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, "apiVersion: v1\n").unwrap();
        let error = Kubeconfig::write(Some(&path), address(1)).err().unwrap();
        assert!(format!("{error:#}").contains("a file that no playground wrote"), "{error:#}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\n");
        fs::remove_file(&path).unwrap();
        // The second replaces the first, which then does not remove it.
        let first = Kubeconfig::write(Some(&path), address(1)).unwrap();
        let second = Kubeconfig::write(Some(&path), address(2)).unwrap();
        drop(first);
        assert_eq!(fs::read_to_string(&path).unwrap(), content("http://127.0.0.1:2"));
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_kubectl_rewrote_is_removed_unless_a_user_was_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let anew = "apiVersion: v1\nclusters:\n- cluster:\n    server: http://127.0.0.1:1\n  name: \
            bindery-playground\n\
                    kind: Config\nusers:\n- name: bindery-playground\n  user: {}\n";
        let kubeconfig = Kubeconfig::write(Some(&path), address(1)).unwrap();
        fs::write(&path, anew).unwrap();
        drop(kubeconfig);
        assert!(!path.exists());
        fs::write(&path, anew).unwrap();
        let kubeconfig = Kubeconfig::write(Some(&path), address(3)).unwrap();
        let added = anew.replace("users:\n", "users:\n- name: me\n  user: {token: secret}\n");
        fs::write(&path, &added).unwrap();
        drop(kubeconfig);
        assert_eq!(fs::read_to_string(&path).unwrap(), added);
        assert!(Kubeconfig::write(Some(&path), address(1)).is_err());
    }
}
