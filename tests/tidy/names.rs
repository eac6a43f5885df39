//! One name for one thing: ARCHITECTURE.md has the glossary.

use std::collections::BTreeMap;

use super::files::{rust_files, shown, word};
use super::nothing_in;

/// Words that have each named several things.
const ONE_TYPE_EACH: [&str; 8] = ["Candidate", "Course", "Kind", "Known", "Object", "Seen", "Slot", "Wire"];

/// The automation and the simulated API server are not part of the product.
const OTHER_CRATES: [&str; 2] = ["crates/sim/", "crates/xtask/"];

#[test]
fn each_of_these_words_names_one_type_of_the_product() {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in rust_files() {
        let path = shown(&path);
        let types = if is_product(&path) { types(&text) } else { Vec::new() };
        for name in ONE_TYPE_EACH {
            let here = types.iter().filter(|defined| **defined == name);
            places.entry(name).or_default().extend(here.map(|_| path.to_string()));
        }
    }
    assert_eq!(
        places["Kind"].len(),
        1,
        "the search no longer finds the type Kind once: {:?}",
        places["Kind"]
    );
    let several = places.iter().filter(|(_, files)| files.len() > 1);
    let found = several.map(|(name, files)| format!("the type {name} is defined in {}", files.join(", ")));
    nothing_in(&found.collect::<Vec<_>>());
}

fn is_product(path: &str) -> bool {
    let is_test = path.split('/').any(|part| part == "tests" || part == "tests.rs");
    let is_other = OTHER_CRATES.iter().any(|folder| path.starts_with(folder));
    !is_test && !is_other && (path.starts_with("crates/") || path.starts_with("webhook/"))
}

/// The types that a file defines outside its unit tests.
fn types(text: &str) -> Vec<&str> {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let defined = product.lines().filter_map(defined);
    // The macro makes an enum: its name follows its comment and attributes.
    let made = product.split("named_cases! {\n").skip(1).filter_map(|block| {
        let mut lines = block.lines().map(str::trim_start);
        lines.find(|line| !line.starts_with("//") && !line.starts_with('#')).map(word)
    });
    defined.chain(made).collect()
}

/// The type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "unsafe");
    let is_type = matches!(words.next()?, "enum" | "struct" | "trait" | "type" | "union");
    words.next().filter(|_| is_type).map(word)
}
