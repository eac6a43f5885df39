//! Signatures of manifests, compatible with cosign: made by keys, and checked without any server but the
//! registry.
//!
//! Cosign 3 writes a Sigstore bundle as a referrer of the manifest (`bundle.rs`); cosign 2 wrote payloads
//! under a tag (`simple.rs`). Both are written and read. A time, a certificate or an entry of a transparency
//! log in them proves nothing here, and is not read.

mod bundle;
mod keys;
mod sealed;
mod simple;
mod trust;

use std::collections::BTreeSet;
use std::str::FromStr;

pub use self::keys::{KeyError, PublicKey, SigningKey};
pub use self::trust::{Prefix, Trust};
use crate::artifact::typed_referrers;
use crate::digest::Digest;
use crate::error::{RegistryError, Result, invalid};
use crate::limits::{KEYS_MAX, SIGNATURE_MAX, SIGNATURES_MAX};
use crate::manifest::{Descriptor, Manifest};
use crate::media;
use crate::reference::Reference;
use crate::repository::{Name, Repository};

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As cosign 3 does: a Sigstore bundle as a referrer.
    Bundle,
    /// As cosign 2 did: a payload under the tag `sha256-HEX.sig`.
    Tag,
}

/// How many of the trusted keys must have signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Require {
    /// One of them.
    #[default]
    Any,
    /// Each of them.
    All,
}

impl FromStr for Require {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            "all" => Ok(Self::All),
            _ => Err(format!("{text:?} is neither any nor all")),
        }
    }
}

/// The keys whose signatures count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKeys {
    keys: Vec<PublicKey>,
    require: Require,
}

/// A manifest that the trusted keys have signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The fingerprints of the keys: SHA-256 of each in DER. With [`Require::Any`] it is one.
    pub keys: BTreeSet<Digest>,
}

impl TrustedKeys {
    /// These keys. One that is given twice counts once.
    ///
    /// # Errors
    ///
    /// There is none, or there are more than [`KEYS_MAX`].
    pub fn new(keys: Vec<PublicKey>, require: Require) -> std::result::Result<Self, KeyError> {
        let mut known = BTreeSet::new();
        let keys: Vec<_> = keys.into_iter().filter(|key| known.insert(key.fingerprint())).collect();
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(KeyError(format!("there are {} keys; 1 to {KEYS_MAX} may be trusted", keys.len())));
        }
        Ok(Self { keys, require })
    }
}

/// The tag of the signatures that cosign 2 wrote.
pub(crate) fn signatures_tag(subject: &Digest) -> String {
    format!("{}.sig", subject.referrers_tag())
}

/// Signs the manifest of a reference, which must name it by digest.
pub async fn sign(
    to: &dyn Repository,
    reference: &Reference,
    key: &SigningKey,
    format: Format,
) -> Result<()> {
    let Some(digest) = reference.digest() else {
        return invalid(format!("{reference} names no digest; a tag may be moved while it is signed"));
    };
    let manifest = to.manifest(&Name::Digest(digest)).await?;
    match format {
        Format::Bundle => bundle::write(to, &Descriptor::of(media::MANIFEST, &manifest), key).await,
        Format::Tag => simple::write(to, &digest, &reference.place(), key).await,
    }
}

/// Checks that the trusted keys have signed a manifest. At most [`SIGNATURES_MAX`] signatures are looked at.
///
/// # Errors
///
/// [`RegistryError::Unverified`]: they have not; the sentence says what was found. Others: signatures cannot
/// be read.
pub async fn verify(from: &dyn Repository, subject: &Digest, trusted: &TrustedKeys) -> Result<Verified> {
    let mut search = Search { subject, trusted, found: BTreeSet::new(), counts: Counts::default() };
    let is_bundle = |(kind, _): &(String, Digest)| kind == media::BUNDLE;
    for (_, referrer) in typed_referrers(from, subject).await?.into_iter().filter(is_bundle) {
        if search.ends() {
            break;
        }
        let outcome = bundle::read(from, &referrer, subject).await;
        search.count(outcome)?;
    }
    if !search.ends() {
        let tag = Name::Tag(signatures_tag(subject));
        for layer in signature_layers(from, &tag).await? {
            if search.ends() {
                break;
            }
            let outcome = simple::read(from, &layer).await;
            search.count(outcome)?;
        }
    }
    search.end()
}

