//! One round of one contestant.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs};

use crate::ceiling::Ceiling;
use crate::contestant::{Contestant, Running};
use crate::load::{Load, Shape, Sightings, Size};
use crate::percentile::percentile;
use crate::usage::Usage;

/// What a round came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Claims a second, from the first creation to the last Bound.
    pub(crate) rate: f64,
    /// Median of the seconds from creation to Bound.
    pub(crate) p50: f64,
    /// Their 99th percentile.
    pub(crate) p99: f64,
    /// Requests about volumes, claims and events for each bind, without lists and watches.
    pub(crate) requests: f64,
    /// Seconds of CPU of the binder while claims were bound.
    pub(crate) binder_cpu: f64,
    /// Seconds of CPU of the API server in the same time.
    pub(crate) server_cpu: f64,
    /// Most memory of the binder, in MiB.
    pub(crate) peak: f64,
}

/// Runs one round.
pub(crate) async fn contest(contestant: &Contestant, shape: Shape, size: Size) -> Result<Figures> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let client = plane.client().await?;
    let load = Arc::new(Load::new(&client, shape, size));
    if !load.waits() {
        load.create_volumes().await?;
    }
    let ceiling = match contestant {
        Contestant::Ceiling => Some(Ceiling::settle_volumes(&client, &load).await?),
        Contestant::Bindery(_) | Contestant::Upstream => None,
    };
    let running = Running::start(contestant, &mut plane)?;
    let binder = running.id(&mut plane);
    if load.waits() {
        load.create_claims(None).await?;
        until_idle(binder).await?;
    } else {
        load.until_volumes_settle().await?;
    }
    let server = plane.api_server().id();
    let usage = |id: Option<u32>| id.map(Usage::of).transpose().map(Option::unwrap_or_default);
    let (binder_before, server_before) = (usage(binder)?, usage(Some(server))?);
    let requests_before = requests(&client).await?;

    let (begun, sightings) = load.watch_claims();
    begun.await.context("the watch of claims could not begin")?;
    let began = Instant::now();
    let created = match &ceiling {
        Some(ceiling) => ceiling.create_and_bind(&load).await?,
        None if load.waits() => {
            load.create_volumes().await?;
            HashMap::new()
        }
        None => load.create_claims(None).await?,
    };
    let sightings = sightings.await??;
    // Which claim gets a volume is known when it has it.
    let created =
        if load.waits() { sightings.keys().map(|name| (name.clone(), began)).collect() } else { created };
    let (binder_after, server_after) = (usage(binder)?, usage(Some(server))?);
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    let requests = (requests(&client).await? - requests_before) as f64 / load.volumes() as f64 - 1.0;
    let (rate, p50, p99) = times(&created, &sightings);
    Ok(Figures {
        rate,
        p50,
        p99,
        requests,
        binder_cpu: binder_after.cpu - binder_before.cpu,
        server_cpu: server_after.cpu - server_before.cpu,
        peak: binder_after.peak,
    })
}

/// Waits until the binder has decided the claims that wait: it uses next to nothing of a core for two
/// seconds. What never rests is waited for a minute.
async fn until_idle(binder: Option<u32>) -> Result<()> {
    let Some(binder) = binder else { return Ok(()) };
    let mut before = Usage::of(binder)?.cpu;
    let mut ticks = tokio::time::interval(Duration::from_secs(2));
    ticks.tick().await;
    for _ in 0..30 {
        ticks.tick().await;
        let now = Usage::of(binder)?.cpu;
        if now - before < 0.1 {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Requests about volumes, claims and events that the API server has answered, as its metrics say.
async fn requests(client: &kube::Client) -> Result<u64> {
    let metrics = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let is_one_of = |line: &str, label: &str, values: &[&str]| {
        values.iter().any(|value| line.contains(&format!("{label}=\"{value}\"")))
    };
    let counts = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && is_one_of(line, "resource", &["persistentvolumes", "persistentvolumeclaims", "events"])
            && is_one_of(line, "verb", &["GET", "POST", "PUT", "PATCH", "DELETE"])
    });
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
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
    let span = match (created.values().min(), sightings.values().max()) {
        (Some(first), Some(last)) => last.duration_since(*first).as_secs_f64(),
        _ => f64::NAN,
    };
    #[expect(clippy::cast_precision_loss, reason = "numbers of claims are small")]
    let rate = waits.len() as f64 / span;
    (rate, percentile(&waits, 500), percentile(&waits, 990))
}
