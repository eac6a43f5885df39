//! Engines by script.

use bindery_core::{Cluster, Decision, Engine, EngineFault, Request};

/// An engine that calls a function.
pub struct Scripted<F>(pub F);

impl<F> Engine for Scripted<F>
where
    F: Fn(&Request, &mut dyn Cluster) -> Result<Decision, EngineFault> + Send + Sync,
{
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        self.0(request, cluster)
    }

    fn digest(&self) -> &str {
        "scripted"
    }
}
