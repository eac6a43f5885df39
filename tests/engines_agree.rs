//! The default engine decides natively as it does in its component: the same questions in the same order, the
//! same decision, or the same stop. A host never sends a nonsensical request; for one the native engine
//! returns an error, and the component traps, because the contract has no such answer.

mod component;
mod random;

use bindery_core::{
    Answer, Cluster, Decision, Engine, EngineFault, Exchange, MatchVerdict, Question, Reason, ReclaimVerdict,
    Recorder, Slot, Stop,
};
use bindery_engine::DefaultEngine;
use bindery_host::{Host, Limits, Options};
use random::Random;

/// Requests that are tried; each has its number as its seed.
const REQUESTS: u64 = 20_000;

/// A cluster with random answers, determined by its seed and the number of earlier questions.
struct RandomCluster(Random);

impl Cluster for RandomCluster {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        let random = &mut self.0;
        if random.below(64) == 0 {
            return Err(Stop::LiveRead(question));
        }
        Ok(match question {
            Question::Claim(..) => Answer::Claim(random.value()),
            Question::Volume(..) => Answer::Volume(random.value()),
            Question::Pods(_) => Answer::Pods(random.value()),
            Question::Node(_) => Answer::Node(random.value()),
            Question::Class(_) => Answer::Class(random.value()),
            Question::DefaultClasses => Answer::DefaultClasses(random.value()),
            Question::Plugin(_) => Answer::Plugin(random.value()),
            Question::PluginForVolume(_) => Answer::PluginMatch(random.value()),
            Question::PluginReady(..) => Answer::Ready(random.value()),
            Question::Migration(_) => Answer::Migration(random.value()),
            Question::DynamicProvisioning => Answer::DynamicProvisioning(random.value()),
            Question::Operation(..) => Answer::Operation(random.value()),
            Question::AccessSets(_) => Answer::AccessSets(random.value()),
            Question::Candidates { .. } => Answer::Page(random.value()),
            Question::ReservedFor { .. } => Answer::Reserved(random.value()),
            Question::Identify(_) => Answer::Identity(random.value()),
            Question::Describe(_) => Answer::Described(random.value()),
            Question::Tallies(_) => Answer::Tallies(random.value()),
            Question::Verdict(_) => Answer::Verdict(random.value()),
            Question::Reclaim(_) => Answer::Reclaim(random.value()),
        })
    }
}

/// Decides a random request; `seen` makes of the cluster the one that the engine sees.
fn decide(
    engine: &dyn Engine,
    seed: u64,
    seen: for<'a> fn(&'a mut dyn Cluster) -> Box<dyn Cluster + 'a>,
) -> (Result<Decision, EngineFault>, Vec<Exchange>) {
    let mut random = Random(seed);
    let request = random.value();
    let mut cluster = RandomCluster(random);
    let mut recorder = Recorder::new(&mut cluster);
    let decision = engine.decide(&request, &mut *seen(&mut recorder));
    (decision, recorder.into_exchanges())
}

/// Checks that a component asks and decides as the native engine does on the cluster that the component sees.
fn check(bytes: &[u8], seen: for<'a> fn(&'a mut dyn Cluster) -> Box<dyn Cluster + 'a>) {
    let host = Host::new(&Options::default()).expect("a host");
    let component = host.load(bytes, Limits::default()).expect("it is an engine");
    let mut decided = 0;
    for seed in 0..REQUESTS {
        let (expected, asked) = decide(&DefaultEngine, seed, seen);
        let (found, asked_by_component) = decide(&component, seed, |cluster| Box::new(Whole(cluster)));
        assert_eq!(asked_by_component, asked, "seed {seed}: the questions differ");
        match &expected {
            Err(EngineFault::Stopped(Stop::Nonsense(_))) => {
                assert!(matches!(&found, Err(EngineFault::Trapped(_))), "seed {seed}: {found:?}");
            }
            expected => assert_eq!(&found, expected, "seed {seed}: the decisions differ"),
        }
        decided += u64::from(expected.is_ok());
    }
    assert!(decided > REQUESTS / 2, "only {decided} of {REQUESTS} requests came to a decision");
}

/// A cluster as version 0.2 of the contract has it.
struct Whole<'a>(&'a mut dyn Cluster);

impl Cluster for Whole<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        self.0.ask(question)
    }
}

/// A cluster as version 0.1 of the contract has it, which knows no policies.
struct WithoutPolicies<'a>(&'a mut dyn Cluster);

impl Cluster for WithoutPolicies<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        if let Question::Verdict(_) = question {
            return Ok(Answer::Verdict(MatchVerdict::Allowed));
        }
        if let Question::Reclaim(_) = question {
            return Ok(Answer::Reclaim(ReclaimVerdict::default()));
        }
        let mut answer = self.0.ask(question)?;
        match &mut answer {
            Answer::Page(page) => {
                for slot in page.slots.iter_mut().filter(|slot| **slot == Slot::Withheld) {
                    *slot = Slot::InFlight;
                }
            }
            Answer::Tallies(tallies) => {
                for tally in tallies.iter_mut().filter(|tally| tally.reason == Reason::Rejected) {
                    tally.reason = Reason::SelectorDiffers;
                }
            }
            _ => {}
        }
        Ok(answer)
    }
}

#[test]
fn the_component_decides_as_the_native_engine_does() {
    check(&component::default_engine(), |cluster| Box::new(Whole(cluster)));
}

/// The file is the default engine, built before version 0.2. If the native engine comes to decide otherwise
/// where no policy is asked, `WithoutPolicies` cannot express it, and both have to be held against a copy of
/// the engine of that time.
#[test]
fn a_component_of_version_0_1_decides_as_where_no_policy_is_known() {
    let bytes = include_bytes!("contract/engine-0.1.wasm");
    check(bytes, |cluster| Box::new(WithoutPolicies(cluster)));
}
