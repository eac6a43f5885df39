//! The processes of a cluster, which are marked in their environment.
//!
//! A process has its mark from its first instruction to its last, passes it on to its children, and a later
//! process with the same number does not have it. Until the first instruction the process keeps the lock of
//! its parent. So all processes are found even after an `up` that was killed at any moment. A cgroup would do
//! the same, but only root can make one on most machines, and a control plane needs no root.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Contains the cluster's folder.
const CLUSTER: &str = "BINDERY_CLUSTER";
/// Contains the server's name.
const SERVER: &str = "BINDERY_SERVER";
/// The time that processes may take to end after SIGKILL.
const END_MAX: Duration = Duration::from_secs(30);

/// A running process of a cluster.
pub(super) struct Found {
    pub(super) pid: Pid,
    /// The server that it is, or that started it.
    pub(super) server: String,
    /// Refers to the process even if its number is used again.
    handle: OwnedFd,
}

/// Marks the processes that a command will start.
pub(super) fn mark(command: &mut Command, folder: &Path, server: &str) {
    command.env(CLUSTER, folder).env(SERVER, server);
}

/// All processes of the cluster in this folder.
pub(super) fn marked(folder: &Path) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            found.extend(find(pid, folder)?);
        }
    }
    found.sort_by_key(|found| found.pid.as_raw_nonzero());
    Ok(found)
}

/// The first child of a process of the cluster.
pub(super) fn child_of(folder: &Path, parent: u32) -> Result<Option<Pid>> {
    let is_child = |found: &Found| {
        let status = fs::read_to_string(format!("/proc/{}/status", found.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.and_then(|line| line.trim().parse().ok()) == Some(parent)
    };
    Ok(marked(folder)?.into_iter().find(is_child).map(|found| found.pid))
}

/// Kills all processes of a cluster and waits for their end.
///
/// By SIGKILL, since the cluster's data is not used again and kube-apiserver's clean end takes a minute.
pub(super) fn end_all(folder: &Path) -> Result<()> {
    let deadline = Instant::now() + END_MAX;
    loop {
        let running = marked(folder)?;
        let Some(one) = running.first() else { return Ok(()) };
        for Found { pid, server, handle } in &running {
            match pidfd_send_signal(handle, Signal::KILL) {
                // It has ended.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot kill process {pid} ({server})"));
                }
            }
        }
        for found in &running {
            until_ended(found, deadline)?;
        }
        if Instant::now() > deadline {
            bail!("process {} ({}) does not end", one.pid, one.server);
        }
    }
}

/// Waits until all threads of a killed process have ended: until then one may still make a file.
fn until_ended(found: &Found, deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).context("the timeout is too long")?;
    // The handle of an ended process is readable.
    match poll(&mut [PollFd::new(&found.handle, PollFlags::IN)], Some(&timeout)) {
        Ok(0) => bail!("process {} ({}) does not end", found.pid, found.server),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for a process"),
    }
}

/// The process of this number, if it belongs to the cluster. An ending process has no environment, and that
/// of another user's process cannot be read.
fn find(pid: Pid, folder: &Path) -> Result<Option<Found>> {
    // Opened first: if the process ends now, the handle does not refer to the next process with its number.
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        handle => handle.with_context(|| format!("cannot open process {pid}"))?,
    };
    Ok(server(pid, folder).map(|server| Found { pid, server, handle }))
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

/// The environment that a process was started with. While the kernel loads a program, the process has neither
/// environment nor arguments for a moment, and its parent may already have gone on or ended.
fn environment(pid: Pid) -> Option<Vec<u8>> {
    let file = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let deadline = Instant::now() + END_MAX;
    loop {
        // Read first: a process gets its environment together with its arguments. The kernel's own processes
        // and those that have ended have no program.
        let is_loading = fs::read(file("cmdline")).ok()?.is_empty() && fs::read_link(file("exe")).is_ok();
        let environment = fs::read(file("environ")).ok()?;
        if !is_loading || !environment.is_empty() || Instant::now() > deadline {
            return Some(environment);
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_processes_are_found_and_ended_and_no_others() {
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
        let child = child_of(&others, std::process::id()).unwrap().unwrap();
        assert_eq!(child.as_raw_nonzero().get() as u32, other.id());
        end_all(&ours).unwrap();
        assert!(one.try_wait().unwrap().is_some() && another.try_wait().unwrap().is_some());
        assert!(other.try_wait().unwrap().is_none());
        end_all(&others).unwrap();
        other.wait().unwrap();
    }
}
