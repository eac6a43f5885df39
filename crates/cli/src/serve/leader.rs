//! Leader election: the replica that holds a Lease decides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bindery_controller::Binder;
use bindery_kube::watch::until_current;
use bindery_kube::{
    ApiClient, ApiPort, Elector, Events, ForeignWriterMark, LeaseSettings, Right, system_clock,
};
use futures::future::OptionFuture;
use tokio::sync::Notify;
use tokio::sync::watch::{self, Receiver};
use tokio_util::sync::CancellationToken;

use super::eligibility::Eligibility;
use super::foreign_writer::ForeignWriterCheck;
use super::mode::ModeArgument;
use super::policy_objects::CatchUp;
use crate::settings;

/// Rights that leading takes: group, resource, subresource, verbs. Rights of optional settings, such as
/// recycling, are not among them, because most claims are bound without those.
const RIGHTS: [(&str, &str, &str, &[&str]); 5] = [
    ("", "persistentvolumes", "", &["list", "watch", "get", "patch"]),
    ("", "persistentvolumeclaims", "", &["list", "watch", "get", "patch"]),
    ("", "nodes", "", &["list", "watch"]),
    ("", "pods", "", &["list", "watch"]),
    ("storage.k8s.io", "storageclasses", "", &["list", "watch"]),
];
/// Further rights that leading takes where policies are cluster objects.
const POLICY_RIGHTS: [(&str, &str, &str, &[&str]); 3] = [
    ("policy.bindery.dev", "engines", "", &["list", "watch"]),
    ("policy.bindery.dev", "matchpolicies", "", &["list", "watch"]),
    ("policy.bindery.dev", "reclaimpolicies", "", &["list", "watch"]),
];
/// Further rights that leading takes in own mode.
const OWN_RIGHTS: [(&str, &str, &str, &[&str]); 2] =
    [("", "persistentvolumes", "status", &["patch"]), ("", "persistentvolumeclaims", "status", &["patch"])];

#[derive(clap::Args)]
pub(super) struct LeaseArguments {
    /// Namespace of the Lease that replicas compete for.
    #[arg(long, value_name = "NAMESPACE", env = "BINDERY_LEASE_NAMESPACE", default_value = "kube-system")]
    lease_namespace: String,
    /// Name of the Lease that replicas compete for.
    #[arg(long, value_name = "NAME", env = "BINDERY_LEASE_NAME", default_value = "bindery")]
    lease_name: String,
    /// Name of this replica in the Lease; each replica needs its own. By default the name of the host and a
    /// number.
    #[arg(long, value_name = "NAME", env = "BINDERY_IDENTITY", value_parser = identity)]
    identity: Option<String>,
    /// Seconds after which a silent leader counts as dead.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_LEASE_DURATION", default_value_t = 15,
          value_parser = settings::whole::<u64>(3..=3600))]
    lease_duration: u64,
}

impl LeaseArguments {
    /// The check for other binders, which keeps its annotation on this Lease.
    pub(super) fn foreign_writer_check(
        &self,
        client: &ApiClient,
        binder: &Arc<Binder<ApiPort>>,
        events: &Events,
    ) -> ForeignWriterCheck {
        ForeignWriterCheck {
            binder: Arc::clone(binder),
            mark: self.mark(client),
            events: events.clone(),
            clock: system_clock(),
            lease: format!("{}/{}", self.lease_namespace, self.lease_name),
            found: Notify::new(),
        }
    }

