//! What happened, as Markdown with plots.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bindery_kit::percentiles;
use tokio::time::Instant;

use crate::fault::Fault;
use crate::plot::{Line, plot};
use crate::{REPLICAS, figure};

/// Seconds that one point of a plot sums up.
const WINDOW: f64 = 10.0;

/// A fault, and when Bindery had recovered from it.
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// When all tenants were served.
    pub(crate) served: Instant,
    /// When the cluster had settled.
    pub(crate) settled: Instant,
    /// How many tenants came meanwhile.
    pub(crate) tenants: usize,
}

pub(crate) struct Report {
    began: Instant,
    pairs: usize,
    /// Memory of each replica in MiB, when it had listed all pairs.
    pub(crate) listed: Vec<f64>,
    /// The same at the end of the run.
    pub(crate) at_end: Vec<f64>,
    rows: Vec<Row>,
    /// Seconds for which a claim was not bound, each with the second in which it was.
    waits: Vec<(f64, f64)>,
    /// Memory of each replica in MiB, each with its second.
    memory: [Vec<(f64, f64)>; REPLICAS],
}

/// The folder of the report, below cargo's target folder.
pub(crate) fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("soak");
    fs::create_dir_all(&folder).unwrap();
    folder
}

impl Report {
    pub(crate) fn new(pairs: usize) -> Self {
        let (listed, at_end, rows, waits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { began: Instant::now(), pairs, listed, at_end, rows, waits, memory: Default::default() }
    }

    /// Adds a fault; returns its row of the table.
    pub(crate) fn push(&mut self, row: Row) -> String {
        self.rows.push(row);
        self.row(self.rows.len() - 1)
    }

    pub(crate) fn waits(&mut self, waits: Vec<(Instant, Duration)>) {
        let began = self.began;
        self.waits.extend(waits.iter().map(|(at, wait)| ((*at - began).as_secs_f64(), wait.as_secs_f64())));
    }

    pub(crate) fn memory(&mut self, replica: usize, mib: Option<f64>) {
        let now = self.began.elapsed().as_secs_f64();
        self.memory[replica].extend(mib.map(|mib| (now, mib)));
    }

    /// Writes `report.md` and its plots.
    pub(crate) fn write(&self) {
        let (windows, replicas) = (self.windows(), (0..REPLICAS).map(|number| format!("replica {number}")));
        let of = |at: usize| windows.iter().map(|(second, figures)| (*second, figures[at])).collect();
        let memory = replicas.zip(&self.memory).map(|(name, points)| Line { name, points: points.clone() });
        let line = |name: &str, points| Line { name: name.to_owned(), points };
        let plots = [
            ("binds.svg", "binds per second", vec![line("binds per second", of(0))]),
            ("waits.svg", "seconds until a claim is bound", vec![line("median", of(1)), line("p99", of(2))]),
            ("memory.svg", "resident memory in MiB", memory.collect()),
        ];
        let faults: Vec<f64> = self.rows.iter().map(|row| self.second(row.from)).collect();
        let mut text = self.text();
        for (file, title, lines) in plots {
            plot(&folder().join(file), title, &lines, &faults).unwrap();
            writeln!(text, "\n![{title}]({file})").unwrap();
        }
        let path = folder().join("report.md");
        fs::write(&path, text).unwrap();
        println!("{}", path.display());
    }

    fn text(&self) -> String {
        let ([median, p99], bound) = (percentiles(self.between_faults(), [500, 990]), self.waits.len());
        let (seconds, pairs) = (self.began.elapsed().as_secs_f64(), self.pairs);
        let mut text = format!(
            "# A long run with faults\n\n{pairs} pairs were bound before. In {:.1} minutes {bound} claims of \
             tenants were bound, {:.1} per second. Between faults they waited {median:.2} s at the median, \
             99 % of them at most {p99:.2} s.\n\n\
             | fault | minute | lasted s | served after s | settled after s | tenants |\n\
             |---|--:|--:|--:|--:|--:|\n",
            seconds / 60.0,
            figure(bound) / seconds,
        );
        for number in 0..self.rows.len() {
            writeln!(text, "{}", self.row(number)).unwrap();
        }
        text += "\n| replica | MiB when it had listed | MiB at the end |\n|---|--:|--:|\n";
        for (number, listed) in self.listed.iter().enumerate() {
            let at_end = self.at_end.get(number).map_or_else(|| "-".to_owned(), |mib| format!("{mib:.0}"));
            writeln!(text, "| {number} | {listed:.0} | {at_end} |").unwrap();
        }
        text
    }

    fn row(&self, number: usize) -> String {
        let Row { fault, from, to, served, settled, tenants } = &self.rows[number];
        let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
        format!(
            "| {}: {} | {:.1} | {:.0} | {:.1} | {:.1} | {tenants} |",
            number + 1,
            fault.name(),
            self.second(*from) / 60.0,
            seconds(*from, *to),
            seconds(*to, *served),
            seconds(*to, *settled),
        )
    }

    fn second(&self, at: Instant) -> f64 {
        (at - self.began).as_secs_f64()
    }

    /// The waits that began and ended outside of the faults.
    fn between_faults(&self) -> impl Iterator<Item = f64> {
        let is_between = |(end, wait): &&(f64, f64)| {
            !self.rows.iter().any(|row| self.second(row.from) < *end && end - wait < self.second(row.settled))
        };
        self.waits.iter().filter(is_between).map(|(_, wait)| *wait)
    }

    /// Binds per second, median wait and 99th percentile of each window, with its middle.
    fn windows(&self) -> Vec<(f64, [f64; 3])> {
        let (mut windows, mut middle) = (Vec::new(), WINDOW / 2.0);
        while middle < self.began.elapsed().as_secs_f64() {
            let is_in = |(at, _): &&(f64, f64)| (at - middle).abs() <= WINDOW / 2.0;
            let waits: Vec<f64> = self.waits.iter().filter(is_in).map(|(_, wait)| *wait).collect();
            let rate = figure(waits.len()) / WINDOW;
            let [median, p99] = percentiles(waits, [500, 990]);
            windows.push((middle, [rate, median, p99]));
            middle += WINDOW;
        }
        windows
    }
}
