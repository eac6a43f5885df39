//! `docs/policies/first-policy.md` and `docs/policies/on-a-cluster.md` as they stand, on a real API server
//! with a registry: in each language from nothing to a policy that is signed, tried in shadow, enforced,
//! broken and taken back. And `docs/engines.md`, with the engine of the examples.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bindery_cluster::{Cluster, Manager, poll};
use bindery_kit::{OciRegistry, RegistrySettings};
use rustix::process::{Pid, Signal, kill_process};
use support::{Ended, Home, ended, offered, root};

/// A part of the guide.
enum Step {
    /// A file and its content.
    Write(String, String),
    /// A command, with the lines of its output that the guide shows.
    Run(String, Vec<String>),
}

/// The steps of a guide for a language. Files are blocks of YAML that name them, commands the lines of
/// `console` blocks that begin with `$`. A comment behind a command names its language.
fn steps(guide: &str, language: &str) -> Vec<Step> {
    let guide = std::fs::read_to_string(root().join("docs").join(guide)).unwrap();
    let mut steps = Vec::new();
    for block in guide.split("\n```").skip(1).step_by(2) {
        let (kind, content) = block.split_once('\n').unwrap();
        if let Some(file) = kind.strip_prefix("yaml file=") {
            steps.push(Step::Write(file.to_owned(), content.to_owned()));
            continue;
        }
        assert_eq!(kind, "console");
        for line in content.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step::Run(command.to_owned(), Vec::new())),
                (None, Some(Step::Run(_, shown))) => shown.push(line.to_owned()),
                (None, _) => panic!("no command prints {line}"),
            }
        }
    }
    let is_of_another = |step: &Step| match step {
        Step::Run(command, _) => {
            let of = command.rsplit_once(" # ").map(|(_, of)| of);
            let new = command.strip_prefix("bindery policy new --language ");
            of.or_else(|| new?.split(' ').next()).is_some_and(|of| of != language)
        }
        Step::Write(..) => false,
    };
    steps.retain(|step| !is_of_another(step));
    steps
}

/// A person with a terminal and a cluster.
struct Author {
    home: Home,
    environment: BTreeMap<&'static str, OsString>,
    server: Option<Server>,
    _cluster: Cluster,
    _registry: OciRegistry,
}

/// `bindery serve` in a second terminal.
struct Server(Child);

impl Drop for Server {
    /// As by Ctrl-C.
    fn drop(&mut self) {
        let id = Pid::from_child(&self.0);
        // It may have ended already.
        let _ = kill_process(id, Signal::INT);
        let _ = self.0.wait();
    }
}

impl Author {
    async fn new() -> Self {
        let cluster = Cluster::start(Manager::WithoutBinder).await;
        let registry = OciRegistry::start(RegistrySettings::default());
        let home = Home::new();
        symlink(root().join("charts"), home.path().join("charts")).unwrap();
        let programs = home.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        for name in ["bindery", "kubectl-bindery"] {
            symlink(env!("CARGO_BIN_EXE_bindery"), programs.join(name)).unwrap();
        }
        symlink(offered("BINDERY_KUBECTL"), programs.join("kubectl")).unwrap();
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&inherited)));
        let rust = |variable, folder: &str| {
            let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(folder);
            std::env::var_os(variable).unwrap_or_else(|| home().into())
        };
        let mut environment = BTreeMap::from([
            ("PATH", path.unwrap()),
            ("KUBECONFIG", cluster.kubeconfig().into()),
            ("REGISTRY", registry.host().into()),
            ("BINDERY_ENGINE_CACHE", home.path().join("compiled").into()),
            ("BINDERY_LISTEN", "127.0.0.1:0".into()),
            ("BINDERY_LEASE_DURATION", "3".into()),
            ("CARGO_HOME", rust("CARGO_HOME", ".cargo")),
            ("RUSTUP_HOME", rust("RUSTUP_HOME", ".rustup")),
        ]);
        // The Rust of this workspace, where rustup runs it.
        environment.extend(std::env::var_os("RUSTUP_TOOLCHAIN").map(|name| ("RUSTUP_TOOLCHAIN", name)));
        Self { home, environment, server: None, _cluster: cluster, _registry: registry }
    }

    /// Puts the packages of JavaScript and Python where the first build puts them.
    fn has_fetched_packages(&mut self, language: &str) {
        let folder = self.home.path().join("mine");
        match language {
            "javascript" => {
                let packages = offered("BINDERY_COMPONENTIZE_JS").join("node_modules");
                symlink(packages, folder.join("node_modules")).unwrap();
            }
            "python" => {
                let packages = offered("BINDERY_COMPONENTIZE_PY");
                symlink(&packages, folder.join(".venv")).unwrap();
                self.environment.insert("PYTHONPATH", packages.into());
            }
            _ => {}
        }
    }

    /// bash with a command.
    fn shell(&self, command: &str) -> Command {
        let mut bash = self.home.program("/bin/bash");
        bash.args(["-c", command]).envs(&self.environment);
        bash
    }

    fn run(&self, command: &str) -> Ended {
        ended(self.shell(command), "")
    }

    /// Starts the server, in place of an earlier one.
    fn serve(&mut self, command: &str) {
        self.server = None;
        let log = File::options().append(true).create(true).open(self.log()).unwrap();
        let mut bash = self.shell(&format!("exec {command}"));
        self.server = Some(Server(bash.stdout(Stdio::null()).stderr(log).spawn().unwrap()));
    }

    /// The log of the server.
    fn log(&self) -> PathBuf {
        self.home.path().join("serve.log")
    }
}

