//! A replica of Bindery that only answers reviews.

use std::path::Path;

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Replica, free_port};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

/// A replica that serves the webhook and does not lead, so it neither decides nor writes.
pub(crate) struct Webhook {
    replica: Replica,
    pub(crate) port: u16,
    /// The certificate authority, in PEM.
    pub(crate) authority: Vec<u8>,
}

impl Webhook {
    /// Starts the webhook on these cores, and waits until it has all lists.
    pub(crate) async fn start(bindery: &Path, plane: &ControlPlane, cores: &str) -> Result<Self> {
        let client = plane.client().await?;
        give_the_lease_away(&client).await?;
        let port = free_port()?;
        let options = [format!("--webhook-listen=127.0.0.1:{port}"), "--certificate-name=127.0.0.1".into()];
        // taskset replaces itself with the program.
        let command = [Path::new("taskset"), Path::new("--cpu-list"), Path::new(cores), bindery];
        let replica = Replica::on(plane, &command, &options);
        replica.until_ready().await;
        let secret = Api::<Secret>::namespaced(client, "kube-system").get("bindery-tls").await?;
        let authority = secret.data.unwrap_or_default().remove("ca.crt");
        let authority = authority.context("Secret kube-system/bindery-tls has no ca.crt")?.0;
        Ok(Self { replica, port, authority })
    }

    pub(crate) fn id(&self) -> u32 {
        self.replica.id()
    }
}

/// Gives the Lease to a replica that does not exist, for longer than the benchmark takes.
async fn give_the_lease_away(client: &kube::Client) -> Result<()> {
    let lease = serde_json::from_value(json!({
        "metadata": {"name": "bindery"},
        "spec": {"holderIdentity": "another replica", "leaseDurationSeconds": 24 * 3600},
    }))?;
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    leases.create(&PostParams::default(), &lease).await.context("the Lease cannot be given away")?;
    Ok(())
}
