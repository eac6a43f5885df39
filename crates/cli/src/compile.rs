//! Compiles components in a process of its own: one with an interpreter takes both processors of a small
//! machine for ten seconds, and one that is made to explode in the compiler takes all memory. Neither may
//! touch the binder and the webhook.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bindery_host::{Host, PolicyHost};
use clap::ValueEnum;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, nice, setrlimit};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use crate::engine::CacheArgument;
use crate::policy::module;

/// The most memory of a compilation, in bytes; a component with an interpreter takes a third of it.
const MEMORY_MAX: u64 = 1_536 << 20;
/// The most processor time of a compilation, in seconds.
const CPU_MAX: u64 = 180;
/// The longest time of a compilation; other processes go before it.
const TIME_MAX: Duration = Duration::from_secs(600);
/// The lowest priority.
const NICE: i32 = 19;

/// Compile a component from standard input into the cache.
///
/// `bindery serve` runs it for modules of cluster objects.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What the component is.
    #[arg(long, value_enum)]
    kind: ComponentKind,
    #[command(flatten)]
    cache: CacheArgument,
}

/// What a component is. Engines and policies are compiled with different settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComponentKind {
    Engine,
    Policy,
}

/// Runs `bindery compile`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    limit()?;
    let mut bytes = Vec::new();
    std::io::stdin().take(PolicyHost::COMPONENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    match arguments.kind {
        ComponentKind::Engine => {
            Host::new(&arguments.cache.options())?.compile(&bytes)?;
        }
        ComponentKind::Policy => module::host(&arguments.cache)?.compile(&bytes)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Limits this process.
fn limit() -> Result<()> {
    nice(NICE)?;
    for (resource, most) in [(Resource::Data, memory_max()), (Resource::Cpu, CPU_MAX)] {
        let limit = Rlimit { current: Some(most), maximum: None };
        setrlimit(resource, limit).context("the limits of a compilation cannot be set")?;
    }
    Ok(())
}

/// The most memory of this process: three quarters of what is left of the container's, because the kernel
/// ends all processes of a container that takes more than it may.
fn memory_max() -> u64 {
    let read = |file: &str| -> Option<u64> {
        std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok()?.trim().parse().ok()
    };
    let left = read("memory.max").zip(read("memory.current")).map(|(max, used)| max.saturating_sub(used));
    left.map_or(MEMORY_MAX, |left| MEMORY_MAX.min(left / 4 * 3))
}

/// A process that compiles. It is killed with this value.
struct Compiler {
    group: Option<Pid>,
    ended: oneshot::Receiver<io::Result<Output>>,
}

impl Compiler {
    fn start(kind: ComponentKind, bytes: &[u8], cache: &CacheArgument) -> Result<Self> {
        let kind = kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut command = Command::new("/proc/self/exe");
        command.args(["compile", "--kind", &kind]).args(cache.arguments()).env_clear().process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("the compiler cannot be started")?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (sender, ended) = oneshot::channel();
        let bytes = bytes.to_vec();
        // A thread and no blocking task: the program's end would wait for the task.
        std::thread::spawn(move || {
            if let Some(mut input) = child.stdin.take() {
                // One that has failed early does not read all.
                let _ = input.write_all(&bytes);
            }
            // An error means that it was killed and the output is not needed.
            let _ = sender.send(child.wait_with_output());
        });
        Ok(Self { group, ended })
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        if let Some(group) = self.group
            && matches!(self.ended.try_recv(), Err(TryRecvError::Empty))
        {
            // An error means that it has just ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Compiles a component into the cache, in a process of its own, which ends with this future.
///
/// # Errors
///
/// One sentence that says why the cache does not have it.
pub(crate) async fn in_process(kind: ComponentKind, bytes: &[u8], cache: &CacheArgument) -> Result<()> {
    let mut compiler = Compiler::start(kind, bytes, cache)?;
    let output = match timeout(TIME_MAX, &mut compiler.ended).await {
        Ok(output) => output.context("the compiler was lost")?.context("the compiler cannot be awaited")?,
        Err(_) => bail!("compiling it takes more than {} s", TIME_MAX.as_secs()),
    };
    if output.status.success() {
        return Ok(());
    }
    bail!(why(output.status, &String::from_utf8_lossy(&output.stderr)))
}

/// Why a compilation has failed.
fn why(status: ExitStatus, said: &str) -> String {
    match status.signal() {
        None => said.trim().trim_start_matches("error: ").to_owned(),
        Some(signal) if signal == Signal::XCPU.as_raw() => {
            format!("compiling it takes more than {CPU_MAX} s of processor time")
        }
        // What the allocator does when the limit is reached.
        Some(signal) if signal == Signal::ABORT.as_raw() => format!(
            "compiling it takes more than {} MiB of memory, or more than the container has left",
            MEMORY_MAX >> 20
        ),
        Some(signal) => format!("the compiler ended by signal {signal}"),
    }
}
