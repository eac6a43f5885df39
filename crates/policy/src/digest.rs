//! The digest of a chain.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{Allowed, Chain, Matches, OnFailure, Otherwise, Policy, ReclaimRule};

/// Everything of a policy that its answers, and what is made of them, depend on.
#[derive(Serialize)]
struct Identity<'a> {
    name: &'a str,
    order: i32,
    /// Digest of the module; `None` if it is not loaded.
    module: Option<&'a str>,
    settings: &'a str,
    matches: &'a Matches,
    on_failure: OnFailure,
    spec: Spec<'a>,
}

/// What only one kind of policy has.
#[derive(Serialize)]
enum Spec<'a> {
    Match { weight: u32, max_candidates: usize, otherwise: Otherwise },
    Reclaim { allow: &'a [Allowed] },
}

impl Chain {
    /// Whether any policy is loaded.
    pub fn is_loaded(&self) -> bool {
        !self.policies().is_empty() || !self.reclaimers().is_empty()
    }

    /// Names the loaded policies in evidence: a SHA-256 over everything that their answers, and what is made
    /// of them, depend on. Chains of one digest decide alike.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let policies = self.policies().iter().map(Policy::identity);
            let all: Vec<_> = policies.chain(self.reclaimers().iter().map(ReclaimRule::identity)).collect();
            let text = serde_json::to_vec(&all).expect("texts and numbers can be written as JSON");
            format!("sha256:{:x}", Sha256::digest(text))
        })
    }
}

impl Policy {
    fn identity(&self) -> Identity<'_> {
        let Self { weight, max_candidates, otherwise, .. } = *self;
        Identity {
            name: &self.name,
            order: self.order,
            module: self.matcher.as_ref().ok().map(|matcher| matcher.digest()),
            settings: &self.settings,
            matches: &self.matches,
            on_failure: self.on_failure,
            spec: Spec::Match { weight, max_candidates, otherwise },
        }
    }
}

impl ReclaimRule {
    fn identity(&self) -> Identity<'_> {
        Identity {
            name: &self.name,
            order: self.order,
            module: self.reclaimer.as_ref().ok().map(|reclaimer| reclaimer.digest()),
            settings: &self.settings,
            matches: &self.matches,
            on_failure: self.on_failure,
            spec: Spec::Reclaim { allow: &self.allow },
        }
    }
}
