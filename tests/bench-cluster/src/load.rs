//! The volumes and claims of a round.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bindery_kit::json;
use clap::ValueEnum;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Concurrent requests of the load.
pub(crate) const IN_FLIGHT: usize = 32;

/// The shape of the claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// A claim gets any volume that fits.
    Plain,
    /// A user reserves each volume for a claim.
    PreBound,
    /// The claims exist before the volumes; then volumes for one in a hundred are created.
    Waiting,
}

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::PreBound => "pre-bound",
            Self::Waiting => "waiting",
        }
    }
}

/// Volumes and claims of one API server.
pub(crate) struct Load {
    volumes: Api<PersistentVolume>,
    claims: Api<PersistentVolumeClaim>,
    shape: Shape,
    size: Size,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Claims; there are as many volumes, unless the claims wait.
    pub(crate) claims: usize,
    /// Storage classes of both.
    pub(crate) classes: usize,
}

/// When a watcher saw each claim become Bound.
pub(crate) type Bound = HashMap<String, Instant>;

impl Load {
    pub(crate) fn new(client: &kube::Client, shape: Shape, size: Size) -> Self {
        let (volumes, claims) = (Api::all(client.clone()), Api::default_namespaced(client.clone()));
        Self { volumes, claims, shape, size }
    }

    /// Whether each volume is reserved for its claim at its creation.
    pub(crate) fn reserves(&self) -> bool {
        self.shape == Shape::PreBound
    }

    pub(crate) fn claims(&self) -> usize {
        self.size.claims
    }

    /// Whether the claims exist before the volumes.
    pub(crate) fn waits(&self) -> bool {
        self.shape == Shape::Waiting
    }

    /// The number of volumes, which is also the number of claims that become Bound.
    pub(crate) fn volumes(&self) -> usize {
        if self.waits() { (self.size.claims / 100).max(1) } else { self.size.claims }
    }

    /// Creates one volume and one claim for it.
    pub(crate) async fn one(client: &kube::Client, number: usize) -> Result<Self> {
        let load = Self::new(client, Shape::Plain, Size { claims: 1, classes: usize::MAX });
        load.create_volume(number).await?;
        load.create_claim(number).await?;
        Ok(load)
    }

    pub(crate) async fn create_volumes(&self) -> Result<()> {
        let creations = stream::iter(0..self.volumes()).map(|i| self.create_volume(i));
        creations.buffer_unordered(IN_FLIGHT).try_collect().await
    }

    pub(crate) async fn create_volume(&self, i: usize) -> Result<()> {
        let volume = serde_json::from_value(self.volume(i))?;
        self.volumes.create(&PostParams::default(), &volume).await?;
        Ok(())
    }

    /// Waits until the binder has seen that many volumes: each is Available, or Bound if a user reserved it.
    pub(crate) async fn until_volumes_settle(&self, count: usize) -> Result<()> {
        let settled = |volume: &PersistentVolume| {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Available" | "Bound"))
        };
        let mut names = HashSet::with_capacity(count);
        let mut volumes = watcher(self.volumes.clone(), Config::default()).applied_objects().boxed();
        while names.len() < count {
            let volume = volumes.try_next().await?.context("the watch of volumes has ended")?;
            if settled(&volume) {
                names.insert(volume.metadata.name.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Watches the claims until one for each volume is Bound. The receiver gets a message when the watch has
    /// begun.
    pub(crate) fn watch_claims(self: &Arc<Self>) -> (oneshot::Receiver<()>, JoinHandle<Result<Bound>>) {
        let (begun, begins) = oneshot::channel();
        let load = Arc::clone(self);
        (begins, tokio::spawn(async move { load.collect_bound(begun).await }))
    }

    async fn collect_bound(&self, begun: oneshot::Sender<()>) -> Result<Bound> {
        let mut bound = Bound::with_capacity(self.volumes());
        let mut changes = watcher(self.claims.clone(), Config::default()).boxed();
        let mut begun = Some(begun);
        while bound.len() < self.volumes() {
            match changes.try_next().await?.context("the watch of claims has ended")? {
                Event::Apply(claim) | Event::InitApply(claim) => {
                    let phase = claim.status.and_then(|status| status.phase);
                    if phase.as_deref() == Some("Bound") {
                        bound.entry(claim.metadata.name.unwrap_or_default()).or_insert_with(Instant::now);
                    }
                }
                // Without a receiver, the round has failed elsewhere.
                Event::InitDone => drop(begun.take().map(|begun| begun.send(()))),
                Event::Init | Event::Delete(_) => {}
            }
        }
        Ok(bound)
    }

    /// Creates the claims, and returns when each creation was sent. Sends each claim with its number to
    /// `created`.
    pub(crate) async fn create_claims(
        &self,
        created: Option<UnboundedSender<(usize, PersistentVolumeClaim)>>,
    ) -> Result<HashMap<String, Instant>> {
        let created = created.as_ref();
        let create = |i: usize| async move {
            let sent = Instant::now();
            let claim = self.create_claim(i).await?;
            if let Some(created) = created {
                created.send((i, claim))?;
            }
            anyhow::Ok((claim_name(i), sent))
        };
        stream::iter(0..self.size.claims).map(create).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    pub(crate) async fn create_claim(&self, i: usize) -> Result<PersistentVolumeClaim> {
        let claim = serde_json::from_value(self.claim(i))?;
        Ok(self.claims.create(&PostParams::default(), &claim).await?)
    }

    pub(crate) async fn until_claim_is_bound(&self, i: usize) -> Result<()> {
        let only = Config::default().fields(&format!("metadata.name={}", claim_name(i)));
        let mut changes = watcher(self.claims.clone(), only).applied_objects().boxed();
        loop {
            let claim = changes.try_next().await?.context("the watch of a claim has ended")?;
            if claim.status.and_then(|status| status.phase).as_deref() == Some("Bound") {
                return Ok(());
            }
        }
    }

    fn class(&self, i: usize) -> String {
        format!("class-{}", i % self.size.classes)
    }

    fn volume(&self, i: usize) -> Value {
        let mut volume = volume_object(json!({"name": volume_name(i)}), &self.class(i), "1Gi");
        if self.shape == Shape::PreBound {
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": claim_name(i)});
        }
        volume
    }

    fn claim(&self, i: usize) -> Value {
        claim_object(json!({"name": claim_name(i)}), &self.class(i), "1Gi")
    }
}

pub(crate) fn volume_object(metadata: Value, class: &str, storage: &str) -> Value {
    let spec = json!({"capacity": {"storage": storage}, "storageClassName": class});
    json::volume("", json!({"metadata": metadata, "spec": spec}))
}

pub(crate) fn claim_object(metadata: Value, class: &str, storage: &str) -> Value {
    let spec = json!({"storageClassName": class, "resources": {"requests": {"storage": storage}}});
    json::claim("", json!({"metadata": metadata, "spec": spec}))
}

pub(crate) fn volume_name(i: usize) -> String {
    format!("volume-{i:06}")
}

pub(crate) fn claim_name(i: usize) -> String {
    format!("claim-{i:06}")
}
