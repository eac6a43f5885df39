//! The webhook, which reviews claims and volumes for the API server. Every replica serves it, whether it
//! leads or not.

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
use bindery_webhook::certificates::{AuthorityFiles, CertificateStatus};
use bindery_webhook::server::{ConnectionStats, Limits, Server};
use bindery_webhook::tls::{Clients, Credentials};
use futures::future::pending;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::certificates::{CertificateArguments, Source};
use crate::settings;

#[derive(clap::Args)]
pub(super) struct WebhookArguments {
    /// Address of the webhook, over TLS 1.3 or 1.2; the API server sends reviews of claims and volumes to
    /// `/validate`. Port 0 takes a free one. Off by default.
    #[arg(long, value_name = "ADDRESS", env = "BINDERY_WEBHOOK_LISTEN", value_parser = settings::address)]
    webhook_listen: Option<SocketAddr>,
    /// Most connections to the webhook at the same time. One more closes one that has had no answer yet, or
    /// else the one whose last answer is longest ago.
    #[arg(long, value_name = "N", env = "BINDERY_WEBHOOK_CONNECTIONS", default_value_t = 1_000,
          value_parser = settings::whole::<usize>(10..=100_000))]
    webhook_connections: usize,
    /// Seconds for which reviews are still answered after the signal to end: the time that a Service may take
    /// to send the API server to other replicas.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_WEBHOOK_DRAIN", default_value_t = 5,
          value_parser = settings::whole::<u64>(0..=300))]
    webhook_drain: u64,
    /// Accept only clients with a certificate of the authorities in this PEM file, which is read again when
    /// it changes. The API server has one if its --admission-control-config-file names it.
    #[arg(long, value_name = "FILE", env = "BINDERY_WEBHOOK_CLIENT_CA")]
    webhook_client_ca: Option<PathBuf>,
    /// Of the clients that --webhook-client-ca accepts, accept only those whose certificate has this common
    /// name or DNS name. Repeat it, or separate several by commas.
    #[arg(long, value_name = "NAME", env = "BINDERY_WEBHOOK_CLIENT_NAME", value_delimiter = ',')]
    webhook_client_name: Vec<String>,
    #[command(flatten)]
    certificates: CertificateArguments,
}

/// Statistics of a webhook, whether it is served or not.
#[derive(Clone, Debug, Default)]
pub(super) struct WebhookStatistics {
    pub(super) certificates: Arc<CertificateStatus>,
    pub(super) traffic: Arc<ConnectionStats>,
}

/// A webhook that is ready to be served.
pub(super) struct Webhook {
    server: Server,
    credentials: Credentials,
    certificates: Source,
    client_files: Option<AuthorityFiles>,
    statistics: WebhookStatistics,
}

impl WebhookArguments {
    /// Most connections to the webhook at the same time; 0 if it is off.
    pub(super) fn connections_max(&self) -> usize {
        if self.webhook_listen.is_some() { self.webhook_connections } else { 0 }
    }

    /// Prepares the webhook; `None` if it is off.
    pub(super) async fn open(
        &self,
        client: &ApiClient,
        statistics: &WebhookStatistics,
    ) -> Result<Option<Webhook>> {
        let Some(address) = self.webhook_listen else { return Ok(None) };
        let (clients, client_files) = self.clients()?;
        let (identity, certificates) = self.certificates.open(client, &statistics.certificates).await?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("--webhook-listen {address} cannot be listened on"))?;
        tracing::info!(
            address = %listener.local_addr()?,
            %certificates,
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
        let statistics = statistics.clone();
        let traffic = Arc::clone(&statistics.traffic);
        let server = Server::new(listener, Some(credentials.clone()), limits, traffic);
        Ok(Some(Webhook { server, credentials, certificates, client_files, statistics }))
    }

    /// The clients that are accepted, and the files that name their authorities.
    fn clients(&self) -> Result<(Option<Clients>, Option<AuthorityFiles>)> {
        let Some(path) = &self.webhook_client_ca else {
            if !self.webhook_client_name.is_empty() {
                bail!(
                    "--webhook-client-name needs --webhook-client-ca (BINDERY_WEBHOOK_CLIENT_CA): give \
                     both, or none"
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

impl Webhook {
    /// Answers until `shutdown`, and until the last request after it. `restores` reports restores of etcd.
    pub(super) async fn serve(self, router: Router, restores: Regressions, shutdown: CancellationToken) {
        let Self { server, credentials, certificates, client_files, statistics } = self;
        let follow_authorities = async {
            if let Some(files) = client_files {
                let change = |authorities| credentials.trust_clients_of(&authorities);
                files.run(Arc::clone(&statistics.certificates), change).await;
            }
        };
        let follow_certificates = certificates.follow(&credentials, &statistics.certificates, restores);
        // If these end, the webhook continues with its current certificates.
        let follow = async {
            tokio::join!(follow_authorities, follow_certificates);
            pending::<()>().await;
        };
        tokio::select! {
            () = server.serve(router, shutdown.cancelled_owned()) => {
                tracing::info!("the webhook is no longer served");
            }
            () = follow => {}
        }
    }
}
