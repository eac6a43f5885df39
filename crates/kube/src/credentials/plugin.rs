//! Credential plugins: programs that print credentials, by the API `client.authentication.k8s.io` (KEP-541).

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{Cluster, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;

use super::CredentialsError;
use super::source::Identity;

/// A plugin that takes longer is killed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A plugin that takes longer is logged.
const SLOW: Duration = Duration::from_secs(5);
/// Credentials are renewed this long before they expire, but no earlier than in the last third of their
/// lifetime.
const RENEW_BEFORE: Duration = Duration::from_secs(60);
/// Pauses before a plugin is run again that failed, or whose credentials are refused.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How much of a plugin's error output an error message shows.
const SHOWN_BYTES_MAX: usize = 512;

/// Supported versions of the API.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

pub(super) struct Plugin {
    exec: ExecConfig,
    /// The cluster that the plugin is told, if the kubeconfig asks for that.
    cluster: Option<Cluster>,
    issued: Issued,
    /// When it is run again in any case.
    due: Option<Instant>,
    /// It is not run again before.
    not_before: Instant,
    pause: Duration,
}

/// The credentials that a plugin printed last.
#[derive(Default)]
pub(super) struct Issued {
    pub(super) token: Option<String>,
    pub(super) identity: Option<Identity>,
    expires: Option<Timestamp>,
}

/// `ExecCredential`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// A running plugin and the processes that it started. Dropping this kills those that still run.
struct Running {
    group: Option<Pid>,
    ended: oneshot::Receiver<std::io::Result<Output>>,
}

impl Plugin {
    /// The plugin of a user, which has not run yet. One that needs a terminal is refused.
    pub(super) fn new(exec: ExecConfig, cluster: Option<Cluster>) -> Result<Self, CredentialsError> {
        let now = Instant::now();
        let issued = Issued::default();
        let plugin = Self { exec, cluster, issued, due: None, not_before: now, pause: PAUSE_MIN };
        if plugin.command().is_empty() {
            return Err(CredentialsError::Kubeconfig(
                "exec names no command: name the plugin's program".to_owned(),
            ));
        }
        let version = plugin.exec.api_version.as_deref().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            return Err(plugin.error(format!("has apiVersion {version:?}: one of {VERSIONS:?} is supported")));
        }
        if plugin.exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(plugin.error(
                "has interactiveMode Always, and Bindery has no terminal: use a plugin that asks nothing, \
                 with Never",
            ));
        }
        Ok(plugin)
    }

    pub(super) fn issued(&self) -> &Issued {
        &self.issued
    }

    pub(super) fn error(&self, why: impl Into<String>) -> CredentialsError {
        CredentialsError::Plugin { command: self.command().to_owned(), why: why.into() }
    }

    /// Runs the plugin again if its credentials expire soon or are refused. If it fails, its earlier
    /// credentials stay, and it runs again after a pause that grows to half a minute.
    pub(super) async fn renew_if_due(&mut self, is_refused: bool) {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if !is_due && !is_refused {
            self.pause = PAUSE_MIN;
        } else if self.not_before <= Instant::now() {
            let renewed = self.renew().await;
            self.not_before = Instant::now() + self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            match renewed {
                Ok(()) => tracing::info!(plugin = self.command(), "the credential plugin has run again"),
                Err(error) => {
                    tracing::warn!(%error, "the credentials in use stay; the plugin will run again")
                }
            }
        }
    }

    /// Runs the plugin and takes its credentials.
    pub(super) async fn renew(&mut self) -> Result<(), CredentialsError> {
        let output = self.run().await?;
        if !output.status.success() {
            let printed = shown(&output.stderr);
            return Err(self.error(format!("ended with {}: {printed}", output.status)));
        }
        self.issued = self.parse(&output.stdout)?;
        self.due = self.issued.expires.map(|expires| {
            let left = Duration::try_from(expires.duration_since(Timestamp::now())).unwrap_or_default();
            Instant::now() + left - RENEW_BEFORE.min(left / 3)
        });
        Ok(())
    }

    fn parse(&self, printed: &[u8]) -> Result<Issued, CredentialsError> {
        // client-go reads YAML too, and some plugins print it.
        let Credential { api_version, status } = serde_saphyr::from_slice(printed)
            .map_err(|error| self.error(format!("printed no ExecCredential: {error}")))?;
        if self.exec.api_version.as_ref() != Some(&api_version) {
            let asked = self.exec.api_version.as_deref().unwrap_or_default();
            return Err(self.error(format!("printed apiVersion {api_version}, and was asked for {asked}")));
        }
        let status = status.ok_or_else(|| self.error("printed an ExecCredential without status"))?;
        let identity = match (status.client_certificate_data, status.client_key_data) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.into_bytes(), key: key.into_bytes() })
            }
            (None, None) => None,
            _ => {
                return Err(
                    self.error("printed one of clientCertificateData and clientKeyData without the other")
                );
            }
        };
        let token = status.token.filter(|token| !token.is_empty());
        if token.is_none() && identity.is_none() {
            return Err(self.error("printed neither a token nor a client certificate"));
        }
        if token.as_deref().is_some_and(|token| http::HeaderValue::from_str(token).is_err()) {
            return Err(self.error("printed a token with characters that a header may not have"));
        }
        let expires = status.expiration_timestamp.map(|time| {
            time.parse().map_err(|error| self.error(format!("printed expirationTimestamp {time:?}: {error}")))
        });
        Ok(Issued { token, identity, expires: expires.transpose()? })
    }

    /// Runs the plugin to its end.
    async fn run(&self) -> Result<Output, CredentialsError> {
        let mut running = self.start()?;
        let output = match tokio::time::timeout(SLOW, &mut running.ended).await {
            Ok(output) => output,
            Err(_) => {
                let command = self.command();
                tracing::warn!(command, "the credential plugin takes long; it is killed after {TIMEOUT:?}");
                tokio::time::timeout(TIMEOUT - SLOW, &mut running.ended)
                    .await
                    .map_err(|_| self.error(format!("did not end within {TIMEOUT:?}, and was killed")))?
            }
        };
        running.group = None;
        let output = output.map_err(|error| self.error(format!("was lost: {error}")))?;
        output.map_err(|error| self.error(format!("cannot be waited for: {error}")))
    }

    fn start(&self) -> Result<Running, CredentialsError> {
        let info = json!({
            "apiVersion": self.exec.api_version,
            "kind": "ExecCredential",
            "spec": {"interactive": false, "cluster": self.cluster()?},
        });
        let pairs =
            self.exec.env.iter().flatten().filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
        let child = Command::new(self.command())
            .args(self.exec.args.iter().flatten())
            .envs(pairs)
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                let hint = self.exec.install_hint.as_deref().map(|hint| format!("; {}", hint.trim()));
                self.error(format!("cannot be started: {error}{}", hint.unwrap_or_default()))
            })?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (sender, ended) = oneshot::channel();
        // A thread and no blocking task: the program's end would wait for the task.
        std::thread::spawn(move || {
            // An error means that the plugin was killed and the output is not needed.
            let _ = sender.send(child.wait_with_output());
        });
        Ok(Running { group, ended })
    }

    fn cluster(&self) -> Result<Option<ExecAuthCluster>, CredentialsError> {
        let cluster = self.cluster.as_ref().map(ExecAuthCluster::try_from).transpose();
        cluster.map_err(|error| self.error(format!("cannot be given the cluster: {error}")))
    }

    fn command(&self) -> &str {
        self.exec.command.as_deref().unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group
            && matches!(self.ended.try_recv(), Err(TryRecvError::Empty))
        {
            // An error means that it has just ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The last words of a plugin, on one line.
fn shown(printed: &[u8]) -> String {
    let text =
        String::from_utf8_lossy(&printed[printed.len().saturating_sub(SHOWN_BYTES_MAX)..]).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use tokio::task::spawn_blocking;

    use super::*;

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let script = format!("exec 3> {}; sleep 1000 & wait", pipe.display());
        let exec = ExecConfig {
            api_version: Some(VERSIONS[0].to_owned()),
            command: Some("sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script]),
            ..ExecConfig::default()
        };
        let mut plugin = Plugin::new(exec, None).unwrap();
        let asked = tokio::spawn(async move { plugin.renew().await });
        // The plugin runs once its end of the pipe is open.
        let mut pipe = spawn_blocking(move || File::open(pipe).unwrap()).await.unwrap();
        tokio::time::pause();
        let error = asked.await.unwrap().unwrap_err().to_string();
        assert_eq!(error, "credential plugin sh did not end within 60s, and was killed");
        // The pipe ends once the last process that writes to it has ended.
        assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
    }
}
