//! TLS: the certificate that the server shows, and the clients that it accepts.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::certificates::{Authorities, Identity, parse};

/// HTTP/2 first: kube-apiserver 1.36 calls a webhook on loopback by it.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Which clients are accepted.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The authorities that sign client certificates.
    pub authorities: Authorities,
    /// Accepted common names and DNS names; empty accepts every client of the authorities.
    pub names: BTreeSet<String>,
}

/// A client certificate of the right authority without an accepted name.
#[derive(Debug, thiserror::Error)]
#[error("the client's certificate has none of the accepted names; it has {0:?}")]
pub(crate) struct ClientError(Vec<String>);

/// The certificate and the accepted clients of new connections. Clones share them.
#[derive(Clone)]
pub struct Credentials(Arc<RwLock<Current>>);

struct Current {
    identity: Identity,
    clients: Option<Clients>,
    config: Arc<ServerConfig>,
}

impl Clients {
    /// Checks the name of a client whose certificate the authorities have signed. The handshake has verified
    /// the rest.
    pub(crate) fn check_name(&self, chain: Option<&[CertificateDer<'static>]>) -> Result<(), ClientError> {
        if self.names.is_empty() {
            return Ok(());
        }
        let certificate = chain.and_then(<[_]>::first).and_then(|leaf| parse(leaf).ok());
        let names = certificate.as_ref().map_or_else(Vec::new, names);
        if names.iter().any(|name| self.names.contains(*name)) {
            return Ok(());
        }
        tracing::warn!(?names, "a client without an accepted name is refused");
        Err(ClientError(names.into_iter().map(str::to_owned).collect()))
    }
}

impl Credentials {
    /// Shows this certificate and accepts these clients; `None` accepts all.
    pub fn new(identity: Identity, clients: Option<Clients>) -> Self {
        let config = config(&identity, clients.as_ref());
        Self(Arc::new(RwLock::new(Current { identity, clients, config })))
    }

    /// Shows another certificate on new connections.
    pub fn show(&self, identity: &Identity) {
        self.change(|current| current.identity = identity.clone());
    }

    /// Accepts clients of other authorities on new connections, if client certificates are required.
    pub fn trust_clients_of(&self, authorities: &Authorities) {
        self.change(|current| {
            if let Some(clients) = &mut current.clients {
                clients.authorities = authorities.clone();
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Current)) {
        let mut current = self.0.write();
        change(&mut current);
        current.config = config(&current.identity, current.clients.as_ref());
    }

    /// The acceptor of the next connection, and the accepted client names.
    pub(crate) fn acceptor(&self) -> (TlsAcceptor, Option<Clients>) {
        let current = self.0.read();
        (TlsAcceptor::from(Arc::clone(&current.config)), current.clients.clone())
    }
}

fn config(identity: &Identity, clients: Option<&Clients>) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring does both versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let authorities = clients.authorities.store();
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider).build();
            builder.with_client_cert_verifier(verifier.expect("authorities are never empty"))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    // Without sessions, each connection is judged by the certificates of its own time. API servers resume
    // none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// The common names and DNS names of a certificate.
fn names<'a>(certificate: &'a X509Certificate<'a>) -> Vec<&'a str> {
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.map_or(&[][..], |names| &names.value.general_names);
    let hosts = alternative.iter().filter_map(|name| match name {
        GeneralName::DNSName(host) => Some(*host),
        _ => None,
    });
    common.chain(hosts).collect()
}
