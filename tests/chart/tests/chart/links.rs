//! Links in documents lead to existing files and headings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bindery_chart::root;

fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
            documents(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The lines of a document outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_example = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_example ^= is_fence;
        !is_example && !is_fence && !line.starts_with("    ")
    })
}

/// The targets of a document's links, outside of code.
fn links(text: &str) -> Vec<String> {
    let lines = prose(text).collect::<Vec<_>>().join("\n");
    let parts: Vec<_> = lines.split('`').collect();
    // The text of a link may be code.
    let outside = parts.iter().enumerate().map(|(index, part)| if index % 2 == 0 { *part } else { "" });
    let outside = outside.collect::<String>();
    let behind = outside.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    behind.map(|(link, _)| link.to_owned()).collect()
}

/// The anchors of a document's headings. The second of two equal headings gets a number.
fn anchors(text: &str) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let headings = prose(text).filter(|line| line.trim_start_matches('#').starts_with(' '));
    let headings = headings.filter(|line| line.starts_with('#'));
    let anchors = headings.map(|heading| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let count = seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
        if *count == 0 { anchor } else { format!("{anchor}-{count}") }
    });
    anchors.collect()
}

fn broken(document: &Path, link: &str) -> Option<&'static str> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { document.to_owned() } else { document.parent().unwrap().join(path) };
    let Some(anchor) = anchor else {
        return (!target.exists()).then_some("there is no such file");
    };
    let Ok(text) = fs::read_to_string(&target) else {
        return Some("there is no such document");
    };
    (!anchors(&text).iter().any(|heading| heading == anchor)).then_some("there is no such heading")
}

#[test]
fn no_link_of_a_document_is_broken() {
    let mut documents_found = Vec::new();
    documents(root(), &mut documents_found);
    let (mut followed, mut wrong) = (0, Vec::new());
    for document in &documents_found {
        for link in links(&fs::read_to_string(document).unwrap()) {
            if link.contains("://") {
                continue;
            }
            followed += 1;
            if let Some(why) = broken(document, &link) {
                wrong.push(format!("{}: {link}: {why}", document.display()));
            }
        }
    }
    assert!(
        documents_found.len() > 10 && followed > 50,
        "{} documents, {followed} links",
        documents_found.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_link_to_a_missing_heading_or_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("a.md");
    let text = "# A `b` c\n\n## Twice\n## Twice\n\n```\n# no heading\n\
                [no](link)\n```\n[`a`](#a-b-c), `[no](link)`, [b\nb](b.md)\n";
    fs::write(&document, text).unwrap();
    assert_eq!(links(text), ["#a-b-c", "b.md"]);
    for (link, is_there) in [
        ("#a-b-c", true),
        ("#twice-1", true),
        ("#twice-2", false),
        ("#no-heading", false),
        ("a.md#twice", true),
        ("a.md", true),
        ("b.md", false),
        ("b.md#a-b-c", false),
    ] {
        assert_eq!(broken(&document, link).is_none(), is_there, "{link}");
    }
}
