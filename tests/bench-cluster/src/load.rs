//! The volumes and claims of a round.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
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

/// Requests of the load that are under way at the same time.
const IN_FLIGHT: usize = 32;

/// What the claims look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Any volume that fits.
    Plain,
    /// Each volume is reserved for a claim by its user.
    PreBound,
    /// The claims wait before there is a volume; then volumes come for one in a hundred.
    Waiting,
}

impl Shape {
    /// Its name in the table.
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

/// How much of it there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Claims, and as many volumes unless the claims wait.
    pub(crate) claims: usize,
    /// Storage classes over which both are spread.
    pub(crate) classes: usize,
}

/// When each claim became Bound, as a watcher saw it.
pub(crate) type Sightings = HashMap<String, Instant>;

impl Load {
    pub(crate) fn new(client: &kube::Client, shape: Shape, size: Size) -> Self {
        let (volumes, claims) = (Api::all(client.clone()), Api::default_namespaced(client.clone()));
        Self { volumes, claims, shape, size }
    }

    /// Whether each volume is reserved for its claim when it is created.
    pub(crate) fn reserves(&self) -> bool {
        self.shape == Shape::PreBound
    }

    /// How many claims there are, and volumes.
    pub(crate) fn claims(&self) -> usize {
        self.size.claims
    }

    /// Whether the claims wait before there is a volume.
    pub(crate) fn waits(&self) -> bool {
        self.shape == Shape::Waiting
    }

    /// How many volumes there are, and claims that become Bound.
    pub(crate) fn volumes(&self) -> usize {
        if self.waits() { (self.size.claims / 100).max(1) } else { self.size.claims }
    }

    /// A volume and a claim for it, both created, that nobody binds yet.
    pub(crate) async fn one(client: &kube::Client, number: usize) -> Result<Self> {
        let load = Self::new(client, Shape::Plain, Size { claims: 1, classes: usize::MAX });
        load.create_volume(number).await?;
        load.create_claim(number).await?;
        Ok(load)
    }

    /// Creates the volumes.
    pub(crate) async fn create_volumes(&self) -> Result<()> {
        let create = |i: usize| self.create_volume(i);
        stream::iter(0..self.volumes())
            .map(create)
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(())
    }

    /// Creates one volume.
    pub(crate) async fn create_volume(&self, i: usize) -> Result<()> {
        let volume = serde_json::from_value(self.volume(i))?;
        self.volumes.create(&PostParams::default(), &volume).await?;
        Ok(())
    }

    /// Waits until every volume has been seen by the binder: it is Available, or reserved as its user wanted.
    pub(crate) async fn until_volumes_settle(&self) -> Result<()> {
        let settled = |volume: &PersistentVolume| {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Available" | "Bound"))
        };
        let mut seen = HashSet::with_capacity(self.size.claims);
        let mut volumes = watcher(self.volumes.clone(), Config::default()).applied_objects().boxed();
        while seen.len() < self.size.claims {
            let volume = volumes.try_next().await?.context("the watch of volumes has ended")?;
            if settled(&volume) {
                seen.insert(volume.metadata.name.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Watches the claims until as many are Bound as there are volumes. The receiver hears when the watch
    /// has begun.
    pub(crate) fn watch_claims(self: &Arc<Self>) -> (oneshot::Receiver<()>, JoinHandle<Result<Sightings>>) {
        let (begun, begins) = oneshot::channel();
        let load = Arc::clone(self);
        (begins, tokio::spawn(async move { load.sight(begun).await }))
    }

    async fn sight(&self, begun: oneshot::Sender<()>) -> Result<Sightings> {
        let mut sightings = Sightings::with_capacity(self.volumes());
        let mut changes = watcher(self.claims.clone(), Config::default()).boxed();
        let mut begun = Some(begun);
        while sightings.len() < self.volumes() {
            match changes.try_next().await?.context("the watch of claims has ended")? {
                Event::Apply(claim) | Event::InitApply(claim) => {
                    let phase = claim.status.and_then(|status| status.phase);
                    if phase.as_deref() == Some("Bound") {
                        sightings.entry(claim.metadata.name.unwrap_or_default()).or_insert_with(Instant::now);
                    }
                }
                // Where nobody waits any more, the round has failed elsewhere.
                Event::InitDone => drop(begun.take().map(|begun| begun.send(()))),
                Event::Init | Event::Delete(_) => {}
            }
        }
        Ok(sightings)
    }

    /// Creates the claims; answers when each was sent. `created` hears of each, with its number, where
    /// somebody listens.
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

    /// Creates one claim.
    pub(crate) async fn create_claim(&self, i: usize) -> Result<PersistentVolumeClaim> {
        let claim = serde_json::from_value(self.claim(i))?;
        Ok(self.claims.create(&PostParams::default(), &claim).await?)
    }

    /// Waits until a claim is Bound, and watches no other.
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
        let mut volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume_name(i)},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": self.class(i),
                "hostPath": {"path": format!("/nonexistent/{i}")},
            },
        });
        if self.shape == Shape::PreBound {
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": claim_name(i)});
        }
        volume
    }

    fn claim(&self, i: usize) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim_name(i)},
            "spec": {
                "storageClassName": self.class(i),
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        })
    }
}

pub(crate) fn volume_name(i: usize) -> String {
    format!("volume-{i:06}")
}

pub(crate) fn claim_name(i: usize) -> String {
    format!("claim-{i:06}")
}
