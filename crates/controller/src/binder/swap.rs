//! Engines and policies that are replaced between two decisions.

use std::sync::Arc;

use bindery_core::Engine;
use bindery_policy::Chain;

use super::Binder;
use crate::Port;

impl<P: Port> Binder<P> {
    /// Replaces the engine from the next decision on, and returns the old one. The engine that began a
    /// decision finishes it.
    pub fn swap_engine(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        self.decider.swap_engine(engine)
    }

    /// Replaces the policies and wakes every object. A decision ends with the policies that it began with.
    /// Where the new ones read facts that are not decoded yet, the kinds are listed anew before. Only one call
    /// may run at a time.
    pub async fn swap_policies(&self, chain: Arc<Chain>) {
        let kinds = self.intake.declare(&self.decider.policies.get().chain, &chain);
        self.port.declare(self.intake.declared());
        self.intake.list_anew(kinds).await;
        self.store.keep_columns(Arc::clone(chain.columns()));
        self.decider.policies.swap(chain);
        self.intake.queue_all();
    }
}
