//! One round of one contestant.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs, Server};
use tempfile::TempDir;

use crate::ceiling;
use crate::load::{Load, Shape, Sightings};
use crate::usage::Usage;

/// Who binds.
#[derive(Clone, Debug)]
pub(crate) enum Contestant {
    /// Nobody: a client makes the writes of a bind and decides nothing.
    Ceiling,
    /// This program.
    Bindery(PathBuf),
    /// kube-controller-manager with the binder alone, without its rate limits.
    Upstream,
}

impl Contestant {
    /// Its name in the table.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ceiling => "API server's ceiling",
            Self::Bindery(_) => "Bindery",
            Self::Upstream => "upstream",
        }
    }
}

/// What a round came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Claims a second, from the first creation to the last Bound.
    pub(crate) rate: f64,
    /// Median of the seconds from creation to Bound.
    pub(crate) p50: f64,
    /// Their 99th percentile.
    pub(crate) p99: f64,
    /// Writes of volumes and claims for each bind.
    pub(crate) writes: f64,
    /// Seconds of CPU of the binder while claims were bound.
    pub(crate) binder_cpu: f64,
    /// Seconds of CPU of the API server in the same time.
    pub(crate) server_cpu: f64,
    /// Most memory of the binder, in MiB.
    pub(crate) peak: f64,
}

/// Runs one round.
pub(crate) async fn contest(contestant: &Contestant, shape: Shape, claims: usize) -> Result<Figures> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let client = plane.client().await?;
    let load = Arc::new(Load::new(&client, shape, claims));
    load.create_volumes().await?;
    let folder = TempDir::new()?;
    let bindery = match contestant {
        Contestant::Ceiling => {
            ceiling::settle_volumes(&client, claims).await?;
            None
        }
        Contestant::Bindery(program) => Some(start(program, &plane, folder.path())?),
        Contestant::Upstream => {
            plane.set_manager(Manager::BinderAlone)?;
            None
        }
    };
    load.until_volumes_settle().await?;
    let binder = bindery.as_ref().or(plane.manager().map(|manager| &*manager)).map(Server::id);
    let server = plane.api_server().id();
    let usage = |id: Option<u32>| id.map(Usage::of).transpose().map(Option::unwrap_or_default);
    let (binder_before, server_before) = (usage(binder)?, usage(Some(server))?);
    let writes_before = writes(&client).await?;

    let (begun, sightings) = load.watch_claims();
    begun.await.context("the watch of claims could not begin")?;
    let created = match contestant {
        Contestant::Ceiling => ceiling::create_and_bind(&client, &load, claims).await?,
        Contestant::Bindery(_) | Contestant::Upstream => load.create_claims().await?,
    };
    let sightings = sightings.await??;
    let (binder_after, server_after) = (usage(binder)?, usage(Some(server))?);
    #[expect(clippy::cast_precision_loss, reason = "numbers of writes are small")]
    let writes = (writes(&client).await? - writes_before) as f64 / claims as f64 - 1.0;
    let (rate, p50, p99) = times(&created, &sightings);
    Ok(Figures {
        rate,
        p50,
        p99,
        writes,
        binder_cpu: binder_after.cpu - binder_before.cpu,
        server_cpu: server_after.cpu - server_before.cpu,
        peak: binder_after.peak,
    })
}

/// Starts a replica of Bindery alone.
fn start(program: &Path, plane: &ControlPlane, folder: &Path) -> Result<Server> {
    let arguments = [
        "serve".to_owned(),
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        format!("--listen=127.0.0.1:{}", bindery_cluster::free_port()?),
    ];
    Server::start(program, arguments.map(OsString::from), &folder.join("bindery.log"))
}

/// Writes of volumes and claims that the API server has answered, as its metrics say.
async fn writes(client: &kube::Client) -> Result<u64> {
    let metrics = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let is_write = |line: &&str| {
        let is_object = ["persistentvolumes", "persistentvolumeclaims"]
            .iter()
            .any(|resource| line.contains(&format!("resource=\"{resource}\"")));
        let is_write = ["POST", "PUT", "PATCH"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        line.starts_with("apiserver_request_total{") && is_object && is_write
    };
    let counts =
        metrics.lines().filter(is_write).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are whole")]
    let total = counts.sum::<f64>() as u64;
    Ok(total)
}

/// Claims a second, and the median and 99th percentile of the seconds from creation to Bound.
fn times(created: &HashMap<String, Instant>, sightings: &Sightings) -> (f64, f64, f64) {
    let mut waits: Vec<f64> = created
        .iter()
        .filter_map(|(name, sent)| Some(sightings.get(name)?.duration_since(*sent).as_secs_f64()))
        .collect();
    waits.sort_by(f64::total_cmp);
    let percentile = |percent: usize| waits.get((waits.len() * percent).div_ceil(100).max(1) - 1).copied();
    let span = match (created.values().min(), sightings.values().max()) {
        (Some(first), Some(last)) => last.duration_since(*first).as_secs_f64(),
        _ => f64::NAN,
    };
    #[expect(clippy::cast_precision_loss, reason = "numbers of claims are small")]
    let rate = waits.len() as f64 / span;
    (rate, percentile(50).unwrap_or(f64::NAN), percentile(99).unwrap_or(f64::NAN))
}
