//! The limit of open files.

use anyhow::{Context as _, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that a replica needs beside its connections to the webhook: 256 requests to the API server at
/// most, watches, the Lease and events, 64 connections to the server of health and metrics, and what the
/// runtime and files need.
const FILES: u64 = 384;

/// Raises the limit of open files to what this replica needs. With fewer, connections to the API server take
/// the descriptors that probes need, and `/livez` goes unanswered. If the hard limit is less, the error says
/// how many webhook connections it allows, or that it is too low.
pub(super) fn raise_limit(webhook_connections: usize) -> Result<()> {
    let needed = u64::try_from(webhook_connections).unwrap_or(u64::MAX).saturating_add(FILES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|files| files >= needed) {
        return Ok(());
    }
    match maximum {
        Some(files) if files < FILES => {
            bail!(
                "this process may open {files} files, and needs {FILES}: raise its limit (ulimit -n, \
                 LimitNOFILE)"
            )
        }
        Some(files) if files < needed => bail!(
            "--webhook-connections {webhook_connections} is more than this process may open: its limit of \
             files allows {}",
            files - FILES
        ),
        _ => {}
    }
    let wanted = Rlimit { current: Some(needed), maximum };
    setrlimit(Resource::Nofile, wanted).context("the limit of open files cannot be raised")
}
