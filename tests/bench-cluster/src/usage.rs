//! The CPU and memory of a process, from `/proc` (proc(5)).

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Ticks per second in `/proc/PID/stat`: `USER_HZ`, which is 100 on every current platform of Linux.
const TICKS: f64 = 100.0;

/// The time between two looks at a busy process, and the most looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOKS_MAX: usize = 30;
/// The most CPU seconds between two looks of an idle process. Upstream never rests completely.
const IDLE_CPU: f64 = 0.1;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Seconds of CPU, in user and in kernel mode.
    pub(crate) cpu: f64,
    /// Resident memory, in MiB.
    pub(crate) resident: f64,
    /// Peak of resident memory, in MiB.
    pub(crate) peak: f64,
}

impl Usage {
    pub(crate) fn of(id: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{id}/{file}");
            fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))
        };
        let stat = read("stat")?;
        // The name may contain any character, so the fields begin after its last parenthesis.
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

    /// Waits until a process is idle, for a minute at most.
    pub(crate) async fn when_idle(id: u32) -> Result<Self> {
        let mut before = Self::of(id)?;
        for _ in 0..LOOKS_MAX {
            pass(LOOK_EVERY).await;
            let now = Self::of(id)?;
            if now.cpu - before.cpu < IDLE_CPU {
                return Ok(now);
            }
            before = now;
        }
        Ok(before)
    }
}

/// Lets time pass, which is what a benchmark of an idle process measures.
pub(crate) async fn pass(time: Duration) {
    tokio::time::interval_at(tokio::time::Instant::now() + time, time).tick().await;
}
