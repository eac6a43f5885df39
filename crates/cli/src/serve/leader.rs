//! Who of several replicas decides: the holder of a Lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bindery_controller::Binder;
use bindery_kube::watch::until_current;
use bindery_kube::{Alarm, ApiClient, ApiPort, Candidate, Events, LeaseSettings, Right, system_clock};
use tokio::sync::watch::{self, Receiver};
use tokio_util::sync::CancellationToken;

use super::eligibility::Eligibility;
use super::watchman::Watchman;
use crate::settings;

/// Rights without which a replica cannot lead: for the volumes and claims that it decides about, and for what
/// decisions depend on. Rights of single settings, such as recycling, are not among them: without those, most
/// claims are bound.
const RIGHTS: [(&str, &str, &str, &[&str]); 7] = [
    ("", "persistentvolumes", "", &["list", "watch", "get", "patch"]),
    ("", "persistentvolumeclaims", "", &["list", "watch", "get", "patch"]),
    ("", "persistentvolumes", "status", &["patch"]),
    ("", "persistentvolumeclaims", "status", &["patch"]),
    ("", "nodes", "", &["list", "watch"]),
    ("", "pods", "", &["list", "watch"]),
    ("storage.k8s.io", "storageclasses", "", &["list", "watch"]),
];

/// The Lease that replicas compete for.
#[derive(clap::Args)]
pub(super) struct LeaseArguments {
    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", env = "BINDERY_LEASE_NAMESPACE", default_value = "kube-system")]
    lease_namespace: String,
    /// Name of the Lease.
    #[arg(long, value_name = "NAME", env = "BINDERY_LEASE_NAME", default_value = "bindery")]
    lease_name: String,
    /// Name of this replica in the Lease; no two replicas may have the same. By default the name of the host
    /// and a number.
    #[arg(long, value_name = "NAME", env = "BINDERY_IDENTITY", value_parser = identity)]
    identity: Option<String>,
    /// Seconds after which a replica that has not been heard of counts as dead.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_LEASE_DURATION", default_value_t = 15,
          value_parser = settings::whole::<u64>(3..=3600))]
    lease_duration: u64,
}

impl LeaseArguments {
    /// The check for other binders, whose alarm is on this Lease.
    pub(super) fn watchman(
        &self,
        client: &ApiClient,
        binder: &Arc<Binder<ApiPort>>,
        events: &Events,
    ) -> Watchman {
        let LeaseArguments { lease_namespace, lease_name, .. } = self;
        let alarm = Alarm::new(client.clone(), lease_namespace, lease_name);
        let lease = format!("{lease_namespace}/{lease_name}");
        Watchman::new(Arc::clone(binder), alarm, events.clone(), system_clock(), lease)
    }

    /// The Lease, and this replica's name in it.
    pub(super) fn settings(&self) -> LeaseSettings {
        LeaseSettings {
            namespace: self.lease_namespace.clone(),
            name: self.lease_name.clone(),
            identity: self.identity.clone().unwrap_or_else(default_identity),
            duration: Duration::from_secs(self.lease_duration),
        }
    }

    /// Rights without which a replica cannot lead.
    pub(super) fn rights(&self) -> Vec<Right> {
        let lease = Some((self.lease_namespace.clone(), self.lease_name.clone()));
        let of_lease = ["get", "update"].map(|verb| Right {
            verb,
            group: "coordination.k8s.io",
            resource: "leases",
            subresource: "",
            object: lease.clone(),
        });
        let others = RIGHTS.iter().flat_map(|&(group, resource, subresource, verbs)| {
            verbs.iter().map(move |verb| Right { verb, group, resource, subresource, object: None })
        });
        others.chain(of_lease).collect()
    }
}

/// A replica's part in the competition for the Lease.
pub(super) struct Leadership {
    pub(super) client: ApiClient,
    pub(super) lease: LeaseSettings,
    pub(super) eligibility: Arc<Eligibility>,
    /// Whether this replica leads.
    pub(super) leads: Arc<AtomicBool>,
}

impl Leadership {
    /// Competes while this replica could lead, and lets the binder decide whenever it leads, until
    /// `shutdown`.
    pub(super) async fn run(
        self,
        binder: Arc<Binder<ApiPort>>,
        watchman: Arc<Watchman>,
        shutdown: CancellationToken,
    ) {
        while shutdown.run_until_cancelled(self.eligibility.until(true)).await.is_some() {
            let round = shutdown.child_token();
            let ineligible = async {
                if round.run_until_cancelled(self.eligibility.until(false)).await.is_some() {
                    round.cancel();
                }
            };
            let (has_failed, ()) = tokio::join!(self.compete(&binder, &watchman, &round), ineligible);
            if has_failed {
                break;
            }
        }
    }

    /// Competes until the round ends, then hands the Lease over. Answers whether the binder has failed.
    async fn compete(
        &self,
        binder: &Arc<Binder<ApiPort>>,
        watchman: &Arc<Watchman>,
        round: &CancellationToken,
    ) -> bool {
        let fault = self.eligibility.lease_fault.clone();
        let candidate = Candidate::new(self.client.clone(), self.lease.clone(), fault);
        let candidate = candidate.tells(binder.intake().clone());
        tracing::info!(identity = self.lease.identity, "competing for the Lease");
        let (sender, mut holds) = watch::channel(false);
        let competing = tokio::spawn(candidate.run(sender));
        let mut has_failed = false;
        while !has_failed && until(&mut holds, true, round).await {
            self.leads.store(true, Ordering::Relaxed);
            tracing::info!("this replica leads");
            let term = round.child_token();
            let run = tokio::spawn(lead(Arc::clone(binder), Arc::clone(watchman), term.clone()));
            until(&mut holds, false, round).await;
            term.cancel();
            let ended = run.await;
            self.leads.store(false, Ordering::Relaxed);
            tracing::info!("this replica leads no more");
            if let Err(error) = ended {
                tracing::error!(%error, "the binder has failed");
                has_failed = true;
            }
        }
        let held = *holds.borrow();
        drop(holds);
        round.cancel();
        match competing.await {
            Ok(Ok(())) if held => tracing::info!("the Lease is given back"),
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the Lease is not given back; it expires"),
            Err(error) => {
                tracing::error!(%error, "competing for the Lease has failed");
                has_failed = true;
            }
        }
        has_failed
    }
}

/// Waits until the Lease is held, or no more. Answers whether that came: where the round ends, or competing
/// for it has failed, it does not.
async fn until(holds: &mut Receiver<bool>, held: bool, round: &CancellationToken) -> bool {
    let came = holds.wait_for(|holds| *holds == held);
    matches!(round.run_until_cancelled(came).await, Some(Ok(_)))
}

/// Decides until the term ends.
async fn lead(binder: Arc<Binder<ApiPort>>, watchman: Arc<Watchman>, term: CancellationToken) {
    let caught_up = async {
        tokio::join!(watchman.catch_up(), until_current(binder.port().client().clone(), binder.intake()))
    };
    if term.run_until_cancelled(caught_up).await.is_some() {
        binder.run(term).await;
    }
}

/// The name of the host, as in a pod, and a number that tells replicas on one host apart.
fn default_identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{host}-{}-{:x}", std::process::id(), since_1970.subsec_nanos())
}

/// Reads an identity. An empty one in the Lease says that the Lease is free.
fn identity(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(
            "it is empty: give each replica a name of its own, or leave the setting out for the name of the \
                    host and a number"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}
