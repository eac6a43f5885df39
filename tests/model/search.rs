//! Breadth-first search over all states of a world.
//!
//! A state that was reached is kept as a fingerprint of 64 bits, with the step that led to it and the state
//! before it: enough to print the shortest way to a state that breaks a law.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, State};
use crate::rest::Rest;

/// What a search found.
pub(crate) struct Found {
    /// How many different states were reached.
    pub(crate) states: usize,
    /// Most steps of a shortest way to a state.
    pub(crate) depth: usize,
    /// Whether every state was visited.
    pub(crate) is_whole: bool,
    pub(crate) took: Duration,
    pub(crate) broken: Option<Broken>,
}

/// A broken law.
pub(crate) struct Broken {
    pub(crate) world: &'static str,
    pub(crate) law: String,
    /// The steps of the shortest way to break it, in words.
    pub(crate) way: Vec<String>,
}

/// How a state was reached: from the state of that number, by the step of that number.
#[derive(Clone, Copy)]
struct Way {
    from: u32,
    step: u16,
}

/// Searches until a law is broken, every state was visited, or as many states were found.
pub(crate) fn search(cluster: &mut Cluster, states_max: usize) -> Found {
    let began = Instant::now();
    let initial = cluster.initial();
    let mut search = Search { cluster, rest: Rest::default(), known: FxHashMap::default(), ways: Vec::new() };
    let broken = search.run(initial, states_max);
    Found {
        states: search.ways.len(),
        depth: search.ways.len().checked_sub(1).map_or(0, |last| search.way_to(last).len()),
        is_whole: search.ways.len() < states_max,
        took: began.elapsed(),
        broken,
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { world, law, way } = self;
        write!(f, "{world}:\n{}\n{law}", way.join("\n"))
    }
}

struct Search<'a> {
    cluster: &'a mut Cluster,
    rest: Rest,
    known: FxHashMap<u64, u32>,
    ways: Vec<Way>,
}

impl Search<'_> {
    fn run(&mut self, initial: State, states_max: usize) -> Option<Broken> {
        let mut open = VecDeque::new();
        self.reach(&initial, Way { from: 0, step: 0 });
        open.push_back(initial);
        let steps = self.cluster.steps().to_vec();
        let mut number = 0;
        while let Some(state) = open.pop_front() {
            if self.cluster.world.comes_to_rest
                && let Err(law) = self.rest.check(self.cluster, &state)
            {
                let way = self.story(number);
                return Some(self.broken(law, way));
            }
            for (at, step) in (0_u16..).zip(&steps) {
                let way = Way { from: number, step: at };
                match self.cluster.take(&state, *step) {
                    Ok(Some(after)) => {
                        if self.ways.len() < states_max && self.reach(&after, way) {
                            open.push_back(after);
                        }
                    }
                    Ok(None) => {}
                    Err(law) => {
                        let last = self.cluster.describe(&state, *step);
                        let way = self.story(number).into_iter().chain([last]).collect();
                        return Some(self.broken(law.0, way));
                    }
                }
            }
            number += 1;
        }
        None
    }

    fn broken(&self, law: String, way: Vec<String>) -> Broken {
        Broken { world: self.cluster.world.name, law, way }
    }

    /// Records a state. Returns whether it is new.
    fn reach(&mut self, state: &State, way: Way) -> bool {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let Entry::Vacant(free) = self.known.entry(hasher.finish()) else { return false };
        free.insert(u32::try_from(self.ways.len()).expect("there is memory for fewer"));
        self.ways.push(way);
        true
    }

    /// The numbers of the states on the way to a state, the first one left out.
    fn way_to(&self, mut number: usize) -> Vec<usize> {
        let mut way = Vec::new();
        while number > 0 {
            way.push(number);
            number = self.ways[number].from as usize;
        }
        way.reverse();
        way
    }

    /// The steps to a state, in words.
    fn story(&mut self, number: u32) -> Vec<String> {
        let mut state = self.cluster.initial();
        let mut story = Vec::new();
        for number in self.way_to(number as usize) {
            let step = self.cluster.steps()[usize::from(self.ways[number].step)];
            story.push(self.cluster.describe(&state, step));
            let Ok(Some(after)) = self.cluster.take(&state, step) else {
                unreachable!("it was taken before")
            };
            state = after;
        }
        story
    }
}
