//! Engines and policies by the digests that a journal has recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_core::Engine;
use bindery_engine::DefaultEngine;
use bindery_host::{ComponentPolicy, Host, Limits, LoadError, PolicyHost};
use bindery_policy::{AskedAgain, AskedPolicy, Chain, PolicyEvidence};
use bindery_registry::limits::MODULE_MAX;
use bindery_registry::{Digest, Reference};

use crate::engine::EngineArguments;
use crate::policies::registry::FOLDER;
use crate::policy::module::{self, REGISTRY};
use crate::policy::registry::RegistryArguments;

/// Where an OCI layout has its blobs.
const BLOBS: &str = "blobs/sha256";

/// The modules of some folders and repositories.
pub(super) struct Modules {
    engine_host: Host,
    policy_host: PolicyHost,
    files: BTreeMap<String, PathBuf>,
    repositories: Vec<Reference>,
    registry: RegistryArguments,
    /// What was looked for; `None` where it was not found.
    engines: BTreeMap<String, Option<Arc<dyn Engine>>>,
    policies: BTreeMap<String, Option<ComponentPolicy>>,
    notes: BTreeSet<String>,
}

impl Modules {
    /// The modules of these folders and repositories, and those of registries in the folder of compiled
    /// components.
    pub(super) fn new(
        places: &[PathBuf],
        arguments: &EngineArguments,
        registry: &RegistryArguments,
    ) -> Result<Self> {
        let (engine_host, policy_host) = (arguments.host()?, module::host(&arguments.cache)?);
        let (mut files, mut repositories, mut folders) = (BTreeMap::new(), Vec::new(), Vec::new());
        for place in places {
            if let Some(name) = place.to_str().filter(|text| text.starts_with(REGISTRY)) {
                repositories.push(repository(name).with_context(|| format!("--modules {name}"))?);
                continue;
            }
            let at = || format!("--modules {} cannot be read; name a folder", place.display());
            add_files(place, &mut files).with_context(at)?;
            folders.push(place.clone());
        }
        folders.extend(arguments.cache.engine_cache.iter().map(|cache| cache.join(FOLDER)));
        for folder in folders.iter().map(|folder| folder.join(BLOBS)).filter(|folder| folder.is_dir()) {
            add_blobs(&folder, &mut files).with_context(|| format!("{} cannot be read", folder.display()))?;
        }
        let (engines, policies, notes) = Default::default();
        let registry = registry.clone();
        Ok(Self { engine_host, policy_host, files, repositories, registry, engines, policies, notes })
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
        load(&self.bytes(digest)?).context("cannot be loaded")
    }

    fn bytes(&self, digest: &str) -> Result<Vec<u8>> {
        let Ok(wanted) = digest.parse() else {
            bail!("is no component: replay with the program of that version")
        };
        if let Some(path) = self.files.get(digest) {
            let bytes = module::read(path)?;
            // A file may have changed since it was listed, and a blob may not be what its name says.
            let found = Digest::of(&bytes);
            if found != wanted {
                let path = path.display();
                bail!("cannot be loaded: {path} has the digest {found}; copy the right file there");
            }
            return Ok(bytes);
        }
        for repository in &self.repositories {
            if let Some(bytes) = self.registry.find(repository, wanted).context("cannot be fetched")? {
                return Ok(bytes);
            }
        }
        bail!("is neither in --modules nor in --engine-cache: name a folder with that file by --modules")
    }
}

/// The name of a repository.
fn repository(name: &str) -> Result<Reference> {
    let repository: Reference = name.parse().map_err(|why: String| anyhow!(why))?;
    if repository.name().is_some() {
        bail!("modules are found by their digests: name the repository without a tag or a digest");
    }
    Ok(repository)
}

/// Adds the files of a folder by their digests, without those that are larger than any module.
fn add_files(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_file() && path.metadata()?.len() <= MODULE_MAX as u64 {
            files.insert(Digest::of(&module::read(&path)?).to_string(), path);
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

    use super::*;
    use crate::tests::arguments_of;

    #[test]
    fn given_a_file_larger_than_any_policy_it_is_found_by_its_digest() {
        let size = PolicyHost::COMPONENT_BYTES_MAX + 2;
        let folder = tempfile::tempdir().unwrap();
        for (name, size) in [("engine.wasm", size), ("too-large", MODULE_MAX + 1)] {
            fs::File::create(folder.path().join(name)).unwrap().set_len(size as u64).unwrap();
        }
        let registry = RegistryArguments::default();
        let modules = Modules::new(&[folder.path().to_owned()], &arguments_of(&[]), &registry).unwrap();
        let found = modules.bytes(&Digest::of(&vec![0_u8; size]).to_string()).unwrap();
        assert_eq!((found.len(), modules.files.len()), (size, 1));
    }

    #[test]
    fn a_flipped_byte_of_a_module_is_found() {
        let bytes = Module::default().component();
        let digest = Digest::of(&bytes);
        let folder = tempfile::tempdir().unwrap();
        let blob = folder.path().join(BLOBS).join(digest.hex());
        fs::create_dir_all(folder.path().join(BLOBS)).unwrap();
        fs::write(&blob, &bytes).unwrap();
        let registry = RegistryArguments::default();
        let mut modules = Modules::new(&[folder.path().to_owned()], &arguments_of(&[]), &registry).unwrap();
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
