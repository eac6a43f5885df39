//! Container images, packed from files as the OCI image specification 1.1 has them: no daemon and no registry
//! is needed.
//!
//! An archive is an image layout in a tar file: `skopeo`, `podman`, `ctr` and Docker with containerd's store
//! read it. It depends on nothing but what is put in.

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

/// When an image was made that has no time of its own, so that it is the same whenever it is made.
pub(crate) const BEGINNING: &str = "1970-01-01T00:00:00Z";

/// The image of one platform: one layer, and how it is run.
pub(crate) struct Image {
    /// What it runs on.
    pub(crate) platform: Platform,
    /// The files.
    pub(crate) layer: Tree,
    /// How it is run: the `config` of the specification's image configuration.
    pub(crate) run: Value,
    /// When it was made, as RFC 3339.
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
    /// What names the image, `sha256:…`: the digest of the index of its platforms.
    pub(crate) digest: String,
}

impl Platform {
    /// This machine's.
    pub(crate) fn here() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// As images call it, `GOARCH`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Packs the images of one name, or of several, into one archive.
///
/// # Errors
/// When a path does not fit into a tar file.
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
        // The first is containerd's own, and Docker's: the specification's has no room for a registry.
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

/// Adds what an image consists of to a layout and returns what describes it.
fn manifest(layout: &mut Tree, image: &Image, annotations: &Value) -> Result<Value> {
    let tar = image.layer.tar()?;
    let platform = json!({"os": "linux", "architecture": image.platform.name()});
    let mut config = platform.clone();
    config["created"] = json!(image.created);
    config["config"] = image.run.clone();
    config["rootfs"] = json!({"type": "layers", "diff_ids": [digest(&tar)]});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(layout, CONFIG, config.to_string().into_bytes()),
        "layers": [blob(layout, LAYER, compressed(&tar)?)],
        "annotations": annotations,
    });
    let mut descriptor = blob(layout, MANIFEST, manifest.to_string().into_bytes());
    descriptor["platform"] = platform;
    Ok(descriptor)
}

/// Adds a blob to a layout and returns what describes it.
fn blob(layout: &mut Tree, media_type: &str, content: Vec<u8>) -> Value {
    let digest = digest(&content);
    let descriptor = json!({"mediaType": media_type, "digest": digest, "size": content.len()});
    layout.file(format!("blobs/{}", digest.replace(':', "/")), content);
    descriptor
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", workspace::sha256(content))
}

/// By gzip, whose header has neither name nor time here.
fn compressed(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(file: &str) -> Image {
        let mut layer = Tree::default();
        layer.file("file", file.into());
        Image { platform: Platform::Amd64, layer, run: json!({}), created: BEGINNING.to_owned() }
    }

    #[test]
    fn an_archive_follows_its_content_and_nothing_else() {
        let pack = |file: &str| archive(&[image(file)], &["example.com/a:1"], &json!({})).unwrap();
        let (first, again, other) = (pack("a"), pack("a"), pack("b"));
        assert_eq!((&first.digest, &first.bytes), (&again.digest, &again.bytes));
        assert_ne!(first.digest, other.digest);
    }
}
