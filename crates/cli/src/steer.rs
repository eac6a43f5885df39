//! `bindery steer`: the steered claims of a cluster that wait, and the way out of mode steer.

mod cluster;
mod progress;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use bindery_controller::SyncError;
use bindery_core::{Claim, ClaimKey, Key, Lookup, Source, Text, Volume};
use bindery_kube::read::ReadError;
use serde::Serialize;
use serde_json::Value;

use self::cluster::{Cluster, Mark};
pub(crate) use self::progress::{Progress, Reserved};
use crate::cluster::ClusterArguments;
use crate::output::{self, Format};

/// How often a claim is tried whose objects change meanwhile.
const ATTEMPTS: usize = 5;

/// List the steered claims that wait, or leave them to upstream's binder.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Status(StatusArguments),
    Release(ReleaseArguments),
}

/// List the steered claims that have no volume yet, and why each waits.
#[derive(clap::Args)]
struct StatusArguments {
    /// Namespace of the claims. By default all.
    #[arg(short, long, value_parser = crate::plan::load::namespace)]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Format of the list.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Let upstream bind the steered claims that wait, whatever policies say.
///
/// First removes the label by which namespaces opt in, so that no further claim is steered. Then it reserves
/// for each claim the volume that is chosen for it, or else the one that upstream's binder would choose;
/// where the class waits for a pod, it labels the volumes among which the scheduler may choose. The exit
/// status is 1 if a claim is not released, and its line says why.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("scope").required(true))]
struct ReleaseArguments {
    /// Namespace of the claims.
    #[arg(short, long, group = "scope", value_parser = crate::plan::load::namespace)]
    namespace: Option<String>,
    /// The claims of all namespaces.
    #[arg(long, group = "scope")]
    all: bool,
    /// Key of the label by which namespaces opt in.
    #[arg(long, value_name = "KEY", default_value = "bindery.dev/steer")]
    namespace_label: String,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Runs `bindery steer`. Errors name the object and the remedy.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    crate::block_on(async {
        match &arguments.command {
            Command::Status(arguments) => arguments.run().await,
            Command::Release(arguments) => arguments.run().await,
        }
    })
}

/// A steered claim that waits. Programs read its JSON, so fields are only added.
#[derive(Serialize)]
struct WaitingClaim {
    namespace: String,
    name: String,
    /// The volume that is chosen or reserved for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    /// Why it waits, as a sentence.
    why: String,
}

impl StatusArguments {
    async fn run(&self) -> Result<ExitCode> {
        let cluster = Cluster::connect(&self.cluster).await?;
        let volumes = cluster.read().await?;
        let claims = waiting(&cluster, self.namespace.as_deref());
        let waiting: Vec<_> = claims.iter().map(|claim| state(&cluster, claim, &volumes)).collect();
        self.output.print(&waiting, |out| {
            let header = ["CLAIM", "VOLUME", "WHY IT WAITS"].map(str::to_owned).to_vec();
            let row = |claim: &WaitingClaim| {
                let name = format!("{}/{}", claim.namespace, claim.name);
                vec![name, claim.volume.clone().unwrap_or_else(|| "-".to_owned()), claim.why.clone()]
            };
            let rows: Vec<_> = std::iter::once(header).chain(waiting.iter().map(row)).collect();
            match waiting.as_slice() {
                [] => out.write_all(b"No steered claim waits.\n"),
                _ => out.write_all(output::table(&rows).as_bytes()),
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The steered claims without a volume, in the order of their names.
fn waiting(cluster: &Cluster, namespace: Option<&str>) -> Vec<Arc<Claim>> {
    let in_scope = |claim: &Arc<Claim>| namespace.is_none_or(|namespace| *claim.key.namespace == *namespace);
    let mut claims = cluster.store().claims();
    claims.retain(|claim| claim.waits_steered() && in_scope(claim));
    claims.sort_by(|a, b| a.key.cmp(&b.key));
    claims
}

/// The volume that is reserved for a claim. One that names a claim before it is not.
fn reserved(cluster: &Cluster, claim: &Claim) -> Option<String> {
    let naming = cluster.store().volumes_naming(&claim.key);
    naming.iter().find(|volume| volume.is_bound_to(claim)).map(|volume| volume.name.to_string())
}

/// Why a claim waits. The volumes are those of the cluster, as JSON.
fn state(cluster: &Cluster, claim: &Claim, volumes: &[Value]) -> WaitingClaim {
    let name = reserved(cluster, claim);
    let volume = name.and_then(|name| volumes.iter().find(|volume| volume["metadata"]["name"] == *name));
    let progress = Progress::of(claim, volume.map(Reserved::of), cluster.store().waits_for_consumer(claim));
    let ClaimKey { namespace, name } = &claim.key;
    let mut why = progress.sentence();
    if matches!(progress, Progress::NotChosen) {
        why += &format!("; `bindery explain pvc {name} --namespace {namespace}` says why");
    }
    let volume = progress.into_volume();
    WaitingClaim { namespace: namespace.to_string(), name: name.to_string(), volume, why }
}

impl ReleaseArguments {
    async fn run(&self) -> Result<ExitCode> {
        let cluster = Cluster::connect(&self.cluster).await?;
        let (namespace, label) = (self.namespace.as_deref(), &self.namespace_label);
        let opted_out = cluster.opt_out(label, namespace).await?;
        for namespace in &opted_out {
            output::print(&format!("namespace/{namespace} has no label {label} any more\n"))?;
        }
        if opted_out.is_empty() {
            let of_one = |namespace: &str| format!("namespace/{namespace} does not have");
            let had = namespace.map_or_else(|| "no namespace has".to_owned(), of_one);
            output::print(&format!(
                "{had} the label {label}; if you use another key, give it by --namespace-label\n"
            ))?;
        }
        let left = release_all(&cluster, namespace).await?;
        Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Releases the claims that wait, each whatever became of those before. Returns how many are left.
async fn release_all(cluster: &Cluster, namespace: Option<&str>) -> Result<usize> {
    cluster.read().await?;
    let claims = waiting(cluster, namespace);
    // For all at once: later nothing may be there that gives a claim more labels.
    let mut offered = cluster.binder().offered(&claims).await?;
    let mut left = 0;
    for key in claims.iter().map(|claim| &claim.key) {
        let line = match release(cluster, key, &offered.remove(key).unwrap_or_default()).await {
            Ok(Released::Gets(volume)) => format!("it gets volume {volume}"),
            Ok(Released::Labelled(count)) => {
                format!("volumes with its label: {count}; create it again if other claims take them first")
            }
            Ok(Released::Gone) => "it does not wait any more".to_owned(),
            Ok(Released::Left(why)) => {
                left += 1;
                format!("{why}; create it again")
            }
            Err(error) => {
                left += 1;
                format!("{error:#}; mend this, and run the command again")
            }
        };
        output::print(&format!("persistentvolumeclaim {}/{}: {line}\n", key.namespace, key.name))?;
    }
    Ok(left)
}

/// What became of a claim.
enum Released {
    /// This volume is reserved for it, or upstream has bound it already.
    Gets(String),
    /// So many volumes have its label now.
    Labelled(usize),
    /// It does not wait any more.
    Gone,
    /// It still waits: why.
    Left(&'static str),
}

/// Has a claim get a volume; where its class waits, one of those offered. Objects that change meanwhile are
/// read again.
async fn release(cluster: &Cluster, key: &ClaimKey, offered: &BTreeSet<Text>) -> Result<Released> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let claim = match cluster.store().claim(Source::Overlay, key) {
            Lookup::Found(claim) if claim.waits_steered() => claim,
            Lookup::Found(claim) => match &claim.volume_name {
                Some(volume) => return Ok(Released::Gets(volume.to_string())),
                None => return Ok(Released::Gone),
            },
            Lookup::Absent | Lookup::Unreadable(_) | Lookup::Failed(_) => return Ok(Released::Gone),
        };
        let released = match cluster.store().waits_for_consumer(&claim) {
            true => label(cluster, &claim, offered).await,
            false => reserve(cluster, &claim).await,
        };
        match (released, reserved(cluster, &claim)) {
            (_, Some(volume)) => return Ok(Released::Gets(volume)),
            (Ok(released), None) => return Ok(released),
            (Err(error), None) if attempt < ATTEMPTS && has_changed(&error) => {
                tracing::debug!(%error, "the objects are read again");
                cluster.read().await?;
            }
            (Err(error), None) => return Err(error),
        }
    }
}

/// Whether an object has changed, or is gone, since it was read.
fn has_changed(error: &anyhow::Error) -> bool {
    let is_conflict = |error: &ReadError| matches!(error, ReadError::Conflict(_) | ReadError::Absent(_));
    error.downcast_ref::<ReadError>().is_some_and(is_conflict)
        || error.downcast_ref::<SyncError>().is_some_and(SyncError::is_conflict)
}

/// Reserves a volume for a claim as mode steer does. A running replica leaves it alone, although its policies
/// may reject the volume: the volume's annotation comes first.
async fn reserve(cluster: &Cluster, claim: &Arc<Claim>) -> Result<Released> {
    let chosen =
        claim.choice.as_deref().filter(|choice| !choice.withdrawn).and_then(|choice| {
            without_claim(cluster, &choice.volume).filter(|volume| volume.uid == choice.uid)
        });
    let would_get = || cluster.binder().would_get(claim).and_then(|name| without_claim(cluster, &name));
    if let Some(volume) = chosen.or_else(would_get) {
        cluster.mark(&volume, claim, Mark::Annotation).await?;
    }
    cluster.binder().sync(&Key::Claim(claim.key.clone())).await.result?;
    Ok(Released::Left("no volume fits it"))
}

/// Labels the volumes among which the scheduler may choose for a claim.
async fn label(cluster: &Cluster, claim: &Arc<Claim>, offered: &BTreeSet<Text>) -> Result<Released> {
    let mut count = 0;
    for volume in offered.iter().filter_map(|name| without_claim(cluster, name)) {
        cluster.mark(&volume, claim, Mark::Label).await?;
        count += 1;
    }
    Ok(match count {
        0 => Released::Left("no volume fits it"),
        count => Released::Labelled(count),
    })
}

/// The volume of a name, if it names no claim.
fn without_claim(cluster: &Cluster, name: &Text) -> Option<Arc<Volume>> {
    match cluster.store().volume(Source::Overlay, name) {
        Lookup::Found(volume) if volume.claim_ref.is_none() => Some(volume),
        _ => None,
    }
}