async fn signature_layers(from: &dyn Repository, tag: &Name) -> Result<Vec<Descriptor>> {
    match from.manifest(tag).await {
        Ok(bytes) => Ok(Manifest::parse(&bytes, &format!("manifest {tag}"))?.layers),
        Err(RegistryError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A signature and what it is of.
trait Signature {
    fn is_signed_by(&self, key: &PublicKey) -> bool;

    /// The digest of the manifest that is signed; none if what is signed is something else.
    fn subject(&self) -> Option<Digest>;
}

/// The signatures that were looked at.
#[derive(Default)]
struct Counts {
    looked_at: usize,
    by_others: usize,
    of_others: usize,
    unreadable: usize,
    has_more: bool,
}

struct Search<'a> {
    subject: &'a Digest,
    trusted: &'a TrustedKeys,
    /// Keys that have signed.
    found: BTreeSet<Digest>,
    counts: Counts,
}

impl Search<'_> {
    fn is_satisfied(&self) -> bool {
        match self.trusted.require {
            Require::Any => !self.found.is_empty(),
            Require::All => self.found.len() == self.trusted.keys.len(),
        }
    }

    /// Whether no further signature is looked at.
    fn ends(&mut self) -> bool {
        let is_full = self.counts.looked_at == SIGNATURES_MAX;
        self.counts.has_more |= is_full;
        is_full || self.is_satisfied()
    }

    /// Counts a signature. Only a registry that may answer later is an error: a signature that cannot be
    /// read is none.
    fn count(&mut self, signature: Result<impl Signature>) -> Result<()> {
        self.counts.looked_at += 1;
        let signature = match signature {
            Ok(signature) => signature,
            Err(error @ (RegistryError::Unavailable(_) | RegistryError::Denied(_))) => return Err(error),
            Err(_) => {
                self.counts.unreadable += 1;
                return Ok(());
            }
        };
        let mut signers = self.trusted.keys.iter().filter(|key| signature.is_signed_by(key)).peekable();
        // What is signed is believed only once the signature is checked.
        match (signers.peek().is_some(), signature.subject() == Some(*self.subject)) {
            (false, _) => self.counts.by_others += 1,
            (true, false) => self.counts.of_others += 1,
            (true, true) => self.found.extend(signers.map(PublicKey::fingerprint)),
        }
        Ok(())
    }

    fn end(self) -> Result<Verified> {
        if self.is_satisfied() {
            return Ok(Verified { keys: self.found });
        }
        let Counts { looked_at, by_others, of_others, unreadable, has_more } = self.counts;
        let wanted = match (self.trusted.require, self.trusted.keys.len()) {
            (_, 1) => "the trusted key".to_owned(),
            (Require::Any, keys) => format!("one of the {keys} trusted keys"),
            (Require::All, keys) => format!("all {keys} trusted keys, only by {}", self.found.len()),
        };
        let mut why = format!("{} is not signed by {wanted}: ", self.subject);
        let counts = [
            (by_others, "by other keys"),
            (of_others, "of another artifact"),
            (unreadable, "that cannot be read"),
        ];
        let counts: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        why += &match looked_at {
            0 => "it has no signature".to_owned(),
            _ if counts.is_empty() => format!("it has {looked_at} signatures"),
            _ => format!("its signatures are {}", counts.join(", ")),
        };
        if has_more {
            why += &format!("; more than {SIGNATURES_MAX} are not looked at");
        }
        Err(RegistryError::Unverified(why))
    }
}

/// The bytes of a signature's layer.
async fn layer(from: &dyn Repository, layer: &Descriptor, media_type: &str) -> Result<Vec<u8>> {
    if layer.media_type != media_type {
        return invalid(format!("the layer {} is no signature", layer.digest));
    }
    from.blob(layer, SIGNATURE_MAX).await
}
