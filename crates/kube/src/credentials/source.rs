//! The inputs of credentials, and the client that is made from them.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::HeaderValue;
use kube::client::RustlsTlsError;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

use super::plugin::Plugin;
use super::{Connected, CredentialsError};
use crate::connect::connect;

/// An input of credentials, with its name and the cluster or user that it belongs to.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) owner: String,
    pub(super) value: FieldValue,
}

/// Where a field's value is.
pub(super) enum FieldValue {
    Inline(Vec<u8>),
    File(PathBuf),
}

/// All inputs of a client.
pub(crate) struct Source {
    /// The server, and settings that do not change; without certificate, key and token.
    pub(super) config: kube::Config,
    pub(super) authorities: Option<Field>,
    /// A certificate and its key.
    pub(super) identity: Option<(Field, Field)>,
    pub(super) token: Option<Field>,
    pub(super) plugin: Option<Plugin>,
}

/// The inputs as they were read together.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    authorities: Option<Vec<u8>>,
    identity: Option<Identity>,
    token: Option<String>,
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl Field {
    pub(super) fn read(&self) -> Result<Vec<u8>, CredentialsError> {
        match &self.value {
            FieldValue::Inline(value) => Ok(value.clone()),
            // A read of another kind of file, such as a pipe, may never end.
            FieldValue::File(path) if path.exists() && !path.is_file() => {
                Err(self.error("is not a regular file"))
            }
            FieldValue::File(path) => {
                fs::read(path).map_err(|error| self.error(format!("cannot be read: {error}")))
            }
        }
    }

    pub(super) fn error(&self, why: impl Into<String>) -> CredentialsError {
        CredentialsError::Field { field: self.to_string(), why: why.into() }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, owner, value } = self;
        match value {
            FieldValue::Inline(_) => write!(f, "{name} of {owner}"),
            FieldValue::File(path) => write!(f, "{name} {} of {owner}", path.display()),
        }
    }
}

impl Source {
    /// The namespace of the context, else `default`.
    pub(crate) fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// Runs the plugin for the first time, if there is one.
    pub(super) async fn ask_plugin(&mut self) -> Result<(), CredentialsError> {
        match &mut self.plugin {
            Some(plugin) => plugin.renew().await,
            None => Ok(()),
        }
    }

    /// Reads all files, and takes what the plugin issued last.
    pub(super) fn read(&self) -> Result<Material, CredentialsError> {
        let issued = self.plugin.as_ref().map(Plugin::issued);
        let identity = match (issued.and_then(|issued| issued.identity.clone()), &self.identity) {
            (Some(identity), _) => Some(identity),
            (None, Some((certificate, key))) => {
                Some(Identity { certificate: certificate.read()?, key: key.read()? })
            }
            (None, None) => None,
        };
        let token = match (issued.and_then(|issued| issued.token.clone()), &self.token) {
            (Some(token), _) => Some(token),
            (None, Some(field)) => Some(token(field)?),
            (None, None) => None,
        };
        Ok(Material { authorities: self.authorities.as_ref().map(Field::read).transpose()?, identity, token })
    }

    /// A client with these credentials.
    pub(super) fn client(&self, material: &Material) -> Result<Connected, CredentialsError> {
        let mut config = self.config.clone();
        if let (Some(field), Some(pem)) = (&self.authorities, &material.authorities) {
            config.root_cert = Some(authorities(field, pem)?);
        }
        if let Some(Identity { certificate, key }) = &material.identity {
            self.check_version(certificate)?;
            config.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
            config.auth_info.client_key_data = Some(BASE64_STANDARD.encode(key).into());
        }
        config.auth_info.token = material.token.clone().map(Into::into);
        // kube would repeat requests that are refused with 429, 503 or 504 for minutes, without this crate's
        // limit, log or new decision.
        config.default_retry = false;
        let client = connect(config.clone()).map_err(|error| self.unusable(error))?;
        Ok(Connected { client, config: Some(config) })
    }

    /// rustls rejects certificates of version 1 with an error about the private key.
    fn check_version(&self, certificate: &[u8]) -> Result<(), CredentialsError> {
        let Ok(der) = CertificateDer::from_pem_slice(certificate) else {
            return Err(self.certificate_error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"));
        };
        match X509Certificate::from_der(&der) {
            Ok((_, parsed)) if parsed.version() == X509Version::V1 => Err(self.certificate_error(
                "is an X.509 v1 certificate, which Bindery does not support: issue one of version 3 \
                 (openssl x509 -req does with -extfile)",
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(self.certificate_error(&format!("holds a malformed certificate: {error}"))),
        }
    }

    /// Translates an error of kube into one that names the field.
    fn unusable(&self, error: kube::Error) -> CredentialsError {
        let kube::Error::RustlsTls(error) = error else {
            return CredentialsError::Kubeconfig(error.to_string());
        };
        match error {
            RustlsTlsError::InvalidPrivateKey(TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                self.key_error("is not the key of the client certificate: give both of one pair")
            }
            RustlsTlsError::InvalidPrivateKey(error @ TlsError::InvalidCertificate(_)) => {
                self.certificate_error(&format!("cannot be used: {error}"))
            }
            RustlsTlsError::InvalidPrivateKey(error) => self.key_error(&format!("cannot be used: {error}")),
            RustlsTlsError::MissingPrivateKey | RustlsTlsError::UnknownPrivateKeyFormat => self.key_error(
                "holds no private key in PEM that can be used without a password (PKCS #8, PKCS #1 or SEC 1)",
            ),
            error => CredentialsError::Kubeconfig(error.to_string()),
        }
    }

    fn certificate_error(&self, why: &str) -> CredentialsError {
        self.identity_error(why, "clientCertificateData", |(certificate, _)| certificate)
    }

    fn key_error(&self, why: &str) -> CredentialsError {
        self.identity_error(why, "clientKeyData", |(_, key)| key)
    }

    /// An error about the certificate or the key that names where it came from.
    fn identity_error(
        &self,
        why: &str,
        issued: &'static str,
        half: impl FnOnce(&(Field, Field)) -> &Field,
    ) -> CredentialsError {
        match (&self.plugin, &self.identity) {
            (Some(plugin), _) if plugin.issued().identity.is_some() => {
                plugin.error(format!("returned a {issued} that {why}"))
            }
            (_, Some(identity)) => half(identity).error(why),
            (_, None) => CredentialsError::Kubeconfig(format!("{issued} {why}")),
        }
    }
}

/// Reads a token, without the newline at the end of many files, as client-go does.
fn token(field: &Field) -> Result<String, CredentialsError> {
    let bytes = field.read()?;
    let token = String::from_utf8_lossy(&bytes).trim().to_owned();
    if token.is_empty() {
        return Err(field.error("is empty"));
    }
    // kube panics on a token that cannot be a header value.
    HeaderValue::from_str(&token)
        .map_err(|_| field.error("holds more than a token: it has characters that a header may not have"))?;
    Ok(token)
}

/// The certificates of a bundle.
fn authorities(field: &Field, pem: &[u8]) -> Result<Vec<Vec<u8>>, CredentialsError> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let der = certificate.map_err(|error| field.error(format!("is not PEM: {error}")))?;
        if let Err(error) = X509Certificate::from_der(&der) {
            return Err(field.error(format!("holds a malformed certificate: {error}")));
        }
        found.push(der.to_vec());
    }
    if found.is_empty() {
        // With an empty bundle each handshake would fail with an error about the server's certificate.
        return Err(field.error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(found)
}
