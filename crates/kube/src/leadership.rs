//! A replica's part in the election: it competes while it could lead, and decides while it leads.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::Binder;
use futures::FutureExt as _;
use futures::future::{BoxFuture, OptionFuture};
use tokio::sync::watch::{self, Receiver};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::client::ApiClient;
use crate::eligibility::Eligibility;
use crate::foreign_writer::{ForeignWriterCheck, ForeignWriterMark};
use crate::lease::{Elector, LeaseSettings};
use crate::port::{ApiPort, Clock};
use crate::watch::until_current;

/// `reason` of the event on the Lease after a restore of etcd.
const VERSIONS_WENT_BACK: &str = "VersionsWentBack";

/// How often that event is tried: the API server may just have started.
const EMIT_ATTEMPTS: usize = 5;
/// Pause between two attempts.
const EMIT_EVERY: Duration = Duration::from_secs(2);

/// Waits for something; may be called any number of times.
pub type Wait = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A replica's part in the election.
pub struct Leadership {
    /// Sends the requests about the Lease.
    pub client: ApiClient,
    /// The Lease, and this replica's name in it.
    pub lease: LeaseSettings,
    /// Whether this replica could lead.
    pub eligibility: Arc<Eligibility>,
    /// What runs while this replica leads.
    pub binder: Arc<Binder<ApiPort>>,
    /// `None` in mode steer, where upstream's binder is on.
    pub foreign_writer_check: Option<Arc<ForeignWriterCheck>>,
    /// The time of events.
    pub clock: Clock,
    /// Whether this replica leads.
    pub leads: watch::Sender<bool>,
    /// What a new leader waits for besides, before it decides: its policies, where they are cluster objects.
    pub policies: Option<Wait>,
}

impl Leadership {
    /// Leads when elected, and checks for other binders, until `shutdown`. Ends early if the binder or the
    /// election panics.
    pub async fn run(self, shutdown: CancellationToken) {
        let eligibility = Arc::clone(&self.eligibility);
        let foreign_writer_check = self.foreign_writer_check.clone();
        let restores = report_restores(
            Arc::clone(&self.binder),
            ForeignWriterMark::new(self.client.clone(), &self.lease),
            self.clock.clone(),
        );
        // The others end at the shutdown, or when the competition ends early.
        let ended = shutdown.child_token();
        let check_writers = foreign_writer_check.as_ref().map(|check| check.run(ended.clone()));
        tokio::join!(
            self.compete_while_eligible(&shutdown).map(|()| ended.cancel()),
            OptionFuture::from(check_writers),
            ended.run_until_cancelled(eligibility.run()),
            ended.run_until_cancelled(restores),
        );
    }

    async fn compete_while_eligible(self, shutdown: &CancellationToken) {
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
        let elector = elector.hands_over(self.eligibility.handover.clone());
        tracing::info!(identity = self.lease.identity, "competing for the Lease");
        let (sender, mut holds) = watch::channel(false);
        let competing = AbortOnDropHandle::new(tokio::spawn(elector.run(sender)));
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
        self.leads.send_replace(true);
        tracing::info!("this replica leads");
        let term = Term {
            binder: Arc::clone(&self.binder),
            foreign_writer_check: self.foreign_writer_check.clone(),
            policies: self.policies.clone(),
            eligibility: Arc::clone(&self.eligibility),
            ends: round.child_token(),
        };
        let ends = term.ends.clone();
        let running = AbortOnDropHandle::new(tokio::spawn(term.run()));
        until(holds, false, round).await;
        ends.cancel();
        let ended = running.await;
        self.leads.send_replace(false);
        tracing::info!("this replica no longer leads");
        ended.inspect_err(|error| tracing::error!(%error, "the binder has failed")).is_err()
    }
}

