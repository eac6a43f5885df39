//! Answers about other objects change no result.

use std::sync::Arc;

use bindery_core::{
    Answer, BindingMode, Claim, ClaimKey, ClaimRef, Class, Exchange, Handle, Lookup, Migration, PluginMatch,
    Pod, Question, Source, Volume,
};

use crate::case::{claim, class, plugin, volume};

const NAME: &str = "stranger";
/// The plugin of most rows: found for the stranger's volume, it is found for no other.
const PLUGIN: &str = "kubernetes.io/p";

fn key() -> ClaimKey {
    ClaimKey::new("ns", NAME)
}

/// All that could be found out about a volume, a claim, a class and a plugin that no row is about.
fn exchanges() -> Vec<Exchange> {
    [volumes(), claims(), others()].concat()
}

fn lookups<T>(found: T) -> Vec<Lookup<Arc<T>>> {
    let why = || "spec is no object".into();
    vec![Lookup::Found(Arc::new(found)), Lookup::Absent, Lookup::Unreadable(why()), Lookup::Failed(why())]
}

const SOURCES: [Source; 3] = [Source::Overlay, Source::Cache, Source::Live];

fn volumes() -> Vec<Exchange> {
    let free = Volume { name: NAME.into(), uid: "u-stranger".into(), version: "s1".into(), ..volume() };
    let reference = ClaimRef { namespace: "ns".into(), name: NAME.into(), uid: Some("u-stranger".into()) };
    let taken = Volume { claim_ref: Some(reference), ..free.clone() };
    let mut told = Vec::new();
    for volume in [&free, &taken] {
        for source in SOURCES {
            let question = || Question::Volume(source, NAME.into());
            let answers = lookups(volume.clone()).into_iter().map(Answer::Volume);
            told.extend(answers.map(|answer| Exchange { question: question(), answer }));
        }
        let answer = Answer::Described(Arc::new(volume.clone()));
        told.push(Exchange { question: Question::Describe(Handle(7)), answer });
    }
    told.push(Exchange { question: Question::Identify(Handle(7)), answer: Answer::Identity(free.target()) });
    told
}

fn claims() -> Vec<Exchange> {
    let stranger = Claim { key: key(), uid: "u-stranger".into(), version: "s1".into(), ..claim() };
    let mut told = Vec::new();
    for source in SOURCES {
        let answers = lookups(stranger.clone()).into_iter().map(Answer::Claim);
        told.extend(answers.map(|answer| Exchange { question: Question::Claim(source, key()), answer }));
    }
    for pods in [vec![], vec![Pod { name: NAME.into(), scheduled: true, terminated: false }]] {
        told.push(Exchange { question: Question::Pods(key()), answer: Answer::Pods(Ok(pods)) });
    }
    told
}

fn others() -> Vec<Exchange> {
    let default = Class { default: true, ..class(NAME, "stranger.example/p", Some(BindingMode::Immediate)) };
    let classes = lookups(default).into_iter().map(Answer::Class);
    let mut told: Vec<_> =
        classes.map(|answer| Exchange { question: Question::Class(NAME.into()), answer }).collect();
    for found in [None, Some(plugin(NAME)), Some(plugin(PLUGIN))] {
        told.push(Exchange { question: Question::Plugin(NAME.into()), answer: Answer::Plugin(found) });
    }
    for found in [PluginMatch::None, PluginMatch::One(plugin(PLUGIN))] {
        let question = Question::PluginForVolume(NAME.into());
        told.push(Exchange { question, answer: Answer::PluginMatch(found) });
    }
    for migration in [Migration::Off, Migration::On(NAME.into())] {
        let question = Question::Migration(NAME.into());
        told.push(Exchange { question, answer: Answer::Migration(migration) });
    }
    told
}

#[test]
fn answers_about_other_objects_change_no_result() {
    let mut wrong = Vec::new();
    for row in crate::rows() {
        for exchange in exchanges() {
            // The newest answer counts, or the only one.
            for at in [0, row.case.exchanges.len()] {
                let mut case = row.case.clone();
                case.exchanges.insert(at, exchange.clone());
                let found = case.response();
                if found != row.expected {
                    wrong.push(format!(
                        "{}: {found:?}, not {:?}, by {:?}",
                        row.name, row.expected, exchange.question
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
