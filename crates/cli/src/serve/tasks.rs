//! The tasks that a replica consists of.

use std::future::Future;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// Starts the parts of a replica, each of which is to run as long as the replica does.
///
/// A replica without its watches would go on deciding by what it saw last, and hold the Lease, live and
/// ready. So when a part ends by itself, by a panic above all, the replica is to end too, for whoever runs it
/// to start another.
pub(super) struct Tasks {
    ends: UnboundedSender<&'static str>,
    ended: UnboundedReceiver<&'static str>,
}

/// Tells that a part has ended, however it did.
struct End {
    part: &'static str,
    ends: UnboundedSender<&'static str>,
}

impl Tasks {
    /// None yet.
    pub(super) fn new() -> Self {
        let (ends, ended) = unbounded_channel();
        Self { ends, ended }
    }

    /// Starts a part.
    pub(super) fn start<T: Send + 'static>(
        &self,
        part: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let end = End { part, ends: self.ends.clone() };
        tokio::spawn(async move {
            let _end = end;
            work.await
        })
    }

    /// Ends with the first part that does; says which.
    pub(super) async fn first_end(&mut self) -> &'static str {
        // A sender lives here, so there is no end of what is received.
        self.ended.recv().await.unwrap_or("a part")
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Where nobody listens any more, the replica is ending.
        let _ = self.ends.send(self.part);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_or_panics_is_heard_of() {
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
