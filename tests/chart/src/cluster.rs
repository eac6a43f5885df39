//! Somebody with a kubeconfig, Helm and kubectl.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::{NAMESPACE, RELEASE, chart, helm, offered, root, run};

/// Who operates a cluster by its kubeconfig: by the real Helm and the real kubectl, with nothing of this
/// user's own.
pub struct Operator {
    kubeconfig: PathBuf,
    /// Where both keep what they have discovered.
    home: TempDir,
}

impl Operator {
    /// The one of this kubeconfig.
    ///
    /// # Panics
    ///
    /// There is no folder for temporary files.
    pub fn new(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, home: tempfile::tempdir().expect("there must be a folder for temporary files") }
    }

    /// Runs Helm in the release's namespace. Answers what it printed.
    ///
    /// # Panics
    ///
    /// It fails.
    pub fn helm(&self, arguments: &[&str]) -> String {
        self.try_helm(arguments).unwrap_or_else(|why| panic!("helm {arguments:?}: {why}"))
    }

    /// As [`Operator::helm`], where Helm may refuse.
    ///
    /// # Errors
    ///
    /// It fails; answers what it says.
    pub fn try_helm(&self, arguments: &[&str]) -> Result<String, String> {
        let mut helm = helm(arguments);
        self.known_to(&mut helm);
        helm.args(["--namespace", NAMESPACE]);
        run(&mut helm, "")
    }

    /// Upgrades the release to the chart with what was given before, and further arguments. Answers what Helm
    /// printed.
    ///
    /// # Errors
    ///
    /// It fails; answers what it says.
    pub fn upgrade(&self, further: &[&str]) -> Result<String, String> {
        let chart = chart();
        let chart = chart.to_str().expect("the checkout's path is a text");
        self.try_helm(&[&["upgrade", RELEASE, chart, "--reset-then-reuse-values"], further].concat())
    }

    /// Runs kubectl with a text on its standard input. Answers what it printed.
    ///
    /// # Errors
    ///
    /// It fails; answers what it says.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(offered("BINDERY_KUBECTL"));
        kubectl.args(arguments);
        self.known_to(&mut kubectl);
        run(&mut kubectl, input)
    }

    /// Runs a line as a person types it into a shell; `kubectl` and `helm` are the real ones. Answers what it
    /// printed.
    ///
    /// # Errors
    ///
    /// It fails; answers what it says.
    pub fn shell(&self, line: &str) -> Result<String, String> {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("kubectl() {{ \"$KUBECTL\" \"$@\"; }}\nhelm() {{ \"$HELM\" \"$@\"; }}\n{line}"));
        shell.env("KUBECTL", offered("BINDERY_KUBECTL")).env("HELM", offered("BINDERY_HELM"));
        shell.env("HOME", self.home.path()).env("KUBECONFIG", &self.kubeconfig).current_dir(root());
        run(&mut shell, "")
    }

    fn known_to(&self, command: &mut Command) {
        command.env("HOME", self.home.path()).arg("--kubeconfig").arg(&self.kubeconfig);
    }
}
