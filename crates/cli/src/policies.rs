//! The policies that a command is given.

pub(crate) mod object;
pub(crate) mod registry;
mod retry;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_core::Text;
use bindery_host::{ComponentPolicy, PolicyHost};
use bindery_policy::{
    API_VERSION, Chain, EffectMode, MATCH_POLICY, MatchPolicy, Policy, RECLAIM_POLICY, ReclaimPolicy,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use self::object::Effect;
use crate::engine::CacheArgument;
use crate::manifest::{self, Manifest};
use crate::policy::judge::Tested;
use crate::policy::module::{self, ShippedArgument};

#[derive(clap::Args)]
pub(crate) struct PolicyArguments {
    /// A policy document, or a folder of them: which module decides about which claims or volumes, with which
    /// settings. Repeat it for several. Each document is YAML of apiVersion policy.bindery.dev/v1alpha1, kind
    /// MatchPolicy or ReclaimPolicy.
    #[arg(long, value_name = "FILE|FOLDER", env = "BINDERY_POLICY")]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) shipped: ShippedArgument,
}

/// What policies are loaded for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To decide about a cluster. A module that cannot be loaded, or cannot check its settings, holds the
    /// claims or volumes that its policy matches, and no others; the log says why.
    Serve,
    /// To show what would be decided. A module that cannot be loaded is an error, and no batch has a limit of
    /// time.
    Show,
}

impl PolicyArguments {
    /// Loads the policies. A document that is wrong is an error.
    pub(crate) fn load(&self, cache: &CacheArgument, purpose: Purpose) -> Result<Arc<Chain>> {
        if self.policy.is_empty() {
            return Ok(Arc::default());
        }
        let host = module::host(cache)?;
        let mut names = BTreeSet::new();
        let (mut policies, mut reclaimers) = (Vec::new(), Vec::new());
        for manifest in self.manifests()? {
            let document = Document::of(&manifest.object).with_context(|| at(&manifest))?;
            match document.mode() {
                EffectMode::Enforce => {}
                EffectMode::Off => continue,
                EffectMode::Shadow => bail!(
                    "{}: spec.mode is shadow, which only cluster objects can have; apply it, or write \
                     enforce or off",
                    at(&manifest)
                ),
            }
            let policy = self.policy(&host, &document, &manifest.file, purpose);
            let policy = policy.with_context(|| at(&manifest))?;
            if !names.insert(document.name().clone()) {
                bail!("{}: there are two policies of name {:?}; rename one", at(&manifest), document.name());
            }
            match policy {
                Effect::Match(policy) => policies.push(policy),
                Effect::Reclaim(rule) => reclaimers.push(rule),
                // No document has these.
                Effect::Engine(_) | Effect::None => {}
            }
        }
        let chain = Chain::new(policies).with_reclaimers(reclaimers);
        Ok(Arc::new(match purpose {
            Purpose::Serve => chain,
            Purpose::Show => chain.within(Duration::MAX, Instant::now),
        }))
    }

    /// The documents. A path without one is an error: its policies would hold nothing.
    fn manifests(&self) -> Result<Vec<Manifest>> {
        let mut manifests = Vec::new();
        for path in &self.policy {
            let read = manifest::read(std::slice::from_ref(path), false)?;
            if read.is_empty() {
                bail!("--policy {}: it has no policy document; add one, or leave it out", path.display());
            }
            manifests.extend(read);
        }
        Ok(manifests)
    }

    fn policy(&self, host: &PolicyHost, document: &Document, file: &str, purpose: Purpose) -> Result<Effect> {
        let name = document.name();
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        let path = self.shipped.path(document.module(), folder);
        let checked = path.and_then(|path| module::load(host, &path)).and_then(|module| {
            let checked = Tested::from(&module)
                .checked(document.settings())
                .context("it did not check its settings")?;
            Ok((module, checked))
        });
        let module = match checked {
            Ok((module, Ok(()))) => Ok(module),
            Ok((_, Err(why))) => bail!("policy {name:?}: spec.settings: {why}"),
            Err(error) if purpose == Purpose::Show => return Err(error.context(format!("policy {name:?}"))),
            Err(error) => {
                let why = format!("{error:#}");
                tracing::error!(policy = &**name, reason = why, "what the policy applies to waits");
                Err(why)
            }
        };
        document.load(module)
    }
}

