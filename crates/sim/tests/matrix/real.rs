//! A real kube-apiserver, empty and without controllers.

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Programs};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use super::driver;

/// Starts a server and sends it all requests.
///
/// # Errors
///
/// When the server cannot be started.
pub(crate) async fn answers() -> Result<Vec<Value>> {
    let plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    Ok(driver::answers(&mut Real(plane)).await)
}

struct Real(ControlPlane);

impl driver::Server for Real {
    async fn client(&self) -> Client {
        let kubeconfig =
            Kubeconfig::read_from(self.0.kubeconfig()).expect("a started server has a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("the kubeconfig is complete");
        // The test compares refusals too.
        config.default_retry = false;
        Client::try_from(config).expect("the kubeconfig's credentials are sound")
    }

    async fn compact(&mut self) {
        self.0.compact().await.expect("etcd compacts");
        // The API server caches changes that etcd compacted; a restart drops them.
        self.0.restart_api_server().await.expect("the API server starts again");
    }
}
