//! Engines and policies that are replaced between two decisions.

use std::sync::Arc;

use bindery_core::Engine;
use bindery_policy::Chain;

use super::Binder;
use crate::{Port, SwapRecord};

impl<P: Port> Binder<P> {
    /// Replaces the engine from the next decision on, and returns the old one. The engine that began a
    /// decision finishes it.
    pub fn swap_engine(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        let to = Arc::clone(&engine);
        let from = self.decider.swap_engine(engine);
        if let Some(journal) = &self.journal {
            journal.swapped(SwapRecord::Engine { from: from.digest(), to: to.digest() });
        }
        from
    }

    /// Replaces the policies and wakes every object. An engine that is deciding is told what the earlier ones
    /// say; the guard checks its decision with the new ones. Where these read facts that are not decoded yet,
    /// the kinds are listed anew before. Only one call may run at a time; it may be dropped, and nothing is
    /// replaced.
    pub async fn swap_policies(&self, chain: Arc<Chain>) {
        let kinds = self.intake.declare(&self.decider.policies.get().chain, &chain);
        self.port.declare(self.intake.declared());
        self.intake.list_anew(kinds).await;
        self.intake.has_listed();
        self.store.keep_columns(Arc::clone(chain.columns()));
        let from = self.decider.policies.get();
        self.decider.policies.swap(Arc::clone(&chain));
        if let Some(journal) = &self.journal {
            journal.swapped(SwapRecord::Policies { from: from.chain.digest(), to: chain.digest() });
        }
        self.intake.queue_all();
    }
}
