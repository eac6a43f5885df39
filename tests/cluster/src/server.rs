//! A program that runs beside a test. An error about a program that has ended shows the end of its log.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use bindery_servers::without_tools;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How many bytes of its log an error shows when a program has failed.
const LOG_SHOWN: usize = 4_000;

/// A running program, whose output goes to a file. It is killed when this is dropped, and when the thread
/// that started it ends.
#[derive(Debug)]
pub struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program. Its output is appended to `log`.
    pub fn start(program: &Path, arguments: impl IntoIterator<Item = OsString>, log: &Path) -> Result<Self> {
        Self::start_in(&[], program, arguments, log)
    }

    /// Starts a program with these variables added to its environment.
    pub fn start_in(
        environment: &[(&str, PathBuf)],
        program: &Path,
        arguments: impl IntoIterator<Item = OsString>,
        log: &Path,
    ) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let output = File::options().create(true).append(true).open(log);
        let output = output.with_context(|| format!("the log {} cannot be written", log.display()))?;
        // The kernel kills the program when this process ends, for any reason.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        without_tools(&mut command).envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context(
            "setpriv (Debian package util-linux), which ends programs with this one, cannot be started",
        )?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log)
            .with_context(|| format!("the log {} cannot be read", self.log.display()))
    }

    /// Checks that it still runs.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = self.log()?;
        let from = log.len().saturating_sub(LOG_SHOWN);
        bail!("{} has ended: {status}\n{}", self.name, log.get(from..).unwrap_or(&log))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid()?, signal).with_context(|| format!("{} cannot be signalled", self.name))
    }

    fn pid(&self) -> Result<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("it has no process id")
    }

    /// Waits until it has ended. Other tasks of this process run meanwhile.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        let pid = self.pid()?;
        // Leaves the status for `Child`.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let until_ended = move || retry_on_intr(|| waitid(WaitId::Pid(pid), options));
        tokio::task::spawn_blocking(until_ended).await??;
        self.child.wait().with_context(|| format!("{} cannot be waited for", self.name))
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        // An error means that it has ended.
        let _ = self.child.kill();
        self.child.wait().with_context(|| format!("{} cannot be waited for", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
