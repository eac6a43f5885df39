//! Credentials, in the format of docker's `config.json` and podman's `auth.json`.

mod helper;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;

use crate::error::{RegistryError, Result, invalid};
use crate::limits::FILE_MAX;

/// The names of Docker Hub in files of credentials, without scheme.
pub(crate) const HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// Where credentials are. A file is read again for each push and pull, so that credentials may rotate.
#[derive(Clone)]
pub enum Credentials {
    /// In a file. No program is run that it names: the writer of a server's file must not choose its
    /// programs.
    File(PathBuf),
    /// In a file of the user who runs this program: the credential helpers that it names are run.
    UsersFile(PathBuf),
    /// In a text that was read elsewhere. No program is run that it names.
    Text {
        /// Where, for errors.
        place: String,
        /// The text.
        text: Vec<u8>,
    },
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

/// What a file has for a repository.
pub(crate) struct Found {
    pub(crate) login: Option<Login>,
    /// Why there is none although the file names the host.
    pub(crate) why_not: Option<String>,
}

impl Credentials {
    /// What there is for a repository of a host: that of the host's helper, else of the longest prefix, else
    /// of the helper for all.
    pub(crate) fn find(&self, host: &str, repository: &str) -> Result<Found> {
        let (place, text) = match self {
            Self::File(path) | Self::UsersFile(path) => (path.display().to_string(), Cow::Owned(read(path)?)),
            Self::Text { place, text } => (place.clone(), Cow::Borrowed(&**text)),
        };
        let runs_helpers = matches!(self, Self::UsersFile(_));
        // The error itself may quote a password.
        let config: Config = serde_json::from_slice(&text).or_else(|error| {
            let (line, column) = (error.line(), error.column());
            invalid(format!("{place} is not as docker's config.json at line {line}, column {column}"))
        })?;
        let named = config.cred_helpers.iter().find(|(key, _)| matched(key, host, "").is_some());
        // An empty name is the file itself.
        let is_named = |helper: &&String| !helper.is_empty();
        let named = named.map(|(_, helper)| helper).filter(is_named);
        if let Some(helper) = named.filter(|_| runs_helpers) {
            return ask(&place, helper, host);
        }
        let entries = config.auths.iter();
        let matching = entries.filter_map(|(key, entry)| Some((matched(key, host, repository)?, entry)));
        let entry = matching.max_by_key(|(length, _)| *length);
        let login = match entry {
            Some((_, entry)) => login(entry)
                .or_else(|why| invalid(format!("{place} has credentials for {host} whose {why}")))?,
            None => None,
        };
        let helper = named.or(config.creds_store.as_ref().filter(is_named));
        if let Some(helper) = helper.filter(|_| runs_helpers && login.is_none()) {
            return ask(&place, helper, host);
        }
        let why_not = match (&login, entry, helper) {
            (Some(_), ..) => None,
            (None, Some((_, Entry { identitytoken, registrytoken, .. })), _)
                if !identitytoken.is_empty() || !registrytoken.is_empty() =>
            {
                Some(format!("{place} has a token and no password for {host}, which Bindery does not use"))
            }
            (None, _, Some(helper)) => Some(format!(
                "{place} names the credential helper {helper:?}, which only commands of users run; log in to \
                 a file without one"
            )),
            _ => None,
        };
        Ok(Found { login, why_not })
    }
}

/// What a helper that a file names has for a host.
fn ask(place: &str, helper: &str, host: &str) -> Result<Found> {
    let asked = helper::program(helper)
        .and_then(|program| helper::ask(program.as_ref(), host, helper::TIME_MAX))
        .or_else(|why| invalid(format!("the credential helper {helper:?}, which {place} names: {why}")));
    let login = asked?;
    let why_not = login
        .is_none()
        .then(|| format!("the credential helper {helper:?} has none for {host}; run `docker login {host}`"));
    Ok(Found { login, why_not })
}

/// How long the prefix of a key is, if it names the repository. Docker writes hosts, some of them as URLs;
/// podman also writes prefixes of repositories.
fn matched(key: &str, host: &str, repository: &str) -> Option<usize> {
    let key = key.strip_prefix("https://").or(key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").or(key.strip_suffix("/v2")).unwrap_or(key);
    let (of, prefix) = key.split_once('/').unwrap_or((key, ""));
    if of != host && !(HUB.contains(&of) && HUB.contains(&host)) {
        return None;
    }
    let rest = repository.strip_prefix(prefix)?;
    (prefix.is_empty() || rest.is_empty() || rest.starts_with('/')).then_some(prefix.len())
}

fn login(entry: &Entry) -> std::result::Result<Option<Login>, &'static str> {
    if !entry.username.is_empty() && !entry.password.is_empty() {
        let (user, password) = (entry.username.clone(), entry.password.clone());
        return Ok(Some(Login { user, password }));
    }
    if entry.auth.is_empty() {
        return Ok(None);
    }
    let decoded = BASE64_STANDARD.decode(entry.auth.trim()).map_err(|_| "auth is not in base64")?;
    let text = String::from_utf8(decoded).map_err(|_| "auth is not text")?;
    let (user, password) = text.split_once(':').ok_or("auth is not NAME:PASSWORD")?;
    // Docker pads passwords with zeros.
    let password = password.trim_end_matches('\0');
    Ok((!password.is_empty()).then(|| Login { user: user.to_owned(), password: password.to_owned() }))
}

/// A small regular file. Reading a pipe or a device may never end.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let failed =
        |error: std::io::Error| RegistryError::Invalid(format!("{} cannot be read: {error}", path.display()));
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return invalid(format!("{} is not a regular file", path.display()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return invalid(format!("{} has more than {FILE_MAX} bytes", path.display()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, host: &str, repository: &str) -> Result<Found> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        Credentials::File(path).find(host, repository)
    }

    /// `ann:one`, `ben:two` and `cid:three`.
    const FILE: &str = r#"{"auths": {
        "ghcr.io": {"auth": "YW5uOm9uZQ=="},
        "ghcr.io/team": {"auth": "YmVuOnR3bw=="},
        "https://index.docker.io/v1/": {"username": "cid", "password": "three"}
    }}"#;

