//! Whether this replica is eligible to lead: it sees the whole cluster, and may write.
//!
//! A replica that cannot decide or write must not hold the Lease, because no replica binds meanwhile. It
//! competes only while it is eligible; a leader that is no longer eligible releases the Lease.
//!
//! Rights are reviewed when all first lists are complete, again after the API server has refused a request,
//! and while a later list is overdue. An idle replica requests no review. If reviews are not answered, rights
//! count as held.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bindery_controller::Intake;
use bindery_kube::{ApiClient, Right, RightsError, missing_rights};
use bindery_store::{Kind, Store};
use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long a replica keeps leading while a later list is incomplete.
const LIST_MAX: Duration = Duration::from_secs(15);
/// Least time between two reviews: repeated refusals must not cause as many reviews.
const REVIEW_EVERY: Duration = Duration::from_secs(10);

/// What keeps this replica from leading.
pub(super) struct Eligibility {
    client: ApiClient,
    store: Arc<Store>,
    intake: Intake,
    rights: Vec<Right>,
    state: watch::Sender<State>,
    /// Why the Lease cannot be reached. The replica stays eligible: it has to retry.
    pub(super) lease_fault: watch::Sender<Option<String>>,
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
}

impl State {
    fn is_eligible(&self) -> bool {
        self.synced && self.reviewed && self.overdue.is_empty() && self.missing.is_empty() && !self.refused
    }
}

impl Eligibility {
    /// `store` and `intake` are those of this replica; leading takes `rights`.
    pub(super) fn new(client: ApiClient, store: Arc<Store>, intake: Intake, rights: Vec<Right>) -> Self {
        let (state, lease_fault) = (watch::Sender::default(), watch::Sender::default());
        Self { client, store, intake, rights, state, lease_fault }
    }

    /// Keeps the state current for as long as it is polled.
    pub(super) async fn run(&self) {
        let first_lists = async {
            self.intake.until_synced().await;
            self.state.send_modify(|state| state.synced = true);
        };
        let later_lists = join_all(self.store.kinds().iter().map(|&kind| self.follow_list(kind)));
        tokio::join!(first_lists, later_lists, self.follow_rights(), self.follow_credentials());
    }

    /// Waits until this replica is eligible, or not eligible.
    pub(super) async fn until(&self, eligible: bool) {
        let mut state = self.state.subscribe();
        // The sender lives in self.
        let _ = state.wait_for(|state| state.is_eligible() == eligible).await;
    }

    /// What keeps this replica from leading; empty if it is eligible.
    pub(super) fn causes(&self) -> Vec<String> {
        let state = self.state.borrow();
        let mut causes: Vec<_> = state.missing.iter().map(|right| format!("it may not {right}")).collect();
        causes.extend(state.refused.then(|| "its credentials are refused".to_owned()));
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
    pub(super) fn check(&self) -> Result<(), String> {
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
