//! Certificates: what the door shows, how long that is good, and where it comes from.
//!
//! Either Bindery makes them itself ([`Keeper`]): a generation of certificates is kept where all replicas
//! find it, and the webhook configuration is told to trust it before it is shown. Or somebody else does,
//! cert-manager say, and they are files ([`Files`]) that are read again when they change.
//!
//! What to do and when is decided by functions of what was read and of the time ([`Generations`]); what
//! reads, writes and waits knows nothing else.

mod authorities;
mod files;
mod generations;
mod identity;
mod keeper;
mod mint;
mod record;
mod signature;
mod vault;

pub use authorities::Authorities;
pub use files::{AuthorityFiles, Files, FilesError, IdentityFiles};
pub use generations::{Broken, CertificateSettings, Data, Generations, SETTLE_MAX};
pub(crate) use identity::parse;
pub use identity::{Identity, IdentityError, Validity};
pub use keeper::{Keeper, KeeperError, Stored, Trust, Vault, Written};
pub use mint::{LIFETIME_MIN, MintError, Names, SKEW};
pub use record::CertificateRecord;
pub use signature::SignatureError;
