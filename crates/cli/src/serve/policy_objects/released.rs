//! Counts released volumes for reclaimers in shadow, beside all other work.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::Binder;
use bindery_kube::ApiPort;
use bindery_policy::RECLAIM_POLICY;
use tokio::task::{JoinHandle, spawn_blocking};

/// How long reclaimers in shadow are asked at each tick.
const TIME_MAX: Duration = Duration::from_secs(1);

/// The count that runs, or the last one. If it is dropped, the count ends by itself after [`TIME_MAX`].
#[derive(Default)]
pub(super) struct Counting(Option<JoinHandle<()>>);

impl Counting {
    /// Begins to have reclaimers in shadow asked about released volumes, or to go on with that.
    pub(super) async fn go_on(&mut self, binder: &Arc<Binder<ApiPort>>) {
        if binder.policies().shadows().any(|shadow| shadow.kind() == RECLAIM_POLICY) {
            let binder = Arc::clone(binder);
            self.begin(move || binder.count_released_for_shadows(TIME_MAX)).await;
        }
    }

    /// Begins a count on a thread of its own, unless one runs. It awaits no count.
    async fn begin(&mut self, count: impl FnOnce() + Send + 'static) {
        if self.0.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        if let Some(ended) = self.0.take()
            && let Err(panic) = ended.await
        {
            tracing::error!(%panic, "released volumes cannot be counted for shadows");
        }
        self.0 = Some(spawn_blocking(count));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn given_a_count_that_runs_a_tick_neither_waits_nor_begins_another() {
        let mut counting = Counting::default();
        let (end, ended) = channel::<()>();
        let runs = move || _ = ended.recv();
        assert!(counting.begin(runs).now_or_never().is_some());
        let (tell, told) = channel();
        let second = tell.clone();
        assert!(counting.begin(move || second.send(2).unwrap()).now_or_never().is_some());
        drop(end);
        counting.0.as_mut().unwrap().await.unwrap();
        // This one has ended, so its handle cannot be awaited again.
        counting.0 = None;
        counting.begin(move || tell.send(3).unwrap()).await;
        assert_eq!(told.iter().collect::<Vec<_>>(), [3]);
    }
}