/// A policy document.
pub(crate) enum Document {
    Match(MatchPolicy),
    Reclaim(ReclaimPolicy),
}

impl Document {
    /// Reads and checks a document.
    pub(crate) fn of(object: &Value) -> Result<Self> {
        let (version, kind) = (&object["apiVersion"], &object["kind"]);
        let document = match (version.as_str(), kind.as_str()) {
            (Some(API_VERSION), Some(MATCH_POLICY)) => Self::Match(parse(object)?),
            (Some(API_VERSION), Some(RECLAIM_POLICY)) => Self::Reclaim(parse(object)?),
            _ => bail!(
                "it has apiVersion {version} and kind {kind}; give {API_VERSION:?} and {MATCH_POLICY:?} or \
                 {RECLAIM_POLICY:?}"
            ),
        };
        let checked = match &document {
            Self::Match(policy) => policy.check(),
            Self::Reclaim(policy) => policy.check(),
        };
        checked.map_err(anyhow::Error::msg)?;
        Ok(document)
    }

    pub(crate) fn name(&self) -> &Text {
        match self {
            Self::Match(document) => &document.metadata.name,
            Self::Reclaim(document) => &document.metadata.name,
        }
    }

    pub(crate) fn module(&self) -> &str {
        match self {
            Self::Match(document) => &document.spec.module,
            Self::Reclaim(document) => &document.spec.module,
        }
    }

    pub(crate) fn mode(&self) -> EffectMode {
        match self {
            Self::Match(document) => document.spec.mode,
            Self::Reclaim(document) => document.spec.mode,
        }
    }

    pub(crate) fn settings(&self) -> &Map<String, Value> {
        match self {
            Self::Match(document) => &document.spec.settings,
            Self::Reclaim(document) => &document.spec.settings,
        }
    }

    /// The policy, or what holds all that it matches where its module could not be loaded.
    pub(crate) fn load(&self, module: Result<ComponentPolicy, String>) -> Result<Effect> {
        Ok(match (self, module) {
            (Self::Match(document), Ok(ComponentPolicy::Matcher(matcher))) => {
                let policy = document.policy(Ok(Arc::new(matcher)));
                warn_of_labels(&policy);
                Effect::Match(policy)
            }
            (Self::Match(document), Err(why)) => Effect::Match(document.policy(Err(why))),
            (Self::Reclaim(document), Ok(ComponentPolicy::Reclaimer(reclaimer))) => {
                Effect::Reclaim(document.rule(Ok(Arc::new(reclaimer))))
            }
            (Self::Reclaim(document), Err(why)) => Effect::Reclaim(document.rule(Err(why))),
            (Self::Match(_), Ok(_)) => {
                bail!("spec.module is a reclaimer; name a matcher, or make the kind {RECLAIM_POLICY:?}")
            }
            (Self::Reclaim(_), Ok(_)) => {
                bail!("spec.module is a matcher; name a reclaimer, or make the kind {MATCH_POLICY:?}")
            }
        })
    }
}

pub(crate) fn parse<T: DeserializeOwned>(object: &Value) -> Result<T> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        anyhow!("{path}: {}", error.into_inner())
    })
}

fn at(Manifest { file, place, .. }: &Manifest) -> String {
    format!("{file}, {place}")
}

/// A tenant chooses the labels of its claims, so it can leave a policy that selects by them.
fn warn_of_labels(policy: &Policy) {
    let rejects_only = policy.matcher.as_ref().is_ok_and(|matcher| !matcher.metadata().scores);
    if rejects_only && !policy.matches.claim.is_empty() {
        tracing::warn!(
            policy = &*policy.name,
            "the policy selects claims by their labels: a claim without them is not held by it. To hold all \
             tenants, select by namespace, or let the policy decide by the namespace"
        );
    }
}
