//! The processes of a cluster, known by a mark in their environment.
//!
//! The mark is there from a process's first instruction to its last, is inherited by what it starts, and cannot be taken
//! over by a later process of the same number. Until that first instruction the process keeps the lock of whoever started
//! it. So they are found after an `up` that was killed at any moment.

use std::ffi::OsStr;
use std::fs;
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
}

/// Marks what a command will start.
pub(super) fn mark(command: &mut Command, folder: &Path, server: &str) {
    command.env(CLUSTER, folder).env(SERVER, server);
}

/// All processes that run for the cluster of this folder.
///
/// # Errors
/// When processes cannot be listed.
pub(super) fn marked(folder: &Path) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        found.extend(pid.and_then(|pid| look_at(pid, folder)));
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
/// With SIGKILL: nothing that a cluster has written is used again, and kube-apiserver would take a minute to say goodbye.
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
            end(found, folder)
                .with_context(|| format!("cannot end process {} ({})", found.pid, found.server))?;
        }
        std::thread::sleep(END_EVERY);
    }
}

fn end(found: &Found, folder: &Path) -> Result<()> {
    // The number may be another's by now: from here on it is held, and then looked at again.
    let held = match pidfd_open(found.pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        held => held?,
    };
    if look_at(found.pid, folder).is_none() {
        return Ok(());
    }
    match pidfd_send_signal(&held, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The process of this number where it is the cluster's. One that has ended has no environment; another user's has none
/// that can be read.
fn look_at(pid: Pid, folder: &Path) -> Option<Found> {
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
    Some(Found { pid, server: server.into_owned() })
}

/// The environment that a process was started with. One that a program is just being loaded into has none yet, and no
/// arguments either, though whoever started it may have gone on or ended: it will have them in a moment.
fn environment(pid: Pid) -> Option<Vec<u8>> {
    let file = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let give_up = Instant::now() + END_MAX;
    loop {
        // Asked first: with its arguments a process gets its environment. The kernel's own processes and those that have
        // ended have no program.
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
