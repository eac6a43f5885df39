//! The processes of a cluster, known by a mark in their environment.
//!
//! The mark is there from a process's first instruction to its last, is inherited by what it starts, and
//! cannot be taken over by a later process of the same number. Until that first instruction the process keeps
//! the lock of whoever started it. So they are found after an `up` that was killed at any moment.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Holds the cluster's folder.
const CLUSTER: &str = "BINDERY_CLUSTER";
/// Holds the server's name.
const SERVER: &str = "BINDERY_SERVER";
/// How long processes may take to end after SIGKILL, and the pause between two looks.
const END_MAX: Duration = Duration::from_secs(30);
const END_EVERY: Duration = Duration::from_millis(20);

/// A running process of a cluster.
pub(super) struct Found {
    pub(super) pid: Pid,
    /// The server that it is, or that started it.
    pub(super) server: String,
    /// The process itself, whoever has its number later.
    held: OwnedFd,
}

/// Marks what a command will start.
pub(super) fn mark(command: &mut Command, folder: &Path, server: &str) {
    command.env(CLUSTER, folder).env(SERVER, server);
}

/// All processes that run for the cluster of this folder.
///
/// # Errors
/// When processes cannot be listed or held.
pub(super) fn marked(folder: &Path) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            found.extend(look_at(pid, folder)?);
        }
    }
    found.sort_by_key(|found| found.pid.as_raw_nonzero());
    Ok(found)
}

/// The first process that another one has started.
///
/// # Errors
/// When processes cannot be listed.
pub(super) fn child_of(folder: &Path, parent: u32) -> Result<Option<Pid>> {
    let is_child = |found: &Found| {
        let status = fs::read_to_string(format!("/proc/{}/status", found.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.and_then(|line| line.trim().parse().ok()) == Some(parent)
    };
    Ok(marked(folder)?.into_iter().find(is_child).map(|found| found.pid))
}

/// Kills all processes of a cluster and waits until they are gone.
///
/// With SIGKILL: nothing that a cluster has written is used again, and kube-apiserver would take a minute to
/// say goodbye.
///
/// # Errors
/// When one cannot be killed or does not go.
pub(super) fn end_all(folder: &Path) -> Result<()> {
    let give_up = Instant::now() + END_MAX;
    loop {
        let running = marked(folder)?;
        let Some(one) = running.first() else { return Ok(()) };
        if Instant::now() > give_up {
            bail!("process {} ({}) does not end", one.pid, one.server);
        }
        for found in &running {
            kill(found)?;
        }
        for found in &running {
            until_ended(found, give_up)?;
        }
    }
}

/// Whether there was anything to kill; what has ended is there until its parent has asked for it.
fn kill(found: &Found) -> Result<bool> {
    match pidfd_send_signal(&found.held, Signal::KILL) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("cannot end process {} ({})", found.pid, found.server))
        }
    }
}

/// Waits for the end of a process that is killed. It loses its environment sooner, when one of its threads
/// may still make a file.
fn until_ended(found: &Found, give_up: Instant) -> Result<()> {
    while kill(found)? && !has_ended(found.pid) {
        if Instant::now() > give_up {
            bail!("process {} ({}) does not end", found.pid, found.server);
        }
        std::thread::sleep(END_EVERY);
    }
    Ok(())
}

/// Whether all threads of a process have ended; the first one stays until the parent has asked for it.
fn has_ended(pid: Pid) -> bool {
    let Ok(told) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The fields after the program's name, which may hold anything: the state, and the number of threads.
    let mut fields = told.rsplit(')').next().unwrap_or_default().split_whitespace();
    matches!((fields.next(), fields.nth(16)), (Some("Z" | "X"), Some("0" | "1")))
}

/// The process of this number where it is the cluster's. One that is ending has no environment; another
/// user's has none that can be read.
fn look_at(pid: Pid, folder: &Path) -> Result<Option<Found>> {
    // Held first: should it end now, nothing is done to whoever gets its number.
    let held = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        held => held.with_context(|| format!("cannot hold process {pid}"))?,
    };
    Ok(server(pid, folder).map(|server| Found { pid, server, held }))
}

/// The server that a process of the cluster is, or that started it.
fn server(pid: Pid, folder: &Path) -> Option<String> {
    let environment = environment(pid)?;
    let variable = |name: &str| {
        environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes))
    };
    if variable(CLUSTER)? != folder.as_os_str() {
        return None;
    }
    let server = variable(SERVER).map_or_else(|| "unknown".into(), OsStr::to_string_lossy);
    Some(server.into_owned())
}

/// The environment that a process was started with. One that a program is just being loaded into has none
/// yet, and no arguments either, though whoever started it may have gone on or ended: it will have them in a
/// moment.
fn environment(pid: Pid) -> Option<Vec<u8>> {
    let file = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let give_up = Instant::now() + END_MAX;
    loop {
        // Asked first: with its arguments a process gets its environment. The kernel's own processes and
        // those that have ended have no program.
        let is_loading = fs::read(file("cmdline")).ok()?.is_empty() && fs::read_link(file("exe")).is_ok();
        let environment = fs::read(file("environ")).ok()?;
        if !is_loading || !environment.is_empty() || Instant::now() > give_up {
            return Some(environment);
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_found_and_ended_and_nothing_else() {
        let ours = std::env::temp_dir().join(format!("cluster-a-{}", std::process::id()));
        let others = std::env::temp_dir().join(format!("cluster-b-{}", std::process::id()));
        let start = |folder: &Path| {
            let mut command = Command::new("sleep");
            mark(command.arg("60"), folder, "sleeper");
            command.spawn().unwrap()
        };
        let (mut one, mut another, mut other) = (start(&ours), start(&ours), start(&others));
        let servers = |folder: &Path| -> Vec<String> {
            marked(folder).unwrap().into_iter().map(|found| found.server).collect()
        };
        assert_eq!((servers(&ours), servers(&others)), (vec!["sleeper".into(); 2], vec!["sleeper".into()]));
        assert_eq!(
            child_of(&others, std::process::id()).unwrap().unwrap().as_raw_nonzero().get() as u32,
            other.id()
        );
        end_all(&ours).unwrap();
        assert!(one.try_wait().unwrap().is_some() && another.try_wait().unwrap().is_some());
        assert!(other.try_wait().unwrap().is_none());
        end_all(&others).unwrap();
        other.wait().unwrap();
    }
}