/// Reports each restore of etcd by an event on the Lease.
async fn report_restores(binder: Arc<Binder<ApiPort>>, mark: ForeignWriterMark, clock: Clock) {
    let mut regressions = binder.intake().freshness().regressions();
    // The sender lives as long as the binder.
    while regressions.changed().await.is_ok() {
        let Some(regression) = regressions.borrow_and_update().clone() else { continue };
        let message = format!("{regression}; all kinds are listed again before more is decided");
        for _ in 0..EMIT_ATTEMPTS {
            let Err(error) = mark.emit(VERSIONS_WENT_BACK, &message, clock()).await else { break };
            tracing::warn!(%error, reason = VERSIONS_WENT_BACK, "an event cannot be created");
            sleep(EMIT_EVERY).await;
        }
    }
}

/// Waits until the Lease is held, or lost. Returns false if the round ends first, or the election fails.
async fn until(holds: &mut Receiver<bool>, held: bool, round: &CancellationToken) -> bool {
    let changed = holds.wait_for(|holds| *holds == held);
    matches!(round.run_until_cancelled(changed).await, Some(Ok(_)))
}

/// The time for which a replica leads.
struct Term {
    binder: Arc<Binder<ApiPort>>,
    foreign_writer_check: Option<Arc<ForeignWriterCheck>>,
    policies: Option<Wait>,
    eligibility: Arc<Eligibility>,
    ends: CancellationToken,
}

impl Term {
    /// Decides until the term ends. After a restore of etcd all that precedes decisions is repeated.
    async fn run(self) {
        let mut restores = self.binder.intake().freshness().regressions();
        while !self.ends.is_cancelled() {
            let until_restored = self.ends.child_token();
            let restored = async {
                until_restored.run_until_cancelled(restores.changed()).await;
                until_restored.cancel();
            };
            let decide = async {
                if until_restored.run_until_cancelled(self.catch_up()).await.is_some() {
                    Arc::clone(&self.binder).run(until_restored.clone()).await;
                }
            };
            let begin = until_restored.run_until_cancelled(self.eligibility.follow_begin());
            tokio::join!(restored, decide, begin);
        }
    }

    /// Waits until this replica knows the newest state of each kind, other binders and policies.
    async fn catch_up(&self) {
        let check_writers =
            OptionFuture::from(self.foreign_writer_check.as_deref().map(ForeignWriterCheck::catch_up));
        let load_policies = OptionFuture::from(self.policies.as_ref().map(|wait| wait()));
        let until_current = until_current(self.binder.port().client().clone(), self.binder.intake());
        tokio::join!(check_writers, load_policies, until_current);
    }
}

#[cfg(test)]
mod tests {
    use bindery_controller::Mode;
    use bindery_core::Version;
    use bindery_sim::{Sim, SimOptions};
    use bindery_store::Kind;
    use serde_json::json;

    use super::*;
    use crate::eligibility::tests::{binder, lease};
    use crate::port::system_clock;

    #[tokio::test(start_paused = true)]
    async fn a_restore_is_an_event_of_the_lease_in_mode_steer_too() {
        let sim = Sim::new(SimOptions::default());
        let metadata = json!({"namespace": "kube-system", "name": "bindery"});
        sim.put(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}));
        let client = ApiClient::from(kube::Client::new(sim.service(), "default"));
        let (binder, lease) = (binder(&client, Mode::Steer), lease());
        let mut restores = binder.intake().freshness().regressions();
        binder.intake().freshness().advanced(Kind::Volume, &Version::from("999999"));
        let eligibility = Eligibility::new(client.clone(), &binder, &lease, Mode::Steer, false);
        let leadership = Leadership {
            client,
            lease,
            eligibility: Arc::new(eligibility),
            binder,
            foreign_writer_check: None,
            clock: system_clock(),
            leads: watch::Sender::default(),
            policies: None,
        };
        tokio::spawn(leadership.run(CancellationToken::new()));
        let event = || sim.map_objects("events", |event| event["reason"] == VERSIONS_WENT_BACK);
        restores.changed().await.unwrap();
        while !event().contains(&true) {
            tokio::task::yield_now().await;
        }
    }
}
