//! Helm and kubectl with a kubeconfig.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::{NAMESPACE, RELEASE, chart, helm, offered, root, run};

/// Runs the real Helm and the real kubectl with a kubeconfig, and without the user's own configuration.
/// Errors are the messages of the programs.
pub struct Operator {
    kubeconfig: PathBuf,
    /// The folder of both programs' caches.
    home: TempDir,
}

impl Operator {
    /// Uses this kubeconfig.
    pub fn new(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, home: tempfile::tempdir().expect("there must be a folder for temporary files") }
    }

    /// Runs Helm in the release's namespace and returns its output.
    pub fn helm(&self, arguments: &[&str]) -> String {
        self.try_helm(arguments).unwrap_or_else(|why| panic!("helm {arguments:?}: {why}"))
    }

    /// As [`Operator::helm`], for commands that Helm may refuse.
    pub fn try_helm(&self, arguments: &[&str]) -> Result<String, String> {
        let mut helm = helm(arguments);
        self.configure(&mut helm);
        helm.args(["--namespace", NAMESPACE]);
        run(&mut helm, "")
    }

    /// Upgrades the release to the chart with the values of before, and further arguments.
    pub fn upgrade(&self, further: &[&str]) -> Result<String, String> {
        let chart = chart();
        let chart = chart.to_str().expect("the checkout's path must be UTF-8");
        self.try_helm(&[&["upgrade", RELEASE, chart, "--reset-then-reuse-values"], further].concat())
    }

    /// Runs kubectl with a text on its standard input and returns its output.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(offered("BINDERY_KUBECTL"));
        kubectl.args(arguments);
        self.configure(&mut kubectl);
        run(&mut kubectl, input)
    }

    /// Runs a line in a shell in which `kubectl` and `helm` are the real ones, and returns its output.
    pub fn shell(&self, line: &str) -> Result<String, String> {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("kubectl() {{ \"$KUBECTL\" \"$@\"; }}\nhelm() {{ \"$HELM\" \"$@\"; }}\n{line}"));
        shell.env("KUBECTL", offered("BINDERY_KUBECTL")).env("HELM", offered("BINDERY_HELM"));
        shell.env("HOME", self.home.path()).env("KUBECONFIG", &self.kubeconfig).current_dir(root());
        run(&mut shell, "")
    }

    fn configure(&self, command: &mut Command) {
        command.env("HOME", self.home.path()).arg("--kubeconfig").arg(&self.kubeconfig);
    }
}
