//! The settings file: a YAML map of names and plain values.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::yaml;

/// A setting of the file.
pub(super) struct Setting {
    /// Its name: that of the command line without the dashes.
    pub(super) name: String,
    /// Its value, as on the command line.
    pub(super) value: String,
}

/// Reads the settings of a file. The error names the wrong setting.
pub(super) fn read(path: &Path) -> Result<Vec<Setting>> {
    let text = fs::read_to_string(path).context("cannot be read")?;
    let documents = yaml::documents(&text).map_err(|why| anyhow::anyhow!("is not YAML: {why}"))?;
    if let [_, second, ..] = &documents[..] {
        bail!("line {}: a second YAML document begins; keep all settings in one document", second.line);
    }
    // An empty file has no document and sets nothing.
    let Some(document) = documents.into_iter().next() else { return Ok(Vec::new()) };
    let Value::Object(map) = document.content else {
        bail!("line {}: is not a list of settings, such as `lease-duration: 15`", document.line)
    };
    map.into_iter().map(|(name, value)| setting(name, value)).collect()
}

fn setting(name: String, value: Value) -> Result<Setting> {
    let value = match value {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => bail!("setting {name} has no value; leave it out to have its default"),
        Value::Array(_) | Value::Object(_) => {
            bail!("setting {name} is a list or a map; it takes one plain value")
        }
    };
    Ok(Setting { name, value })
}
