//! What processes cost.

use std::fmt::Display;
use std::fs;

/// Resident memory of a process in KiB, by its number, or by `self`.
///
/// # Panics
///
/// The system does not tell: there is no such process.
#[must_use]
pub fn resident_kib(process: impl Display) -> u64 {
    kib(process, "VmRSS:")
}

/// The most resident memory that a process has ever had, in KiB, by its number, or by `self`.
///
/// # Panics
///
/// The system does not tell: there is no such process.
#[must_use]
pub fn peak_kib(process: impl Display) -> u64 {
    kib(process, "VmHWM:")
}

fn kib(process: impl Display, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    let told = status.as_deref().unwrap_or_default().lines().find_map(|line| line.strip_prefix(what));
    let told = told.and_then(|told| told.trim().trim_end_matches(" kB").parse().ok());
    told.unwrap_or_else(|| panic!("/proc tells nothing of the memory of process {process}"))
}
