//! Leader election by a Lease, as in client-go's `leaderelection`.
//!
//! An elector measures by its own clock how long another holder's Lease has not changed. It never compares
//! the times in the Lease: clocks of machines differ, and jump when they are set. A holder that cannot renew
//! stands down well before another replica may take over.
//!
//! A renewal is one small write every few seconds, and everything else depends on it. So it does not wait
//! while the API server asks other requests to pause (`Retry-After`). If the Lease itself is refused with
//! `Retry-After`, a follower waits that long, and a holder waits only until two attempts are left before it
//! would stand down.
//!
//! A connection may die silently, and with it others of the same pool. So one attempt takes only a part of
//! the time that a holder has, and the next attempt uses new connections.

mod handover;
mod settings;

use std::time::Duration;

use bindery_controller::Intake;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::handover::Handover;
pub use self::settings::LeaseSettings;
use crate::client::ApiClient;
use crate::request::segment;
use crate::rest::{self, Fault};

/// How often the same error is logged.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Why a Lease cannot be released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Lease {lease}: {why}")]
pub struct LeaseError {
    /// `namespace/name`.
    lease: String,
    /// What the API server answered.
    why: String,
}

/// A replica that competes for a Lease.
pub struct Elector {
    client: ApiClient,
    settings: LeaseSettings,
    observed: Option<LastLease>,
    /// `acquireTime` as this elector wrote it. Another elector with the same identity writes another time.
    acquired: Option<String>,
    /// Why the Lease has been out of reach for longer than a holder may go without renewal.
    fault: watch::Sender<Option<String>>,
    /// The last error that was logged, and when.
    logged: Option<(String, Instant)>,
    /// Receives each version of the Lease.
    intake: Option<Intake>,
    handover: Handover,
}

/// The attempts to take or renew the Lease.
struct Attempts {
    /// When the last one began after which this elector held the Lease.
    renewed: Instant,
    /// When the last one began that was answered.
    answered: Instant,
    /// The API server has asked for none before.
    not_before: Instant,
    /// Whether the last one was answered. Otherwise it may have taken the Lease.
    is_known: bool,
}

/// The Lease as it was last read or written.
struct LastLease {
    lease: Value,
    /// When its spec was last seen to change.
    at: Instant,
}

impl Elector {
    /// An elector. `fault` holds the reason while the Lease has been out of reach for longer than a holder
    /// may go without renewal.
    pub fn new(
        client: impl Into<ApiClient>,
        settings: LeaseSettings,
        fault: watch::Sender<Option<String>>,
    ) -> Self {
        let client = client.into().at_once();
        let handover = Handover::default();
        Self { client, settings, observed: None, acquired: None, fault, logged: None, intake: None, handover }
    }

    /// Passes each version of the Lease to the binder. A version that goes back shows a restore of etcd; this
    /// needs no request of its own.
    pub fn tells(self, intake: Intake) -> Self {
        Self { intake: Some(intake), ..self }
    }

    /// Asks other replicas by the Lease whether they could lead, when this replica wants to hand over.
    pub(crate) fn hands_over(self, handover: Handover) -> Self {
        Self { handover, ..self }
    }

    /// Competes until all receivers of `holds` are dropped, then releases the Lease. `holds` tells whether
    /// this elector holds the Lease.
    ///
    /// # Errors
    ///
    /// The Lease cannot be released; it will expire.
    pub async fn run(mut self, holds: watch::Sender<bool>) -> Result<(), LeaseError> {
        let mut ticks = tokio::time::interval(self.settings.part());
        // After the machine has slept, one attempt is enough.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let start = Instant::now();
        let mut attempts = Attempts { renewed: start, answered: start, not_before: start, is_known: true };
        loop {
            let lapses = attempts.renewed + self.settings.deadline();
            tokio::select! {
                biased;
                () = holds.closed() => break,
                // Attempts that were refused at once leave the next tick too late for this.
                () = tokio::time::sleep_until(lapses), if *holds.borrow() => {
                    tracing::warn!(lease = self.named(), "the Lease was not renewed in time; standing down");
                    holds.send_replace(false);
                }
                _ = ticks.tick() => self.attempt(&mut attempts, &holds).await,
            }
        }
        self.fault.send_replace(None);
        let released = tokio::time::timeout(self.settings.deadline(), self.release(attempts.is_known)).await;
        released
            .unwrap_or_else(|_| Err(self.no_answer()))
            .map_err(|fault| LeaseError { lease: self.named(), why: fault.to_string() })
    }

