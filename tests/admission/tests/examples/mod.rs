//! The examples of `docs/admission.md`.

use std::path::Path;

use serde_json::Value;

/// The example of a rule, by the names of its blocks.
#[derive(Default)]
#[allow(dead_code, reason = "each test reads the blocks that it is about")]
pub(crate) struct Example {
    pub(crate) rule: String,
    /// The objects of the cluster.
    pub(crate) cluster: Vec<Value>,
    /// The object before an update.
    pub(crate) before: Vec<Value>,
    /// The object that is sent.
    pub(crate) request: Vec<Value>,
    /// Bindery's answer.
    pub(crate) reply: String,
    /// What upstream's controller does, line by line.
    pub(crate) upstream: Vec<String>,
}

pub(crate) fn document() -> String {
    std::fs::read_to_string(Path::new(env!("BINDERY_CHECKOUT")).join("docs/admission.md")).unwrap()
}

/// The examples of a document: a section for each rule, with fenced blocks.
pub(crate) fn examples(document: &str) -> Vec<Example> {
    let sections = document.split("\n### `").skip(1);
    sections
        .map(|section| {
            let (rule, text) = section.split_once('`').unwrap();
            let mut example = Example { rule: rule.to_owned(), ..Example::default() };
            for block in text.split("\n```").skip(1).step_by(2) {
                let (name, content) = block.split_once('\n').unwrap();
                match name {
                    "yaml cluster" => example.cluster = documents(content),
                    "yaml before" => example.before = documents(content),
                    "yaml request" => example.request = documents(content),
                    "text reply" => example.reply = content.trim_end().to_owned(),
                    "text upstream" => example.upstream = content.lines().map(str::to_owned).collect(),
                    other => panic!("{rule}: a block of {other:?}"),
                }
            }
            example
        })
        .collect()
}

fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}
