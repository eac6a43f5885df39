//! Modules of cluster objects in registries.
//!
//! A module is fetched in the background, so that no decision and no review waits for a registry. What was
//! fetched is kept in a folder, by digest and with its signatures. The signatures are checked at every use,
//! so one by a key that is no longer trusted does not count. No use needs the registry.

mod fetch;
pub(crate) mod pull_secrets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bindery_policy::Pull;
use bindery_registry::{
    Access, Digest, Extra, Layout, Name, Reference, Registry, RegistryError, Repository, Timeouts, Trust,
    pull, verify,
};
use bindery_webhook::ReviewPermit;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::pull_secrets::PullSecrets;
use super::object::blocking;
use crate::engine::CacheArgument;
use crate::policy::registry::{KeyArguments, RegistryArguments};

/// The folder of fetched modules, in that of compiled components.
pub(crate) const FOLDER: &str = "registry";
/// How many modules are fetched at a time. Each takes up to 64 MiB of memory.
const FETCHES: usize = 2;
/// How many of them are of shadows, which more users may write: they delay nothing that is enforced.
const SHADOW_FETCHES: usize = 1;
/// How long one fetch may take: others wait for it.
const FETCH_MAX: Duration = Duration::from_secs(60);
/// How many references are remembered. Who may write objects could name any number.
const REFERENCES_MAX: usize = 4_096;

/// Registries of the modules of cluster objects.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct ObjectRegistryArguments {
    #[command(flatten)]
    registry: RegistryArguments,
    #[command(flatten)]
    keys: KeyArguments,
    /// Whether modules of cluster objects are fetched from registries. If not, only those are used that were
    /// fetched before, or put into the folder `registry` of `--engine-cache` by `bindery policy pull --to`.
    #[arg(long, value_name = "true|false", env = "BINDERY_REGISTRY_NETWORK", default_value_t = true,
          action = clap::ArgAction::Set)]
    registry_network: bool,
}

/// A module that was fetched.
pub(crate) struct FetchedModule {
    pub(crate) bytes: Vec<u8>,
    /// The files of golden cases that came with it.
    pub(crate) cases: Vec<Extra>,
    /// The keys that have signed it; none where no keys are given.
    pub(crate) signed_by: Option<BTreeSet<Digest>>,
}

/// Why a module is not there.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) why: String,
    /// Whether it was fetched, and the trusted keys have not signed it.
    pub(crate) is_unverified: bool,
}

/// A reference that is not there.
struct Failure {
    /// The digest of the reference.
    digest: Digest,
    missing: Missing,
    failures: u32,
    /// None while it is being fetched.
    retry_at: Option<Instant>,
}

/// Fetches and keeps modules. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RegistryModules(Arc<Inner>);

struct Inner {
    /// None without a folder for them.
    layout: Option<Layout>,
    /// None where the network is forbidden.
    registry: Option<Registry>,
    trust: Option<Trust>,
    /// None in a command of a user, which has the user's credentials. It awaits fetches, and removes no
    /// module.
    pull_secrets: Option<PullSecrets>,
    /// By the digest of what was asked for: the same module may be there at another place, or with other
    /// credentials.
    failures: Mutex<BTreeMap<Digest, Failure>>,
    wanted: Mutex<BTreeMap<Digest, Wanted>>,
    fetches: Semaphore,
    shadow_fetches: Semaphore,
    fetched: Notify,
}

/// What a module is wanted for. A shadow's is removed before one that is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    ForShadow,
    ForEffect,
}

/// A module that is asked for.
struct Asked {
    reference: Reference,
    /// The digest of the reference.
    digest: Digest,
    pull: Pull,
}

impl Asked {
    fn key(&self) -> Digest {
        Digest::of(format!("{} {:?}", self.reference, self.pull).as_bytes())
    }

    /// Why it was not fetched.
    fn missing(&self, error: &RegistryError) -> Missing {
        let is_unverified = matches!(error, RegistryError::Unverified(_));
        Missing { why: format!("{}: {error}", self.reference), is_unverified }
    }
}

impl RegistryModules {
    /// Modules in the folder of this cache.
    pub(crate) fn new(
        cache: &CacheArgument,
        arguments: &ObjectRegistryArguments,
        pull_secrets: PullSecrets,
    ) -> Result<Self> {
        let timeouts = Timeouts { operation: FETCH_MAX, ..Timeouts::default() };
        let registry = arguments.registry_network.then(|| arguments.registry.client(timeouts)).transpose()?;
        Ok(Self::with(cache, registry, arguments.keys.trust()?, Some(pull_secrets)))
    }

