//! Keys: ECDSA on the curve P-256, as cosign makes them.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use thiserror::Error;

use super::sealed;
use crate::digest::Digest;

/// The beginning of a public key on P-256 in DER (RFC 5480); its point of [`POINT_BYTES`] follows.
const SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// An uncompressed point.
const POINT_BYTES: usize = 65;
/// How keys are made, for errors.
const REMEDY: &str = "give one of ECDSA on P-256 in PEM, as `cosign generate-key-pair` makes";

/// Why a key cannot be used. One sentence, without the key.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub struct KeyError(pub String);

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey([u8; POINT_BYTES]);

impl PublicKey {
    /// All public keys in a text in PEM.
    ///
    /// # Errors
    ///
    /// There is none, or one is of another kind.
    pub fn read_all(text: &[u8]) -> Result<Vec<Self>, KeyError> {
        let blocks =
            pem::parse_many(text).map_err(|error| KeyError(format!("it is no PEM: {error}; {REMEDY}")))?;
        let keys: Result<Vec<_>, _> = blocks.iter().map(Self::of).collect();
        match keys? {
            keys if keys.is_empty() => Err(KeyError(format!("it has no key; {REMEDY}"))),
            keys => Ok(keys),
        }
    }

    fn of(block: &pem::Pem) -> Result<Self, KeyError> {
        if block.tag() != "PUBLIC KEY" {
            return Err(KeyError(format!("it is a {}, not a PUBLIC KEY; {REMEDY}", block.tag())));
        }
        let point = block.contents().strip_prefix(&SPKI[..]).and_then(|point| point.try_into().ok());
        point.map(Self).ok_or_else(|| KeyError(format!("it is a key of another kind; {REMEDY}")))
    }

    /// SHA-256 of the key in DER, which cosign writes into bundles as a hint.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&[&SPKI[..], &self.0[..]].concat())
    }

    /// The hint of a bundle.
    pub(super) fn hint(&self) -> String {
        BASE64_STANDARD.encode(self.fingerprint().bytes())
    }

    /// Whether a signature in DER of a message is by this key.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0).verify(message, signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}

/// A private key.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl SigningKey {
    /// Reads a private key in PEM: PKCS #8, or encrypted by cosign with this password.
    ///
    /// # Errors
    ///
    /// It is of another kind, or the password is wrong.
    pub fn read(text: &[u8], password: Option<&[u8]>) -> Result<Self, KeyError> {
        let block = pem::parse(text).map_err(|error| KeyError(format!("it is no PEM: {error}; {REMEDY}")))?;
        match block.tag() {
            "PRIVATE KEY" => Self::of(block.contents()),
            "ENCRYPTED SIGSTORE PRIVATE KEY" | "ENCRYPTED COSIGN PRIVATE KEY" => {
                let password = password.ok_or_else(|| {
                    KeyError("it is encrypted; give its password in COSIGN_PASSWORD".to_owned())
                })?;
                Self::of(&sealed::open(block.contents(), password)?)
            }
            "EC PRIVATE KEY" => Err(KeyError(
                "it is an EC PRIVATE KEY; `openssl pkcs8 -topk8 -nocrypt` makes a PRIVATE KEY of it"
                    .to_owned(),
            )),
            other => Err(KeyError(format!("it is a {other}; {REMEDY}"))),
        }
    }

    fn of(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &random);
        let pair = pair.map_err(|error| KeyError(format!("it cannot be used ({error}); {REMEDY}")))?;
        Ok(Self { pair, random })
    }

    /// Its public key.
    ///
    /// # Errors
    ///
    /// Never for a key on P-256.
    pub fn public(&self) -> Result<PublicKey, KeyError> {
        let point = self.pair.public_key().as_ref().try_into();
        point.map(PublicKey).map_err(|_| KeyError(format!("it is a key of another kind; {REMEDY}")))
    }

    /// A signature in DER.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature = self.pair.sign(&self.random, message);
        let signature = signature.map_err(|_| KeyError("the system has no random numbers".to_owned()))?;
        Ok(signature.as_ref().to_vec())
    }
}
