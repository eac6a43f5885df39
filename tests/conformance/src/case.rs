//! Recorded cases, in the format of their files.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// One recorded case: a world, a call, and what upstream did.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Unique name.
    pub id: String,
    /// `sync-claim NAME`, `sync-volume NAME` or `settle`.
    pub call: String,
    /// After the call, sync until nothing changes.
    #[serde(default)]
    pub then_settle: bool,
    /// StorageClass objects in the cache.
    #[serde(default)]
    pub classes: Vec<Value>,
    /// Pod objects in the cache.
    #[serde(default)]
    pub pods: Vec<Value>,
    /// Names of claims that exist and that the cache has not seen.
    #[serde(default)]
    pub uncached: Vec<String>,
    /// The objects that the world starts with.
    pub initial: Objects,
    /// The in-tree plugin that is installed, or none.
    pub plugin: Option<MockOutcomes>,
    /// Requests that fail.
    #[serde(default)]
    pub api_errors: Vec<ApiError>,
    /// What other actors change just before the operation starts.
    pub changed_before_operation: Option<Change>,
    /// The objects at the end.
    #[serde(rename = "final")]
    pub end: Objects,
    /// Every event, in order; settle cases do not record them.
    pub events: Option<Vec<String>>,
    /// Whether the call returned an error; settle cases do not record it.
    pub fails: Option<bool>,
}

/// Volumes and claims.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Objects {
    /// PersistentVolume objects.
    pub volumes: Vec<Value>,
    /// PersistentVolumeClaim objects.
    pub claims: Vec<Value>,
}

impl Objects {
    /// The objects, each with its `apiVersion` and `kind`.
    pub(crate) fn typed(&self) -> impl Iterator<Item = Value> {
        let volumes = of_kind(&self.volumes, "v1", "PersistentVolume");
        volumes.into_iter().chain(of_kind(&self.claims, "v1", "PersistentVolumeClaim"))
    }
}

impl Case {
    /// The classes and pods, each with its `apiVersion` and `kind`.
    pub(crate) fn environment(&self) -> impl Iterator<Item = Value> {
        let classes = of_kind(&self.classes, "storage.k8s.io/v1", "StorageClass");
        classes.into_iter().chain(of_kind(&self.pods, "v1", "Pod"))
    }
}

fn of_kind(objects: &[Value], api_version: &str, kind: &str) -> Vec<Value> {
    let typed = objects.iter().cloned().map(|mut object| {
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        object
    });
    typed.collect()
}

/// Results of the calls of the mock plugin. Without a list, the plugin refuses to start the operation.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MockOutcomes {
    /// Results of provision: `None` is success, a text is the error.
    pub provision: Option<Vec<Option<String>>>,
    /// Results of delete.
    pub delete: Option<Vec<Option<String>>>,
    /// Results of recycle.
    pub recycle: Option<Vec<Option<String>>>,
    /// Whether every in-tree plugin is migrated to CSI.
    #[serde(default)]
    pub migrated: bool,
}

/// A request that fails once.
#[derive(Clone, Debug, Deserialize)]
pub struct ApiError {
    /// `get`, `update`, `create` or `delete`.
    pub verb: String,
    /// Plural of the resource.
    pub resource: String,
    /// Text of the failure.
    pub message: String,
}

/// All objects after other actors have changed them.
#[derive(Clone, Debug, Deserialize)]
pub struct Change {
    /// On the API server.
    pub api: Objects,
    /// In the caches.
    pub cache: Objects,
}

/// A line of a corpus.
pub struct Line {
    /// File and line, for messages.
    pub place: String,
    /// The case, or the reason why the line is not a case.
    pub case: Result<Case>,
}

/// Reads a corpus: the cases of its [`lines`].
///
/// # Errors
///
/// The file cannot be opened or read.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let line = |(number, line): (usize, String)| Line { place: place(path, number), case: parse(&line) };
    Ok(lines(path)?.into_iter().map(line).collect())
}

/// The lines of a corpus that are not empty, with their numbers from 1. The file is plain or gzip, by its
/// first bytes.
///
/// # Errors
///
/// The file cannot be opened or read.
pub fn lines(path: &Path) -> Result<Vec<(usize, String)>> {
    let file = File::open(path).with_context(|| format!("cannot open corpus {}", path.display()))?;
    let mut reader = BufReader::new(file);
    let gzip = reader
        .fill_buf()
        .with_context(|| format!("cannot read corpus {}", path.display()))?
        .starts_with(&[0x1f, 0x8b]);
    let plain: Box<dyn Read> =
        if gzip { Box::new(flate2::read::MultiGzDecoder::new(reader)) } else { Box::new(reader) };
    let mut lines = Vec::new();
    for (number, line) in BufReader::new(plain).lines().enumerate() {
        let line = line.with_context(|| format!("cannot read corpus {}", path.display()))?;
        if !line.trim().is_empty() {
            lines.push((number + 1, line));
        }
    }
    Ok(lines)
}

fn place(path: &Path, number: usize) -> String {
    let name = path.file_name().map_or_else(|| PathBuf::from(path), PathBuf::from);
    format!("{}:{number}", name.display())
}

fn parse(line: &str) -> Result<Case> {
    serde_json::from_str(line).context("the line is not a case in JSON; one line holds one case")
}