    /// Modules that are fetched, with the credentials of the user, as they are asked for. Without a folder
    /// none is kept.
    pub(crate) fn of_user(cache: &CacheArgument, arguments: &ObjectRegistryArguments) -> Result<Self> {
        let registry = arguments.registry_network.then(|| arguments.registry.client_of_user());
        Ok(Self::with(cache, registry.transpose()?, arguments.keys.trust()?, None))
    }

    /// Modules that were fetched before; nothing is fetched.
    pub(crate) fn offline(cache: &CacheArgument) -> Self {
        Self::with(cache, None, None, None)
    }

    fn with(
        cache: &CacheArgument,
        registry: Option<Registry>,
        trust: Option<Trust>,
        pull_secrets: Option<PullSecrets>,
    ) -> Self {
        // A command of a user removes no module, so it has no limit.
        let bytes_max = if pull_secrets.is_some() { cache.modules_max() } else { u64::MAX };
        let layout = |folder: &PathBuf| Layout::new(folder.join(FOLDER)).with_limit(bytes_max);
        Self(Arc::new(Inner {
            layout: cache.engine_cache.as_ref().map(layout),
            registry,
            trust,
            failures: Mutex::default(),
            wanted: Mutex::default(),
            fetches: Semaphore::new(FETCHES),
            shadow_fetches: Semaphore::new(SHADOW_FETCHES),
            fetched: Notify::new(),
            pull_secrets,
        }))
    }

    /// Waits until a fetch ends.
    pub(crate) async fn fetched(&self) {
        self.0.fetched.notified().await;
    }

    /// Keeps the module of a ConfigMap, whose owner may replace it. A user's command keeps none.
    pub(crate) async fn keep(&self, module: Vec<u8>) {
        if self.0.layout.is_none() || self.0.pull_secrets.is_none() {
            return;
        }
        let (inner, runtime) = (Arc::clone(&self.0), Handle::current());
        let kept = spawn_blocking(move || runtime.block_on(inner.keep(module))).await;
        if let Err(error) = kept.unwrap_or_else(|panic| Err(RegistryError::Invalid(panic.to_string()))) {
            tracing::warn!(%error, "a module is not kept: a restart needs it in its ConfigMap");
        }
    }

    /// The module that was kept by this digest of its bytes.
    pub(crate) async fn kept_module(&self, digest: Digest) -> Option<Vec<u8>> {
        let (inner, runtime) = (Arc::clone(&self.0), Handle::current());
        let kept = spawn_blocking(move || runtime.block_on(inner.layout().ok()?.module(&digest)).ok());
        kept.await.ok().flatten()
    }

    /// The modules that objects name: in registries by the digest of the manifest, in ConfigMaps by that of
    /// the module. Others are removed first where there is too little room, and are not fetched any more.
    pub(crate) fn want(&self, modules: impl IntoIterator<Item = (Digest, Wanted)>) {
        let mut wanted = BTreeMap::new();
        add(&mut wanted, modules);
        let is_awaited =
            |failure: &Failure| failure.retry_at.is_none() || wanted.contains_key(&failure.digest);
        self.0.failures.lock().retain(|_, failure| is_awaited(failure));
        *self.0.wanted.lock() = wanted;
    }

    /// Further modules that objects name.
    pub(crate) fn want_also(&self, modules: impl IntoIterator<Item = (Digest, Wanted)>) {
        add(&mut self.0.wanted.lock(), modules);
    }

