//! Whether this replica is eligible to lead: it sees the whole cluster, and may write.
//!
//! A replica that cannot decide or write must not hold the Lease, because no replica binds meanwhile. It
//! competes only while it is eligible; a leader that is no longer eligible releases the Lease.
//!
//! Lists, rights and credentials decide that for each replica alone. Failing writes do not: they may fail for
//! every replica. So a leader whose writes are broken ([`WriteHealth`]) first asks whether another replica
//! could lead ([`Handover`]).
//!
//! Rights are reviewed when all first lists are complete, again after the API server has refused a request,
//! and while a later list is overdue. An idle replica requests no review. If reviews are not answered, rights
//! count as held.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Intake, Mode, WriteHealth};
use bindery_store::{Kind, Store};
use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::client::ApiClient;
use crate::lease::{Handover, LeaseSettings};
use crate::port::ApiPort;
use crate::rights::{Right, RightsError, missing_rights, rights_to_lead};
use crate::watch::ask_for_newest;

/// How long a replica keeps leading while a later list is incomplete.
const LIST_MAX: Duration = Duration::from_secs(15);
/// How long a replica may lead before it decides: a bookmark may be awaited for 5 s, and then a list.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// How long a replica that did not begin to decide, or whose writes failed, leaves the Lease to others.
const LEAVE: Duration = Duration::from_secs(30);
/// How long a leader whose writes failed asks for another one.
const ASK_MAX: Duration = Duration::from_secs(300);
/// Least time between two reviews: repeated refusals must not cause as many reviews.
const REVIEW_EVERY: Duration = Duration::from_secs(10);

/// What keeps this replica from leading.
pub struct Eligibility {
    client: ApiClient,
    store: Arc<Store>,
    intake: Intake,
    writes: WriteHealth,
    rights: Vec<Right>,
    state: watch::Sender<State>,
    /// Why the Lease cannot be reached. The replica stays eligible: it has to retry.
    pub(crate) lease_fault: watch::Sender<Option<String>>,
    /// Asks other replicas whether they could lead.
    pub(crate) handover: Handover,
}

#[derive(Debug, Default)]
struct State {
    /// Whether all first lists are complete.
    synced: bool,
    /// Later lists that take longer than [`LIST_MAX`].
    overdue: BTreeSet<Kind>,
    /// Whether a first review has ended, answered or not.
    reviewed: bool,
    /// The rights that this replica lacks.
    missing: Vec<Right>,
    /// Whether the API server refuses its credentials.
    refused: bool,
    /// Why it left the Lease to others, less than [`LEAVE`] ago.
    left: Option<String>,
}

impl State {
    fn is_eligible(&self) -> bool {
        let is_hindered =
            !self.overdue.is_empty() || !self.missing.is_empty() || self.refused || self.left.is_some();
        self.synced && self.reviewed && !is_hindered
    }
}

impl Eligibility {
    /// Whether the replica with this binder may lead in a mode. It needs the rights for policies that are
    /// cluster objects if it loads them.
    pub fn new(
        client: ApiClient,
        binder: &Binder<ApiPort>,
        lease: &LeaseSettings,
        mode: Mode,
        loads_policies: bool,
    ) -> Self {
        let (store, intake) = (Arc::clone(binder.store()), binder.intake().clone());
        let writes = binder.write_health().clone();
        let rights = rights_to_lead(lease, mode, intake.declared().namespaces, loads_policies);
        let (state, lease_fault) = (watch::Sender::default(), watch::Sender::default());
        Self { client, store, intake, writes, rights, state, lease_fault, handover: Handover::default() }
    }

    /// Keeps the state current for as long as it is polled.
    pub(crate) async fn run(&self) {
        let first_lists = async {
            self.intake.until_synced().await;
            self.state.send_modify(|state| state.synced = true);
        };
        let later_lists = join_all(self.store.kinds().iter().map(|&kind| self.follow_list(kind)));
        tokio::join!(
            first_lists,
            later_lists,
            self.follow_rights(),
            self.follow_credentials(),
            self.follow_left(),
            self.follow_writes(),
            self.follow_versions()
        );
    }

