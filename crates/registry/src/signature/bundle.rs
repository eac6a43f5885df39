//! What cosign 3 writes: a Sigstore bundle, version 0.3, as a referrer of the manifest. In it is a DSSE
//! envelope with an in-toto statement whose subject is the digest of the manifest.
//!
//! Formats: <https://docs.sigstore.dev/about/bundle/>, <https://github.com/secure-systems-lab/dsse>,
//! <https://github.com/in-toto/attestation/tree/main/spec/v1>.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::keys::{PublicKey, SigningKey};
use super::{Signature, layer};
use crate::artifact::put_referrer;
use crate::digest::Digest;
use crate::error::{RegistryError, Result, invalid};
use crate::manifest::{Descriptor, Manifest};
use crate::media;
use crate::repository::{Name, Repository};

/// The type of a payload that is an in-toto statement.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The type of a statement.
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// What cosign states by a signature. Other statements, such as where a build came from, are none.
const PREDICATE_TYPE: &str = "https://sigstore.dev/cosign/sign/v1";
/// The most subjects of a statement.
const SUBJECTS_MAX: usize = 16;

/// A bundle, as far as a signature by a key needs it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    dsse_envelope: Envelope,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize, Serialize)]
struct EnvelopeSignature {
    sig: String,
}

/// A statement with its signature.
pub(super) struct SignedStatement {
    payload: Vec<u8>,
    payload_type: String,
    signature: Vec<u8>,
    /// The manifest that the bundle refers to.
    referred: Digest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: Option<String>,
}

impl Signature for SignedStatement {
    fn is_signed_by(&self, key: &PublicKey) -> bool {
        key.has_signed(&encoded(&self.payload_type, &self.payload), &self.signature)
    }

    fn subject(&self) -> Option<Digest> {
        let statement: Statement = serde_json::from_slice(&self.payload).ok()?;
        let is_signature = self.payload_type == PAYLOAD_TYPE
            && statement.kind == STATEMENT_TYPE
            && statement.predicate_type == PREDICATE_TYPE
            && statement.subject.len() <= SUBJECTS_MAX;
        let wanted = self.referred.hex();
        let names = |subject: &Subject| subject.digest.sha256.as_deref() == Some(&wanted);
        (is_signature && statement.subject.iter().any(names)).then_some(self.referred)
    }
}

/// What is signed: the pre-authentication encoding of DSSE.
fn encoded(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads the bundle of a referrer of `subject`.
pub(super) async fn read(
    from: &dyn Repository,
    referrer: &Digest,
    subject: &Digest,
) -> Result<SignedStatement> {
    let what = format!("manifest {referrer}");
    let manifest = Manifest::parse(&from.manifest(&Name::Digest(*referrer)).await?, &what)?;
    let is_about = manifest.subject.as_ref().is_some_and(|of| of.digest == *subject);
    let [descriptor] = &*manifest.layers else { return invalid(format!("{what} is no bundle")) };
    if !is_about {
        return invalid(format!("{what} is about another artifact"));
    }
    let bundle: Bundle = match serde_json::from_slice(&layer(from, descriptor, media::BUNDLE).await?) {
        Ok(bundle) => bundle,
        Err(error) => return invalid(format!("{what} is no bundle with an envelope: {error}")),
    };
    let Envelope { payload, payload_type, signatures } = bundle.dsse_envelope;
    let [EnvelopeSignature { sig }] = &*signatures else {
        return invalid(format!("{what} has {} signatures, not one", signatures.len()));
    };
    let decode =
        |text: &str| BASE64_STANDARD.decode(text).or_else(|error| invalid(format!("{what}: {error}")));
    let (payload, signature) = (decode(&payload)?, decode(sig)?);
    Ok(SignedStatement { payload, payload_type, signature, referred: *subject })
}

/// Writes a bundle as a referrer of a manifest.
pub(super) async fn write(to: &dyn Repository, subject: &Descriptor, key: &SigningKey) -> Result<()> {
    let failed = |error: super::KeyError| RegistryError::Invalid(error.to_string());
    let statement = json!({
        "_type": STATEMENT_TYPE,
        "subject": [{"digest": {"sha256": subject.digest.hex()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {},
    });
    let payload = statement.to_string().into_bytes();
    let signature = key.sign(&encoded(PAYLOAD_TYPE, &payload)).map_err(failed)?;
    let hint = key.public().map_err(failed)?.hint();
    let envelope = Envelope {
        payload: BASE64_STANDARD.encode(&payload),
        payload_type: PAYLOAD_TYPE.to_owned(),
        signatures: vec![EnvelopeSignature { sig: BASE64_STANDARD.encode(&signature) }],
    };
    let bundle = json!({
        "mediaType": media::BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": hint}},
        "dsseEnvelope": envelope,
    });
    let bundle = bundle.to_string().into_bytes();
    to.put_blob(&bundle).await?;
    let mut manifest =
        Manifest::referrer(media::BUNDLE, vec![Descriptor::of(media::BUNDLE, &bundle)], subject.clone());
    // Cosign finds signatures among other bundles by these.
    manifest.annotations.insert("dev.sigstore.bundle.content".to_owned(), "dsse-envelope".to_owned());
    manifest.annotations.insert("dev.sigstore.bundle.predicateType".to_owned(), PREDICATE_TYPE.to_owned());
    put_referrer(to, &manifest).await
}
