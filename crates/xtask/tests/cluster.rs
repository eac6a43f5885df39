//! `cargo xtask cluster` without root; `tests/node` tests what a node leaves behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The servers of `up --control-plane --controller-manager=full`, in the order in which they start.
const SERVERS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/// A cluster of a test, which is removed when it is dropped.
struct Cluster {
    name: String,
}

impl Cluster {
    fn new(test: &str) -> Self {
        Self { name: format!("{test}-{}", std::process::id()) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.arg("cluster").args(arguments).args(["--name", &self.name]);
        xtask
    }

    fn up(&self, arguments: &[&str]) -> Command {
        self.command(&[&["up", "--control-plane"], arguments].concat())
    }

    fn folder(&self) -> PathBuf {
        let cache = std::env::var_os("BINDERY_CACHE").map(PathBuf::from);
        let cache =
            cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/bindery"));
        cache.join("clusters").join(&self.name)
    }

    /// The folders in `/proc` of the processes that have the cluster's folder in their environment.
    fn processes(&self) -> Vec<PathBuf> {
        let mark = format!("BINDERY_CLUSTER={}\0", self.folder().display());
        let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let is_marked = |process: &PathBuf| {
            let environment = fs::read(process.join("environ"));
            environment.is_ok_and(|text| String::from_utf8_lossy(&text).contains(&mark))
        };
        processes.filter(is_marked).collect()
    }

    fn assert_gone(&self, when: &str) {
        assert!(!self.folder().exists(), "{when}");
        assert_eq!(self.processes(), Vec::<PathBuf>::new(), "{when}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

/// Runs a command that must succeed, and returns its standard output.
fn succeed(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail, and returns its standard error.
fn fail(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn down_leaves_nothing_when_up_was_killed_at_any_server() {
    for last in SERVERS {
        let cluster = Cluster::new("killed");
        let mut up = cluster.up(&["--controller-manager=full"]);
        let mut up = up.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(up.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().unwrap() == &format!("starting {last}"));
        assert!(line.is_some(), "{last} is never started");
        up.kill().unwrap();
        up.wait().unwrap();
        succeed(cluster.command(&["down"]));
        cluster.assert_gone(last);
    }
}

#[test]
fn down_leaves_nothing_when_an_earlier_down_was_killed() {
    let cluster = Cluster::new("downed");
    succeed(cluster.up(&["--controller-manager=full"]));
    let all = cluster.processes().len();
    let mut down = cluster.command(&["down"]).spawn().unwrap();
    while cluster.processes().len() >= all {
        std::thread::yield_now();
    }
    down.kill().unwrap();
    down.wait().unwrap();
    succeed(cluster.command(&["down"]));
    cluster.assert_gone("after both");
}

#[test]
fn an_attached_cluster_is_up_until_standard_input_ends() {
    let cluster = Cluster::new("attached");
    let mut up = cluster.up(&["--attached"]);
    let mut up = up.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(up.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let kubeconfig = line.strip_prefix("export KUBECONFIG=").unwrap();
    assert_eq!(kubeconfig, cluster.folder().join("kubeconfig").to_str().unwrap());
    assert!(!cluster.processes().is_empty());

    assert_eq!(succeed(cluster.up(&[])).trim_end(), line);
    assert!(fail(cluster.up(&["--controller-manager=full"])).contains("is up already"));
    let mut status = Command::new(env!("CARGO_BIN_EXE_xtask"));
    status.args(["cluster", "status"]);
    let status = succeed(status);
    let expected = format!("cluster {}: --control-plane --controller-manager=none\n", cluster.name);
    assert!(status.contains(&expected), "{status}");

    drop(up.stdin.take());
    assert!(up.wait().unwrap().success());
    cluster.assert_gone("after the end of standard input");
}

#[test]
fn up_takes_programs_from_the_folder_of_assets() {
    let assets = tempfile::tempdir().unwrap();
    let programs = [
        ("etcd", "BINDERY_ETCD"),
        ("kube-apiserver", "BINDERY_KUBE_APISERVER"),
        ("kubectl", "BINDERY_KUBECTL"),
    ];
    for (name, variable) in programs {
        symlink(std::env::var_os(variable).unwrap(), assets.path().join(name)).unwrap();
    }
    let cluster = Cluster::new("assets");
    let mut up = cluster.up(&[]);
    up.env("KUBEBUILDER_ASSETS", assets.path());
    succeed(up);
    let called = |process: PathBuf| {
        let line = fs::read(process.join("cmdline")).unwrap();
        PathBuf::from(String::from_utf8_lossy(&line).split('\0').next().unwrap())
    };
    let running: Vec<_> = cluster.processes().into_iter().map(called).collect();
    for name in ["etcd", "kube-apiserver"] {
        assert!(running.contains(&assets.path().join(name)), "{running:?}");
    }
}

#[test]
fn a_folder_of_assets_that_lacks_a_program_is_named() {
    let cluster = Cluster::new("no-assets");
    let mut up = cluster.up(&[]);
    up.env("KUBEBUILDER_ASSETS", "/nonexistent");
    let why = fail(up);
    assert!(why.contains("KUBEBUILDER_ASSETS is /nonexistent, which has no etcd"), "{why}");
    cluster.assert_gone("after the failure");
}
