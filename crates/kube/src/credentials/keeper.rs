//! Follows credentials that rotate: files that change, plugins whose credentials expire.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::client::Body;

use super::source::{Material, Source};
use super::{CredentialsError, Shared};

/// How often files are read and the expiry of plugins is checked. A mounted Secret changes by a swapped
/// symbolic link, other files are renamed or overwritten; reading the content covers all of these.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Shortest time between two checks, for an API server that accepts and refuses in turn.
const CHECK_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest time that a check waits for the API server to accept or refuse.
const PROBE_MAX: Duration = Duration::from_secs(10);

pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) source: Source,
    /// The inputs of the client in use.
    pub(super) used: Material,
    /// The last error, which is logged once.
    pub(super) logged: Option<CredentialsError>,
}

impl Keeper {
    pub(super) async fn run(mut self) {
        loop {
            tokio::time::sleep(CHECK_PAUSE_MIN).await;
            let wait = CHECK_EVERY - CHECK_PAUSE_MIN;
            // A timeout and a refusal are both a reason to check.
            let _ = tokio::time::timeout(wait, self.shared.refused.notified()).await;
            self.check().await;
        }
    }

    /// Uses credentials that have changed. If they are invalid, as one half of a pair whose other half is
    /// still to be written, this logs it once and the next check tries again; the current client stays in
    /// use.
    async fn check(&mut self) {
        let is_refused = self.shared.is_refused();
        if let Some(plugin) = &mut self.source.plugin {
            plugin.renew_if_due(is_refused).await;
        }
        let read = self.source.read().and_then(|material| {
            let client = (material != self.used).then(|| self.source.client(&material)).transpose()?;
            Ok((material, client))
        });
        match read {
            Ok((_, None)) => self.logged = None,
            Ok((material, Some(client))) => {
                (self.used, self.logged) = (material, None);
                tracing::info!("the credentials have changed; the new ones are in use");
                self.shared.replace(client);
            }
            Err(error) if self.logged.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "new credentials cannot be used; the old ones stay in use");
                self.logged = Some(error);
            }
        }
        if is_refused {
            self.probe().await;
        }
    }

    /// Sends a request that shows whether the credentials are accepted. Other requests may back off for long.
    async fn probe(&self) {
        let request = Request::get("/version").body(Body::empty()).expect("the path is valid");
        let (generation, client) = self.shared.current.lock().client();
        // `send` notes the answer.
        let _ = tokio::time::timeout(PROBE_MAX, self.shared.send(generation, client, request)).await;
    }
}