    /// Tries to take or renew the Lease, unless it is too early for that.
    async fn attempt(&mut self, attempts: &mut Attempts, holds: &watch::Sender<bool>) {
        let (part, deadline) = (self.settings.part(), self.settings.deadline());
        let began = Instant::now();
        let (mut due, mut until) = (attempts.not_before, began + self.settings.attempt_max());
        if *holds.borrow() {
            due = due.min(attempts.renewed + deadline - 2 * part);
            until = until.min(attempts.renewed + deadline);
        }
        if began < due {
            return;
        }
        // An attempt in flight may finish: if it takes the Lease, the Lease must be released.
        let ended = async {
            holds.closed().await;
            tokio::time::sleep(part).await;
        };
        let outcome = tokio::select! {
            outcome = tokio::time::timeout_at(until, self.acquire_or_renew()) => outcome.ok(),
            () = ended => None,
        };
        let outcome = outcome.unwrap_or_else(|| Err(self.no_answer()));
        attempts.is_known = outcome.is_ok();
        match outcome {
            Ok(held) => {
                attempts.answered = began;
                if held {
                    attempts.renewed = began;
                }
                self.logged = None;
                self.fault.send_if_modified(|fault| fault.take().is_some());
                holds.send_if_modified(|holds| std::mem::replace(holds, held) != held);
            }
            Err(fault) => {
                attempts.not_before = Instant::now() + fault.pause().unwrap_or_default();
                self.failed(&fault, attempts.answered.elapsed() >= deadline);
            }
        }
    }

    /// Reports a failed attempt. Several pooled connections may be dead, so the next attempt opens a new one.
    fn failed(&mut self, fault: &Fault, for_long: bool) {
        let text = fault.to_string();
        let is_logged =
            self.logged.as_ref().is_some_and(|(last, at)| *last == text && at.elapsed() < LOG_EVERY);
        if !is_logged {
            tracing::warn!(lease = self.named(), %fault, "the Lease cannot be renewed");
            self.logged = Some((text, Instant::now()));
        }
        if for_long {
            self.fault.send_replace(Some(format!("Lease {}: {fault}", self.named())));
        }
        if fault.is_unanswered() {
            self.client = self.client.with_new_connections();
        }
    }

    fn no_answer(&self) -> Fault {
        Fault::NoAnswer(format!("it took more than {:?}", self.settings.attempt_max()))
    }

    /// Takes the Lease if it is free or expired, or renews it. Returns whether this elector holds it.
    async fn acquire_or_renew(&mut self) -> Result<bool, Fault> {
        // The holder knows the version that it wrote, and no other client should write: no read is needed.
        if self.is_ours() {
            match self.take().await {
                Err(Fault::Refused { code: 409 | 404, .. }) => {}
                outcome => return outcome.map(|()| true),
            }
        }
        self.read().await?;
        if !self.is_ours() && self.is_held() {
            self.acquired = None;
            // The attempt has succeeded all the same: the Lease was read.
            if let Err(fault) = self.answer().await {
                tracing::debug!(%fault, "the holder is not told that this replica could lead");
            }
            return Ok(false);
        }
        match self.take().await {
            // Another elector was faster.
            Err(Fault::Refused { code: 409, .. }) if !self.is_ours() => Ok(false),
            // Its annotations may have been written since the read; then the next attempt may be in time.
            Err(fault @ Fault::Refused { code: 409, .. }) => {
                self.read().await?;
                if self.is_ours() { Err(fault) } else { Ok(false) }
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// Reads the Lease; creates a free one if it does not exist.
    async fn read(&mut self) -> Result<(), Fault> {
        let path = self.path()?;
        let lease = match rest::json(&self.client, Method::GET, &path, None).await {
            Err(Fault::Refused { code: 404, .. }) => {
                let LeaseSettings { namespace, name, .. } = &self.settings;
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"namespace": namespace, "name": name},
                });
                let folder = path.rsplit_once('/').map_or(path.as_str(), |(folder, _)| folder);
                match rest::json(&self.client, Method::POST, folder, Some(&lease)).await {
                    // Another elector was faster.
                    Err(Fault::Refused { code: 409, .. }) => {
                        rest::json(&self.client, Method::GET, &path, None).await?
                    }
                    lease => lease?,
                }
            }
            lease => lease?,
        };
        self.observe(lease, Instant::now());
        Ok(())
    }