    /// The Lease as the object of events.
    pub(super) fn mark(&self, client: &ApiClient) -> ForeignWriterMark {
        ForeignWriterMark::new(client.clone(), &self.lease_namespace, &self.lease_name)
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

    /// The rights that leading takes, with those for namespaces where a policy reads their labels.
    pub(super) fn rights(
        &self,
        mode: ModeArgument,
        reads_namespaces: bool,
        loads_policies: bool,
    ) -> Vec<Right> {
        let lease = Some((self.lease_namespace.clone(), self.lease_name.clone()));
        let of_lease = ["get", "update"].map(|verb| Right {
            verb,
            group: "coordination.k8s.io",
            resource: "leases",
            subresource: "",
            object: lease.clone(),
        });
        let namespaces = ("", "namespaces", "", &["list", "watch"][..]);
        let namespaces = reads_namespaces.then_some(namespaces);
        let own = OWN_RIGHTS.into_iter().filter(|_| mode == ModeArgument::Own);
        let policies = POLICY_RIGHTS.into_iter().filter(|_| loads_policies);
        let others = RIGHTS.into_iter().chain(own).chain(namespaces).chain(policies).flat_map(
            |(group, resource, subresource, verbs)| {
                verbs.iter().map(move |verb| Right { verb, group, resource, subresource, object: None })
            },
        );
        others.chain(of_lease).collect()
    }
}

/// A replica's part in the election.
pub(super) struct Leadership {
    pub(super) client: ApiClient,
    pub(super) lease: LeaseSettings,
    pub(super) eligibility: Arc<Eligibility>,
    pub(super) binder: Arc<Binder<ApiPort>>,
    /// `None` in mode steer, where upstream's binder is on.
    pub(super) foreign_writer_check: Option<Arc<ForeignWriterCheck>>,
    /// Whether this replica leads.
    pub(super) leads: Arc<AtomicBool>,
    /// The policies that are cluster objects, if they are loaded.
    pub(super) policies: Option<Arc<CatchUp>>,
}

impl Leadership {
    /// Competes for the Lease while this replica is eligible, and runs the binder while it leads, until
    /// `shutdown`.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(self.eligibility.until(true)).await.is_some() {
            let round = shutdown.child_token();
            let ineligible = async {
                if round.run_until_cancelled(self.eligibility.until(false)).await.is_some() {
                    round.cancel();
                }
            };
            let (has_failed, ()) = tokio::join!(self.compete(&round), ineligible);
            if has_failed {
                break;
            }
        }
    }

    /// Competes until the round ends, then releases the Lease. Returns whether the binder has failed.
    async fn compete(&self, round: &CancellationToken) -> bool {
        let fault = self.eligibility.lease_fault.clone();
        let elector = Elector::new(self.client.clone(), self.lease.clone(), fault);
        let elector = elector.tells(self.binder.intake().clone());
        tracing::info!(identity = self.lease.identity, "competing for the Lease");
        let (sender, mut holds) = watch::channel(false);
        let competing = tokio::spawn(elector.run(sender));
        let mut has_failed = false;
        while !has_failed && until(&mut holds, true, round).await {
            has_failed = self.lead(&mut holds, round).await;
        }
        let held = *holds.borrow();
        drop(holds);
        round.cancel();
        match competing.await {
            Ok(Ok(())) if held => tracing::info!("the Lease is released"),
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the Lease is not released; it expires"),
            Err(error) => {
                tracing::error!(%error, "competing for the Lease has failed");
                has_failed = true;
            }
        }
        has_failed
    }

    /// Runs the binder until the Lease is lost or the round ends. Returns whether the binder has failed.
    async fn lead(&self, holds: &mut Receiver<bool>, round: &CancellationToken) -> bool {
        self.leads.store(true, Ordering::Relaxed);
        tracing::info!("this replica leads");
        let term = round.child_token();
        let (binder, check) = (Arc::clone(&self.binder), self.foreign_writer_check.clone());
        let (policies, eligibility) = (self.policies.clone(), Arc::clone(&self.eligibility));
        let running = tokio::spawn(run_for_term(binder, check, policies, eligibility, term.clone()));
        until(holds, false, round).await;
        term.cancel();
        let ended = running.await;
        self.leads.store(false, Ordering::Relaxed);
        tracing::info!("this replica no longer leads");
        ended.inspect_err(|error| tracing::error!(%error, "the binder has failed")).is_err()
    }
}

/// Waits until the Lease is held, or lost. Returns false if the round ends first, or the election fails.
async fn until(holds: &mut Receiver<bool>, held: bool, round: &CancellationToken) -> bool {
    let changed = holds.wait_for(|holds| *holds == held);
    matches!(round.run_until_cancelled(changed).await, Some(Ok(_)))
}

/// Decides until the term ends. After a restore of etcd all that precedes decisions is repeated.
async fn run_for_term(
    binder: Arc<Binder<ApiPort>>,
    foreign_writer_check: Option<Arc<ForeignWriterCheck>>,
    policies: Option<Arc<CatchUp>>,
    eligibility: Arc<Eligibility>,
    term: CancellationToken,
) {
    let mut restores = binder.intake().freshness().regressions();
    while !term.is_cancelled() {
        let until_restored = term.child_token();
        let restored = async {
            until_restored.run_until_cancelled(restores.changed()).await;
            until_restored.cancel();
        };
        let caught_up = catch_up(&binder, foreign_writer_check.as_deref(), policies.as_deref());
        let decide = async {
            if until_restored.run_until_cancelled(caught_up).await.is_some() {
                Arc::clone(&binder).run(until_restored.clone()).await;
            }
        };
        let begin = until_restored.run_until_cancelled(eligibility.follow_begin());
        tokio::join!(restored, decide, begin);
    }
}

/// What a leader waits for before it decides.
async fn catch_up(
    binder: &Binder<ApiPort>,
    foreign_writer_check: Option<&ForeignWriterCheck>,
    policies: Option<&CatchUp>,
) {
    let check_writers = OptionFuture::from(foreign_writer_check.map(ForeignWriterCheck::catch_up));
    let load_policies = OptionFuture::from(policies.map(CatchUp::wait));
    let until_current = until_current(binder.port().client().clone(), binder.intake());
    tokio::join!(check_writers, load_policies, until_current);
}

/// The name of the host, as in a pod, and a number that tells replicas on one host apart. The same for the
/// whole life of the process.
fn default_identity() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    let identity = IDENTITY.get_or_init(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{host}-{}-{:x}", std::process::id(), since_1970.subsec_nanos())
    });
    identity.clone()
}

/// Reads an identity. An empty one in the Lease means that the Lease is free.
fn identity(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        return Err(
            "it is empty: give each replica a name of its own, or leave the setting out for the name of the \
                    host and a number",
        );
    }
    Ok(text.to_owned())
}
