//! The terms of the works of others that are in an image: nearly every licence asks that its text goes with
//! the program.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::parts::Part;
use crate::workspace;

const HEAD: &str = "\
Bindery's image contains the following works of others. Each is named with its licence and with where its source is; the texts
that their authors ask to go with them follow. Bindery itself is under the Apache License 2.0, see /LICENSE.
";

/// The notices for what an image is made of. A text that several have is told once.
///
/// # Errors
/// When a text cannot be read.
pub(super) fn write(parts: &[Part]) -> Result<Vec<u8>> {
    let mut list = String::from(HEAD);
    let mut of_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| !part.is_ours) {
        let name = format!("{} {}", part.name, part.version);
        let told = |what: &Option<String>| what.clone().unwrap_or_else(|| "not stated".to_owned());
        write!(list, "\n{name}: {}, {}", told(&part.license), told(&part.source))?;
        for path in &part.texts {
            let text = String::from_utf8_lossy(&workspace::read(path)?).trim().replace("\r\n", "\n");
            of_text.entry(text).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<_> = of_text.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        write!(list, "\n\n{}\n{}:\n\n{text}", "-".repeat(80), names.join(", "))?;
    }
    list.push('\n');
    Ok(list.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, texts: &[&std::path::Path]) -> Part {
        Part {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            purl: format!("pkg:cargo/{name}@1.0"),
            license: Some("MIT".to_owned()),
            texts: texts.iter().map(|path| path.to_path_buf()).collect(),
            is_ours: name.starts_with("bindery"),
            ..Part::default()
        }
    }

    #[test]
    fn each_work_of_others_is_named_and_each_text_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let (mit, again, other) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
        std::fs::write(&mit, "Permission is granted\n").unwrap();
        std::fs::write(&again, "Permission is granted\r\n\n").unwrap();
        std::fs::write(&other, "as is").unwrap();
        let parts = [part("one", &[&mit]), part("two", &[&again, &other]), part("bindery-core", &[&other])];
        let told = String::from_utf8(write(&parts).unwrap()).unwrap();
        let (list, texts) = told.split_once("\n\n----").unwrap();
        assert!(list.ends_with("\none 1.0: MIT, not stated\ntwo 1.0: MIT, not stated"), "{list}");
        assert_eq!(texts.matches("Permission is granted").count(), 1, "{texts}");
        assert!(
            texts.contains("\none 1.0, two 1.0:\n") && texts.contains("\ntwo 1.0:\n\nas is\n"),
            "{texts}"
        );
        assert!(!told.contains("bindery-core"), "{told}");
    }
}
