//! Engines and policies by the digests that a journal has recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bindery_core::Engine;
use bindery_engine::DefaultEngine;
use bindery_host::{ComponentPolicy, Host, Limits, LoadError, PolicyHost};
use bindery_policy::{AskedAgain, AskedPolicy, Chain, PolicyEvidence};
use bindery_registry::Digest;

use crate::engine::EngineArguments;
use crate::policies::registry;
use crate::policy::module;

/// Where an OCI layout has its blobs.
const BLOBS: &str = "blobs/sha256";

/// The modules of some folders.
pub(super) struct Modules {
    engine_host: Host,
    policy_host: PolicyHost,
    files: BTreeMap<String, PathBuf>,
    /// What was looked for; `None` where it was not found.
    engines: BTreeMap<String, Option<Arc<dyn Engine>>>,
    policies: BTreeMap<String, Option<ComponentPolicy>>,
    notes: BTreeSet<String>,
}

impl Modules {
    /// The modules of these folders, and those of registries in the folder of compiled components.
    pub(super) fn new(folders: &[PathBuf], arguments: &EngineArguments) -> Result<Self> {
        let (engine_host, policy_host) = (arguments.host()?, module::host(arguments.cache())?);
        let mut files = BTreeMap::new();
        for folder in folders {
            let at = || format!("--modules {} cannot be read; name a folder", folder.display());
            add_files(folder, &mut files).with_context(at)?;
        }
        let fetched = arguments.cache().engine_cache.as_ref().map(|cache| cache.join(registry::FOLDER));
        for folder in folders.iter().chain(&fetched).map(|folder| folder.join(BLOBS)) {
            if folder.is_dir() {
                add_blobs(&folder, &mut files)
                    .with_context(|| format!("{} cannot be read", folder.display()))?;
            }
        }
        let (engines, policies, notes) = Default::default();
        Ok(Self { engine_host, policy_host, files, engines, policies, notes })
    }

    /// The engine of that digest; else `now`, which a note says.
    pub(super) fn engine(&mut self, digest: &str, now: &Arc<dyn Engine>) -> Arc<dyn Engine> {
        if digest == now.digest() {
            return Arc::clone(now);
        }
        if digest == DefaultEngine.digest() {
            return Arc::new(DefaultEngine);
        }
        if !self.engines.contains_key(digest) {
            let load = |bytes: &[u8]| self.engine_host.load(bytes, Limits::default());
            let loaded = self.load(digest, load).inspect_err(|why| {
                let now = now.digest();
                self.notes.insert(format!("engine {digest} {why:#}; {now} decides instead"));
            });
            let loaded = loaded.ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
            self.engines.insert(digest.to_owned(), loaded);
        }
        self.engines.get(digest).and_then(Option::as_ref).unwrap_or(now).clone()
    }

    /// Asks policies again: the modules of the recorded digests with the recorded settings, or else those of
    /// the documents.
    pub(super) fn ask(&mut self, evidence: &PolicyEvidence, documents: &Chain) -> AskedAgain {
        let (mut rest, mut asked) = (evidence.clone(), AskedAgain::default());
        rest.matchers.retain(|it| {
            let Some(ComponentPolicy::Matcher(matcher)) = self.policy(&it.policy) else { return true };
            asked.include(evidence.ask_matcher(&it.policy.name, matcher));
            false
        });
        rest.reclaimers.retain(|it| {
            let Some(ComponentPolicy::Reclaimer(reclaimer)) = self.policy(&it.policy) else { return true };
            asked.include(evidence.ask_reclaimer(&it.policy.name, reclaimer));
            false
        });
        let is_whole = rest.matchers.is_empty() && rest.reclaimers.is_empty();
        let mut others = rest.ask_again(documents);
        if is_whole || !documents.is_loaded() {
            others.notes.clear();
        }
        asked.include(others);
        asked
    }

    /// What was not found since the last call, as sentences.
    pub(super) fn take_notes(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.notes)
    }

    fn policy(&mut self, AskedPolicy { name, module: digest, .. }: &AskedPolicy) -> Option<&ComponentPolicy> {
        if !self.policies.contains_key(digest) {
            let load = |bytes: &[u8]| self.policy_host.load(bytes, Limits::policy());
            let loaded = self.load(digest, load).inspect_err(|why| {
                self.notes.insert(format!("policy {name}: module {digest} {why:#}"));
            });
            self.policies.insert(digest.clone(), loaded.ok());
        }
        self.policies.get(digest)?.as_ref()
    }

    fn load<T>(&self, digest: &str, load: impl FnOnce(&[u8]) -> Result<T, LoadError>) -> Result<T> {
        let Some(path) = self.files.get(digest) else {
            bail!(if digest.starts_with("sha256:") {
                "is in no folder of --modules: copy the file with that SHA-256 there"
            } else {
                "is no component: replay with the program of that version"
            })
        };
        let bytes = module::read(path)?;
        // A file may have changed since it was listed, and a blob may not be what its name says.
        let found = Digest::of(&bytes).to_string();
        if found != digest {
            bail!("cannot be loaded: {} has the digest {found}; copy the right file there", path.display());
        }
        load(&bytes).context("cannot be loaded")
    }
}

/// Adds the files of a folder by their digests.
fn add_files(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        let bytes = module::read(&path)?;
        if bytes.len() <= PolicyHost::COMPONENT_BYTES_MAX {
            files.insert(Digest::of(&bytes).to_string(), path);
        }
    }
    Ok(())
}

/// Adds the blobs of an OCI layout, which are named by their digests.
fn add_blobs(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        files.insert(format!("sha256:{}", entry.file_name().to_string_lossy()), entry.path());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bindery_kit::module::Module;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        engine: EngineArguments,
    }

    #[test]
    fn a_flipped_byte_of_a_module_is_found() {
        let bytes = Module::default().component();
        let digest = Digest::of(&bytes);
        let folder = tempfile::tempdir().unwrap();
        let blob = folder.path().join(BLOBS).join(digest.hex());
        fs::create_dir_all(folder.path().join(BLOBS)).unwrap();
        fs::write(&blob, &bytes).unwrap();
        let line = Line::parse_from(["bindery"]);
        let mut modules = Modules::new(&[folder.path().to_owned()], &line.engine).unwrap();
        let asked = AskedPolicy {
            name: "p".into(),
            module: digest.to_string(),
            settings: "{}".to_owned(),
            claim_facts: Vec::new(),
            columns: Vec::new(),
            spread: None,
            reasons: Vec::new(),
        };
        assert!(modules.policy(&asked).is_some(), "{:?}", modules.notes);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            fs::write(&blob, flipped).unwrap();
            modules.policies.clear();
            assert!(modules.policy(&asked).is_none(), "byte {at}");
            let notes = modules.take_notes();
            assert!(notes.iter().all(|note| note.contains(" has the digest sha256:")), "{notes:?}");
            assert_eq!(notes.len(), 1, "byte {at}");
        }
    }
}
