//! What Bindery does beside binding, and what it costs binds.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_cluster::PolicyApi;
use clap::ValueEnum;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::AbortHandle;

/// The time between two swaps.
const SWAP_EVERY: Duration = Duration::from_millis(500);

/// Something that Bindery does beside binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Extra {
    /// It writes the journal of decisions.
    Journal,
    /// A policy and an engine decide in shadow.
    Shadow,
    /// A policy is swapped twice a second, while another one, in JavaScript, is compiled.
    Swaps,
}

/// The modules of policies and engines; `cargo xtask bench` builds them.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Modules {
    /// The folder of the policies that ship.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_POLICIES")]
    policies: Option<PathBuf>,
    /// An engine for the shadow.
    #[arg(long, value_name = "FILE", env = "BINDERY_EXAMPLE_ENGINE")]
    engine: Option<PathBuf>,
    /// A matcher in JavaScript, to be compiled.
    #[arg(long, value_name = "FILE", env = "BINDERY_JAVASCRIPT_POLICY")]
    javascript: Option<PathBuf>,
}

/// What is ready for a round. Swaps end with it.
pub(crate) struct Prepared {
    /// Further arguments of `bindery serve`.
    pub(crate) arguments: Vec<String>,
    policies: PolicyApi,
    is_shadowed: bool,
    /// The module that is compiled while policies are swapped.
    compiles: Option<PathBuf>,
    swaps: Option<AbortHandle>,
    _folder: TempDir,
}

impl Prepared {
    /// Creates what the extras need on a new control plane.
    pub(crate) async fn new(extras: &[Extra], modules: &Modules, client: &kube::Client) -> Result<Self> {
        let (folder, policies) = (TempDir::new()?, PolicyApi::new(client));
        let has = |extra| extras.contains(&extra);
        let mut arguments = Vec::new();
        if has(Extra::Journal) {
            arguments.push(format!("--journal={}", folder.path().join("journal").display()));
        }
        if has(Extra::Shadow) || has(Extra::Swaps) {
            policies.install().await;
            arguments.push("--policy-objects=true".to_owned());
            arguments.push(format!("--engine-cache={}", folder.path().join("cache").display()));
            arguments
                .extend(modules.policies.iter().map(|folder| format!("--policies={}", folder.display())));
        }
        if has(Extra::Shadow) {
            let spec =
                json!({"module": "builtin:at-most-n-times", "settings": {"times": 2}, "mode": "shadow"});
            policies.apply("MatchPolicy", "shadow", spec).await;
            let engine = modules.engine.as_ref().context("the shadow needs --engine FILE")?;
            policies.apply("Engine", "shadow", json!({"module": engine, "mode": "shadow"})).await;
        }
        let mut compiles = None;
        if has(Extra::Swaps) {
            policies.apply("MatchPolicy", "swapped", swapped(1)).await;
            compiles = Some(modules.javascript.clone().context("swaps need --javascript FILE")?);
        }
        let is_shadowed = has(Extra::Shadow);
        Ok(Self { arguments, policies, is_shadowed, compiles, swaps: None, _folder: folder })
    }

    /// Waits until everything is loaded, and begins the swaps.
    pub(crate) async fn begin(&mut self, client: &kube::Client) {
        if self.is_shadowed {
            for kind in ["MatchPolicy", "Engine"] {
                self.policies.until_ready(kind, "shadow", "Loaded").await;
            }
        }
        if let Some(module) = self.compiles.take() {
            self.policies.until_ready("MatchPolicy", "swapped", "Loaded").await;
            let policies = PolicyApi::new(client);
            let swaps = async move {
                let mut ticks = tokio::time::interval(SWAP_EVERY);
                let compiled = json!({"module": module, "match": {"classNames": ["none"]}});
                policies.apply("MatchPolicy", "compiled", compiled).await;
                for times in (1..=1_000).cycle() {
                    ticks.tick().await;
                    policies.apply("MatchPolicy", "swapped", swapped(times)).await;
                }
            };
            self.swaps = Some(tokio::spawn(swaps).abort_handle());
        }
    }
}

/// A policy that applies to no claim of a benchmark, so that only the swaps cost.
fn swapped(times: u32) -> Value {
    let settings = json!({"times": times});
    json!({"module": "builtin:at-most-n-times", "settings": settings, "match": {"classNames": ["none"]}})
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(swaps) = &self.swaps {
            swaps.abort();
        }
    }
}
