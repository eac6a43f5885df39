//! Reads manifests: YAML with any number of documents, JSON, and lists as `kubectl get` prints them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use crate::yaml;

/// The path that means standard input.
const STDIN: &str = "-";
/// Extensions of the files that are read from a folder.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// An object and its place.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// The file, as the user named it.
    pub(crate) file: String,
    /// The place in the file, such as `line 4, item 2`.
    pub(crate) place: String,
    pub(crate) object: Value,
}

/// Reads files, folders and, for `-`, standard input. Of a folder it reads the manifests directly in it, in
/// the order of their names; where it has none, those directly in its subfolders; with `recursive`, all.
/// Errors name the file and the document.
pub(crate) fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for path in paths {
        if path.as_os_str() == STDIN {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("standard input cannot be read as UTF-8")?;
            manifests.extend(parse("standard input", &text)?);
            continue;
        }
        for file in files(path, recursive)? {
            let name = file.display().to_string();
            let text = fs::read_to_string(&file).with_context(|| format!("{name} cannot be read"))?;
            manifests.extend(parse(&name, &text)?);
        }
    }
    Ok(manifests)
}

/// The files that a path means: itself, or the manifests in a folder.
pub(crate) fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("{} cannot be read", path.display());
    if !fs::metadata(path).with_context(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = BTreeSet::from([path.to_owned()]);
    while let Some(folder) = folders.pop_first() {
        let (manifests, subfolders) = entries(&folder)?;
        let is_first = folder == path;
        if recursive || (is_first && manifests.is_empty()) {
            folders.extend(subfolders);
        }
        files.extend(manifests);
    }
    if files.is_empty() {
        bail!("{} holds no manifest: no file in it ends in .{}", path.display(), ENDINGS.join(", ."));
    }
    Ok(files)
}

/// The manifests and the subfolders directly in a folder.
fn entries(folder: &Path) -> Result<(BTreeSet<PathBuf>, BTreeSet<PathBuf>)> {
    let unreadable = || format!("{} cannot be read", folder.display());
    let (mut manifests, mut subfolders) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            // A link to a folder may lead back here.
            if !path.is_symlink() {
                subfolders.insert(path);
            }
        } else if ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            manifests.insert(path);
        }
    }
    Ok((manifests, subfolders))
}

/// The objects of a file. Empty documents are skipped, lists are split into their items.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Manifest>> {
    let documents = yaml::documents(text).map_err(|why| {
        let template = if text.contains("{{") { "; a template has to be rendered first" } else { "" };
        anyhow!("{file} is neither YAML nor JSON: {why}{template}")
    })?;
    let mut manifests = Vec::new();
    for document in documents {
        let manifest =
            |place: &str, object| Manifest { file: file.to_owned(), place: place.to_owned(), object };
        let mut each = |place: &str, object| manifests.push(manifest(place, object));
        let split = split(document.content, &format!("line {}", document.line), &mut each);
        split.map_err(|why| anyhow!("{file}: the document at {why}"))?;
    }
    Ok(manifests)
}

/// Splits a document at a place into objects. The error begins with the place.
fn split(document: Value, place: &str, each: &mut dyn FnMut(&str, Value)) -> Result<()> {
    let mut object = match document {
        Value::Null => return Ok(()),
        Value::Object(object) => object,
        Value::Array(_) => bail!("{place} is a list: put it under items of an object of kind List"),
        _ => bail!("{place} is not a Kubernetes object: it has no apiVersion and kind"),
    };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind == "List" && object.get("items").is_some_and(|items| !items.is_array() && !items.is_null()) {
        bail!("{place} has items that are not a list: write a `-` before each");
    }
    let is_list =
        kind.ends_with("List") && object.get("items").is_none_or(|items| items.is_array() || items.is_null());
    if is_list {
        let Some(Value::Array(items)) = object.remove("items") else { return Ok(()) };
        // Items in a list of one kind, as the API returns it, have neither kind nor apiVersion.
        let (common, version) =
            (kind.trim_end_matches("List"), object.remove("apiVersion").unwrap_or_default());
        for (number, mut item) in (1..).zip(items) {
            if let (false, Value::Object(item)) = (common.is_empty(), &mut item) {
                item.entry("kind").or_insert_with(|| common.into());
                item.entry("apiVersion").or_insert_with(|| version.clone());
            }
            split(item, &format!("{place}, item {number}"), each)?;
        }
        return Ok(());
    }
    for field in ["apiVersion", "kind"] {
        if !object.get(field).is_some_and(Value::is_string) {
            bail!(
                "{place} has no {field}: every Kubernetes object begins with apiVersion and kind. Render a \
                 chart or a kustomization first, and plan the output: helm template, kubectl kustomize"
            );
        }
    }
    each(place, Value::Object(object));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let manifests = parse("f", text).unwrap();
        manifests.iter().map(|m| m.object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn complaint(text: &str) -> String {
        format!("{:#}", parse("f", text).unwrap_err())
    }

    #[test]
    fn documents_and_lists_are_split_into_objects() {
        let object = |name: &str| format!("apiVersion: v1\nkind: A\nmetadata: {{name: {name}}}\n");
        assert_eq!(names(&format!("---\n{}---\n# nothing\n---\n{}", object("a"), object("b"))), ["a", "b"]);
        let json = r#"{"kind": "List", "apiVersion": "v1", "items": [
            {"kind": "AList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]},
            {"apiVersion": "v1", "kind": "A", "metadata": {"name": "b"}}]}"#;
        assert_eq!(names(json), ["a", "b"]);
        let merged = "base: &b {kind: A, apiVersion: v1}\nkind: List\nitems: [{<<: *b, metadata: {name: a}}]";
        assert_eq!(names(merged), ["a"]);
        assert!(parse("f", "").unwrap().is_empty());
        assert!(parse("f", r#"{"kind": "List", "items": null}"#).unwrap().is_empty());
    }

    #[test]
    fn a_text_that_is_not_a_manifest_is_refused_with_place_and_remedy() {
        assert_eq!(complaint("a: ["), "f is neither YAML nor JSON: unclosed bracket '[' at line 1, column 4");
        assert_eq!(
            complaint("{kind: A, kind: B}"),
            "f is neither YAML nor JSON: duplicate mapping key `kind` is not allowed here at line 1, \
             column 11"
        );
        let template = complaint("{{ if .Values.volume }}\nkind: A\n{{ end }}");
        assert!(template.ends_with("; a template has to be rendered first"), "{template}");
        assert_eq!(
            complaint("---\n# first\n---\n- apiVersion: v1\n"),
            "f: the document at line 4 is a list: put it under items of an object of kind List"
        );
        assert!(complaint("hello").starts_with("f: the document at line 1 is not a Kubernetes object"));
        assert!(complaint("kind: A").starts_with("f: the document at line 1 has no apiVersion"));
        assert!(
            complaint("{kind: List, items: {a: b}}")
                .starts_with("f: the document at line 1 has items that are not a list")
        );
        assert!(
            complaint("{kind: List, items: [{apiVersion: v1}]}")
                .starts_with("f: the document at line 1, item 1 has no kind")
        );
    }
}
