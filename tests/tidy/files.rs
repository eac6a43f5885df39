//! The files of the checkout.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

/// A path relative to the root of the workspace.
pub(crate) fn shown(path: &Path) -> Cow<'_, str> {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy()
}

/// Every Rust file of the checkout, with its text.
pub(crate) fn rust_files() -> Vec<(PathBuf, String)> {
    let files = files("rs");
    assert!(files.iter().any(|(path, _)| path.ends_with("tests/tidy.rs")), "this file itself must be found");
    files
}

/// Every file of the checkout with that extension, with its text.
pub(crate) fn files(extension: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a source folder must be readable") {
            let path = entry.expect("a source folder must be readable").path();
            let name = path.file_name().expect("an entry must have a name").to_string_lossy();
            let is_output = name == "target" || name.starts_with('.');
            if path.is_dir() && !is_output {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).expect("a source file must be readable");
                files.push((path, text));
            }
        }
    }
    files
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("BINDERY_CHECKOUT"))
}

/// The identifier that a text begins with.
pub(crate) fn word(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
}
