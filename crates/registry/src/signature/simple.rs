//! What cosign 2 wrote: payloads as layers of an image under the tag `sha256-HEX.sig`, each with its
//! signature in an annotation.
//!
//! Format: <https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::json;

use super::keys::{PublicKey, SigningKey};
use super::{Signature, layer, signature_layers, signatures_tag};
use crate::digest::Digest;
use crate::error::{Result, invalid};
use crate::manifest::{Descriptor, Manifest};
use crate::media;
use crate::repository::{Name, Repository};

/// The annotation of a layer that has its signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// What a payload says that it is.
const KIND: &str = "cosign container image signature";

/// A payload with its signature.
pub(super) struct Payload {
    bytes: Vec<u8>,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Signed {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: Digest,
}

impl Signature for Payload {
    fn is_signed_by(&self, key: &PublicKey) -> bool {
        key.has_signed(&self.bytes, &self.signature)
    }

    fn subject(&self) -> Option<Digest> {
        let signed: Signed = serde_json::from_slice(&self.bytes).ok()?;
        (signed.critical.kind == KIND).then_some(signed.critical.image.digest)
    }
}

/// Reads a signature of the image.
pub(super) async fn read(from: &dyn Repository, descriptor: &Descriptor) -> Result<Payload> {
    let signature = descriptor.annotations.get(SIGNATURE).and_then(|text| BASE64_STANDARD.decode(text).ok());
    let Some(signature) = signature else {
        return invalid(format!("the layer {} has no signature", descriptor.digest));
    };
    Ok(Payload { bytes: layer(from, descriptor, media::SIMPLE_SIGNING).await?, signature })
}

/// Adds a signature to the image.
pub(super) async fn write(
    to: &dyn Repository,
    subject: &Digest,
    place: &str,
    key: &SigningKey,
) -> Result<()> {
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": place},
            "image": {"docker-manifest-digest": subject},
            "type": KIND,
        },
        "optional": null,
    });
    let payload = payload.to_string().into_bytes();
    let signature = key.sign(&payload).or_else(|error| invalid(error.to_string()))?;
    let tag = Name::Tag(signatures_tag(subject));
    let mut layers = signature_layers(to, &tag).await?;
    let layer = Descriptor::of(media::SIMPLE_SIGNING, &payload);
    layers.push(layer.annotated(SIGNATURE, BASE64_STANDARD.encode(&signature)));
    let config = config(&layers);
    to.put_blob(&payload).await?;
    to.put_blob(&config).await?;
    let manifest = Manifest::new(Descriptor::of(media::IMAGE_CONFIG, &config), layers);
    to.put_manifest(&tag, &manifest, &manifest.to_bytes()).await
}

/// The configuration of an image with these layers, as cosign 2 wrote it.
fn config(layers: &[Descriptor]) -> Vec<u8> {
    const NEVER: &str = "0001-01-01T00:00:00Z";
    let digests: Vec<_> = layers.iter().map(|layer| layer.digest).collect();
    let history: Vec<_> = layers.iter().map(|_| json!({"created": NEVER})).collect();
    let config = json!({
        "architecture": "",
        "created": NEVER,
        "history": history,
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": digests},
        "config": {},
    });
    config.to_string().into_bytes()
}
