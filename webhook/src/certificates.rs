//! Certificates: the one that the server shows, how long it is valid, and where it comes from.
//!
//! Either Bindery makes certificates itself ([`Keeper`]): all replicas share them through a Secret, and the
//! webhook configuration trusts one before any replica shows it. Or another program makes them, such as
//! cert-manager, in files that are read again when they change ([`Files`]).
//!
//! Pure functions of the stored certificates and the time decide which certificates to make and to show
//! ([`Generations`]); the keeper reads, writes and waits.

pub use bindery_kube::{Bundles, CertificateStorage, Data};

mod files;
mod generation;
mod generations;
mod identity;
mod keeper;
mod mint;
mod status;

pub use files::{AuthorityFiles, Files, FilesError, IdentityFiles};
pub use generation::Broken;
pub use generations::{CertificateSettings, Generations, SETTLE_MAX};
pub(crate) use identity::parse;
pub use identity::{Authorities, Identity, IdentityError, Validity};
pub use keeper::{Keeper, KeeperError};
pub use mint::{LIFETIME_MIN, MintError, Names, SKEW};
pub use status::CertificateStatus;
