//! Credential helpers: programs `docker-credential-NAME` that keep passwords in the keychain of a system.
//!
//! Protocol: <https://github.com/docker/docker-credential-helpers>. `get` reads the name of a registry from
//! standard input, and prints its credentials as JSON, or why there are none.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::{HUB, Login};
use crate::limits::FILE_MAX;

/// How long a helper may take: it may ask for the password of a keychain, and must not hold a command for
/// ever.
pub(super) const TIME_MAX: Duration = Duration::from_secs(60);
/// Longest part of what a helper prints that is shown.
const MESSAGE_MAX: usize = 200;
/// How helpers name Docker Hub.
const HUB_KEY: &str = "https://index.docker.io/v1/";
/// What a helper prints that has no credentials for a registry.
const NONE: &str = "credentials not found";
/// The user of a secret that is an identity token and no password.
const TOKEN: &str = "<token>";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// The program of a helper. Its name comes from a file, and must not lead out of `PATH`.
pub(super) fn program(name: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match !name.is_empty() && name.chars().all(is_name) {
        true => Ok(format!("docker-credential-{name}")),
        false => Err("it is no name of a helper".to_owned()),
    }
}

/// What a helper has for a host. An error is a sentence with the remedy.
pub(super) fn ask(program: &OsStr, host: &str, within: Duration) -> Result<Option<Login>, String> {
    let mut command = Command::new(program);
    // What it says to people goes to them.
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "there is no program {} in PATH; install it, or log in to a file without a helper",
            program.display()
        ),
        _ => format!("{} cannot be started: {error}", program.display()),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // An error means that it has ended, and its answer says why.
        let _ = stdin.write_all(if HUB.contains(&host) { HUB_KEY } else { host }.as_bytes());
    }
    let stdout = child.stdout.take();
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.map(|stdout| stdout.take(FILE_MAX).read_to_end(&mut bytes));
        // After the time is over, the other end is gone.
        let _ = sender.send(read.map(|read| read.map(|_| bytes)));
    });
    let answer = answers.recv_timeout(within);
    // It has printed its answer, or gets no further time.
    let _ = child.kill();
    let _ = child.wait();
    match answer {
        Ok(Some(Ok(bytes))) => login(&bytes, host),
        Ok(Some(Err(error))) => Err(format!("its answer cannot be read: {error}")),
        Ok(None) | Err(_) => Err(format!(
            "it gave no answer within {} seconds; unlock its keychain, or log in to a file without a helper",
            within.as_secs()
        )),
    }
}

fn login(answer: &[u8], host: &str) -> Result<Option<Login>, String> {
    let Ok(Answer { username, secret }) = serde_json::from_slice(answer) else {
        let text = String::from_utf8_lossy(answer);
        if text.contains(NONE) {
            return Ok(None);
        }
        let text: String = text.trim().chars().filter(|c| !c.is_control()).take(MESSAGE_MAX).collect();
        return Err(format!("it has no credentials for {host}: {text:?}; log in again"));
    };
    if username == TOKEN {
        return Err(format!(
            "it has a token and no password for {host}, which Bindery does not use; log in with a password"
        ));
    }
    Ok(Some(Login { user: username, password: secret }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn kept(host: &str, within: Duration) -> Result<Option<Login>, String> {
        let checkout = Path::new(env!("BINDERY_CHECKOUT"));
        let program = checkout.join("crates/registry/tests/helpers").join(program("kept").unwrap());
        ask(program.as_os_str(), host, within)
    }

    #[test]
    fn a_helper_gives_credentials_or_a_sentence() {
        let login = kept("ghcr.io", TIME_MAX).unwrap().unwrap();
        assert_eq!((&*login.user, &*login.password), ("ann", "secret"));
        assert!(kept("none.example", TIME_MAX).unwrap().is_none());
        for (host, within, why) in [
            ("locked.example", TIME_MAX, "\"the keychain is locked\"; log in again"),
            ("token.example", TIME_MAX, "a token and no password"),
            ("endless.example", TIME_MAX, "it has no credentials"),
            ("silent.example", Duration::from_millis(50), "no answer within 0 seconds; unlock"),
        ] {
            let error = kept(host, within).err().unwrap();
            assert!(error.contains(why), "{host}: {error}");
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_starts_nothing() {
        assert_eq!(program("ecr-login").unwrap(), "docker-credential-ecr-login");
        for name in ["", "../x", "/bin/sh", "a b"] {
            assert!(program(name).is_err(), "{name}");
        }
        let missing = ask(OsStr::new("docker-credential-missing"), "ghcr.io", TIME_MAX).err().unwrap();
        assert!(missing.contains("no program docker-credential-missing in PATH; install it"), "{missing}");
    }
}
