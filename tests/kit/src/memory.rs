//! Memory of processes.

use std::fmt::Display;
use std::fs;

/// Resident memory, in KiB, of the process with this number, or of `self`.
///
/// # Panics
///
/// The process does not exist.
#[must_use]
pub fn resident_kib(process: impl Display) -> u64 {
    kib(process, "VmRSS:")
}

/// Peak resident memory, in KiB, of the process with this number, or of `self`.
///
/// # Panics
///
/// The process does not exist.
#[must_use]
pub fn peak_kib(process: impl Display) -> u64 {
    kib(process, "VmHWM:")
}

fn kib(process: impl Display, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    let value = status.as_deref().unwrap_or_default().lines().find_map(|line| line.strip_prefix(field));
    let value = value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok());
    value.unwrap_or_else(|| panic!("/proc has no memory figures of process {process}"))
}
