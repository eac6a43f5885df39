//! Engines and policies that are replaced between two decisions.

use std::sync::Arc;
use std::time::Duration;

use bindery_core::Engine;
use bindery_policy::{Chain, RECLAIM_POLICY};

use super::{Binder, Policies};
use crate::shadow::ShadowDecider;
use crate::{Port, Shadow, SwapRecord};

impl<P: Port> Binder<P> {
    /// Replaces the engine from the next decision on, and returns the old one. The engine that began a
    /// decision finishes it. If the new one is another, every object is woken.
    pub fn swap_engine(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        let to = Arc::clone(&engine);
        let from = self.decider.swap_engine(engine);
        if from.digest() != to.digest() {
            if let Some(journal) = &self.journal {
                journal.swapped(SwapRecord::Engine { from: from.digest(), to: to.digest() });
            }
            self.intake.queue_all();
        }
        from
    }

    /// Replaces the policies and wakes the objects about which the earlier or the new ones are asked. An
    /// engine that is deciding is told what the earlier ones say; the guard checks its decision with the new
    /// ones. Where these read facts that are not decoded yet, the kinds are listed anew before. Only one call
    /// of this and of [`Binder::swap_shadows`] may run at a time; it may be dropped, and nothing is replaced.
    pub async fn swap_policies(&self, chain: Arc<Chain>) {
        let from = self.decider.policies.get();
        self.replace(from.with_chain(chain)).await;
        let both = [from, self.decider.policies.get()];
        // Reclaimers have facts of claims noted on the volumes of bound pairs too.
        let notes = both.iter().any(|policies| policies.reclaims());
        let is_asked = |key: &_| both.iter().any(|policies| policies.may_be_asked(&self.store, key));
        self.intake.queue_if(|key| notes || is_asked(key));
    }

    /// Replaces the shadows ([`crate::Shadow`]), which decide beside the active engine and policies. Nothing
    /// is woken. As [`Binder::swap_policies`], it lists objects anew that lack facts.
    pub async fn swap_shadows(&self, shadows: &[Shadow]) {
        if !shadows.is_empty() {
            self.begin_shadows();
        }
        self.replace(self.decider.policies.get().with_shadows(shadows)).await;
        self.store.keep_history(!shadows.is_empty());
    }

    /// Counts the released volumes by what reclaimers in shadow say
    /// ([`bindery_policy::ShadowMetrics::released`]). It asks them on this thread: about each volume once,
    /// and again after a change of what it shows. `time` is divided among them; where it is too short for all
    /// volumes, the next calls go on, and the counts are set when the last volume is counted.
    pub fn count_released_for_shadows(&self, time: Duration) {
        let (policies, now) = (self.decider.policies.get(), self.port.now());
        let shadows = || policies.shadows.iter().filter(|it| it.shadow.kind() == RECLAIM_POLICY);
        let each = time / u32::try_from(shadows().count()).unwrap_or(u32::MAX).max(1);
        shadows().for_each(|shadowing| shadowing.count_released(&self.store, now, each));
    }

    async fn replace(&self, policies: Policies) {
        let kinds = self.intake.declare(self.decider.policies.get().declared(), policies.declared());
        self.port.declare(self.intake.declared());
        self.intake.list_anew(kinds).await;
        self.intake.has_listed();
        self.store.keep_columns(Arc::clone(policies.chain.columns()));
        let (from, to) = (self.decider.policies.get(), Arc::clone(&policies.chain));
        self.decider.policies.swap(policies);
        if let Some(journal) = self.journal.as_ref().filter(|_| from.chain.digest() != to.digest()) {
            journal.swapped(SwapRecord::Policies { from: from.chain.digest(), to: to.digest() });
        }
    }

    /// Has the store remember what shadows need, and begins their thread.
    pub(super) fn begin_shadows(&self) {
        self.store.keep_history(true);
        self.shadows.begin(|| ShadowDecider {
            store: Arc::clone(&self.store),
            configuration: Arc::clone(&self.decider.configuration),
            operations: Arc::clone(&self.operations),
            limits: self.settings.session,
            journal: self.journal.clone(),
        });
    }
}
