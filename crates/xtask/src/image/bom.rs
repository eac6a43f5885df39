//! What is in an image, as a software bill of materials: CycloneDX 1.6 in JSON.
//!
//! `cargo cyclonedx` writes into the source folders and names this machine's paths, so two builds would differ; what is left
//! to do without it is to write cargo's own metadata down in other words.

use anyhow::Result;
use serde_json::{Value, json};

use super::program;
use crate::packages::{self, Needs};
use crate::workspace;

/// The packages that the image's files are compiled of: those of the program, and the default engine's.
const PACKAGES: [&str; 2] = [program::NAME, "bindery-component"];

/// The bill for the image of a target.
///
/// # Errors
/// When cargo's metadata cannot be read.
pub(super) fn write(triple: &str, version: &str) -> Result<Vec<u8>> {
    let metadata = workspace::read_metadata(&["--locked", "--filter-platform", triple])?;
    let mut components = Vec::new();
    for package in PACKAGES {
        for needed in packages::closure(&metadata, package, Needs::ToRun)? {
            components.push(component(needed)?);
        }
    }
    components.sort_by_key(|component| component["purl"].to_string());
    components.dedup();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": "image", "name": program::NAME, "version": version,
            "licenses": [{"expression": "Apache-2.0"}],
        }},
        "components": components,
    });
    Ok(serde_json::to_vec_pretty(&bill)?)
}

fn component(package: &Value) -> Result<Value> {
    let text = |field: &str| packages::text(package, field);
    let (name, version) = (text("name")?, text("version")?);
    // <https://github.com/package-url/purl-spec>, type `cargo`.
    let purl = format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"));
    let mut component = json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
    });
    if let Some(license) = package["license"].as_str() {
        // Older crates write a slash where the expression's word is `OR`.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(repository) = package["repository"].as_str() {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    Ok(component)
}
