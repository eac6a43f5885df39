//! A program that runs until it is stopped.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How much of a log is shown when its program has failed.
const LOG_SHOWN: usize = 4_000;
/// How often it is looked whether one has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running program, whose output goes to a file. Killed when it is dropped, and when the thread that
/// started it ends.
#[derive(Debug)]
pub struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program; what it prints goes to the end of `log`.
    ///
    /// # Errors
    ///
    /// The program or the file cannot be opened.
    pub fn start(program: &Path, arguments: impl IntoIterator<Item = OsString>, log: &Path) -> Result<Self> {
        Self::start_in(&[], program, arguments, log)
    }

    /// Starts a program with further variables in its environment.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_in(
        environment: &[(&str, PathBuf)],
        program: &Path,
        arguments: impl IntoIterator<Item = OsString>,
        log: &Path,
    ) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let output = File::options().create(true).append(true).open(log);
        let output = output.with_context(|| format!("the log {} cannot be written", log.display()))?;
        // The kernel ends the program with us, however we end.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command
            .spawn()
            .context("setpriv (Debian package util-linux), which ends programs with us, cannot be started")?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log)
            .with_context(|| format!("the log {} cannot be read", self.log.display()))
    }

    /// Whether it still runs.
    ///
    /// # Errors
    ///
    /// It does not; the error shows the end of its log.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = self.log()?;
        let from = log.len().saturating_sub(LOG_SHOWN);
        bail!("{} has ended: {status}\n{}", self.name, log.get(from..).unwrap_or(&log))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// It has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("it has no process id")?;
        kill_process(pid, signal).with_context(|| format!("{} cannot be signalled", self.name))
    }

    /// Waits until it has ended. Others go on meanwhile, such as a proxy of this process that answers it
    /// until then.
    ///
    /// # Errors
    ///
    /// It cannot be waited for.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            looks.tick().await;
            let ended = self.child.try_wait();
            if let Some(status) = ended.with_context(|| format!("{} cannot be waited for", self.name))? {
                return Ok(status);
            }
        }
    }

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Errors
    ///
    /// It cannot be waited for.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        // An error means that it has ended already.
        let _ = self.child.kill();
        self.child.wait().with_context(|| format!("{} cannot be waited for", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
