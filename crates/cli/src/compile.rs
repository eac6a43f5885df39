//! Compiles components in a process of its own: one with an interpreter takes both processors of a small
//! machine for ten seconds, and one that is made to explode in the compiler takes all memory. Neither may
//! touch the binder and the webhook.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bindery_host::{Host, LoadError};
use bindery_registry::limits::MODULE_MAX;
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
/// The exit status if the input is not a component of its kind. After any other failure, another try may
/// succeed.
const REFUSED: u8 = 3;

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

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    limit()?;
    let mut bytes = Vec::new();
    // One byte more than the largest: its host says that it is too large.
    std::io::stdin().take(MODULE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    let compiled = match arguments.kind {
        ComponentKind::Engine => Host::new(&arguments.cache.options())?.compile(&bytes),
        ComponentKind::Policy => module::host(&arguments.cache)?.compile(&bytes),
    };
    match refusal(compiled)? {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => {
            eprintln!("error: {error}");
            Ok(ExitCode::from(REFUSED))
        }
    }
}

/// What is wrong with the component; the outer error is about this machine.
fn refusal(compiled: Result<(), LoadError>) -> Result<Option<LoadError>, LoadError> {
    match compiled {
        Ok(()) => Ok(None),
        Err(error @ (LoadError::NotKept(_) | LoadError::Unavailable(_))) => Err(error),
        Err(error) => Ok(Some(error)),
    }
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
    let read = |file: &str| std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok();
    let (max, used, stat) = (read("memory.max"), read("memory.current"), read("memory.stat"));
    let left = max.zip(used).and_then(|(max, used)| left(&max, &used, &stat.unwrap_or_default()));
    left.map_or(MEMORY_MAX, |left| MEMORY_MAX.min(left / 4 * 3))
}

/// The memory that is left of a container's, by the texts of its files; none if it has no limit. The kernel
/// takes back the content of files before it ends a process.
fn left(max: &str, used: &str, stat: &str) -> Option<u64> {
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    let of_files = stat.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        bytes(value).filter(|_| matches!(name, "inactive_file" | "active_file"))
    });
    let used = bytes(used)?.saturating_sub(of_files.sum());
    Some(bytes(max)?.saturating_sub(used))
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

/// Compiles a component into the cache, in a process of its own, which ends with this future. The inner error
/// is a sentence about the component; the outer one says why the compiler failed.
pub(crate) async fn in_process(
    kind: ComponentKind,
    bytes: &[u8],
    cache: &CacheArgument,
) -> Result<Result<(), String>> {
    let mut compiler = Compiler::start(kind, bytes, cache)?;
    let output = match timeout(TIME_MAX, &mut compiler.ended).await {
        Ok(output) => output.context("the compiler was lost")?.context("the compiler cannot be awaited")?,
        Err(_) => bail!("compiling it takes more than {} s", TIME_MAX.as_secs()),
    };
    outcome(output.status, &String::from_utf8_lossy(&output.stderr))
}

/// What came of a compilation, as [`in_process`] says it.
fn outcome(status: ExitStatus, said: &str) -> Result<Result<(), String>> {
    // What was logged comes first, and differs each time.
    let said = said.split_once("\nerror: ").map_or(said, |(_, said)| said);
    let said = said.trim().trim_start_matches("error: ").to_owned();
    match status.code() {
        Some(0) => Ok(Ok(())),
        Some(code) if code == i32::from(REFUSED) => Ok(Err(said)),
        _ => bail!(why(status, said)),
    }
}

/// Why the compiler has failed.
fn why(status: ExitStatus, said: String) -> String {
    match status.signal() {
        // The number of the thread differs each time.
        None if let Some((_, panic)) = said.split_once(" panicked at ") => {
            format!("the compiler panicked at {}", panic.split("\nnote: ").next().unwrap_or(panic).trim())
        }
        None => said,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_take_in_memory_is_left() {
        let stat = "anon 100\nfile 900\ninactive_file 500\nactive_file 300\nslab 50\n";
        for (max, used, stat, expected) in [
            ("1000\n", "990\n", stat, Some(810)),
            ("1000\n", "400\n", stat, Some(1000)),
            ("1000\n", "1200\n", "anon 1200\n", Some(0)),
            ("1000\n", "990\n", "", Some(10)),
            ("max\n", "990\n", stat, None),
        ] {
            assert_eq!(left(max, used, stat), expected, "{used:?} of {max:?} with {stat:?}");
        }
    }

    #[test]
    fn only_a_refusal_is_about_the_component() {
        for of_machine in
            [LoadError::Unavailable("no memory".to_owned()), LoadError::NotKept(io::Error::other("full"))]
        {
            assert!(refusal(Err(of_machine)).is_err());
        }
        assert!(matches!(refusal(Err(LoadError::NotWasm)), Ok(Some(LoadError::NotWasm))));
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(outcome(exited(0), "").unwrap(), Ok(()));
        let refused = outcome(exited(REFUSED.into()), "12:00 WARN logged\nerror: it is no component\n");
        assert_eq!(refused.unwrap(), Err("it is no component".to_owned()));
        let ended = |signal: Signal| ExitStatus::from_raw(signal.as_raw());
        for (status, why) in [
            (exited(2), "no room"),
            (ended(Signal::XCPU), "more than 180 s of processor time"),
            (ended(Signal::ABORT), "more than the container has left"),
            (ended(Signal::KILL), "ended by signal 9"),
        ] {
            let failed = outcome(status, "error: no room\n").unwrap_err().to_string();
            assert!(failed.contains(why), "{failed}");
        }
        let panicked = "\nthread 'main' (4711) panicked at pool.rs:1:2:\nno thread\nnote: run with more\n";
        let failed = outcome(exited(101), panicked).unwrap_err().to_string();
        assert_eq!(failed, "the compiler panicked at pool.rs:1:2:\nno thread");
    }
}
