//! A playground in a process of its own, and kubectl to reach it.

#![allow(dead_code, reason = "every test file uses its part")]

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ended, Home, ended, root};

pub(crate) struct Playground {
    home: Home,
    process: Running,
    welcome: String,
}

/// The blocks of commands in an example's README.
pub(crate) struct Commands {
    blocks: VecDeque<String>,
}

impl Commands {
    pub(crate) fn of(example: &str) -> Self {
        let text = std::fs::read_to_string(root().join("examples").join(example).join("README.md")).unwrap();
        let blocks = text.split("```sh\n").skip(1);
        Self { blocks: blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect() }
    }

    pub(crate) fn end(self) {
        assert!(self.blocks.is_empty(), "{:?}", self.blocks);
    }
}

pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines until one satisfies a condition; returns all lines.
pub(crate) fn lines_until(process: &mut Running, mut is_it: impl FnMut(&str) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        let length = process.output.read_line(&mut line).unwrap();
        assert!(length > 0, "the output ended after {lines:?}");
        lines.push(line);
        if is_it(lines.last().unwrap()) {
            return lines;
        }
    }
}

impl Playground {
    /// Starts a playground on a free port, and waits for its welcome. The engine is that of `BINDERY_ENGINE`.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_logging_to(Stdio::inherit(), arguments)
    }

    /// As [`Playground::start`], with the log going to `log`.
    pub(crate) fn start_logging_to(log: impl Into<Stdio>, arguments: &[&str]) -> Self {
        let home = Home::new();
        let command = home.command(&[]);
        Self::start_by(home, command, log, arguments)
    }

    /// As [`Playground::start`], in a process that cannot write files of more than a KiB.
    pub(crate) fn start_with_small_files(arguments: &[&str]) -> Self {
        let home = Home::new();
        let mut command = home.program("sh");
        // A signal would end the process, which no full disk does.
        let limited = "trap '' XFSZ; ulimit -f 2; exec \"$@\"";
        command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_bindery")]);
        Self::start_by(home, command, Stdio::null(), arguments)
    }

    /// Has the command run `playground`.
    fn start_by(home: Home, mut command: Command, log: impl Into<Stdio>, arguments: &[&str]) -> Self {
        std::fs::create_dir(home.path().join("tmp")).unwrap();
        command.args(["playground", "--address", "127.0.0.1:0", "--kubeconfig", "config"]);
        command.args(arguments).env("TMPDIR", home.path().join("tmp")).stderr(log);
        if let Some(engine) = std::env::var_os("BINDERY_ENGINE") {
            command.env("BINDERY_ENGINE", engine);
        }
        let mut process = Running::start(&mut command);
        let welcome = lines_until(&mut process, |line| line.starts_with("Ctrl-C ends it")).concat();
        assert!(
            welcome.contains(&format!("export KUBECONFIG={}/config\n", home.path().display())),
            "{welcome}"
        );
        Self { home, process, welcome }
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Writes an object to a file; returns the path.
    pub(crate) fn file(&self, name: &str, object: &Value) -> String {
        let file = self.home.file(name, object.to_string());
        self.home.path().join(file).display().to_string()
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    pub(crate) fn welcome(&self) -> &str {
        &self.welcome
    }

    /// Runs kubectl, which must succeed; returns its output.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let ended = self.kubectl_with(arguments, &[]);
        assert_eq!(ended.status, 0, "kubectl {arguments:?}: {ended:?}");
        ended.stdout
    }

    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.kubectl(&["get", object, "-o", &format!("jsonpath={path}")])
    }

    pub(crate) fn kubectl_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
        let mut command = self.kubectl_command(arguments);
        command.envs(environment.iter().copied());
        ended(command, "")
    }

    /// Starts kubectl; its output can be read as it comes.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.kubectl_command(arguments))
    }

    /// Runs the next block of an example in the checkout, as its reader does; each command must succeed.
    pub(crate) fn run_next(&self, commands: &mut Commands) -> String {
        let block = commands.blocks.pop_front().expect("there is another block");
        let tools = self.home.path().join("bin");
        if !tools.exists() {
            std::fs::create_dir(&tools).unwrap();
            symlink(kubectl(), tools.join("kubectl")).unwrap();
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([tools].into_iter().chain(std::env::split_paths(&path))).unwrap();
        let mut command = self.home.program("sh");
        command.args(["-euxc", &block]).current_dir(root()).env("PATH", path);
        command.env("KUBECONFIG", self.home.path().join("config"));
        let ended = ended(command, "");
        assert_eq!(ended.status, 0, "{ended:?}");
        ended.stdout
    }

    /// Waits for an event with that reason about an object; returns its line.
    pub(crate) fn wait_for_event(&self, object: &str, reason: &str) -> String {
        let mut events = self.spawn(&["events", "--for", object, "--watch", "--no-headers"]);
        lines_until(&mut events, |line| line.split_whitespace().any(|word| word == reason))
            .pop()
            .unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, object: &str, phase: &str) {
        let until = format!("--for=jsonpath={{.status.phase}}={phase}");
        self.kubectl(&["wait", object, &until, "--timeout=60s"]);
    }

    /// Kills it, which removes no files.
    pub(crate) fn kill(self) -> Home {
        drop(self.process);
        self.home
    }

    /// Ends it by a signal; it must succeed and remove its files.
    pub(crate) fn stop(self, signal: Signal) -> Home {
        self.stop_with_status(signal, 0)
    }

    /// As [`Playground::stop`], with this exit status.
    pub(crate) fn stop_with_status(self, signal: Signal, expected: i32) -> Home {
        let Self { home, mut process, .. } = self;
        let id = i32::try_from(process.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
        let mut rest = String::new();
        process.output.read_to_string(&mut rest).unwrap();
        let status = process.child.wait().unwrap();
        assert_eq!((status.code(), rest.as_str()), (Some(expected), ""));
        assert!(!home.path().join("config").exists(), "the kubeconfig is left");
        let temporary: Vec<_> = std::fs::read_dir(home.path().join("tmp")).unwrap().collect();
        assert!(temporary.is_empty(), "{temporary:?} is left");
        home
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.program(kubectl());
        // What `kubectl edit` and `sed` need.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("KUBECONFIG", self.home.path().join("config")).args(arguments);
        command
    }
}

/// The kubectl of `BINDERY_KUBECTL`, else the one in the tools cache.
pub(crate) fn kubectl() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || {
        let cache = set("BINDERY_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("bindery")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/bindery")))?;
        Some(cache.join("tools/kubectl"))
    };
    let kubectl = set("BINDERY_KUBECTL").or_else(cache).filter(|kubectl| kubectl.is_file());
    kubectl.expect("there is no kubectl: run `cargo xtask tools kubectl`, or name one in BINDERY_KUBECTL")
}
