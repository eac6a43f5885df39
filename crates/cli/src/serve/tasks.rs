//! The tasks of a replica.

use std::future::Future;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// Starts tasks that run for as long as the replica does.
///
/// A replica without its watches would decide by stale caches, hold the Lease, and stay live and ready. So
/// when a task ends by itself or by a panic, the replica ends too, and its supervisor starts another.
pub(super) struct Tasks {
    ends: UnboundedSender<&'static str>,
    ended: UnboundedReceiver<&'static str>,
}

/// Reports on drop that a task has ended, however it did.
struct End {
    task: &'static str,
    ends: UnboundedSender<&'static str>,
}

impl Tasks {
    pub(super) fn new() -> Self {
        let (ends, ended) = unbounded_channel();
        Self { ends, ended }
    }

    /// Starts a task.
    pub(super) fn start<T: Send + 'static>(
        &self,
        task: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let end = End { task, ends: self.ends.clone() };
        tokio::spawn(async move {
            let _end = end;
            work.await
        })
    }

    /// Waits for the first task that ends, and returns its name.
    pub(super) async fn first_end(&mut self) -> &'static str {
        self.ended.recv().await.expect("self.ends keeps the channel open")
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Without a receiver the replica is ending.
        let _ = self.ends.send(self.task);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_panics_or_is_aborted_is_reported() {
        let mut tasks = Tasks::new();
        let running = tasks.start("one that runs", std::future::pending::<()>());
        assert!(tasks.first_end().now_or_never().is_none());
        let ended = tasks.start("one that ends", async { 7 });
        assert_eq!((tasks.first_end().await, ended.await.unwrap()), ("one that ends", 7));
        let panicked = tasks.start("one that panics", async { panic!("a bug") });
        assert_eq!(tasks.first_end().await, "one that panics");
        assert!(panicked.await.unwrap_err().is_panic());
        running.abort();
        assert_eq!(tasks.first_end().await, "one that runs");
    }
}
