//! The ceiling of binds per second: a client that makes the writes of a bind and decides nothing.
//!
//! The client creates the claims in the same way as for other binders, makes Bindery's writes through
//! Bindery's port, and has the same watches open, so the API server has the same work. It ignores the watch
//! events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bindery_controller::{Port as _, Purpose, Written};
use bindery_core::{
    Action, CapacityChange, Claim, ClaimKey, ClaimPhase, ClaimTarget, Edit, Lookup, Message, Uid, Version,
    Volume, VolumePhase,
};
use bindery_kube::{ApiPort, Events, encoding, system_clock};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::header::ACCEPT;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::load::{Load, volume_name};

/// Concurrent binds: Bindery's default of `--in-flight`.
const IN_FLIGHT: usize = 256;
/// The kinds that Bindery watches and a bind changes.
const WATCHED: [&str; 2] = ["/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims"];

pub(crate) struct Ceiling {
    port: ApiPort,
    volumes: Vec<Arc<Volume>>,
    /// Whether users reserve the volumes.
    reserved: bool,
    /// End when this is dropped.
    _watches: JoinSet<Result<()>>,
}

impl Ceiling {
    /// Opens the watches and makes every volume Available, as a binder does before there are claims.
    pub(crate) async fn settle_volumes(client: &kube::Client, load: &Load) -> Result<Self> {
        let mut watches = JoinSet::new();
        for path in WATCHED {
            watches.spawn(watch(client.clone(), path));
        }
        let port = ApiPort::new(client.clone(), system_clock(), Events::new(client.clone()).0);
        let numbers = stream::iter(0..load.claims());
        let volumes = numbers.map(|i| settle(&port, i)).buffered(IN_FLIGHT).try_collect().await?;
        Ok(Self { port, volumes, reserved: load.reserves(), _watches: watches })
    }

    /// Creates the claims and makes the writes of a bind for each. Returns when each creation was sent.
    pub(crate) async fn create_and_bind(&self, load: &Load) -> Result<HashMap<String, Instant>> {
        let (created, creations) = mpsc::unbounded_channel();
        let claims = stream::unfold(creations, |mut creations| async move {
            creations.recv().await.map(|claim| (claim, creations))
        });
        let binds = claims.map(|(i, claim)| self.bind(i, claim)).buffer_unordered(IN_FLIGHT);
        let (sent, ()) = tokio::try_join!(load.create_claims(Some(created)), binds.try_collect::<()>())?;
        Ok(sent)
    }

    /// The four writes.
    async fn bind(&self, i: usize, claim: PersistentVolumeClaim) -> Result<()> {
        let claim = target(claim).context("a created claim has no UID")?;
        let volume = self.volumes.get(i).context("there is a volume for each claim")?;
        let reserve =
            Action::ReserveVolume { volume: volume.target(), claim: claim.clone(), mark: !self.reserved };
        let volume = written_volume(self.port.write(&reserve.into()).await?)?;
        let phase = VolumePhase::Bound;
        let message = Message::Empty;
        let set_phase = Action::SetVolumePhase { volume: volume.target(), phase, message };
        self.port.write(&set_phase.into()).await?;
        let bind = Action::BindClaim { claim, volume: volume.target(), set_volume_name: true, mark: true };
        let claim = written_claim(self.port.write(&bind.into()).await?)?;
        let status = Action::SetClaimStatus {
            claim: claim.target(),
            phase: ClaimPhase::Bound,
            access_modes: Edit::Set(volume.access_modes.to_vec()),
            capacity: CapacityChange::Whole(volume.capacity.context("the volumes have a capacity")?),
            attributes_class: Edit::Keep,
        };
        self.port.write(&status.into()).await?;
        Ok(())
    }
}

/// Sets the phase of a volume, and returns the volume.
async fn settle(port: &ApiPort, i: usize) -> Result<Arc<Volume>> {
    let name = volume_name(i).into();
    let Lookup::Found(volume) = port.read_volume(&name, Purpose::Engine).await else {
        bail!("volume {name} was created and cannot be read")
    };
    let phase = VolumePhase::Available;
    let settle = Action::SetVolumePhase { volume: volume.target(), phase, message: Message::Empty };
    written_volume(port.write(&settle.into()).await?)
}

/// Reads a watch in Bindery's encoding, and ignores its events.
async fn watch(client: kube::Client, path: &str) -> Result<()> {
    let request = http::Request::get(format!("{path}?watch=true&allowWatchBookmarks=true"))
        .header(ACCEPT, encoding::ACCEPT)
        .body(Body::empty())?;
    let mut body = client.send(request).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame.context("a watch has ended")?;
    }
    bail!("the watch of {path} has ended")
}

fn target(claim: PersistentVolumeClaim) -> Option<ClaimTarget> {
    let ObjectMeta { namespace, name, uid, resource_version, .. } = claim.metadata;
    Some(ClaimTarget {
        key: ClaimKey::new(namespace?, name?),
        uid: Uid(uid?.into()),
        version: Version(resource_version?.into()),
    })
}

fn written_volume(written: Written) -> Result<Arc<Volume>> {
    match written {
        Written::Volume(volume) => Ok(volume),
        other => bail!("the write of a volume was answered with {other:?}"),
    }
}

fn written_claim(written: Written) -> Result<Arc<Claim>> {
    match written {
        Written::Claim(claim) => Ok(claim),
        other => bail!("the write of a claim was answered with {other:?}"),
    }
}
