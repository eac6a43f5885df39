//! What the door shows, and which clients it lets in; both can change while it serves.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::client::Clients;
use crate::certificates::{Authorities, Identity};

/// HTTP/2 first, for those who can: kube-apiserver 1.36 was seen to ask a webhook with a URL by it.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What is shown to each new connection. Connections go on with what they have begun with.
#[derive(Clone)]
pub struct Credentials(Arc<RwLock<Current>>);

struct Current {
    identity: Identity,
    clients: Option<Clients>,
    config: Arc<ServerConfig>,
}

impl Credentials {
    /// Shows this certificate; lets only these clients in, or all.
    pub fn new(identity: Identity, clients: Option<Clients>) -> Self {
        let config = config(&identity, clients.as_ref());
        Self(Arc::new(RwLock::new(Current { identity, clients, config })))
    }

    /// Shows another certificate from now on.
    pub fn show(&self, identity: &Identity) {
        self.change(|current| current.identity = identity.clone());
    }

    /// Believes others who vouch for clients from now on, where clients need somebody to.
    pub fn believe(&self, authorities: &Authorities) {
        self.change(|current| {
            if let Some(clients) = &mut current.clients {
                clients.authorities = authorities.clone();
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Current)) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut current);
        current.config = config(&current.identity, current.clients.as_ref());
    }

    /// For the next connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).config)
    }
}

fn config(identity: &Identity, clients: Option<&Clients>) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring does both versions");
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients.verifier()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    // API servers resume no sessions. Without them every connection is judged by the certificates of its own
    // time.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}
