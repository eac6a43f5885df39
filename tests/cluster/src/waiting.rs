//! Waiting for what a cluster or a replica will do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::runtime::wait::await_condition;
use serde::de::DeserializeOwned;

/// The longest wait for anything to happen; a slow machine takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Part of the error of a request whose review came to the webhook with its body late, because the API server
/// had paused in between: the webhook does not wait for it, and has reviewed nothing.
pub const LATE_BODY: &str = "the status code 408";

/// An object that [`until`] can wait for.
pub trait Object:
    Clone + Debug + DeserializeOwned + Send + kube::Resource<DynamicType: Default> + 'static
{
}

impl<K: Clone + Debug + DeserializeOwned + Send + kube::Resource<DynamicType: Default> + 'static> Object
    for K
{
}

/// Polls until `probe` returns a value, for state that no event reports; `None` after [`PATIENCE`].
pub async fn poll<T>(probe: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    bindery_kit::poll(Duration::from_millis(50), PATIENCE, probe).await
}

/// Waits for something that must happen within [`PATIENCE`].
pub async fn in_time<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let in_time = tokio::time::timeout(PATIENCE, happens).await;
    in_time.unwrap_or_else(|_| panic!("it does not happen: {what}"))
}

/// Waits until an object satisfies a condition, and returns it.
pub async fn until<K: Object>(api: &Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K {
    until_condition(api, name, |object| object.is_some_and(&holds)).await.unwrap()
}

/// Waits until an object no longer exists.
pub(crate) async fn until_gone<K: Object>(api: &Api<K>, name: &str) {
    until_condition(api, name, |object| object.is_none()).await;
}

async fn until_condition<K: Object>(
    api: &Api<K>,
    name: &str,
    holds: impl Fn(Option<&K>) -> bool,
) -> Option<K> {
    // An error means that the watch was interrupted.
    let object = poll(async || await_condition(api.clone(), name, &holds).await.ok());
    match tokio::time::timeout(PATIENCE, object).await {
        Ok(Some(object)) => object,
        Ok(None) | Err(_) => panic!("{name} stays {:?}", api.get_opt(name).await),
    }
}
