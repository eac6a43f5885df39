//! `bindery policy preview`: what would change now for the pending claims and released volumes of a cluster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use bindery_core::{ClaimKey, Declared, Key, Text};
use bindery_kube::{ApiClient, PolicyObjects, read};
use bindery_policy::Says;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{self, ClusterArguments, explained};
use crate::engine::EngineArguments;
use crate::manifest::{self, Manifest};
use crate::objects::{Resource, Title};
use crate::output::{Format, counted};
use crate::plan::decider::EngineAndPolicies;
use crate::plan::load;
use crate::plan::outcome::{self, Gets, claim_plan, volume_plan};
use crate::plan::planner::Planner;
use crate::policies::object::{self, Effect, Hosts, LoadedObject, is_in_shadow, object_name, replaces};
use crate::policies::registry::{ObjectRegistryArguments, RegistryModules};
use crate::policies::{PolicyArguments, Purpose};

/// What preview reads, for the error of a user that may not.
const RIGHTS: &str = "`bindery policy preview` lists volumes, claims, classes, and engines, matchpolicies \
                      and reclaimpolicies of policy.bindery.dev; where a policy reads labels of \
                      namespaces, also these";

/// Show what policies or an engine would change now in a cluster, before you apply them.
///
/// Reads the volumes, claims and classes of a cluster, and decides about all of them twice: with the policies
/// and the engine that the cluster has, and with those of the files in addition, or in place of those of the
/// same kind and name. Prints a line for each claim that waits and each released volume that would fare
/// otherwise; bound claims stay bound. Writes nothing. Modules of registries are fetched with your
/// credentials.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Objects of kind MatchPolicy, ReclaimPolicy or Engine: a file, a folder, or `-` for standard input. Of
    /// mode `off`, the one of its name is left out.
    #[arg(value_name = "FILE|FOLDER", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Format of the differences.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    policies: PolicyArguments,
    #[command(flatten)]
    registry: ObjectRegistryArguments,
}

/// An object that would fare otherwise. Programs read its JSON, so fields are only added.
#[derive(Serialize)]
struct Change {
    /// `pvc NAMESPACE/NAME` or `pv NAME`.
    object: String,
    now: Fares,
    changed: Fares,
}

