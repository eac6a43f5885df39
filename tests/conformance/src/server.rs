//! The API server of a case.

use std::time::Duration;

use anyhow::{Context, Result};
use bindery_sim::{FaultRule, Sim, SimOptions};
use serde_json::Value;

use crate::case::Case;
use crate::cluster::Setup;
use crate::execution::NAMESPACE;

/// The API server that has the objects of a case.
pub(crate) enum Server<'a> {
    /// The simulator, on a paused clock.
    Simulator(Box<Sim>),
    /// A real API server.
    Cluster(&'a Setup<'a>),
}

impl Server<'_> {
    /// A simulator with the objects of a case as they are.
    ///
    /// # Errors
    ///
    /// An object cannot be seeded.
    pub(crate) fn simulator_of(case: &Case) -> Result<Self> {
        let sim = Sim::new(SimOptions::bare());
        let seeds = case.environment().chain(case.initial.typed());
        sim.seed(seeds).context("the world cannot be seeded")?;
        let errors = case.api_errors.iter();
        errors.for_each(|e| sim.faults().add(FaultRule::api_error(&e.verb, &e.resource, &e.message)));
        Ok(Self::Simulator(Box::new(sim)))
    }

    /// The simulator.
    ///
    /// # Errors
    ///
    /// It is a real API server.
    pub(crate) fn simulator(&self) -> Result<&Sim> {
        match self {
            Self::Simulator(sim) => Ok(sim),
            Self::Cluster(_) => anyhow::bail!("a real API server cannot be changed past validation"),
        }
    }

    /// A client for the binder.
    pub(crate) fn client(&self) -> kube::Client {
        match self {
            Self::Simulator(sim) => kube::Client::new(sim.service(), NAMESPACE),
            Self::Cluster(setup) => setup.client(),
        }
    }

    /// All objects of a resource.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub(crate) async fn objects(&self, resource: &str) -> Result<Vec<Value>> {
        match self {
            Self::Simulator(sim) => Ok(sim.objects(resource)),
            Self::Cluster(setup) => setup.objects(resource).await,
        }
    }

    /// The name of the disks that the case's plugin provisions. Recordings have none, which a real API server
    /// refuses.
    pub(crate) fn disk(&self) -> &'static str {
        match self {
            Self::Simulator(_) => "",
            Self::Cluster(_) => Setup::DISK,
        }
    }

    /// Advances the binder's clock.
    pub(crate) async fn advance(&self, time: Duration) {
        match self {
            Self::Simulator(_) => tokio::time::advance(time).await,
            Self::Cluster(_) => {
                tokio::time::pause();
                tokio::time::advance(time).await;
                tokio::time::resume();
            }
        }
    }
}
