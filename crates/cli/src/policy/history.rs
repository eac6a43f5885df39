//! `bindery policy history` and `undo`: the generations of a cluster object that were in effect.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_kube::PolicyObjects;
use bindery_policy::{LastGood, ObjectStatus};
use bindery_registry::Digest;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::block_on;
use crate::cluster::ClusterArguments;
use crate::output::{self, Format};
use crate::policies::object::{config_map_key, is_shadow, object_name};
use crate::policy::module::CONFIG_MAP;

/// List the generations of an engine or policy of the cluster that were in effect, the newest first.
///
/// A generation is `replaced` if a later one has another module at the same place: its spec does not bring
/// its own module back.
#[derive(clap::Args)]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    of: ObjectArguments,
    /// Format of the list.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Apply the spec of an earlier generation of an engine or policy of the cluster.
///
/// By default it takes the newest generation that was in effect, has another spec than the object, and would
/// change something. Nothing is written if the object changes meanwhile.
#[derive(clap::Args)]
pub(crate) struct UndoArguments {
    #[command(flatten)]
    of: ObjectArguments,
    /// Generation whose spec is applied; `bindery policy history` lists them.
    #[arg(long, value_name = "GENERATION")]
    to: Option<i64>,
}

#[derive(clap::Args)]
struct ObjectArguments {
    /// The object: its name, or `KIND/NAME` if an engine and a policy share it.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// An object with its generations that were in effect.
struct Found {
    objects: Arc<PolicyObjects>,
    object: Value,
    status: ObjectStatus,
}

/// A line of `bindery policy history`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    generation: i64,
    state: &'static str,
    digest: &'a str,
    spec: &'a Map<String, Value>,
}

impl ObjectArguments {
    async fn find(&self) -> Result<Found> {
        let (kind, name) =
            self.name.split_once('/').map_or((None, &*self.name), |(kind, name)| (Some(kind), name));
        let (objects, _) = PolicyObjects::new(&self.cluster.client().await?);
        let mut found = objects.list().await.context("the engines and policies cannot be listed")?;
        found.retain(|(object, _)| {
            let (of_kind, of_name) = object_name(object);
            of_name == name && kind.is_none_or(|kind| kind.eq_ignore_ascii_case(&of_kind))
        });
        let (object, status) = match <[_; 1]>::try_from(found) {
            Ok([found]) => found,
            Err(found) if found.is_empty() => {
                bail!("the cluster has no engine or policy {:?}; `kubectl get bindery` lists them", self.name)
            }
            Err(_) => bail!("{name:?} is the name of an engine and of a policy; give engine/{name}"),
        };
        let status = serde_json::from_value(status).unwrap_or_default();
        Ok(Found { objects, object, status })
    }
}

impl Found {
    /// Its generations that were in effect, the newest first.
    fn generations(&self) -> impl Iterator<Item = &LastGood> {
        self.status.last_good.iter().chain(&self.status.history)
    }

    /// Whether the spec of a generation would change nothing: that of the object is in effect, and differs at
    /// most in where the same module is.
    fn is_in_effect(&self, good: &LastGood) -> bool {
        let Some(newest) = &self.status.last_good else { return false };
        let changed = difference(&newest.spec, &good.spec);
        self.object["spec"] == json!(newest.spec)
            && self.status.digest.as_ref() == Some(&good.digest)
            && changed.as_object().is_some_and(|fields| fields.keys().all(|field| field == "module"))
    }

    /// Why the spec of a generation does not bring back its module, if that was in a ConfigMap.
    async fn lacks_module_of(&self, good: &LastGood) -> Option<String> {
        let at = config_map_key(module(&good.spec).strip_prefix(CONFIG_MAP)?)?;
        let digest = self.objects.module(&at).await.0.map(|bytes| Digest::of(&bytes).to_string());
        let why = match digest {
            Ok(digest) if digest == *good.digest => return None,
            Ok(digest) => format!("{} has another module now, {digest}", module(&good.spec)),
            Err(why) => why,
        };
        let LastGood { generation, digest, .. } = good;
        Some(format!(
            "{why}; the module of generation {generation}, {digest}, comes back only if it is there"
        ))
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let state = |good: &LastGood| match &self.status.digest {
            None => "not in effect",
            Some(_) if is_shadow(good) => "in shadow",
            Some(_) => "in effect",
        };
        let state_of_earlier = |good: &LastGood| {
            let newest = self.generations().find(|newest| module(&newest.spec) == module(&good.spec));
            match newest {
                Some(newest) if newest.digest != good.digest => "replaced",
                _ => "earlier",
            }
        };
        let earlier = self.status.history.iter().map(state_of_earlier);
        let lines = self.generations().zip(self.status.last_good.iter().map(state).chain(earlier));
        lines
            .map(|(LastGood { generation, digest, spec }, state)| Line {
                generation: *generation,
                state,
                digest,
                spec,
            })
            .collect()
    }
}