    /// Watches a leader that is to begin to decide, until it has begun or is not eligible any more.
    pub(crate) async fn follow_begin(&self) {
        if timeout(BEGIN_MAX, self.intake.until_open()).await.is_err() {
            self.leave(format!("it led for {} s and did not begin to decide", BEGIN_MAX.as_secs()));
        }
    }

    /// Leaves the Lease to other replicas for a while.
    fn leave(&self, cause: String) {
        tracing::warn!(cause, "this leader leaves the Lease to another replica");
        self.state.send_modify(|state| state.left = Some(cause));
    }

    /// Waits until this replica is eligible, or not eligible.
    pub(crate) async fn until(&self, eligible: bool) {
        let mut state = self.state.subscribe();
        // The sender lives in self.
        let _ = state.wait_for(|state| state.is_eligible() == eligible).await;
    }

    /// What keeps this replica from leading; empty if it is eligible.
    pub fn causes(&self) -> Vec<String> {
        let state = self.state.borrow();
        let mut causes: Vec<_> = state.missing.iter().map(|right| format!("it may not {right}")).collect();
        causes.extend(state.refused.then(|| "its credentials are refused".to_owned()));
        causes.extend(state.left.clone());
        let awaited = if state.synced { Vec::new() } else { self.store.awaited() };
        let incomplete = awaited.iter().chain(&state.overdue);
        causes.extend(incomplete.map(|kind| format!("the list of {kind} is not complete")));
        if causes.is_empty() && !state.is_eligible() {
            causes.push("its rights are not reviewed yet".to_owned());
        }
        causes
    }

    /// Eligibility as a check of `/readyz`. The error says why this replica cannot lead, or cannot reach the
    /// Lease.
    pub fn check(&self) -> Result<(), String> {
        let causes = self.causes();
        if !causes.is_empty() {
            return Err(format!("this replica cannot lead: {}", causes.join(", ")));
        }
        self.lease_fault.borrow().clone().map_or(Ok(()), Err)
    }

    async fn follow_list(&self, kind: Kind) {
        let freshness = self.intake.freshness();
        loop {
            freshness.until_list_wanted(kind).await;
            if timeout(LIST_MAX, freshness.until_listed(kind)).await.is_ok() {
                continue;
            }
            tracing::warn!(%kind, "a list does not complete; this replica cannot lead");
            self.state.send_if_modified(|state| state.overdue.insert(kind));
            freshness.until_listed(kind).await;
            self.state.send_if_modified(|state| state.overdue.remove(&kind));
        }
    }

    /// Ends the time for which this replica leaves the Lease to others.
    async fn follow_left(&self) {
        let mut state = self.state.subscribe();
        loop {
            let _ = state.wait_for(|state| state.left.is_some()).await;
            sleep(LEAVE).await;
            self.state.send_modify(|state| state.left = None);
        }
    }

    /// Leaves the Lease to another replica that could lead, if the writes of this leader are broken.
    async fn follow_writes(&self) {
        loop {
            self.writes.until_broken(true).await;
            let why = self.writes.check().err();
            tracing::warn!(why, "the writes of this leader fail; it asks whether another replica could lead");
            self.handover.ask(true);
            tokio::select! {
                () = self.handover.until_answered() => {
                    self.leave("its writes failed, and another replica could lead".to_owned());
                    // The binder forgets them when it ends.
                    self.writes.until_broken(false).await;
                }
                () = self.writes.until_broken(false) => self.handover.ask(false),
                // What failed may be gone, and nothing to be written. New failures make it ask again.
                () = sleep(ASK_MAX) => {
                    self.writes.forget_broken();
                    self.handover.ask(false);
                }
            }
        }
    }

    /// Notices restores of etcd while this replica may not lead, and does not see the Lease.
    async fn follow_versions(&self) {
        loop {
            self.until(false).await;
            tokio::select! {
                () = ask_for_newest(self.client.clone(), self.intake.clone()) => {}
                () = self.until(true) => {}
            }
        }
    }

    async fn follow_credentials(&self) {
        let mut refusal = self.client.refusal();
        loop {
            let is_refused = refusal.borrow_and_update().is_some();
            self.state.send_modify(|state| state.refused = is_refused);
            // The sender lives in self.client.
            let _ = refusal.changed().await;
        }
    }

