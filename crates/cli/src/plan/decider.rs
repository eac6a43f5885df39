//! What decides about the objects of a plan.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bindery_core::{Engine, Key};
use bindery_policy::Chain;

use super::load::ManifestObject;
use super::planner::Planner;
use crate::engine::EngineArguments;
use crate::policies::{PolicyArguments, Purpose};

/// An engine and policies.
#[derive(Clone)]
pub(crate) struct EngineAndPolicies {
    pub(crate) engine: Arc<dyn Engine>,
    /// The name of the engine in errors.
    pub(crate) engine_name: String,
    pub(crate) policies: Arc<Chain>,
}

impl EngineAndPolicies {
    /// The engine and the policies that a command is given.
    pub(crate) fn load(engine: &EngineArguments, policies: &PolicyArguments) -> Result<Self> {
        Ok(Self {
            engine: engine.load()?,
            engine_name: engine.name(),
            policies: policies.load(&engine.cache, Purpose::Show)?,
        })
    }

    /// The engine without policies.
    pub(crate) fn without_policies(&self) -> Self {
        Self { policies: Arc::default(), ..self.clone() }
    }

    /// The cluster of these objects.
    pub(crate) async fn planner(&self, objects: Vec<ManifestObject>) -> Result<Planner> {
        Planner::new(Arc::clone(&self.engine), Arc::clone(&self.policies), objects).await
    }

    /// The cluster of these objects when all of them are decided.
    pub(crate) async fn settle(&self, objects: Vec<ManifestObject>) -> Result<Planner> {
        let planner = self.planner(objects).await?;
        planner.settle().await.with_context(|| self.engine_name.clone())?;
        Ok(planner)
    }

    /// The cluster of these objects after the decision about one of them.
    pub(crate) async fn decide(&self, objects: Vec<ManifestObject>, key: &Key) -> Result<Planner> {
        let planner = self.planner(objects).await?;
        self.settle_alone(&planner, key).await?;
        Ok(planner)
    }

    /// Decides one object of the cluster.
    pub(crate) async fn settle_alone(&self, planner: &Planner, key: &Key) -> Result<()> {
        planner.settle_alone(key).await.with_context(|| self.engine_name.clone())
    }
}
