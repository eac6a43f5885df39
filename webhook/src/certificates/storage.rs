//! What replicas share: the Secret with the certificates, and the webhook configuration that trusts them.

use std::collections::BTreeMap;

use bindery_kube::{CertificateStore, CertificateStoreError, Read};

use super::generations::Data;

/// Trusted authorities, in PEM, by the name of each webhook.
pub type Bundles = BTreeMap<String, Vec<u8>>;

/// The Secret and the webhook configuration. Writes name the version that was read, and return whether it was
/// still the current one.
pub trait Storage: Send + Sync + 'static {
    /// The version of an object.
    type Version: Send + Sync;
    /// Names the object and the remedy.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether a setting is wrong, so that trying again does not help.
    fn is_permanent(error: &Self::Error) -> bool;

    /// Reads the Secret, from the API server and not from a cache; `None` if it does not exist.
    fn read_secret(&self) -> impl Future<Output = Result<Option<(Data, Self::Version)>, Self::Error>> + Send;

    /// Replaces the Secret, or creates it if none was read.
    fn write_secret(
        &self,
        data: &Data,
        over: Option<&Self::Version>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Reads the trusted authorities; `None` if there is no webhook configuration.
    fn read_bundles(
        &self,
    ) -> impl Future<Output = Result<Option<(Bundles, Self::Version)>, Self::Error>> + Send;

    /// Replaces the trusted authorities of every webhook.
    fn write_bundles(
        &self,
        authorities: &[u8],
        over: &Self::Version,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

impl Storage for CertificateStore {
    type Version = Read;
    type Error = CertificateStoreError;

    fn is_permanent(error: &CertificateStoreError) -> bool {
        matches!(error, CertificateStoreError::Foreign { .. })
    }

    async fn read_secret(&self) -> Result<Option<(Data, Read)>, CertificateStoreError> {
        self.secret().await
    }

    async fn write_secret(&self, data: &Data, over: Option<&Read>) -> Result<bool, CertificateStoreError> {
        self.keep(data, over).await
    }

    async fn read_bundles(&self) -> Result<Option<(Bundles, Read)>, CertificateStoreError> {
        self.bundles().await
    }

    async fn write_bundles(&self, authorities: &[u8], over: &Read) -> Result<bool, CertificateStoreError> {
        self.entrust(authorities, over).await
    }
}
