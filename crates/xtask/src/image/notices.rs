//! The licences of other works in an image: nearly every licence requires that its text accompanies the
//! program.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::parts::Part;
use crate::workspace;

const HEAD: &str = "\
Bindery's image contains the following works of others, each with its licence and the URL of its source.
The licence texts follow. Bindery itself is under the Apache License 2.0, see /LICENSE.
";

/// The notices for the parts of an image. A text that several parts share is printed once.
pub(super) fn write(parts: &[Part]) -> Result<Vec<u8>> {
    let mut list = String::from(HEAD);
    let mut of_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| !part.is_ours) {
        let name = format!("{} {}", part.name, part.version);
        let stated = |text: &Option<String>| text.clone().unwrap_or_else(|| "not stated".to_owned());
        write!(list, "\n{name}: {}, {}", stated(&part.license), stated(&part.source))?;
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

    #[test]
    fn notices_name_each_foreign_work_and_print_each_text_once() {
        let folder = tempfile::tempdir().unwrap();
        let part = |name: &str, texts: &[&str]| Part {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            license: Some("MIT".to_owned()),
            texts: texts.iter().map(|text| folder.path().join(text)).collect(),
            is_ours: name.starts_with("bindery"),
            ..Part::default()
        };
        for (file, text) in
            [("a", "Permission is granted\n"), ("b", "Permission is granted\r\n\n"), ("c", "as is")]
        {
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let parts = [part("one", &["a"]), part("two", &["b", "c"]), part("bindery-core", &["c"])];
        let notices = String::from_utf8(write(&parts).unwrap()).unwrap();
        let (list, texts) = notices.split_once("\n\n----").unwrap();
        assert!(list.ends_with("\none 1.0: MIT, not stated\ntwo 1.0: MIT, not stated"), "{list}");
        assert_eq!(texts.matches("Permission is granted").count(), 1, "{texts}");
        for text in ["\none 1.0, two 1.0:\n", "\ntwo 1.0:\n\nas is\n"] {
            assert!(texts.contains(text), "{texts}");
        }
        assert!(!notices.contains("bindery-core"), "{notices}");
    }
}
