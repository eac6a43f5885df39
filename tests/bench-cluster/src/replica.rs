//! A replica of Bindery on a control plane.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use bindery_cluster::{ControlPlane, Server, free_port};
use tempfile::TempDir;

/// How often and how many times a replica is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(50);
const ASKED_MAX: usize = 2_400;

/// A running `bindery serve`. Ends when it is dropped.
pub(crate) struct Replica {
    // Ends before its folder is removed.
    server: Server,
    _folder: TempDir,
    health: kube::Client,
}

impl Replica {
    /// Starts a replica: `command` is the program, with a command before it if there is one.
    pub(crate) fn start(command: &[&Path], plane: &ControlPlane, more: &[String]) -> Result<Self> {
        let (folder, port) = (TempDir::new()?, free_port()?);
        let mut arguments: Vec<OsString> = command[1..].iter().map(|&part| part.into()).collect();
        arguments.push("serve".into());
        arguments.push(format!("--kubeconfig={}", plane.kubeconfig().display()).into());
        arguments.push(format!("--listen=127.0.0.1:{port}").into());
        arguments.extend(more.iter().map(OsString::from));
        let server = Server::start(command[0], arguments, &folder.path().join("bindery.log"))?;
        let health = kube::Config::new(format!("http://127.0.0.1:{port}").parse()?);
        Ok(Self { server, _folder: folder, health: kube::Client::try_from(health)? })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }

    /// Whether `/readyz` says that all lists are complete.
    pub(crate) async fn is_ready(&self) -> Result<bool> {
        Ok(self.health.request_text(http::Request::get("/readyz").body(Vec::new())?).await.is_ok())
    }

    /// Waits until the replica is ready.
    pub(crate) async fn until_ready(&mut self) -> Result<()> {
        let mut ticks = tokio::time::interval(ASK_EVERY);
        let mut asked = 0;
        while !self.is_ready().await? {
            ticks.tick().await;
            self.server.check()?;
            asked += 1;
            ensure!(asked < ASKED_MAX, "the replica does not become ready:\n{}", self.server.log()?);
        }
        Ok(())
    }
}