/// How an object fares.
#[derive(PartialEq, Eq, Serialize)]
struct Fares {
    what: String,
    /// Why, as far as that is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// Runs `bindery policy preview`. Errors name the object and the remedy.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (changes, counts) = crate::block_on(arguments.preview())?;
    arguments.output.print(&changes, |out| {
        if changes.is_empty() {
            let claims = counted(counts.0, "claim", "claims");
            let volumes = counted(counts.1, "volume", "volumes");
            return writeln!(out, "Nothing would change now for {claims} and {volumes}.");
        }
        changes.iter().try_for_each(|change| writeln!(out, "{}", change.line()))
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    async fn preview(&self) -> Result<(Vec<Change>, (usize, usize))> {
        let client = self.cluster.client().await?;
        let cache = &self.engine.cache;
        let registry = RegistryModules::of_user(cache, &self.registry)?;
        let hosts = Hosts::new(cache, &self.policies.shipped, registry)?;
        let now = self.of_cluster(&client, &hosts).await?;
        let changed = self.with_files(&client, &hosts, now.clone()).await?;
        let mut declared = now.policies.declared();
        declared.include(changed.policies.declared());
        let objects = load::sort(all(&client, &declared).await?)?;
        let now = now.settle(objects.clone()).await?;
        let changed = changed.settle(objects).await?;
        let counts = (now.claims_before().count(), now.volumes_before().count());
        let mut changes = claims(&now, &changed);
        changes.extend(volumes(&now, &changed));
        Ok((changes, counts))
    }

    /// What the cluster has.
    async fn of_cluster(&self, client: &ApiClient, hosts: &Hosts) -> Result<EngineAndPolicies> {
        let files = self.policies.load(&self.engine.cache, Purpose::Show)?;
        let loaded = object::of_cluster(client, hosts).await.map_err(explained(RIGHTS))?;
        let active = loaded.values().filter(|object| !object.is_shadow());
        let mut engines = active.filter_map(|object| match &object.effect {
            Effect::Engine(engine) => Some(Arc::clone(engine)),
            _ => None,
        });
        let engine = match engines.next() {
            Some(engine) => engine,
            None => self.engine.load()?,
        };
        let policies = Arc::new(object::chain(&files, &loaded, true).within(Duration::MAX, Instant::now));
        Ok(EngineAndPolicies { engine, engine_name: self.engine.name(), policies })
    }

    /// The same with what the files have.
    async fn with_files(
        &self,
        client: &ApiClient,
        hosts: &Hosts,
        decider: EngineAndPolicies,
    ) -> Result<EngineAndPolicies> {
        let (objects, _) = PolicyObjects::new(client);
        let mut changed = decider;
        let mut manifests = manifest::read(&self.files, false)?;
        // What a shadow replaces may be in another file.
        manifests.sort_by_key(|manifest| is_in_shadow(&manifest.object));
        if manifests.is_empty() {
            bail!("the files have no object; give one of kind MatchPolicy, ReclaimPolicy or Engine");
        }
        for Manifest { file, place, mut object } in manifests {
            let at = format!("{file}, {place}: {}", Title(&object));
            resolve(&mut object, Path::new(&file));
            let mut loading = LoadedObject::new(object.clone());
            let (kind, name) = object_name(&object);
            changed.policies = Arc::new(changed.policies.without(&kind, &name));
            if loading.is_off() {
                continue;
            }
            let loaded = loading.attempt(&object, hosts, &objects).await;
            let (effect, _) = loaded.map_err(|fault| anyhow!("{at}: {}: {}", fault.field(), fault.why))?;
            let spec = object["spec"].as_object().filter(|_| is_in_shadow(&object));
            let replaces = replaces(spec, &name);
            match effect {
                Effect::Match(policy) => {
                    changed.policies = Arc::new(changed.policies.with_shadow_policy(&policy, replaces));
                }
                Effect::Reclaim(rule) => {
                    changed.policies = Arc::new(changed.policies.with_shadow_rule(&rule, replaces));
                }
                Effect::Engine(engine) => changed.engine = engine,
                Effect::None => {}
            }
        }
        Ok(changed)
    }
}

/// Makes the path of a module absolute that is relative to its document.
fn resolve(object: &mut Value, file: &Path) {
    let module = object["spec"]["module"].as_str().unwrap_or_default();
    if module.is_empty() || module.starts_with('/') || module.contains(':') {
        return;
    }
    let path = file.parent().unwrap_or(Path::new("")).join(module);
    if let Ok(path) = std::path::absolute(path) {
        object["spec"]["module"] = path.display().to_string().into();
    }
}

/// All objects that decisions depend on.
async fn all(client: &ApiClient, declared: &Declared) -> Result<Vec<Manifest>> {
    let namespaces = declared.namespaces.then(|| (Resource::Namespace, Resource::Namespace.collection("")));
    let resources = [
        (Resource::Class, Resource::Class.collection("")),
        (Resource::Volume, Resource::Volume.collection("")),
        (Resource::Claim, "/api/v1/persistentvolumeclaims".to_owned()),
    ];
    let mut manifests = Vec::new();
    for (resource, path) in resources.into_iter().chain(namespaces) {
        let objects = read::list(client, &path).await.map_err(explained(RIGHTS))?;
        manifests.extend(objects.into_iter().map(|object| cluster::manifest(resource, object)));
    }
    Ok(manifests)
}

/// The claims that fare otherwise.
fn claims(now: &Planner, changed: &Planner) -> Vec<Change> {
    let [gets, would_get] = [now, changed].map(outcome::gets);
    let fares = |planner: &Planner, key: &ClaimKey, own: &Gets, other: &Gets| Fares {
        what: own.sentence(),
        why: why(planner, key, own, other),
    };
    let change = |(key, own): (&ClaimKey, &Gets)| {
        let other = would_get.get(key).filter(|other| *other != own)?;
        let (now, changed) = (fares(now, key, own, other), fares(changed, key, other, own));
        Some(Change { object: format!("pvc {key}"), now, changed })
    };
    gets.iter().filter_map(change).collect()
}

/// Why a claim does not get what it gets from the other planner.
fn why(planner: &Planner, key: &ClaimKey, own: &Gets, other: &Gets) -> String {
    let Some(claim) = planner.claims_before().find(|claim| claim.key == *key) else { return String::new() };
    let others = other.volume.as_deref().filter(|volume| own.volume.as_deref() != Some(volume));
    let said = others.map(|volume| planner.said(claim, volume).unwrap_or_default());
    let rejected = said.iter().flatten().find_map(|said| match &said.says {
        Says::Rejected { sentence, .. } => Some((&said.policy, sentence)),
        _ => None,
    });
    match (rejected, others) {
        (Some((policy, sentence)), Some(volume)) => format!("policy {policy} rejects {volume}: {sentence}"),
        _ => claim_plan(planner, claim, 0).messages.join("; "),
    }
}

/// The volumes that fare otherwise.
fn volumes(now: &Planner, changed: &Planner) -> Vec<Change> {
    let change = |name: &Text| {
        let [now, changed] = [now, changed].map(|planner| fate(planner, name));
        (now != changed).then(|| Change { object: format!("pv {name}"), now, changed })
    };
    now.volumes_before().filter_map(change).collect()
}

/// What becomes of a volume.
fn fate(planner: &Planner, name: &Text) -> Fares {
    let decided = planner.decided(&Key::Volume(name.clone()));
    let again = decided.decisions.iter().filter_map(|decision| decision.requeue_after_ms).next_back();
    let what = volume_plan(planner, name).map_or_else(|| "it stays in use".to_owned(), |plan| plan.fate);
    // Two decisions are some seconds apart.
    let days = |millis: u64| counted(millis.div_ceil(24 * 60 * 60 * 1_000), "day", "days");
    let why = again.map(|millis| format!("it is decided again within {}", days(millis)));
    Fares { what, why: why.unwrap_or_default() }
}

impl Change {
    fn line(&self) -> String {
        let Self { object, now, changed } = self;
        format!("{object}: without the change: {}; with it: {}", now.text(), changed.text())
    }
}

impl Fares {
    fn text(&self) -> String {
        let Self { what, why } = self;
        if why.is_empty() { what.clone() } else { format!("{what} ({why})") }
    }
}
