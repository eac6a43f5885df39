//! Answers about other objects change no result.

use std::sync::Arc;

use bindery_core::{
    Answer, BindingMode, Claim, ClaimKey, ClaimRef, Class, Exchange, Handle, Lookup, Migration, PluginMatch,
    Pod, Question, Source, Volume,
};

use bindery_kit::{class, plugin};

use crate::case::{claim, volume};

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

/// The question with each of the answers.
fn answered(question: &Question, answers: impl IntoIterator<Item = Answer>) -> Vec<Exchange> {
    let exchange = |answer| Exchange { question: question.clone(), answer };
    answers.into_iter().map(exchange).collect()
}

fn volumes() -> Vec<Exchange> {
    let free = Volume { version: "s1".into(), ..volume(NAME) };
    let reference = ClaimRef { namespace: "ns".into(), name: NAME.into(), uid: Some("u-stranger".into()) };
    let taken = Volume { claim_ref: Some(reference), ..free.clone() };
    let mut told = answered(&Question::Identify(Handle(7)), [Answer::Identity(free.target())]);
    for volume in [free, taken] {
        told.extend(answered(&Question::Describe(Handle(7)), [Answer::Described(volume.clone().into())]));
        for source in SOURCES {
            let answers = lookups(volume.clone()).into_iter().map(Answer::Volume);
            told.extend(answered(&Question::Volume(source, NAME.into()), answers));
        }
    }
    told
}

fn claims() -> Vec<Exchange> {
    let stranger = Claim { version: "s1".into(), ..claim(NAME) };
    let pods = [vec![], vec![Pod { name: NAME.into(), scheduled: true, terminated: false }]];
    let mut told = answered(&Question::Pods(key()), pods.map(|pods| Answer::Pods(Ok(pods))));
    for source in SOURCES {
        let answers = lookups(stranger.clone()).into_iter().map(Answer::Claim);
        told.extend(answered(&Question::Claim(source, key()), answers));
    }
    told
}

fn others() -> Vec<Exchange> {
    let default = Class { default: true, ..class(NAME, "stranger.example/p", Some(BindingMode::Immediate)) };
    let plugins = [None, Some(plugin(NAME)), Some(plugin(PLUGIN))];
    let matches = [PluginMatch::None, PluginMatch::One(plugin(PLUGIN))];
    let migrations = [Migration::Off, Migration::On(NAME.into())];
    [
        answered(&Question::Class(NAME.into()), lookups(default).into_iter().map(Answer::Class)),
        answered(&Question::Plugin(NAME.into()), plugins.map(Answer::Plugin)),
        answered(&Question::PluginForVolume(NAME.into()), matches.map(Answer::PluginMatch)),
        answered(&Question::Migration(NAME.into()), migrations.map(Answer::Migration)),
    ]
    .concat()
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
                    let question = &exchange.question;
                    wrong.push(format!("{}: {found}, not {}, by {question:?}", row.name, row.expected));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
