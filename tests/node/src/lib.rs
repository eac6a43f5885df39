//! A whole cluster with one node for tests: `cargo xtask cluster up --node`, which is up as long as a
//! [`Node`] lives.

pub mod installation;
pub mod objects;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use bindery_cluster::{Server, client_of};
use serde_json::Value;

/// The image on the node, busybox.
pub const IMAGE: &str = "bindery.test/busybox:1";
/// The node's name.
pub const NAME: &str = "node";
/// The bytes of a log that are shown when a test fails.
const LOG_SHOWN: usize = 3_000;

/// A running cluster with one node. It ends when this is dropped, or when the process that holds it ends.
#[derive(Debug)]
pub struct Node {
    up: Child,
    folder: PathBuf,
    /// The process that holds the node's namespaces.
    holder: u64,
}

impl Node {
    /// Brings a cluster up, which takes some ten seconds. Upstream's binder is off in it.
    pub fn start(name: &str) -> Result<Self> {
        Self::start_with(name, "without-binder")
    }

    /// Brings a cluster up with these loops of upstream's controller manager.
    pub fn start_with(name: &str, manager: &str) -> Result<Self> {
        let mut up = command("up", name)?;
        up.args(["--node", "--attached", "--controller-manager", manager])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Ctrl-C ends this process only. That ends the input of `up`, which then removes the cluster.
        let mut up = up.process_group(0).spawn().context("cargo xtask cannot be started")?;
        let mut line = String::new();
        BufReader::new(up.stdout.take().context("its output must be a pipe")?).read_line(&mut line)?;
        let kubeconfig = line.trim_end().strip_prefix("export KUBECONFIG=").map(PathBuf::from);
        let folder =
            kubeconfig.as_deref().and_then(Path::parent).context("the cluster is not up")?.to_owned();
        let record: Value = serde_json::from_slice(&fs::read(folder.join("cluster.json"))?)?;
        let holder = record["namespace"].as_u64().context("the cluster has no node")?;
        Ok(Self { up, folder, holder })
    }

    /// The kubeconfig for programs of this machine.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The kubeconfig for programs on the node.
    pub fn kubeconfig_inside(&self) -> PathBuf {
        self.folder.join("inside.kubeconfig")
    }

    /// The lines of the API server's log that contain `text`.
    pub fn api_server_log(&self, text: &str) -> Result<String> {
        let log = fs::read_to_string(self.folder.join("kube-apiserver.log"))?;
        Ok(log.lines().filter(|line| line.contains(text)).collect::<Vec<_>>().join("\n"))
    }

    /// A client.
    pub async fn client(&self) -> Result<kube::Client> {
        client_of(&self.kubeconfig()).await
    }

    /// Starts a program on the node. Its output is appended to `log`.
    pub fn start_server(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = OsString>,
        log: &Path,
    ) -> Result<Server> {
        let target = self.holder.to_string();
        let enter = ["--target", &target, "--net", "--mount", "--pid", "--"];
        // Without this the program would outlive `nsenter`, its parent.
        let bound = ["setpriv", "--pdeathsig", "KILL", "--"];
        let words = enter.into_iter().chain(bound).map(OsString::from);
        Server::start("nsenter".as_ref(), words.chain([program.into()]).chain(arguments), log)
    }

    /// Kills the process that would take the cluster down.
    pub fn abandon(mut self) -> Result<()> {
        self.up.kill()?;
        self.up.wait()?;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.up.stdin.take());
        // It prints its own errors.
        let _ = self.up.wait();
    }
}

/// `cargo xtask cluster COMMAND` for the cluster with this name.
pub fn command(command: &str, name: &str) -> Result<Command> {
    let xtask =
        std::env::var_os("BINDERY_XTASK").context("BINDERY_XTASK is not set: run `cargo xtask test`")?;
    let mut xtask = Command::new(xtask);
    xtask.args(["cluster", command, "--name", name]);
    Ok(xtask)
}

/// The ends of the logs in a folder.
pub fn log_ends(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let logs = entries.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("log")));
    let end = |path: PathBuf| {
        let text = fs::read(&path).unwrap_or_default();
        let end = &text[text.len().saturating_sub(LOG_SHOWN)..];
        format!("--- {}\n{}\n", path.display(), String::from_utf8_lossy(end))
    };
    logs.map(end).collect()
}
