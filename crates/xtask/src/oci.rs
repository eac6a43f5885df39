//! Container images by the OCI image specification 1.1, packed from files without a daemon or a registry.
//!
//! An archive is an image layout in a tar file, which `skopeo`, `podman`, `ctr` and Docker with containerd's
//! store read. Its bytes depend on nothing but its content.

mod tree;

use std::io::Write as _;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

pub(crate) use self::tree::Tree;
use crate::workspace;

/// Media types of the image specification.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The creation time of an image without a time of its own, so that its digest does not change.
pub(crate) const BEGINNING: &str = "1970-01-01T00:00:00Z";

/// The image of one platform: one layer, and how it is run.
pub(crate) struct Image {
    pub(crate) platform: Platform,
    pub(crate) layer: Tree,
    /// The `config` of the specification's image configuration.
    pub(crate) run: Value,
    /// The creation time, as RFC 3339.
    pub(crate) created: String,
}

/// A processor under Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(crate) enum Platform {
    Amd64,
    Arm64,
}

/// An image as one file.
pub(crate) struct Archive {
    /// The tar file.
    pub(crate) bytes: Vec<u8>,
    /// The image's digest, `sha256:…`: that of the index of its platforms.
    pub(crate) digest: String,
}

impl Platform {
    /// This machine's platform.
    pub(crate) fn here() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// The name in images, which is `GOARCH`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Packs images for several platforms into one archive, under one or more names.
pub(crate) fn archive(images: &[Image], names: &[&str], annotations: &Value) -> Result<Archive> {
    let mut layout = Tree::default();
    let mut manifests = Vec::new();
    for image in images {
        manifests.push(manifest(&mut layout, image, annotations)?);
    }
    let index = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": annotations,
    });
    let index = blob(&mut layout, INDEX, index.to_string().into_bytes());
    let named = names.iter().map(|name| {
        let mut descriptor = index.clone();
        let reference = name.rsplit_once(':').map_or(*name, |(_, tag)| tag);
        // containerd and Docker read the first one: the specification's has no room for a registry.
        descriptor["annotations"] =
            json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": reference});
        descriptor
    });
    let entry = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": named.collect::<Vec<_>>()});
    layout.file("index.json", entry.to_string().into_bytes());
    layout.file("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes());
    let digest = index["digest"].as_str().unwrap_or_default().to_owned();
    Ok(Archive { bytes: layout.tar()?, digest })
}

/// Adds the blobs of an image to a layout and returns the descriptor of its manifest.
fn manifest(layout: &mut Tree, image: &Image, annotations: &Value) -> Result<Value> {
    let tar = image.layer.tar()?;
    let platform = json!({"os": "linux", "architecture": image.platform.name()});
    let mut config = platform.clone();
    config["created"] = json!(image.created);
    config["config"] = image.run.clone();
    config["rootfs"] = json!({"type": "layers", "diff_ids": [digest(&tar)]});
    // The gzip header contains neither name nor time.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&tar)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(layout, CONFIG, config.to_string().into_bytes()),
        "layers": [blob(layout, LAYER, encoder.finish()?)],
        "annotations": annotations,
    });
    let mut descriptor = blob(layout, MANIFEST, manifest.to_string().into_bytes());
    descriptor["platform"] = platform;
    Ok(descriptor)
}

/// Adds a blob to a layout and returns its descriptor.
fn blob(layout: &mut Tree, media_type: &str, content: Vec<u8>) -> Value {
    let digest = digest(&content);
    let descriptor = json!({"mediaType": media_type, "digest": digest, "size": content.len()});
    layout.file(format!("blobs/{}", digest.replace(':', "/")), content);
    descriptor
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", workspace::sha256(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_archive_depend_on_its_content_only() {
        let pack = |file: &str| {
            let mut layer = Tree::default();
            layer.file("file", file.into());
            let created = BEGINNING.to_owned();
            let image = Image { platform: Platform::Amd64, layer, run: json!({}), created };
            archive(&[image], &["example.com/a:1"], &json!({})).unwrap()
        };
        let (first, again, other) = (pack("a"), pack("a"), pack("b"));
        assert_eq!((&first.digest, &first.bytes), (&again.digest, &again.bytes));
        assert_ne!(first.digest, other.digest);
    }
}
