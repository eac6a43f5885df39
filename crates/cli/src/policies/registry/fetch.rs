//! Fetches modules into the folder, and makes room for them.

use bindery_policy::Pull;
use bindery_registry::{Access, Digest, Name, Registry, RegistryError, copy};
use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use tokio::time::Instant;

use super::{Asked, Inner, Wanted};
use crate::policies::retry::pause;

impl Inner {
    pub(super) async fn fetch(&self, asked: &Asked) -> Result<(), RegistryError> {
        let (layout, Some(registry)) = (self.layout()?, &self.registry) else { return Ok(()) };
        let Asked { reference, digest, pull } = asked;
        let wanted = || self.wanted.lock().get(digest).copied();
        let _shadow = match wanted() {
            Some(Wanted::ForShadow) => Some(self.shadow_fetches.acquire().await),
            Some(Wanted::ForEffect) | None => None,
        };
        let _fetch = self.fetches.acquire().await;
        // Its object may have changed meanwhile. A command of a user fetches what it was told.
        if self.pull_secrets.is_some() && wanted().is_none() {
            return Ok(());
        }
        let registry = self.client(registry, pull).await?;
        let repository = registry.repository(reference, Access::Pull)?;
        // First, so that nothing large is fetched that is not signed.
        self.signed_by(&repository, reference, digest).await?;
        let name = Name::Digest(*digest);
        // Other fetches may make room meanwhile.
        let writer = layout.writer();
        self.keep_with_room(digest, || copy(&repository, &writer, &name).map_ok(drop).boxed()).await?;
        // What cannot be used from the folder would be fetched again and again.
        self.kept(reference, digest).await.map(drop)
    }

    /// Keeps a module by the digest of its bytes.
    pub(super) async fn keep(&self, module: Vec<u8>) -> Result<(), RegistryError> {
        let (layout, digest) = (self.layout()?, Digest::of(&module));
        self.keep_with_room(&digest, || layout.put_module(module.clone()).boxed()).await
    }

    /// Calls `keep` until it has room for a module. Before the second try it removes modules that no object
    /// names, and before the third those of shadows. It never removes `new`, whose object is not loaded yet.
    async fn keep_with_room<'a>(
        &self,
        new: &Digest,
        keep: impl Fn() -> BoxFuture<'a, Result<(), RegistryError>> + Send + Sync,
    ) -> Result<(), RegistryError> {
        for least in [Wanted::ForShadow, Wanted::ForEffect] {
            match keep().await {
                Err(RegistryError::Full(_)) => {}
                kept => return kept,
            }
            let wanted = self.wanted.lock().clone();
            self.layout()?.retain(|kept| kept == new || wanted.get(kept).is_some_and(|of| *of >= least))?;
        }
        keep().await
    }

    /// The client with the authorities and the credentials that an object names. A user's command has its
    /// own.
    async fn client(&self, registry: &Registry, pull: &Pull) -> Result<Registry, RegistryError> {
        let mut registry = registry.clone();
        let Some(secrets) = &self.pull_secrets else { return Ok(registry) };
        if let Some(authorities) = &pull.ca {
            let trusting = registry.trusting(authorities.as_bytes());
            let wrong = |error| RegistryError::Invalid(format!("spec.pull.ca: {error}"));
            registry = trusting.map_err(wrong)?;
        }
        if let Some(secret) = &pull.secret {
            registry = registry.with_credentials(secrets.read(secret).await?);
        }
        Ok(registry)
    }

    /// Remembers what came of a fetch.
    pub(super) fn end(&self, asked: &Asked, outcome: Result<(), RegistryError>) {
        let (mut failures, key, module) = (self.failures.lock(), asked.key(), &asked.reference);
        match outcome {
            Ok(()) => _ = failures.remove(&key),
            Err(error) => {
                tracing::warn!(%module, %error, "the module is not fetched; trying again later");
                if let Some(failure) = failures.get_mut(&key) {
                    failure.missing = asked.missing(&error);
                    failure.retry_at = Some(Instant::now() + pause(failure.failures));
                    failure.failures += 1;
                }
            }
        }
        drop(failures);
        self.fetched.notify_one();
    }
}
