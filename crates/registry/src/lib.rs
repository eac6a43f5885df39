//! Modules of policies and engines in OCI registries.
//!
//! - [`Reference`] names an artifact: `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]`.
//! - [`Registry`] speaks to registries (OCI distribution 1.1) as if each were hostile: [`limits`] bounds
//!   every answer, and no byte is used before its digest is checked. [`Layout`] is the same on disk.
//! - [`Artifact`] is a module with its cases and its page; [`push`], [`pull`] and [`copy`] carry it.
//! - [`Endpoint`] posts to another server by the same client.
//! - [`sign`] and [`verify`] are compatible with cosign: its bundles of version 3 and its tags of version 2.
//!   [`Trust`] has the keys for each module.

mod artifact;
mod client;
mod credentials;
mod digest;
mod error;
mod layout;
pub mod limits;
mod manifest;
pub mod media;
mod reference;
mod repository;
mod signature;

pub use artifact::{Artifact, Extra, check_size, copy, pull, pull_manifest, push, put_tag};
pub use client::{Access, Endpoint, Posted, Registry, Remote, Timeouts};
pub use credentials::Credentials;
pub use digest::Digest;
pub use error::RegistryError;
pub use layout::{Layout, Writer};
pub use manifest::{Descriptor, Manifest};
pub use reference::Reference;
pub use repository::{Name, Repository};
pub use signature::{
    Format, KeyError, Prefix, PublicKey, Require, SigningKey, Trust, TrustedKeys, Verified, sign, verify,
};
