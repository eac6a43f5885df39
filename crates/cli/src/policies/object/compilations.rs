//! When components are compiled: one at a time, so that each may take the memory that is left; and one that
//! the compiler has failed at, again after a pause.

use std::collections::BTreeMap;

use anyhow::{Error, Result, anyhow};
use bindery_registry::Digest;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::super::retry;

/// The compilations of a process.
#[derive(Default)]
pub(super) struct Compilations {
    urgent: Mutex<()>,
    others: Mutex<()>,
    /// How many urgent ones are running, or wait for each other.
    asked: watch::Sender<usize>,
    failures: parking_lot::Mutex<BTreeMap<Digest, Failure>>,
}

/// A failure of the compiler that is not the component's fault.
struct Failure {
    why: String,
    failures: u32,
    retry_at: Instant,
}

impl Compilations {
    /// Compiles a component in its turn, unless the compiler has just failed at it. The inner error is about
    /// the component; the outer one says that the compiler failed.
    ///
    /// What is urgent waits for nothing else: the compilation of another component ends when it comes, and
    /// begins anew after it.
    pub(super) async fn run<F: Future<Output = Result<Result<(), String>>>>(
        &self,
        is_urgent: bool,
        component: Digest,
        compile: impl Fn() -> F,
    ) -> Result<Result<(), String>> {
        let work = || async {
            if let Some(why) = self.failure(&component) {
                return Err(anyhow!(why));
            }
            let outcome = compile().await;
            self.remember(component, outcome.as_ref().err());
            outcome
        };
        self.in_turn(is_urgent, work).await
    }

    async fn in_turn<F: Future>(&self, is_urgent: bool, work: impl Fn() -> F) -> F::Output {
        if is_urgent {
            let _asked = Asked::of(&self.asked);
            let _turn = self.urgent.lock().await;
            return work().await;
        }
        let _turn = self.others.lock().await;
        let mut asked = self.asked.subscribe();
        loop {
            until(&mut asked, |asked| asked == 0).await;
            tokio::select! {
                done = work() => return done,
                () = until(&mut asked, |asked| asked > 0) => {}
            }
        }
    }

    /// Ends the pause of a component at which the compiler has failed. The next one is longer still.
    pub(super) fn end_pause(&self, component: &Digest) {
        if let Some(known) = self.failures.lock().get_mut(component) {
            known.retry_at = Instant::now();
        }
    }

    /// Why the compiler has failed at a component that it is not to try again yet.
    fn failure(&self, component: &Digest) -> Option<String> {
        let failures = self.failures.lock();
        let known = failures.get(component).filter(|known| Instant::now() < known.retry_at);
        known.map(|known| known.why.clone())
    }

    /// Remembers whether the compiler has failed.
    fn remember(&self, component: Digest, error: Option<&Error>) {
        let (mut failures, now) = (self.failures.lock(), Instant::now());
        let Some(error) = error else {
            failures.remove(&component);
            return;
        };
        // Those that no object names any more.
        failures.retain(|_, known| now < known.retry_at + retry::MAX);
        let before = failures.get(&component).map_or(0, |known| known.failures);
        let retry_at = now + retry::pause(before);
        failures.insert(component, Failure { why: format!("{error:#}"), failures: before + 1, retry_at });
    }
}

/// An urgent compilation.
struct Asked<'a>(&'a watch::Sender<usize>);

impl<'a> Asked<'a> {
    fn of(asked: &'a watch::Sender<usize>) -> Self {
        asked.send_modify(|asked| *asked += 1);
        Self(asked)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|asked| *asked -= 1);
    }
}

/// Waits until the number of urgent compilations is such a one.
async fn until(asked: &mut watch::Receiver<usize>, holds: impl Fn(usize) -> bool) {
    // An error means that the sender is gone, which the caller borrows.
    let _ = asked.wait_for(|asked| holds(*asked)).await;
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::poll;
    use tokio::sync::Semaphore;
    use tokio::time::advance;

    use super::*;

    /// Counts what is running.
    struct Running<'a>(&'a AtomicUsize);

    impl<'a> Running<'a> {
        fn new(count: &'a AtomicUsize) -> Self {
            count.fetch_add(1, Ordering::Relaxed);
            Self(count)
        }
    }

    impl Drop for Running<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A compilation that ends once it has a permit.
    async fn work(running: &AtomicUsize, permits: &Semaphore) -> Result<Result<(), String>> {
        let _running = Running::new(running);
        permits.acquire().await.unwrap().forget();
        Ok(Ok(()))
    }

    #[tokio::test]
    async fn an_urgent_compilation_waits_for_no_other_and_runs_alone() {
        let compilations = Compilations::default();
        let (urgent, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (end_urgent, end_other) = (Semaphore::new(0), Semaphore::new(0));
        let running = || (urgent.load(Ordering::Relaxed), others.load(Ordering::Relaxed));
        let of_urgent = || work(&urgent, &end_urgent);
        let mut other = pin!(compilations.run(false, Digest::of(b"other"), || work(&others, &end_other)));
        assert!(poll!(other.as_mut()).is_pending());
        assert_eq!(running(), (0, 1));

        let mut first = pin!(compilations.run(true, Digest::of(b"first"), of_urgent));
        let mut second = pin!(compilations.run(true, Digest::of(b"second"), of_urgent));
        assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
        assert!(poll!(other.as_mut()).is_pending());
        assert_eq!(running(), (1, 0));
        end_urgent.add_permits(1);
        first.await.unwrap().unwrap();
        assert!(poll!(second.as_mut()).is_pending() && poll!(other.as_mut()).is_pending());
        assert_eq!(running(), (1, 0));
        end_urgent.add_permits(1);
        second.await.unwrap().unwrap();

        assert!(poll!(other.as_mut()).is_pending());
        assert_eq!(running(), (0, 1));
        end_other.add_permits(1);
        other.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_compiler_failed_at_is_tried_again_after_growing_pauses() {
        let (compilations, tries) = (Compilations::default(), AtomicUsize::new(0));
        let compile = || {
            tries.fetch_add(1, Ordering::Relaxed);
            ready(Err(anyhow!("no memory")))
        };
        let component = Digest::of(b"large");
        for (number, pause) in [10, 20, 40, 80, 160, 320, 600, 600].into_iter().enumerate() {
            for after in [0, 0, pause - 1] {
                advance(Duration::from_secs(after)).await;
                let failed = compilations.run(true, component, compile).await.unwrap_err();
                assert_eq!(failed.to_string(), "no memory");
                assert_eq!(tries.load(Ordering::Relaxed), number + 1, "{after} s of {pause} s");
            }
            advance(Duration::from_secs(1)).await;
        }
        compilations.run(true, component, || ready(Ok(Ok(())))).await.unwrap().unwrap();
        assert!(compilations.failures.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_ends_early_is_followed_by_a_longer_one() {
        let (compilations, tries) = (Compilations::default(), AtomicUsize::new(0));
        let compile = || {
            tries.fetch_add(1, Ordering::Relaxed);
            ready(Err(anyhow!("no memory")))
        };
        let component = Digest::of(b"large");
        for (number, pause) in [10, 20, 40].into_iter().enumerate() {
            for after in [0, pause - 1] {
                advance(Duration::from_secs(after)).await;
                compilations.run(true, component, compile).await.unwrap_err();
                assert_eq!(tries.load(Ordering::Relaxed), number + 1, "{after} s of {pause} s");
            }
            compilations.end_pause(&component);
        }
    }
}
