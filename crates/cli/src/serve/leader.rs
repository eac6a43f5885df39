//! Who of several replicas decides: the holder of a Lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use bindery_controller::Binder;
use bindery_kube::{Alarm, ApiClient, ApiPort, Candidate, LeaseError, LeaseSettings};
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::watchman::Watchman;

/// The Lease that replicas compete for.
#[derive(clap::Args)]
pub(super) struct LeaseArguments {
    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", env = "BINDERY_LEASE_NAMESPACE", default_value = "kube-system")]
    lease_namespace: String,
    /// Name of the Lease.
    #[arg(long, value_name = "NAME", env = "BINDERY_LEASE_NAME", default_value = "bindery")]
    lease_name: String,
    /// Who this replica is; no two may be called the same. By default the name of the host and a number.
    #[arg(long, value_name = "NAME", env = "BINDERY_IDENTITY")]
    identity: Option<String>,
    /// Seconds after which a replica that has not been heard of counts as dead.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_LEASE_DURATION", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(3..=3600))]
    lease_duration: u64,
}

impl LeaseArguments {
    /// The alarm about other binders, on this Lease.
    pub(super) fn alarm(&self, client: ApiClient) -> Alarm {
        Alarm::new(client, &self.lease_namespace, &self.lease_name)
    }

    /// The Lease, as people name it.
    pub(super) fn named(&self) -> String {
        format!("{}/{}", self.lease_namespace, self.lease_name)
    }
}

/// A replica's part in the competition.
pub(super) struct Leadership {
    /// The Lease is given back when this is dropped.
    holds: Receiver<bool>,
    competing: JoinHandle<Result<(), LeaseError>>,
    leads: Arc<AtomicBool>,
}

impl Leadership {
    /// Takes part from now on; the Lease is made where there is none. Whether this replica leads goes to `leads`.
    ///
    /// # Errors
    ///
    /// The Lease can neither be read nor made: the cluster cannot be reached, or RBAC forbids it.
    pub(super) async fn seek(
        client: &ApiClient,
        arguments: &LeaseArguments,
        leads: Arc<AtomicBool>,
    ) -> Result<Self> {
        let settings = LeaseSettings {
            namespace: arguments.lease_namespace.clone(),
            name: arguments.lease_name.clone(),
            identity: arguments.identity.clone().unwrap_or_else(default_identity),
            duration: Duration::from_secs(arguments.lease_duration),
        };
        let identity = settings.identity.clone();
        let candidate = Candidate::new(client.clone(), settings).await.with_context(|| {
            format!(
                "the Lease {} cannot be used: is the cluster there, and may this service account get, create and \
                 update it?",
                arguments.named()
            )
        })?;
        let (sender, holds) = watch::channel(false);
        tracing::info!(identity, "competing for the Lease");
        Ok(Self { holds, competing: tokio::spawn(candidate.run(sender)), leads })
    }

    /// Lets the binder decide whenever this replica leads, until `shutdown`; then hands the Lease over.
    pub(super) async fn run(
        mut self,
        binder: Arc<Binder<ApiPort>>,
        watchman: Arc<Watchman>,
        shutdown: CancellationToken,
    ) {
        while self.until(true, &shutdown).await {
            self.leads.store(true, Ordering::Relaxed);
            tracing::info!("this replica leads");
            let term = shutdown.child_token();
            let run = tokio::spawn(lead(Arc::clone(&binder), Arc::clone(&watchman), term.clone()));
            self.until(false, &shutdown).await;
            term.cancel();
            let ended = run.await;
            self.leads.store(false, Ordering::Relaxed);
            tracing::info!("this replica leads no more");
            if let Err(error) = ended {
                tracing::error!(%error, "the binder has failed");
                break;
            }
        }
        drop(self.holds);
        match self.competing.await {
            Ok(Ok(())) => tracing::info!("the Lease is given back"),
            Ok(Err(error)) => tracing::warn!(%error, "the Lease is not given back; it expires"),
            Err(error) => tracing::error!(%error, "competing for the Lease has failed"),
        }
    }

    /// Waits until the Lease is held, or no more. Answers whether that came: at shutdown, or where competing
    /// for it has failed, it does not.
    async fn until(&mut self, held: bool, shutdown: &CancellationToken) -> bool {
        let came = self.holds.wait_for(|holds| *holds == held);
        matches!(shutdown.run_until_cancelled(came).await, Some(Ok(_)))
    }
}

/// Decides until the term ends.
async fn lead(binder: Arc<Binder<ApiPort>>, watchman: Arc<Watchman>, term: CancellationToken) {
    if term.run_until_cancelled(watchman.catch_up()).await.is_some() {
        binder.run(term).await;
    }
}

/// The name of the host, as in a pod, and a number that tells replicas on one host apart.
fn default_identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{host}-{}-{:x}", std::process::id(), since_1970.subsec_nanos())
}
