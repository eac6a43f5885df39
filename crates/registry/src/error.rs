//! Errors of registries and layouts.

use thiserror::Error;

/// Why a registry or a layout did not do what it was asked. Each is one sentence that names where.
#[derive(Clone, Debug, Error)]
pub enum RegistryError {
    /// There is no such manifest, blob or tag.
    #[error("{0}")]
    NotFound(String),
    /// It was not reached, or did not answer in time, or is overloaded. It may later.
    #[error("{0}")]
    Unavailable(String),
    /// It refuses the credentials, or asks for some.
    #[error("{0}")]
    Denied(String),
    /// The trusted keys have not signed it.
    #[error("{0}")]
    Unverified(String),
    /// The layout has no room for it.
    #[error("{0}")]
    Full(String),
    /// What it answered breaks a rule or a limit.
    #[error("{0}")]
    Invalid(String),
}

/// A result of this crate.
pub(crate) type Result<T> = std::result::Result<T, RegistryError>;

/// An [`RegistryError::Invalid`].
pub(crate) fn invalid<T>(why: impl Into<String>) -> Result<T> {
    Err(RegistryError::Invalid(why.into()))
}

/// The error of an answer that is more than `max` bytes.
pub(crate) fn too_large(what: &str, max: usize) -> RegistryError {
    RegistryError::Invalid(format!("{what} is larger than {max} bytes, which is the most that is read"))
}