    #[test]
    fn the_longest_prefix_of_a_repository_wins() {
        let user = |host, repository| Some(find(FILE, host, repository).unwrap().login?.user);
        assert_eq!(user("ghcr.io", "other/policy").as_deref(), Some("ann"));
        assert_eq!(user("ghcr.io", "team/policy").as_deref(), Some("ben"));
        assert_eq!(user("ghcr.io", "teammates/policy").as_deref(), Some("ann"));
        assert_eq!(user("docker.io", "library/a").as_deref(), Some("cid"));
        assert_eq!(user("ghcr.io:444", "team/policy"), None);
        assert_eq!(user("evil.example", "ghcr.io/team"), None);
    }

    #[test]
    fn an_error_names_the_place_and_tells_no_password() {
        for text in [r#"{"auths": "hunter2"}"#, r#"{"auths": {"ghcr.io": {"auth": "hunter2"}}}"#] {
            let (place, text) = ("the Secret n/pull".to_owned(), text.as_bytes().to_vec());
            let Err(error) = (Credentials::Text { place, text }).find("ghcr.io", "a") else { panic!() };
            let error = error.to_string();
            assert!(error.starts_with("the Secret n/pull ") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let why = |text| find(text, "ghcr.io", "a").unwrap().why_not.unwrap_or_default();
        assert!(why(r#"{"credsStore": "desktop"}"#).contains("credential helper \"desktop\""));
        assert!(why(r#"{"credHelpers": {"ghcr.io": "gh"}}"#).contains("credential helper \"gh\""));
        assert!(why(r#"{"auths": {"ghcr.io": {"identitytoken": "x"}}}"#).contains("a token and no password"));
        assert!(why("{}").is_empty());
        for wrong in
            [r#"{"auths": {"ghcr.io": {"auth": "%"}}}"#, r#"{"auths": {"ghcr.io": {"auth": "eA=="}}}"#, "["]
        {
            assert!(find(wrong, "ghcr.io", "a").is_err(), "{wrong}");
        }
    }
}
