//! The door: where the API server asks for reviews of claims and volumes, by every replica, whether it leads
//! or not.

mod certificates;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use axum::Router;
use bindery_controller::Regressions;
use bindery_kube::ApiClient;
use bindery_webhook::certificates::{AuthorityFiles, CertificateRecord};
use bindery_webhook::server::{Limits, Server, Traffic};
use bindery_webhook::tls::{Clients, Credentials};
use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::certificates::CertificateArguments;
use crate::settings;

/// The door of a replica.
#[derive(clap::Args)]
pub(super) struct DoorArguments {
    /// Address where the API server asks for reviews of claims and volumes, at `/validate`, over TLS 1.3 or
    /// 1.2; port 0 takes a free one. Off unless it is given.
    #[arg(long, value_name = "ADDRESS", env = "BINDERY_WEBHOOK_LISTEN", value_parser = settings::address)]
    webhook_listen: Option<SocketAddr>,
    /// Most connections to the webhook at the same time; for one more, that which has been silent for longest
    /// is closed.
    #[arg(long, value_name = "N", env = "BINDERY_WEBHOOK_CONNECTIONS", default_value_t = 1_000,
          value_parser = settings::whole::<usize>(10..=100_000))]
    webhook_connections: usize,
    /// Seconds for which reviews are still answered after the signal to end: as long as a Service may take to
    /// send the API server elsewhere.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_WEBHOOK_DRAIN", default_value_t = 5,
          value_parser = settings::whole::<u64>(0..=300))]
    webhook_drain: u64,
    /// Lets only clients in that have a certificate of the authorities in this PEM file, which is read again
    /// when it changes. The API server has one where its --admission-control-config-file says so.
    #[arg(long, value_name = "FILE", env = "BINDERY_WEBHOOK_CLIENT_CA")]
    webhook_client_ca: Option<PathBuf>,
    /// Of the clients that --webhook-client-ca lets in, only those whose certificate has this as its common
    /// name or as a DNS name. May be given again, or with commas between several.
    #[arg(long, value_name = "NAME", env = "BINDERY_WEBHOOK_CLIENT_NAME", value_delimiter = ',')]
    webhook_client_name: Vec<String>,
    #[command(flatten)]
    certificates: CertificateArguments,
}

/// What is counted of a door, open or not.
#[derive(Clone, Debug, Default)]
pub(super) struct DoorRecord {
    pub(super) certificates: Arc<CertificateRecord>,
    pub(super) traffic: Arc<Traffic>,
}

/// An open door.
pub(super) struct Door {
    server: Server,
    /// Follows changes of certificates for as long as it is polled; it is told of restores of etcd.
    following: Box<dyn FnOnce(Regressions) -> BoxFuture<'static, ()> + Send>,
}

impl DoorArguments {
    /// Most connections to the webhook at the same time; 0 where it is off.
    pub(super) fn connections_max(&self) -> usize {
        if self.webhook_listen.is_some() { self.webhook_connections } else { 0 }
    }

    /// Opens the door where it is wanted.
    ///
    /// # Errors
    ///
    /// A setting cannot be used, or no certificate can be read or made.
    pub(super) async fn open(&self, client: &ApiClient, record: &DoorRecord) -> Result<Option<Door>> {
        let Some(address) = self.webhook_listen else { return Ok(None) };
        let (clients, client_files) = self.clients()?;
        let (identity, source) = self.certificates.open(client, &record.certificates).await?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("--webhook-listen {address} cannot be listened on"))?;
        tracing::info!(
            address = %listener.local_addr()?,
            certificates = %source,
            expires = identity.validity().end(),
            clients = self.webhook_client_ca.as_deref().map(tracing::field::debug),
            "the webhook is served"
        );
        let credentials = Credentials::new(identity, clients);
        let limits = Limits {
            connections_max: self.webhook_connections,
            drain: Duration::from_secs(self.webhook_drain),
            ..Limits::default()
        };
        let traffic = Arc::clone(&record.traffic);
        let server = Server::new(listener, Some(credentials.clone()), limits, traffic);
        let certificates = Arc::clone(&record.certificates);
        let following = |restored| {
            let following = async move {
                let believing = credentials.clone();
                let of_clients = async {
                    if let Some(files) = client_files {
                        let change = |authorities| believing.believe(&authorities);
                        files.run(Arc::clone(&certificates), change).await;
                    }
                };
                tokio::join!(of_clients, source.follow(&credentials, &certificates, restored));
            };
            following.boxed()
        };
        Ok(Some(Door { server, following: Box::new(following) }))
    }

    /// Which clients are let in, and the files that say so.
    fn clients(&self) -> Result<(Option<Clients>, Option<AuthorityFiles>)> {
        let Some(path) = &self.webhook_client_ca else {
            if !self.webhook_client_name.is_empty() {
                bail!(
                    "--webhook-client-name needs --webhook-client-ca (BINDERY_WEBHOOK_CLIENT_CA): give both, or none"
                );
            }
            return Ok((None, None));
        };
        let mut files = AuthorityFiles::authorities(path.clone());
        let authorities = files.load().context("--webhook-client-ca cannot be used")?;
        let names = BTreeSet::from_iter(self.webhook_client_name.iter().cloned());
        Ok((Some(Clients { authorities, names }), Some(files)))
    }
}

impl Door {
    /// Answers until `shutdown`, and until the last request after it. `restored` tells of restores of etcd.
    pub(super) async fn serve(self, router: Router, restored: Regressions, shutdown: CancellationToken) {
        let serving = self.server.serve(router, shutdown.cancelled_owned());
        // Whatever becomes of that, what is shown now is served.
        let following = (self.following)(restored).then(|()| pending::<()>());
        tokio::select! {
            () = serving => tracing::info!("the webhook is served no more"),
            () = following => {}
        }
    }
}
