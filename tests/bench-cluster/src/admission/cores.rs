//! The cores of each process: the measured webhook has one core to itself.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The cores that this process may use, as lists for taskset(1).
pub(crate) struct Cores {
    /// All of them.
    pub(crate) all: String,
    /// One core, for the webhook.
    pub(crate) first: String,
    /// The other cores, for the clients and the API server.
    pub(crate) others: String,
}

impl Cores {
    /// The cores of this process.
    ///
    /// # Errors
    ///
    /// When there is only one core.
    pub(crate) fn of_this_process() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("/proc/self/status cannot be read")?;
        let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
        let all = all.context("Cpus_allowed_list is not in /proc/self/status")?;
        let (first, others) =
            split(all).context("two cores are needed: one for the webhook and one for its clients")?;
        Ok(Self { all: all.to_owned(), first, others })
    }
}

/// The first core of a list like `0-3,8`, and the others.
fn split(list: &str) -> Option<(String, String)> {
    let (head, tail) = list.split_once(',').map_or((list, None), |(head, tail)| (head, Some(tail)));
    let Some((first, last)) = head.split_once('-') else {
        return Some((head.to_owned(), tail?.to_owned()));
    };
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let rest = format!("{}-{last}", first + 1);
    let rest = [rest.as_str()].into_iter().chain(tail).collect::<Vec<_>>().join(",");
    Some((first.to_string(), rest))
}

/// Confines all present and future threads of a process to these cores.
pub(crate) fn confine(process: u32, cores: &str) -> Result<()> {
    let process = process.to_string();
    let ended =
        Command::new("taskset").args(["--all-tasks", "--cpu-list", "--pid", cores, &process]).output();
    let ended = ended.context("taskset (Debian package util-linux) cannot be started")?;
    ensure!(ended.status.success(), "taskset: {}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_split_into_the_first_and_the_others() {
        let halves = |list| split(list).map(|(first, others)| format!("{first} {others}"));
        assert_eq!(halves("0-1").as_deref(), Some("0 1-1"));
        assert_eq!(halves("0-3,8").as_deref(), Some("0 1-3,8"));
        assert_eq!(halves("2,5-7").as_deref(), Some("2 5-7"));
        assert_eq!(halves("0"), None);
    }
}