    /// The module of a reference, as it is kept. If it is not there, it begins to fetch it, unless this is a
    /// review, and [`RegistryModules::fetched`] tells the end.
    pub(crate) async fn get(
        &self,
        reference: &str,
        pull: &Pull,
        review: Option<&ReviewPermit>,
    ) -> Result<FetchedModule, Missing> {
        let missing = |why: String| Missing { why, is_unverified: false };
        let reference: Reference = reference.parse().map_err(missing)?;
        let Some(digest) = reference.digest() else {
            return Err(missing(format!(
                "{reference}: name the digest; a tag may be moved to another module"
            )));
        };
        // Reading and hashing takes a while.
        let (inner, runtime, of) = (Arc::clone(&self.0), Handle::current(), reference.clone());
        let kept = blocking(review, move || runtime.block_on(inner.kept(&of, &digest))).await;
        let asked = Asked { digest, reference, pull: pull.clone() };
        let why = match kept {
            Ok(Ok(module)) => {
                self.0.failures.lock().remove(&asked.key());
                return Ok(module);
            }
            Ok(Err(error)) => error,
            Err(panic) => RegistryError::Invalid(panic.to_string()),
        };
        if self.0.registry.is_none() {
            let is_unverified = matches!(why, RegistryError::Unverified(_));
            let why = format!(
                "{why}; no registry is asked here: pull it into the folder {FOLDER} of --engine-cache by \
                 `bindery policy pull {} --to`",
                asked.reference
            );
            return Err(Missing { why, is_unverified });
        }
        if self.0.pull_secrets.is_none() {
            return self.0.fetch_now(&asked).await.map_err(|error| asked.missing(&error));
        }
        Err(self.fetch(asked, review.is_none()))
    }

    /// Why a module is not there, after its fetch has begun if it is time.
    fn fetch(&self, asked: Asked, may_fetch: bool) -> Missing {
        let (mut failures, key, reference) = (self.0.failures.lock(), asked.key(), &asked.reference);
        let known = failures.get(&key);
        let is_due = known.is_none_or(|known| known.retry_at.is_some_and(|at| at <= Instant::now()));
        if !is_due || !may_fetch {
            let unknown = || Missing { why: format!("{reference} is not fetched yet"), is_unverified: false };
            return known.map_or_else(unknown, |known| known.missing.clone());
        }
        if known.is_none() && failures.len() >= REFERENCES_MAX {
            let why = format!("{REFERENCES_MAX} other modules could not be fetched; remove their objects");
            return Missing { why, is_unverified: false };
        }
        let failure = failures.entry(key).or_insert_with(|| Failure {
            digest: asked.digest,
            missing: Missing { why: format!("{reference} is being fetched"), is_unverified: false },
            failures: 0,
            retry_at: None,
        });
        failure.retry_at = None;
        let missing = failure.missing.clone();
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let outcome = inner.fetch(&asked).await;
            inner.end(&asked, outcome);
        });
        missing
    }
}

impl Inner {
    fn layout(&self) -> Result<&Layout, RegistryError> {
        let why = "modules of registries are kept in --engine-cache: give it a folder";
        self.layout.as_ref().ok_or_else(|| RegistryError::Invalid(why.to_owned()))
    }

    /// A module that is kept and signed.
    async fn kept(&self, reference: &Reference, digest: &Digest) -> Result<FetchedModule, RegistryError> {
        let layout = self.layout()?;
        let (_, artifact) = pull(layout, &Name::Digest(*digest)).await?;
        let signed_by = self.signed_by(layout, reference, digest).await?;
        Ok(FetchedModule { bytes: artifact.module, cases: artifact.cases, signed_by })
    }

    /// The trusted keys that have signed a module; none where no keys are given.
    async fn signed_by(
        &self,
        from: &dyn Repository,
        reference: &Reference,
        digest: &Digest,
    ) -> Result<Option<BTreeSet<Digest>>, RegistryError> {
        match &self.trust {
            Some(trust) => Ok(Some(verify(from, digest, trust.of(reference)?).await?.keys)),
            None => Ok(None),
        }
    }

    /// Fetches a module, and keeps it if there is a folder for it.
    async fn fetch_now(&self, asked: &Asked) -> Result<FetchedModule, RegistryError> {
        let Asked { reference, digest, .. } = asked;
        let (None, Some(registry)) = (&self.layout, &self.registry) else {
            self.fetch(asked).await?;
            return self.kept(reference, digest).await;
        };
        let repository = registry.repository(reference, Access::Pull)?;
        let signed_by = self.signed_by(&repository, reference, digest).await?;
        let (_, artifact) = pull(&repository, &Name::Digest(*digest)).await?;
        Ok(FetchedModule { bytes: artifact.module, cases: artifact.cases, signed_by })
    }
}

fn add(wanted: &mut BTreeMap<Digest, Wanted>, modules: impl IntoIterator<Item = (Digest, Wanted)>) {
    for (module, of) in modules {
        let known = wanted.entry(module).or_insert(of);
        *known = of.max(*known);
    }
}

/// The digest that a module of a registry names.
pub(crate) fn named_digest(module: &str) -> Option<Digest> {
    module.parse::<Reference>().ok()?.digest()
}
