//! Who vouches for clients.

use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;

use super::identity::{IdentityError, certificates};

/// One authority at least.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<RootCertStore>);

impl Authorities {
    /// The certificates of authorities, in PEM.
    ///
    /// # Errors
    ///
    /// There is none, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let mut store = RootCertStore::empty();
        for authority in certificates(pem)? {
            let added = store.add(authority);
            added.map_err(|error| IdentityError::Certificate(error.to_string()))?;
        }
        Ok(Self(Arc::new(store)))
    }

    /// As rustls takes them.
    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}