/// Runs `bindery policy history`.
pub(crate) fn print(arguments: &HistoryArguments) -> Result<ExitCode> {
    let found = block_on(arguments.of.find())?;
    let lines = found.lines();
    arguments.output.print(&lines, |out| {
        let header = ["GENERATION", "STATE", "MODULE", "DIGEST"].map(str::to_owned).to_vec();
        let row = |line: &Line<'_>| {
            vec![
                line.generation.to_string(),
                line.state.to_owned(),
                module(line.spec).to_owned(),
                line.digest.to_owned(),
            ]
        };
        let rows: Vec<_> = std::iter::once(header).chain(lines.iter().map(row)).collect();
        match lines.as_slice() {
            [] => out.write_all(b"No generation of it was in effect.\n"),
            _ => out.write_all(output::table(&rows).as_bytes()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `bindery policy undo`.
pub(crate) fn undo(arguments: &UndoArguments) -> Result<ExitCode> {
    block_on(async {
        let found = arguments.of.find().await?;
        let spec = found.object["spec"].as_object().cloned().unwrap_or_default();
        let wanted = |good: &&LastGood| match arguments.to {
            Some(generation) => good.generation == generation,
            None => good.spec != spec && !found.is_in_effect(good),
        };
        let earlier = found.generations().find(wanted).ok_or_else(|| match arguments.to {
            Some(generation) => {
                anyhow!("generation {generation} is not kept; `bindery policy history` lists those that are")
            }
            None => {
                let or_module = match module(&spec).starts_with(CONFIG_MAP) {
                    true => ", or put the earlier module back into its ConfigMap",
                    false => "",
                };
                let name = &arguments.of.name;
                anyhow!(
                    "{name:?} has no earlier generation that would change anything; apply another \
                     spec{or_module}"
                )
            }
        })?;
        if found.is_in_effect(earlier) {
            eprintln!(
                "note: generation {} has the module and settings that are in effect",
                earlier.generation
            );
        }
        if let Some(why) = found.lacks_module_of(earlier).await {
            eprintln!("note: {why}");
        }
        let mut patch = json!({"spec": difference(&spec, &earlier.spec)});
        // The API server refuses the patch if the object has changed meanwhile.
        patch["metadata"] = json!({"resourceVersion": found.object["metadata"]["resourceVersion"]});
        let (kind, name) = object_name(&found.object);
        let written = found.objects.patch(&kind, &name, &patch).await;
        let written = written.with_context(|| format!("{kind} {name} cannot be changed"))?;
        let generation = &written["metadata"]["generation"];
        output::print(&format!(
            "{kind} {name}: generation {generation} has the spec of generation {}\n",
            earlier.generation
        ))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The module that a spec names.
fn module(spec: &Map<String, Value>) -> &str {
    spec.get("module").and_then(Value::as_str).unwrap_or_default()
}

/// The merge patch (RFC 7386) that makes `to` of `from`.
fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Value {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter(|(key, value)| from.get(*key) != Some(value)).map(|(key, value)| {
        let patch = match (from.get(key), value) {
            (Some(Value::Object(from)), Value::Object(to)) => difference(from, to),
            _ => value.clone(),
        };
        (key.clone(), patch)
    });
    gone.chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_adds_changes_and_removes_fields_at_each_depth() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let from = object(json!({"module": "a", "order": 1, "settings": {"x": {"y": 1}, "z": [1]}}));
        let to = object(json!({"module": "b", "weight": 2, "settings": {"x": {}, "z": [1, 2]}}));
        let expected = json!({
            "module": "b",
            "order": null,
            "weight": 2,
            "settings": {"x": {"y": null}, "z": [1, 2]},
        });
        assert_eq!(difference(&from, &to), expected);
        assert_eq!(difference(&to, &to), json!({}));
    }
}
