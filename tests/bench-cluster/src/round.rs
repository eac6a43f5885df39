//! One round of one binder.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs};
use bindery_kit::percentiles;

use crate::binder::{Binder, RunningBinder};
use crate::ceiling::Ceiling;
use crate::figures::count;
use crate::load::{Bound, Load, Shape, Size};
use crate::usage::Usage;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Binds per second, from the first creation to the last Bound.
    pub(crate) rate: f64,
    /// Median of the seconds from creation to Bound.
    pub(crate) p50: f64,
    /// 99th percentile of the seconds from creation to Bound.
    pub(crate) p99: f64,
    /// Requests about volumes, claims and events for each bind, without lists and watches.
    pub(crate) requests: f64,
    /// CPU seconds of the binder while claims were bound.
    pub(crate) binder_cpu: f64,
    /// CPU seconds of the API server in the same time.
    pub(crate) server_cpu: f64,
    /// Peak memory of the binder, in MiB.
    pub(crate) peak: f64,
}

pub(crate) async fn measure(binder: &Binder, shape: Shape, size: Size) -> Result<Figures> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let client = plane.client().await?;
    let load = Arc::new(Load::new(&client, shape, size));
    if !load.waits() {
        load.create_volumes().await?;
    }
    let ceiling = match binder {
        Binder::Ceiling => Some(Ceiling::settle_volumes(&client, &load).await?),
        Binder::Bindery { .. } | Binder::Upstream => None,
    };
    let running = RunningBinder::start(binder, &mut plane).await?;
    let binder = running.id(&mut plane);
    if load.waits() {
        load.create_claims(None).await?;
        if let Some(binder) = binder {
            Usage::when_idle(binder).await?;
        }
    } else {
        load.until_volumes_settle(load.volumes()).await?;
    }
    let server = plane.api_server().id();
    let usage = |id: Option<u32>| id.map(Usage::of).transpose().map(Option::unwrap_or_default);
    let (binder_before, server_before) = (usage(binder)?, usage(Some(server))?);
    let requests_before = requests(&client).await?;

    let (begun, bound) = load.watch_claims();
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
    let bound = bound.await??;
    // Which of the waiting claims get a volume is known only now.
    let created =
        if load.waits() { bound.keys().map(|name| (name.clone(), began)).collect() } else { created };
    let (binder_after, server_after) = (usage(binder)?, usage(Some(server))?);
    // The creation is one request of each claim or volume.
    let requests = (requests(&client).await? - requests_before) / count(load.volumes()) - 1.0;
    let (rate, [p50, p99]) = times(&created, &bound);
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

/// The requests about volumes, claims and events in the API server's metrics.
async fn requests(client: &kube::Client) -> Result<f64> {
    let metrics = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let is_one_of = |line: &str, label: &str, values: &[&str]| {
        values.iter().any(|value| line.contains(&format!("{label}=\"{value}\"")))
    };
    let counts = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && is_one_of(line, "resource", &["persistentvolumes", "persistentvolumeclaims", "events"])
            && is_one_of(line, "verb", &["GET", "POST", "PUT", "PATCH", "DELETE"])
    });
    Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// Binds per second, and the median and 99th percentile of the seconds from creation to Bound.
pub(crate) fn times(created: &HashMap<String, Instant>, bound: &Bound) -> (f64, [f64; 2]) {
    let waits: Vec<f64> = created
        .iter()
        .filter_map(|(name, sent)| Some(bound.get(name)?.duration_since(*sent).as_secs_f64()))
        .collect();
    let span = match (created.values().min(), bound.values().max()) {
        (Some(first), Some(last)) => last.duration_since(*first).as_secs_f64(),
        _ => f64::NAN,
    };
    (count(waits.len()) / span, percentiles(waits, [500, 990]))
}
