//! The vault of a cluster: a Secret, and the webhook configuration.

use bindery_kube::{CertificateStore, CertificateStoreError, Read};

use super::generations::Data;
use super::keeper::{Stored, Trust, Vault, Written};

impl Vault for CertificateStore {
    type Version = Read;
    type Error = CertificateStoreError;

    fn is_misset(error: &CertificateStoreError) -> bool {
        matches!(error, CertificateStoreError::Foreign { .. })
    }

    async fn stored(&self) -> Result<Option<Stored<Read>>, CertificateStoreError> {
        Ok(self.secret().await?.map(|(data, version)| Stored { data, version }))
    }

    async fn store(&self, data: &Data, over: Option<&Read>) -> Result<Written, CertificateStoreError> {
        self.keep(data, over).await.map(written)
    }

    async fn trust(&self) -> Result<Option<Trust<Read>>, CertificateStoreError> {
        Ok(self.bundles().await?.map(|(bundles, version)| Trust { bundles, version }))
    }

    async fn entrust(
        &self,
        authorities: &[u8],
        over: &Trust<Read>,
    ) -> Result<Written, CertificateStoreError> {
        Self::entrust(self, authorities, &over.version).await.map(written)
    }
}

fn written(is_done: bool) -> Written {
    if is_done { Written::Done } else { Written::Conflict }
}
