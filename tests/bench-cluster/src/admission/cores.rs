//! Who runs on which cores: a door that is measured on one core has it to itself.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The cores of this machine, as far as this process may run on them, as lists that taskset(1) takes.
pub(crate) struct Cores {
    /// All of them.
    pub(crate) all: String,
    /// One, for the door.
    pub(crate) first: String,
    /// The others, for whoever asks and for the API server.
    pub(crate) others: String,
}

impl Cores {
    /// Those of this process.
    ///
    /// # Errors
    ///
    /// There is only one.
    pub(crate) fn of_this_process() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("/proc/self/status cannot be read")?;
        let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
        let all = all.context("Cpus_allowed_list is not in /proc/self/status")?;
        let (first, others) = split(all)
            .context("this machine lends one core only: the door needs one, and who asks another")?;
        Ok(Self { all: all.to_owned(), first, others })
    }
}

/// The first core of a list such as `0-3,8`, and the others.
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

/// Has all threads of a process, and those that it will start, run on these cores only.
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
    fn one_core_is_the_doors_and_the_rest_are_the_others() {
        let told = |list| split(list).map(|(first, others)| format!("{first} {others}"));
        assert_eq!(told("0-1").as_deref(), Some("0 1-1"));
        assert_eq!(told("0-3,8").as_deref(), Some("0 1-3,8"));
        assert_eq!(told("2,5-7").as_deref(), Some("2 5-7"));
        assert_eq!(told("0"), None);
    }
}
