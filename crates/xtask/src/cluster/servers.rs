//! Starting the servers of a cluster, and waiting for them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Pid;
use serde_json::Value;

use super::place::Place;
use super::{namespace, processes};

/// The bytes of a log that are shown when its server has failed.
const LOG_SHOWN: usize = 4_000;
/// The time that anything may take to become ready (two seconds on an idle machine), and the pause between
/// two looks.
const READY_MAX: Duration = Duration::from_secs(180);
const READY_EVERY: Duration = Duration::from_millis(100);

/// The servers that this process has started for a cluster. They outlive it.
pub(super) struct Servers<'a> {
    place: &'a Place,
    started: Vec<Server>,
    /// The process that holds the servers' namespaces, if they have their own.
    holder: Option<Pid>,
}

struct Server {
    name: String,
    child: Child,
}

/// Reads from the API server by kubectl.
pub(super) struct Reader<'a> {
    place: &'a Place,
    kubectl: PathBuf,
}

impl<'a> Servers<'a> {
    /// No servers yet.
    pub(super) fn new(place: &'a Place) -> Self {
        Self { place, started: Vec::new(), holder: None }
    }

    pub(super) fn place(&self) -> &'a Place {
        self.place
    }

    /// The names of all servers that were started.
    pub(super) fn names(&self) -> Vec<&str> {
        self.started.iter().map(|server| server.name.as_str()).collect()
    }

    /// Makes all later commands run in the namespaces that this process holds.
    pub(super) fn enter(&mut self, holder: Pid) {
        self.holder = Some(holder);
    }

    /// A command for a server of the cluster, or for a tool, in the servers' namespaces.
    pub(super) fn command(&self, name: &str, program: impl AsRef<Path>) -> Command {
        let Some(holder) = self.holder else { return self.outside(name, program) };
        let mut command = self.outside(name, "nsenter");
        namespace::enter(&mut command, holder);
        command.arg(program.as_ref());
        command
    }

    /// A command for the cluster in this machine's namespaces.
    pub(super) fn outside(&self, name: &str, program: impl AsRef<Path>) -> Command {
        command(self.place, name, program.as_ref())
    }

    /// Reads from the API server, once there is a kubeconfig.
    pub(super) fn reader(&self, kubectl: &Path) -> Reader<'a> {
        Reader { place: self.place, kubectl: kubectl.to_owned() }
    }

    /// Starts a server with its output in `NAME.log`, and returns its process id.
    pub(super) fn start(&mut self, name: &str, command: &mut Command) -> Result<u32> {
        eprintln!("starting {name}");
        let path = self.log(name);
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let pid = child.id();
        self.started.push(Server { name: name.to_owned(), child });
        Ok(pid)
    }

    /// Waits until `ready` returns something. If a server ends or it takes too long, the error shows the end
    /// of a log.
    pub(super) fn until<T>(&mut self, what: &str, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            for Server { name, child } in &mut self.started {
                if let Some(status) = child.try_wait()? {
                    let log = self.place.file(&format!("{name}.log"));
                    bail!("{name} has ended: {status}\n{}", end_of(&log));
                }
            }
            if let Some(found) = ready()? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                let newest = self.started.last().map(|server| end_of(&self.log(&server.name)));
                bail!("waited {} s until {what}\n{}", READY_MAX.as_secs(), newest.unwrap_or_default());
            }
            std::thread::sleep(READY_EVERY);
        }
    }

    fn log(&self, name: &str) -> PathBuf {
        self.place.file(&format!("{name}.log"))
    }
}

impl Reader<'_> {
    /// The API server's answer to a read of this path, if it answers with success.
    pub(super) fn get(&self, path: &str) -> Option<String> {
        let mut kubectl = command(self.place, "kubectl", &self.kubectl);
        kubectl.arg("--kubeconfig").arg(self.place.kubeconfig()).args(["get", "--raw", path]);
        let output = kubectl.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    }

    /// As [`Self::get`], parsed as JSON.
    pub(super) fn get_json(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&self.get(path)?).ok()
    }
}

/// A command that is marked as the cluster's, and that outlives the terminal.
fn command(place: &Place, name: &str, program: &Path) -> Command {
    let mut command = Command::new("setsid");
    processes::mark(&mut command, place.folder(), name);
    // Some servers write files into their current folder.
    command.arg(program).current_dir(place.folder()).stdin(Stdio::null());
    command
}

fn end_of(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let from = text.len().saturating_sub(LOG_SHOWN);
    String::from_utf8_lossy(&text[from..]).into_owned()
}
