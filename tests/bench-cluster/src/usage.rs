//! What a process has used, from `/proc` (proc(5)).

use std::fs;

use anyhow::{Context as _, Result};

/// Ticks of a second in `/proc/PID/stat`: `USER_HZ`, 100 on every platform that Linux has now.
const TICKS: f64 = 100.0;

/// What a process has used since it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Seconds of CPU, in user and in kernel mode.
    pub(crate) cpu: f64,
    /// Resident memory, in MiB.
    pub(crate) resident: f64,
    /// Most resident memory, in MiB.
    pub(crate) peak: f64,
}

impl Usage {
    /// Of the process with this id.
    pub(crate) fn of(id: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{id}/{file}");
            fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))
        };
        let stat = read("stat")?;
        // The name may hold anything, so the fields are counted from its end.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        let status = read("status")?;
        let memory = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            let kib = value.and_then(|kib| kib.trim().parse::<f64>().ok());
            kib.map(|kib| kib / 1024.0).with_context(|| format!("{name} is not in /proc/PID/status"))
        };
        let cpu = (ticks(11) + ticks(12)) / TICKS;
        Ok(Self { cpu, resident: memory("VmRSS:")?, peak: memory("VmHWM:")? })
    }
}
