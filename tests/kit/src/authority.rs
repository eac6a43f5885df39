//! Certificates of an authority of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

/// A certificate authority. Each one has its own name and key.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// An authority that no other certificate was signed by.
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, key.public_key_pem());
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate of the server at a host or address, and its key, in PEM.
    pub fn server(&self, host: &str) -> (String, String) {
        self.sign(Self::params(host, "server", ExtendedKeyUsagePurpose::ServerAuth))
    }

    /// As [`Authority::server`], valid for a day of 2020.
    pub fn expired_server(&self, host: &str) -> (String, String) {
        let mut params = Self::params(host, "server", ExtendedKeyUsagePurpose::ServerAuth);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 1, 2));
        self.sign(params)
    }

    /// A certificate of a client, and its key, in PEM. An API server that trusts this authority allows the
    /// client everything.
    pub fn client(&self, host: &str, name: &str) -> (String, String) {
        self.sign(Self::params(host, name, ExtendedKeyUsagePurpose::ClientAuth))
    }

    fn params(host: &str, name: &str, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![usage];
        params
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}
