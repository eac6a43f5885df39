//! A whole cluster with one node, for tests: `cargo xtask cluster up --node`, held up for as long as a
//! [`Node`] lives.

pub mod site;
pub mod world;

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use bindery_cluster::Server;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// The image that the node has, busybox.
pub const IMAGE: &str = "bindery.test/busybox:1";
/// The node's name.
pub const NAME: &str = "node";

/// A running cluster with one node. It ends when this is dropped, or when the process that holds it does.
#[derive(Debug)]
pub struct Node {
    up: Child,
    folder: PathBuf,
    /// The process that holds the node's namespaces.
    holder: u64,
}

impl Node {
    /// Brings a cluster up; it takes some ten seconds.
    ///
    /// # Errors
    ///
    /// It does not come up; what is wrong is on standard error.
    pub fn start(name: &str) -> Result<Self> {
        let mut up = command("up", name)?;
        up.args(["--node", "--attached"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for us; with our end its input ends, and that it takes for a request to clean up.
        let mut up = up.process_group(0).spawn().context("cargo xtask cannot be started")?;
        let mut said = String::new();
        BufReader::new(up.stdout.take().context("its output must be a pipe")?).read_line(&mut said)?;
        let kubeconfig = said.trim_end().strip_prefix("export KUBECONFIG=").map(PathBuf::from);
        let folder =
            kubeconfig.as_deref().and_then(Path::parent).context("the cluster is not up")?.to_owned();
        let record: Value = serde_json::from_slice(&std::fs::read(folder.join("cluster.json"))?)?;
        let holder = record["namespace"].as_u64().context("the cluster has no node")?;
        Ok(Self { up, folder, holder })
    }

    /// The file by which programs of this machine find the cluster.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The file by which programs on the node find the cluster.
    pub fn kubeconfig_inside(&self) -> PathBuf {
        self.folder.join("inside.kubeconfig")
    }

    /// A client.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Starts a program on the node, whose output goes to the end of `log`.
    ///
    /// # Errors
    ///
    /// The program or the file cannot be opened.
    pub fn start_server(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = OsString>,
        log: &Path,
    ) -> Result<Server> {
        let target = self.holder.to_string();
        let enter = ["--target", &target, "--net", "--mount", "--pid", "--"];
        // `nsenter` waits for its child outside, and would leave it there.
        let bound = ["setpriv", "--pdeathsig", "KILL", "--"];
        let words = enter.into_iter().chain(bound).map(OsString::from);
        Server::start("nsenter".as_ref(), words.chain([program.into()]).chain(arguments), log)
    }

    /// Kills what holds the cluster up, so that it cannot take it down.
    ///
    /// # Errors
    ///
    /// It cannot be killed.
    pub fn abandon(mut self) -> Result<()> {
        self.up.kill()?;
        self.up.wait()?;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.up.stdin.take());
        // It says itself what went wrong.
        let _ = self.up.wait();
    }
}

/// `cargo xtask cluster COMMAND` for the cluster of this name.
///
/// # Errors
///
/// `BINDERY_XTASK` does not name it.
pub fn command(command: &str, name: &str) -> Result<Command> {
    let xtask =
        std::env::var_os("BINDERY_XTASK").context("BINDERY_XTASK is not set: run `cargo xtask test`")?;
    let mut xtask = Command::new(xtask);
    xtask.args(["cluster", command, "--name", name]);
    Ok(xtask)
}
