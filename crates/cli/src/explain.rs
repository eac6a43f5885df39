//! `bindery explain`: the state of one claim or volume, and what Bindery would decide about it now.
//!
//! The object is decided as `bindery plan` decides, by the binder of `serve` on a simulated API server, but
//! alone: as if its turn were next. From a cluster, explain reads what that decision rests on; it writes
//! nothing.

mod advice;
mod claim;
mod live;
mod recorded;
mod volume;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use bindery_core::{ClaimKey, Key};
use bindery_kube::ApiClient;
use bindery_kube::read::ReadError;
use bindery_policy::{Chain, ENGINE};
use jiff::Timestamp;

use crate::cluster::ClusterArguments;
use crate::engine::EngineArguments;
use crate::manifest::{self, Manifest};
use crate::objects::Resource;
use crate::output::Format;
use crate::plan;
use crate::plan::decider::EngineAndPolicies;
use crate::plan::load::{self, ManifestObject};
use crate::policies::PolicyArguments;
use crate::policies::object::{self, Hosts};
use crate::policies::registry::RegistryModules;

/// The types of objects that are explained.
const TYPES: [&str; 2] = ["pvc", "pv"];
/// The namespace of a claim, where neither a cluster nor the command line names one.
const DEFAULT: &str = "default";

/// Explain the state of a claim or volume, and what Bindery would decide about it now.
///
/// Reads the cluster of your kubeconfig, as kubectl does, or manifests with `--filename`. Writes nothing.
/// Policies are those that Bindery has loaded from the cluster, and those that `--policy` names, so name
/// those of `bindery serve`. With `--at` and `--journal` it says instead what was decided of the object at
/// that time.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The object: `pvc NAME` or `pv NAME`, also `pvc/NAME` or `pv/NAME`.
    #[arg(value_name = "TYPE NAME", required = true, num_args = 1..)]
    object: Vec<String>,
    /// Namespace of the claim. By default that of the context, and `default` with `--filename` and `--at`.
    #[arg(short, long, value_parser = load::namespace)]
    namespace: Option<String>,
    /// Instead of a cluster, read a file, a folder, or `-` for standard input, as `bindery plan` does. Repeat
    /// it for several.
    #[arg(short = 'f', long = "filename", value_name = "FILE",
          conflicts_with_all = ["kubeconfig", "context"])]
    files: Vec<PathBuf>,
    /// Read subfolders too.
    #[arg(short = 'R', long, requires = "files")]
    recursive: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Say what was decided of the object at this time, such as 2026-11-26T15:00:00Z: the last decision up to
    /// then, by which engine and policies, with every candidate, and what became of its writes.
    #[arg(long, value_name = "TIME", requires = "journal",
          conflicts_with_all = ["files", "kubeconfig", "context"])]
    at: Option<Timestamp>,
    /// The journal for `--at`: a folder or a file, as `bindery serve --journal` writes it.
    #[arg(long, value_name = "FOLDER", requires = "at")]
    journal: Option<PathBuf>,
    /// Format of the explanation.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Most volumes that are listed, the nearest first; `all` for all.
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = plan::nearest)]
    nearest: usize,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    policies: PolicyArguments,
}

