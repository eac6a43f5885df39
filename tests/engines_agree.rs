//! The default engine decides natively as it does in its component: the same questions in the same order, the
//! same decision, or the same stop. A host never sends a nonsensical request; for one the native engine
//! returns an error, and the component traps, because the contract has no such answer.

mod component;
mod random;

use bindery_core::{Answer, Cluster, Decision, Engine, EngineFault, Exchange, Question, Recorder, Stop};
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
        })
    }
}

fn decide(engine: &dyn Engine, seed: u64) -> (Result<Decision, EngineFault>, Vec<Exchange>) {
    let mut random = Random(seed);
    let request = random.value();
    let mut cluster = RandomCluster(random);
    let mut recorder = Recorder::new(&mut cluster);
    let decision = engine.decide(&request, &mut recorder);
    (decision, recorder.into_exchanges())
}

#[test]
fn the_component_decides_as_the_native_engine_does() {
    let host = Host::new(&Options::default()).unwrap();
    let component = host.load(&component::default_engine(), Limits::default().unhurried()).unwrap();
    let mut decided = 0;
    for seed in 0..REQUESTS {
        let (expected, asked) = decide(&DefaultEngine, seed);
        let (found, asked_by_component) = decide(&component, seed);
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
