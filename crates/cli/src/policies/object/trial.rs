//! Tries a component before it is put into effect, so that one that always fails never decides about a claim.

use std::sync::Arc;

use anyhow::{Result, bail};
use bindery_core::Engine;
use bindery_host::ComponentPolicy;
use serde_json::{Map, Value};

use crate::manifest;
use crate::plan::load;
use crate::plan::planner::Planner;
use crate::policy::judge::Tested;
use crate::policy::questions;

/// The objects that an engine decides.
const OBJECTS: &str = include_str!("trial.yaml");

/// Asks a policy about a claim and volumes with all facts that it declares, and without any.
pub(super) fn policy(policy: &ComponentPolicy, settings: &Map<String, Value>) -> Result<()> {
    for with_facts in [true, false] {
        let question = questions::generated(Tested::from(policy), settings, with_facts)?;
        question.narrow()?;
        if question.has_rows() {
            question.judge()?;
        }
    }
    Ok(())
}

/// Has an engine decide the objects. The guard must refuse no decision.
pub(super) fn engine(engine: Arc<dyn Engine>) -> Result<()> {
    let objects = load::sort(manifest::parse("the trial", OBJECTS)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let planner = Planner::new(engine, Arc::default(), objects).await?;
        planner.settle().await?;
        match planner.first_error() {
            Some((key, why)) => bail!("{key}: {why}"),
            None => Ok(()),
        }
    })
}
