//! Health and metrics from the first moment on.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::Router;
use axum::extract::Request;
use bindery_webhook::{Check, Health, router};
use prometheus_client::registry::Registry;
use tower::ServiceExt as _;

/// Answers while the replica starts, which may be blocked for long: that it is alive, and what its start
/// waits for. Then what the replica answers itself.
#[derive(Clone, Default)]
pub(super) struct Front {
    awaited: Arc<Mutex<&'static str>>,
    started: Arc<OnceLock<Router>>,
}

impl Front {
    /// The start waits for this now.
    pub(super) fn awaits(&self, what: &'static str) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// The start is over: from now on this answers.
    pub(super) fn started(&self, router: Router) {
        // A replica starts once.
        let _ = self.started.set(router);
    }

    /// What answers, before and after.
    pub(super) fn router(&self) -> Router {
        let (starting, started) = (router(self.clone(), Registry::default()), Arc::clone(&self.started));
        Router::new().fallback(move |request: Request| {
            let router = started.get().unwrap_or(&starting).clone();
            async move { router.oneshot(request).await }
        })
    }
}

impl Health for Front {
    fn live(&self) -> Vec<Check> {
        Vec::new()
    }

    fn ready(&self) -> Vec<Check> {
        let awaited = *self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        vec![Check { name: "start", result: Err(format!("it waits for {awaited}")) }]
    }
}
