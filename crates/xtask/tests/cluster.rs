//! `cargo xtask cluster`, as far as it goes without root; what a node leaves behind is in `tests/node`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What `up --control-plane --controller-manager=full` says that it starts, in turn.
const SERVERS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/// A cluster of a test, removed at its end, however that comes.
struct Cluster {
    name: String,
}

impl Cluster {
    fn new(test: &str) -> Self {
        Self { name: format!("{test}-{}", std::process::id()) }
    }

    fn command(&self, command: &str) -> Command {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(["cluster", command, "--name", &self.name]);
        xtask
    }

    fn down(&self) -> Output {
        self.command("down").output().unwrap()
    }

    fn folder(&self) -> PathBuf {
        let cache = std::env::var_os("BINDERY_CACHE").map(PathBuf::from);
        let cache =
            cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/bindery"));
        cache.join("clusters").join(&self.name)
    }

    /// The processes that name the cluster's folder in their environment.
    fn processes(&self) -> Vec<String> {
        let mark = format!("BINDERY_CLUSTER={}\0", self.folder().display());
        let environments = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("environ"));
        let is_marked =
            |path: &PathBuf| fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&mark));
        environments.filter(is_marked).map(|path| path.display().to_string()).collect()
    }

    /// The programs of these processes, as they were called.
    fn programs(&self) -> Vec<PathBuf> {
        let called = |environment: String| {
            let line = fs::read(PathBuf::from(environment).with_file_name("cmdline")).unwrap();
            PathBuf::from(String::from_utf8_lossy(&line).split('\0').next().unwrap())
        };
        self.processes().into_iter().map(called).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.down();
    }
}

#[test]
fn whenever_up_is_killed_down_leaves_nothing() {
    for last in SERVERS {
        let cluster = Cluster::new("killed");
        let mut up = cluster.command("up");
        up.args(["--control-plane", "--controller-manager=full"]).stderr(Stdio::piped());
        let mut up = up.stdout(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(up.stderr.take().unwrap()).lines();
        let line = said.find(|line| line.as_ref().unwrap() == &format!("starting {last}"));
        assert!(line.is_some(), "{last} is never started");
        up.kill().unwrap();
        up.wait().unwrap();
        let down = cluster.down();
        assert!(down.status.success(), "after {last}: {}", String::from_utf8_lossy(&down.stderr));
        assert!(!cluster.folder().exists(), "after {last}");
        assert_eq!(cluster.processes(), Vec::<String>::new(), "after {last}");
    }
}

#[test]
fn where_down_is_killed_the_next_one_leaves_nothing() {
    let cluster = Cluster::new("downed");
    let up = cluster.command("up").args(["--control-plane", "--controller-manager=full"]).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let all = cluster.processes().len();
    let mut down = cluster.command("down").spawn().unwrap();
    while cluster.processes().len() >= all {
        std::thread::yield_now();
    }
    down.kill().unwrap();
    down.wait().unwrap();
    assert!(cluster.down().status.success());
    assert!(!cluster.folder().exists());
    assert_eq!(cluster.processes(), Vec::<String>::new());
}

#[test]
fn a_cluster_is_up_until_standard_input_ends() {
    let cluster = Cluster::new("attached");
    let mut up = cluster.command("up");
    up.args(["--control-plane", "--attached"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut up = up.spawn().unwrap();
    let line = BufReader::new(up.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let kubeconfig = line.strip_prefix("export KUBECONFIG=").unwrap();
    assert_eq!(kubeconfig, cluster.folder().join("kubeconfig").to_str().unwrap());
    assert!(!cluster.processes().is_empty());

    let again = cluster.command("up").arg("--control-plane").output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap().trim_end(), line);
    let other =
        cluster.command("up").args(["--control-plane", "--controller-manager=full"]).output().unwrap();
    assert!(String::from_utf8(other.stderr).unwrap().contains("is up already"));
    let status = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["cluster", "status"]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains(&format!("cluster {}: --control-plane --controller-manager=none\n", cluster.name))
    );

    drop(up.stdin.take());
    assert!(up.wait().unwrap().success());
    assert!(!cluster.folder().exists());
    assert_eq!(cluster.processes(), Vec::<String>::new());
}

#[test]
fn programs_are_taken_from_the_folder_of_assets() {
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
    let up = cluster.command("up").arg("--control-plane").env("KUBEBUILDER_ASSETS", assets.path()).output();
    let up = up.unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let running = cluster.programs();
    for name in ["etcd", "kube-apiserver"] {
        assert!(running.contains(&assets.path().join(name)), "{running:?}");
    }
    assert!(cluster.down().status.success());
}

#[test]
fn a_folder_of_assets_without_a_program_is_named() {
    let cluster = Cluster::new("no-assets");
    let mut up = cluster.command("up");
    let up = up.arg("--control-plane").env("KUBEBUILDER_ASSETS", "/nonexistent").output().unwrap();
    assert!(!up.status.success());
    assert!(
        String::from_utf8(up.stderr)
            .unwrap()
            .contains("KUBEBUILDER_ASSETS is /nonexistent, which has no etcd")
    );
    assert!(!cluster.folder().exists());
}
