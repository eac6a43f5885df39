//! A real kube-apiserver, empty and without controllers.

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Programs};
use kube::Client;
use serde_json::Value;

use super::driver;

/// Starts a server and sends it all requests.
pub(crate) async fn answers() -> Result<Vec<Value>> {
    let plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    Ok(driver::answers(&mut Real(plane)).await)
}

struct Real(ControlPlane);

impl driver::Server for Real {
    async fn client(&self) -> Client {
        // The test compares refusals too.
        self.0.client_without_retries().await.expect("a started server has a kubeconfig")
    }

    async fn compact(&mut self) {
        self.0.compact().await.expect("etcd compacts");
        // The API server caches changes that etcd compacted; a restart drops them.
        self.0.restart_api_server().await.expect("the API server starts again");
    }
}