    async fn follow_rights(&self) {
        let mut denials = self.client.denials();
        tokio::select! {
            () = self.intake.until_synced() => {}
            _ = denials.changed() => {}
        }
        loop {
            denials.mark_unchanged();
            let holds_all = self.review().await;
            sleep(REVIEW_EVERY).await;
            if holds_all {
                // A replica that does not compete sends no request of its own. While a list is overdue these
                // reviews show when the API server answers again, and then watches are tried at once.
                tokio::select! {
                    // The sender lives in self.client.
                    _ = denials.changed() => {}
                    () = self.until_overdue() => {}
                }
            }
        }
    }

    /// Waits until a later list is overdue.
    async fn until_overdue(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| !state.overdue.is_empty()).await;
    }

    /// Reviews the rights. Returns false if one is missing or the review was not answered; then the review
    /// must be repeated.
    async fn review(&self) -> bool {
        let missing = match missing_rights(&self.client, &self.rights).await {
            Ok(missing) => missing,
            Err(RightsError::Unsupported(why)) => {
                tracing::info!(why, "rights cannot be reviewed, and count as held");
                Vec::new()
            }
            Err(RightsError::NoAnswer(why)) => {
                tracing::warn!(why, "the review of this replica's rights has failed; it is repeated");
                self.state.send_modify(|state| state.reviewed = true);
                return false;
            }
        };
        let holds_all = missing.is_empty();
        self.state.send_modify(|state| {
            if state.missing != missing && !holds_all {
                let missing: Vec<_> = missing.iter().map(Right::to_string).collect();
                tracing::warn!(missing = missing.join(", "), "this replica lacks rights and cannot lead");
            }
            state.reviewed = true;
            state.missing = missing;
        });
        holds_all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bindery_controller::{Configuration, Parts, Settings};
    use bindery_core::Version;
    use bindery_engine::DefaultEngine;
    use bindery_sim::{Sim, SimOptions};
    use bindery_store::Delivery;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::events::Events;
    use crate::port::system_clock;

    /// A binder without watches, in a mode.
    pub(crate) fn binder(client: &ApiClient, mode: Mode) -> Arc<Binder<ApiPort>> {
        let (events, _) = Events::new(client.clone());
        Arc::new(Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), system_clock(), events),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration::default(),
            settings: Settings { mode, ..Settings::default() },
            journal: None,
        }))
    }

    pub(crate) fn lease() -> LeaseSettings {
        LeaseSettings {
            namespace: "kube-system".to_owned(),
            name: "bindery".to_owned(),
            identity: "replica".to_owned(),
            duration: Duration::from_secs(15),
        }
    }

    /// A binder without watches, and its eligibility, which is kept current.
    fn replica() -> (Arc<Binder<ApiPort>>, Arc<Eligibility>) {
        let client = ApiClient::from(kube::Client::new(Sim::new(SimOptions::default()).service(), "default"));
        let binder = binder(&client, Mode::Own);
        let eligibility = Arc::new(Eligibility::new(client, &binder, &lease(), Mode::Own, false));
        let running = Arc::clone(&eligibility);
        tokio::spawn(async move { running.run().await });
        (binder, eligibility)
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_does_not_begin_leaves_the_lease_for_a_while() {
        let (binder, eligibility) = replica();
        for kind in binder.intake().kinds() {
            binder.intake().deliver(Delivery::listed(*kind, [] as [bindery_core::Volume; 0], "1"));
        }
        eligibility.until(true).await;
        let began = Instant::now();
        eligibility.follow_begin().await;
        assert_eq!(eligibility.causes(), ["it led for 20 s and did not begin to decide"]);
        eligibility.until(true).await;
        assert_eq!(began.elapsed(), BEGIN_MAX + LEAVE);
        tokio::spawn(Arc::clone(&binder).run(CancellationToken::new()));
        eligibility.follow_begin().await;
        assert_eq!(eligibility.causes(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_may_not_lead_notices_a_restore_within_two_minutes() {
        let (binder, _) = replica();
        let freshness = binder.intake().freshness();
        let mut restores = freshness.regressions();
        freshness.advanced(Kind::Volume, &Version::from("999999"));
        let noticed = timeout(Duration::from_secs(120), restores.changed()).await;
        assert!(noticed.is_ok());
    }
}