/// Whether an output has a line that the guide shows; "…" stands for any text.
fn has(output: &str, shown: &str) -> bool {
    output.lines().any(|line| shown.split('…').all(|part| line.contains(part.trim())))
}

/// Follows the guides to policies in a language.
async fn follow(language: &str) {
    let mut author = Author::new().await;
    let guides = ["policies/first-policy.md", "policies/on-a-cluster.md"];
    for step in guides.into_iter().flat_map(|guide| steps(guide, language)) {
        author.take(step, language).await;
    }
}

impl Author {
    /// Takes a step of a guide.
    async fn take(&mut self, step: Step, language: &str) {
        let (command, shown) = match step {
            Step::Write(file, content) => return drop(self.home.file(&file, content)),
            Step::Run(command, shown) => (command, shown),
        };
        if command.starts_with("bindery serve ") {
            return self.serve(&command);
        }
        // What the server does takes a moment.
        let mut last = None;
        let done = poll(async || {
            let ended = self.run(&command);
            let holds = ended.status == 0 && shown.iter().all(|shown| has(&ended.stdout, shown));
            last = Some(ended);
            (holds || !command.starts_with("kubectl ")).then_some(holds)
        });
        let done = done.await == Some(true);
        let log = || std::fs::read_to_string(self.log()).unwrap_or_default();
        assert!(done, "{command}\n{shown:?}\n{last:?}\n{}", log());
        if command.starts_with("bindery policy new ") {
            self.has_fetched_packages(language);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_rust_is_made_enforced_broken_and_taken_back() {
    follow("rust").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_javascript_is_made_enforced_broken_and_taken_back() {
    follow("javascript").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_python_is_made_enforced_broken_and_taken_back() {
    follow("python").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_of_ones_own_is_planned_with_shadowed_swapped_and_taken_back() {
    let mut author = Author::new().await;
    // What `cargo xtask components` and the chart do.
    let built = author.home.path().join("target/components");
    std::fs::create_dir_all(&built).unwrap();
    symlink(offered("BINDERY_EXAMPLE_ENGINE"), built.join("engine-worst-fit.wasm")).unwrap();
    for command in [
        "kubectl create namespace bindery-system",
        "kubectl apply --server-side -f charts/bindery/files/crds",
        "bindery serve --kubeconfig \"$KUBECONFIG\" --policy-objects=true --engine-cache compiled",
    ] {
        author.take(Step::Run(command.to_owned(), Vec::new()), "").await;
    }
    for step in steps("engines.md", "") {
        if !matches!(&step, Step::Run(command, _) if command.starts_with("cargo ")) {
            author.take(step, "").await;
        }
    }
}
