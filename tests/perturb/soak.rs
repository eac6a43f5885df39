//! Every script, on all cores. The order does not change, except for pairs by a seed in scenarios with
//! policies. A file has what was tried, so that an interrupted soak continues.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::path::Path;
use std::{fs, thread};

use bindery_kit::number_from_env;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::run::with_second;
use crate::scenario::Scenario;
use crate::script::{Perturbation, Script};

/// All pairs are tried of this many scenarios, the smallest.
const SMALLEST: usize = 5;
/// Scripts that a thread takes at a time.
const BLOCK: usize = 100;
/// Single disturbances, pairs of the smallest scenarios, and pairs by seed.
const PHASES: usize = 3;

/// A scenario, and disturbances of it.
pub(crate) type Singles = (&'static Scenario, Vec<Perturbation>);

/// Every script of a soak, by phase and index.
pub(crate) struct Scripts {
    singles: Vec<Singles>,
    /// The smallest scenarios, with the common disturbances.
    smallest: Vec<Singles>,
    /// Scripts of all phases, if the first two have fewer.
    count: usize,
}

impl Scripts {
    /// The scripts of a soak: `singles` has all single disturbances of each scenario, and `common` those that
    /// pairs are made of.
    pub(crate) fn new(singles: Vec<Singles>, common: Vec<Singles>, count: usize) -> Self {
        let mut smallest = common;
        smallest.sort_by_key(|(_, singles)| singles.len());
        smallest.truncate(SMALLEST);
        Self { singles, smallest, count }
    }

    /// How many indices each phase has.
    fn lengths(&self) -> [usize; PHASES] {
        let singles = self.singles.iter().map(|(_, singles)| singles.len()).sum();
        let pairs = self.smallest.iter().map(|(_, singles)| singles.len().pow(2)).sum();
        [singles, pairs, self.count.saturating_sub(singles + pairs / 2)]
    }

    /// The script at an index; `None` if an earlier index has the same pair.
    fn at(&self, phase: usize, index: usize, seed: u64) -> Option<Script> {
        let (scenario, perturbations) = match phase {
            0 => {
                let ((scenario, singles), index) = place(&self.singles, index, Vec::len);
                (scenario, vec![singles[index]])
            }
            1 => {
                let ((scenario, singles), index) =
                    place(&self.smallest, index, |singles| singles.len().pow(2));
                let (first, second) = (index / singles.len(), index % singles.len());
                (scenario, vec![singles[first], *singles.get(second).filter(|_| first < second)?])
            }
            _ => {
                let chosen = |choice: &str, of: usize| {
                    let mut hasher = DefaultHasher::new();
                    (seed, index, choice).hash(&mut hasher);
                    usize::try_from(hasher.finish() % of as u64).expect("it is below a usize")
                };
                let (scenario, singles) = &self.singles[chosen("scenario", self.singles.len())];
                let number = chosen("length", usize::MAX);
                let first = singles[chosen("first", singles.len())].of_any_length(number);
                return Some(with_second(scenario, first, chosen("second", usize::MAX)));
            }
        };
        Some(Script { scenario: scenario.name.to_owned(), perturbations })
    }
}

/// The scenario that has an index, and the index within it.
fn place(of: &[Singles], mut index: usize, length: fn(&Vec<Perturbation>) -> usize) -> (&Singles, usize) {
    for singles in of {
        match index.checked_sub(length(&singles.1)) {
            Some(rest) => index = rest,
            None => return (singles, index),
        }
    }
    unreachable!("an index is below the length of its phase")
}

/// What was tried, as the file has it.
#[derive(Serialize, Deserialize)]
struct Progress {
    /// The seed of the last phase.
    seed: u64,
    /// The index before which all scripts of a phase were tried.
    tried: [usize; PHASES],
    /// Reports of scripts that failed.
    failed: Vec<String>,
}

/// The blocks of one phase that threads have taken.
struct Blocks {
    next: usize,
    running: BTreeSet<usize>,
}

/// Tries every script that the file does not have. Returns the reports of all that failed.
pub(crate) fn run(
    scripts: &Scripts,
    file: &Path,
    check: impl Fn(&Script) -> Result<(), String> + Sync,
) -> Vec<String> {
    let seed = number_from_env("BINDERY_SEED").unwrap_or_default();
    let progress = match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).expect("the file is of a soak; remove it to begin anew"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Progress { seed, tried: [0; PHASES], failed: Vec::new() }
        }
        Err(error) => panic!("{} cannot be read: {error}", file.display()),
    };
    let seed = progress.seed;
    let progress = Mutex::new(progress);
    for (phase, length) in scripts.lengths().into_iter().enumerate() {
        let blocks = Mutex::new(Blocks { next: progress.lock().tried[phase], running: BTreeSet::new() });
        let work = || {
            loop {
                let Some(block) = blocks.lock().take(length) else { return };
                let indices = block..length.min(block + BLOCK);
                let tried = indices.filter_map(|index| scripts.at(phase, index, seed));
                let failed: Vec<String> = tried.filter_map(|script| check(&script).err()).collect();
                failed.iter().for_each(|report| println!("{report}"));
                let mut progress = progress.lock();
                progress.failed.extend(failed);
                progress.tried[phase] = blocks.lock().end(block).min(length);
                println!("{:?} of {:?}, {} failed", progress.tried, scripts.lengths(), progress.failed.len());
                let text = serde_json::to_vec(&*progress).expect("it has text and numbers");
                let new = file.with_extension("new");
                fs::write(&new, text).and_then(|()| fs::rename(&new, file)).expect("the file can be written");
            }
        };
        thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            (0..threads).for_each(|_| drop(scope.spawn(work)));
        });
    }
    progress.into_inner().failed
}

impl Blocks {
    /// Takes a block: the first of its indices.
    fn take(&mut self, length: usize) -> Option<usize> {
        let block = (self.next < length).then_some(self.next)?;
        self.next += BLOCK;
        self.running.insert(block);
        Some(block)
    }

    /// Ends a block. Returns the index before which all were tried.
    fn end(&mut self, block: usize) -> usize {
        self.running.remove(&block);
        self.running.first().copied().unwrap_or(self.next)
    }
}
