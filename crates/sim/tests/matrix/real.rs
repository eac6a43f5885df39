//! A real kube-apiserver: alone with its etcd, and empty.

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Programs};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use super::driver;

/// Starts one and asks it all there is to ask.
///
/// # Errors
///
/// It cannot be started.
pub(crate) async fn answers() -> Result<Vec<Value>> {
    let plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // Refusals are answers.
    config.default_retry = false;
    Ok(driver::answers(&Client::try_from(config)?).await)
}
