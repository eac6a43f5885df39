//! The policies that a command is given.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_host::{Limits, PolicyHost};
use bindery_policy::{API_VERSION, Chain, MATCH_POLICY, MatchPolicy, Matcher, Policy, check_settings};
use serde_json::Value;

use crate::engine::CacheArgument;
use crate::manifest::{self, Manifest};
use crate::policy::module::{self, ShippedArgument};

#[derive(clap::Args)]
pub(crate) struct PolicyArguments {
    /// A policy document, or a folder of them: which module decides about which claims, with which settings.
    /// Repeat it for several. Each document is YAML of apiVersion policy.bindery.dev/v1alpha1, kind
    /// MatchPolicy.
    #[arg(long = "policy", value_name = "FILE|FOLDER", env = "BINDERY_POLICY", value_delimiter = ':')]
    documents: Vec<PathBuf>,
    #[command(flatten)]
    shipped: ShippedArgument,
}

/// What policies are loaded for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To decide about a cluster. A module that cannot be loaded holds the claims that its policy matches,
    /// and no others; the log says why.
    Serve,
    /// To show what would be decided. A module that cannot be loaded is an error, and a busy machine must not
    /// change an answer.
    Show,
}

impl Purpose {
    fn limits(self) -> Limits {
        match self {
            Self::Serve => Limits::policy(),
            Self::Show => Limits::policy().unhurried(),
        }
    }
}

impl PolicyArguments {
    /// Loads the policies. A document that is wrong is an error.
    pub(crate) fn load(&self, cache: &CacheArgument, purpose: Purpose) -> Result<Arc<Chain>> {
        if self.documents.is_empty() {
            return Ok(Arc::default());
        }
        let host = module::host(cache)?;
        let mut names = BTreeSet::new();
        let mut policies = Vec::new();
        for manifest in manifest::read(&self.documents, false)? {
            let policy = self.policy(&host, &manifest, purpose).with_context(|| at(&manifest))?;
            if !names.insert(policy.name.clone()) {
                bail!("{}: there are two policies of name {:?}; rename one", at(&manifest), policy.name);
            }
            policies.push(policy);
        }
        Ok(Arc::new(Chain::new(policies)))
    }

    fn policy(&self, host: &PolicyHost, manifest: &Manifest, purpose: Purpose) -> Result<Policy> {
        let document = document(&manifest.object)?;
        document.check().map_err(anyhow::Error::msg)?;
        let name = &document.metadata.name;
        let folder = Path::new(&manifest.file).parent().unwrap_or(Path::new(""));
        let path = self.shipped.path(&document.spec.module, folder);
        let matcher = match path.and_then(|path| module::load(host, &path, purpose.limits())) {
            Ok(matcher) => {
                let checked = check_settings(&matcher, &document.spec.settings);
                checked?.map_err(|why| anyhow!("policy {name:?}: spec.settings: {why}"))?;
                Ok(Arc::new(matcher) as Arc<dyn Matcher>)
            }
            Err(error) if purpose == Purpose::Show => return Err(error.context(format!("policy {name:?}"))),
            Err(error) => {
                let why = format!("{error:#}");
                tracing::error!(policy = &**name, error = why, "the claims that the policy matches wait");
                Err(why)
            }
        };
        let policy = document.policy(matcher);
        warn_of_labels(&policy);
        Ok(policy)
    }
}

fn at(Manifest { file, place, .. }: &Manifest) -> String {
    format!("{file}, {place}")
}

fn document(object: &Value) -> Result<MatchPolicy> {
    let kind = (object["apiVersion"].as_str(), object["kind"].as_str());
    if kind != (Some(API_VERSION), Some(MATCH_POLICY)) {
        let (version, kind) = (&object["apiVersion"], &object["kind"]);
        bail!("it has apiVersion {version} and kind {kind}; give {API_VERSION:?} and {MATCH_POLICY:?}");
    }
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        anyhow!("{path}: {}", error.into_inner())
    })
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
