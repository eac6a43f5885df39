//! Follows files and plugins.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::client::Body;

use super::source::{Material, Source};
use super::{CredentialsError, Shared};

/// How often files are read and plugins' expiry is looked at. A Secret that is mounted changes by a symbolic
/// link that is swapped, others rename or write over a file: reading the content works for all of them.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The least between two looks, where an API server accepts and refuses in turn.
const LOOK_APART: Duration = Duration::from_secs(1);
/// Longest that a look waits for the API server to accept or refuse.
const PROBE_MAX: Duration = Duration::from_secs(10);

pub(super) struct Keeper {
    shared: Arc<Shared>,
    source: Source,
    /// What the client in use is made of.
    used: Material,
    /// The last error, which is logged once.
    told: Option<CredentialsError>,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>, source: Source, used: Material) -> Self {
        Self { shared, source, used, told: None }
    }

    pub(super) async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK_APART).await;
            let wait = LOOK_EVERY - LOOK_APART;
            // Either way it is time to look.
            let _ = tokio::time::timeout(wait, self.shared.refused.notified()).await;
            self.look().await;
        }
    }

    /// Takes what has changed into use. Where it cannot be used, as the new half of a pair whose other half
    /// is still to be written, that is logged once and tried again; the client in use stays.
    async fn look(&mut self) {
        let is_refused = self.shared.is_refused();
        if let Some(plugin) = &mut self.source.plugin {
            plugin.renew_if_due(is_refused).await;
        }
        let taken = self.source.read().and_then(|material| {
            let client = (material != self.used).then(|| self.source.client(&material)).transpose()?;
            Ok((material, client))
        });
        match taken {
            Ok((_, None)) => self.told = None,
            Ok((material, Some(client))) => {
                (self.used, self.told) = (material, None);
                tracing::info!("the credentials have changed; the new ones are in use");
                self.shared.replace(client);
            }
            Err(error) if self.told.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "new credentials cannot be used; the old ones stay in use");
                self.told = Some(error);
            }
        }
        if is_refused {
            self.probe().await;
        }
    }

    /// Sends a request, because others may back off for long and it is to be known soon whether the
    /// credentials are accepted.
    async fn probe(&self) {
        let request = Request::get("/version").body(Body::empty()).expect("the path is valid");
        // The answer is noted as any other is.
        let _ = tokio::time::timeout(PROBE_MAX, self.shared.send(request)).await;
    }
}
