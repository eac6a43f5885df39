//! The software bill of materials of an image: CycloneDX 1.6 in JSON.

use anyhow::Result;
use serde_json::{Value, json};

use super::parts::Part;
use super::program;

/// The bill of materials for an image of these parts.
pub(super) fn write(parts: &[Part], version: &str) -> Result<Vec<u8>> {
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": "image", "name": program::NAME, "version": version,
            "licenses": [{"expression": "Apache-2.0"}],
        }},
        "components": parts.iter().map(component).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_vec_pretty(&bill)?)
}

fn component(part: &Part) -> Value {
    let Part { name, version, purl, .. } = part;
    let mut component = json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
    });
    if let Some(cpe) = &part.cpe {
        component["cpe"] = json!(cpe);
    }
    if let Some(license) = &part.license {
        component["licenses"] = json!([{"expression": license}]);
    }
    if let Some(source) = &part.source {
        component["externalReferences"] = json!([{"type": "vcs", "url": source}]);
    }
    component
}