/// Runs `bindery explain`. Errors name the object and the remedy.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (resource, name) = resource_and_name(&arguments.object)?;
    if let (Some(at), Some(journal)) = (arguments.at, &arguments.journal) {
        let namespace = arguments.namespace.as_deref().unwrap_or(DEFAULT);
        return recorded::explain(journal, &key(resource, namespace, name), at, arguments.output);
    }
    let mut decider = EngineAndPolicies::load(&arguments.engine, &arguments.policies)?;
    crate::block_on(async {
        let cluster = if arguments.files.is_empty() { Some(arguments.cluster().await?) } else { None };
        let mut unread = None;
        if let Some((client, _)) = &cluster {
            match arguments.policies_of(client, &decider.policies).await? {
                Ok(policies) => decider.policies = policies,
                Err(error) => unread = Some(error),
            }
        }
        let (key, manifests) = arguments.read(cluster, resource, name, &decider.policies).await?;
        if let Some(error) = unread {
            eprintln!("note: policies of the cluster are left out, because they cannot be read: {error}");
        }
        let objects = load::sort(manifests)?;
        load::note_namespaces(&objects, &decider.policies);
        let object = objects.iter().find(|object| object.key().as_ref() == Some(&key)).cloned();
        let object = object.ok_or_else(|| anyhow!("the manifests have no {key}; name another object"))?;
        match &key {
            Key::Claim(key) => {
                let explained = claim::explain(&decider, objects, &object, key, arguments.nearest).await?;
                arguments.output.print(&explained, |out| out.write_all(explained.text().as_bytes()))
            }
            Key::Volume(name) => {
                let explained = volume::explain(&decider, objects, &object, name).await?;
                arguments.output.print(&explained, |out| out.write_all(explained.text().as_bytes()))
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The resource and the name that the command line gives.
fn resource_and_name(words: &[String]) -> Result<(Resource, &str)> {
    let (kind, name) = match words {
        [word] => word.split_once('/').unwrap_or((word, "")),
        [kind, name] => (kind.as_str(), name.as_str()),
        _ => bail!("{} words are given; give pvc NAME or pv NAME, and -f before each file", words.len()),
    };
    let resource = resource(kind)?;
    if name.is_empty() {
        bail!("the name is missing; give {kind} NAME");
    }
    Ok((resource, name))
}

fn key(resource: Resource, namespace: &str, name: &str) -> Key {
    match resource {
        Resource::Claim => Key::Claim(ClaimKey::new(namespace, name)),
        _ => Key::Volume(name.into()),
    }
}

fn resource(kind: &str) -> Result<Resource> {
    match kind.to_ascii_lowercase().trim_end_matches('s') {
        "pvc" | "persistentvolumeclaim" => Ok(Resource::Claim),
        "pv" | "persistentvolume" => Ok(Resource::Volume),
        _ => bail!("{kind:?} is not a type that is explained; give pvc NAME or pv NAME"),
    }
}

impl Arguments {
    /// What the last word of the object may be: a type, or the name of an object in the cluster. `None` if
    /// they are not known.
    pub(crate) fn completions(&self) -> Option<Vec<String>> {
        let (kind, before_name) = match &self.object[..] {
            [word] => match word.split_once('/') {
                Some((kind, _)) => (kind, format!("{kind}/")),
                None => return Some(TYPES.map(str::to_owned).into()),
            },
            [kind, _] => (kind.as_str(), String::new()),
            _ => return None,
        };
        let resource = resource(kind).ok().filter(|_| self.files.is_empty())?;
        let names = crate::block_on(async {
            let (client, namespace) = self.cluster().await?;
            live::names(&client, resource, self.namespace.as_deref().unwrap_or(&namespace)).await
        });
        Some(names.ok()?.into_iter().map(|name| format!("{before_name}{name}")).collect())
    }

    /// A client of the cluster, and the namespace of the context.
    async fn cluster(&self) -> Result<(ApiClient, String)> {
        self.cluster.client_and_namespace(", or give manifests by --filename").await
    }

    /// The policies of the cluster beside those of files.
    async fn policies_of(&self, client: &ApiClient, files: &Chain) -> Result<Result<Arc<Chain>, ReadError>> {
        let cache = &self.engine.cache;
        let hosts = Hosts::new(cache, &self.policies.shipped, RegistryModules::offline(cache))?;
        let loaded = object::of_cluster(client, &hosts).await;
        Ok(loaded.map(|loaded| {
            for ((kind, name), object) in &loaded {
                if kind == ENGINE && object.why_not_ready().is_none() {
                    eprintln!("note: Engine {name} decides in the cluster; name its module by --engine");
                }
            }
            Arc::new(object::chain(files, &loaded, true).within(Duration::MAX, Instant::now))
        }))
    }

    /// The key of the object, and the objects that its decision rests on.
    async fn read(
        &self,
        cluster: Option<(ApiClient, String)>,
        resource: Resource,
        name: &str,
        policies: &Chain,
    ) -> Result<(Key, Vec<Manifest>)> {
        let Some((client, namespace)) = cluster else {
            let namespace = self.namespace.as_deref().unwrap_or(DEFAULT);
            return Ok((key(resource, namespace, name), manifest::read(&self.files, self.recursive)?));
        };
        let key = key(resource, self.namespace.as_deref().unwrap_or(&namespace), name);
        let manifests = live::read(&client, &key, &policies.declared()).await?;
        Ok((key, manifests))
    }
}

/// Lines of a name and a value, below each other.
fn lines(rows: &[(&str, String)]) -> String {
    let rows: Vec<_> = rows.iter().map(|(name, value)| vec![format!("  {name}"), value.clone()]).collect();
    crate::output::table(&rows)
}

/// A text of an object, empty where there is none.
fn text(object: &ManifestObject, pointer: &str) -> String {
    object.value.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}
