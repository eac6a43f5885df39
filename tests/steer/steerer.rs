//! A steering binder, whose writes may arrive late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{
    Binder, Configuration, Mode, Note, Parts, Port, Purpose, Settings, Write, WriteError, Written,
};
use bindery_core::steer::SteerWrite;
use bindery_core::{Claim, ClaimKey, Lookup, Text, Timestamp, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::{SameZone, policy};
use bindery_policy::Chain;
use bindery_store::Store;

use crate::law::Api;

/// Most writes in a world. Without it, writes that follow each other without end would use up the memory.
const WRITES_MAX: usize = 5_000;

/// An API server whose requests take a while, and arrive also if the binder that sent them has ended.
pub(crate) struct Slow {
    pub(crate) api: Api,
    /// Milliseconds of the requests in turn.
    pub(crate) delays: [u64; 4],
    pub(crate) requests: AtomicUsize,
}

impl Slow {
    async fn travel(&self) {
        self.travel_for(0).await;
    }

    /// The way of a request that takes this many milliseconds at least.
    async fn travel_for(&self, least: u64) {
        let turn = self.requests.fetch_add(1, Ordering::Relaxed);
        let delay = self.delays[turn % self.delays.len()].max(least);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }
}

impl Port for Slow {
    type Template = Volume;

    async fn read_volume(&self, name: &Text, purpose: Purpose) -> Lookup<Arc<Volume>> {
        self.travel().await;
        self.api.read_volume(name, purpose).await
    }

    async fn read_claim(&self, key: &ClaimKey, purpose: Purpose) -> Lookup<Arc<Claim>> {
        self.travel().await;
        self.api.read_claim(key, purpose).await
    }

    async fn read_reservation(&self, name: &Text) -> Lookup<(Arc<Volume>, bool)> {
        self.travel().await;
        self.api.read_reservation(name).await
    }

    async fn write(&self, write: &Write<Volume>) -> Result<Written, WriteError> {
        self.api.objects().extra.violations.push(format!("mode steer makes the write {}", write.name()));
        self.api.write(write).await
    }

    async fn steer(&self, write: &SteerWrite) -> Result<Written, WriteError> {
        if self.api.objects().steered.len() >= WRITES_MAX {
            self.api.objects().extra.violations.push(format!("there are more than {WRITES_MAX} writes"));
            return std::future::pending().await;
        }
        // Two replicas that see different claims of a pod relabel its volumes until their caches agree. The
        // caches lag by virtual time, so it has to pass.
        let is_label = matches!(write, SteerWrite::Label { .. } | SteerWrite::Unlabel { .. });
        self.travel_for(if is_label { 20 } else { 0 }).await;
        self.api.steer(write).await
    }

    fn emit(&self, note: &Note) {
        self.api.emit(note);
    }

    fn now(&self) -> Timestamp {
        self.api.now()
    }
}

pub(crate) fn binder(api: &Api, delays: [u64; 4]) -> Arc<Binder<Slow>> {
    let policies = Arc::new(Chain::new(vec![policy("zone", SameZone)]));
    Arc::new(Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: Slow { api: api.clone(), delays, requests: AtomicUsize::new(0) },
        engine: Arc::new(DefaultEngine),
        configuration: Configuration { policies, ..Configuration::default() },
        settings: Settings { mode: Mode::Steer, ..Settings::default() },
        journal: None,
    }))
}
