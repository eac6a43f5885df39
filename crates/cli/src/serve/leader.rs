//! Who of several replicas decides: the holder of a Lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use bindery_controller::Binder;
use bindery_kube::ApiPort;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use tokio::sync::watch::Receiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

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

/// A replica's part in the competition.
pub(super) struct Leadership {
    /// The Lease is given back when this is dropped.
    holds: Receiver<bool>,
    manager: JoinHandle<Result<LeaseManager, LeaseManagerError>>,
    leads: Arc<AtomicBool>,
}

impl Leadership {
    /// Takes part from now on; the Lease is made where there is none.
    ///
    /// # Errors
    ///
    /// The Lease can neither be read nor made: the cluster cannot be reached, or RBAC forbids it.
    pub(super) async fn seek(client: &kube::Client, arguments: &LeaseArguments) -> Result<Self> {
        let identity = arguments.identity.clone().unwrap_or_else(default_identity);
        let duration = arguments.lease_duration;
        let manager = LeaseManagerBuilder::new(client.clone(), &arguments.lease_name)
            .with_namespace(&arguments.lease_namespace)
            .with_identity(&identity)
            .with_duration(duration)
            // Renewed when a third of it is left, so that one lost request does not lose the Lease.
            .with_grace(duration / 3)
            .build()
            .await
            .with_context(|| {
                let LeaseArguments { lease_namespace, lease_name, .. } = arguments;
                format!(
                    "the Lease {lease_namespace}/{lease_name} cannot be used: is the cluster there, and may this \
                     service account get, create and patch it?"
                )
            })?;
        let (holds, manager) = manager.watch().await;
        tracing::info!(identity, "competing for the Lease");
        Ok(Self { holds, manager, leads: Arc::default() })
    }

    /// Whether this replica leads, as it changes.
    pub(super) fn leads(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.leads)
    }

    /// Lets the binder decide whenever this replica leads, until `shutdown`; then hands the Lease over.
    pub(super) async fn run(mut self, binder: Arc<Binder<ApiPort>>, shutdown: CancellationToken) {
        while self.until(true, &shutdown).await {
            self.leads.store(true, Ordering::Relaxed);
            tracing::info!("this replica leads");
            let term = shutdown.child_token();
            let run = tokio::spawn(Arc::clone(&binder).run(term.clone()));
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
        match self.manager.await {
            Ok(Ok(_)) => tracing::info!("the Lease is given back"),
            Ok(Err(error)) => tracing::warn!(%error, "the Lease is not given back; it expires"),
            Err(error) => tracing::error!(%error, "the manager of the Lease has failed"),
        }
    }

    /// Waits until the Lease is held, or no more. Answers whether that came: at shutdown, or where the manager of
    /// the Lease has failed, it does not.
    async fn until(&mut self, held: bool, shutdown: &CancellationToken) -> bool {
        let came = self.holds.wait_for(|holds| *holds == held);
        matches!(shutdown.run_until_cancelled(came).await, Some(Ok(_)))
    }
}

/// The name of the host, as in a pod, and a number that tells replicas on one host apart.
fn default_identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{host}-{}-{:x}", std::process::id(), since_1970.subsec_nanos())
}