    /// Answers a holder that asks whether another replica could lead.
    async fn answer(&mut self) -> Result<(), Fault> {
        let is_asked = self.observed.as_ref().is_some_and(|observed| self.handover.is_asked(&observed.lease));
        if !is_asked {
            return Ok(());
        }
        tracing::info!(
            holder = self.holder(),
            "the holder's writes fail; it is told that this replica could lead"
        );
        let identity = self.settings.identity.clone();
        self.write(|lease| handover::annotate(lease, &identity)).await
    }

    fn holder(&self) -> &str {
        let lease = self.observed.as_ref().map(|observed| &observed.lease);
        lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default()
    }

    /// Whether this elector holds the Lease; another elector with the same identity does not count.
    fn is_ours(&self) -> bool {
        let Some(LastLease { lease, .. }) = &self.observed else { return false };
        let acquired = lease["spec"]["acquireTime"].as_str();
        self.holder() == self.settings.identity && acquired.is_some() && acquired == self.acquired.as_deref()
    }

    /// Whether the Lease has a holder that renewed it within its duration.
    fn is_held(&self) -> bool {
        let Some(observed) = &self.observed else { return false };
        let duration = observed.lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default();
        !self.holder().is_empty() && observed.at.elapsed() < Duration::from_secs(duration)
    }

    /// Writes this elector as holder, over the version that was read.
    async fn take(&mut self) -> Result<(), Fault> {
        let now = now();
        let is_ours = self.is_ours();
        // An attempt without an answer may have been carried out, so the next attempt writes the same time.
        let acquired = self.acquired.get_or_insert_with(|| now.clone()).clone();
        let identity = self.settings.identity.clone();
        let duration = self.settings.duration.as_secs().max(1);
        let handover = self.handover.clone();
        self.write(|lease| {
            handover.put(lease, is_ours);
            let spec = &mut lease["spec"];
            if !is_ours {
                let transitions = spec["leaseTransitions"].as_u64().unwrap_or_default();
                spec["leaseTransitions"] = (transitions + 1).into();
                spec["acquireTime"] = acquired.into();
            }
            spec["holderIdentity"] = identity.into();
            spec["leaseDurationSeconds"] = duration.into();
            spec["renewTime"] = now.into();
        })
        .await
    }

    /// Releases the Lease, so that another elector can take it at once. If the last attempt had no answer,
    /// it may have taken the Lease.
    async fn release(&mut self, is_known: bool) -> Result<(), Fault> {
        if !is_known {
            self.read().await?;
        }
        if !self.is_ours() {
            return Ok(());
        }
        let clear = |lease: &mut Value| {
            let spec = &mut lease["spec"];
            spec["holderIdentity"] = "".into();
            // The smallest allowed value, for clients that look at the duration only.
            spec["leaseDurationSeconds"] = 1.into();
            spec["renewTime"] = now().into();
        };
        match self.write(clear).await {
            Err(Fault::Refused { code: 409, .. }) => {
                self.read().await?;
                if self.is_ours() { self.write(clear).await } else { Ok(()) }
            }
            outcome => outcome,
        }
    }

    /// Writes the Lease with a change over the version that was read.
    async fn write(&mut self, change: impl FnOnce(&mut Value)) -> Result<(), Fault> {
        let path = self.path()?;
        let Some(observed) = &self.observed else { return Ok(()) };
        let mut lease = observed.lease.clone();
        if !lease["spec"].is_object() {
            lease["spec"] = json!({});
        }
        change(&mut lease);
        let at = Instant::now();
        let lease = rest::json(&self.client, Method::PUT, &path, Some(&lease)).await?;
        self.observe(lease, at);
        Ok(())
    }

    /// Records the Lease as it was read or written then. Requests follow one another, so versions come in
    /// order.
    fn observe(&mut self, lease: Value, at: Instant) {
        if let (Some(intake), Some(version)) = (&self.intake, lease["metadata"]["resourceVersion"].as_str()) {
            intake.lease_reached(&version.into());
        }
        let at = match &self.observed {
            // A change of its metadata is not a renewal.
            Some(observed) if observed.lease["spec"] == lease["spec"] => observed.at,
            _ => at,
        };
        self.observed = Some(LastLease { lease, at });
        if self.is_ours()
            && let Some(observed) = &self.observed
        {
            self.handover.hear(&observed.lease);
        }
    }

    fn path(&self) -> Result<String, Fault> {
        let LeaseSettings { namespace, name, .. } = &self.settings;
        let (Ok(namespace), Ok(name)) = (segment(namespace), segment(name)) else {
            return Err(Fault::NoAnswer(format!("{} is not a valid object name", self.named())));
        };
        Ok(format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"))
    }

    fn named(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }
}

/// The current time, for people who read the Lease.
fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests;
