//! A replica of Bindery that answers reviews and does nothing else.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_cluster::{ControlPlane, Server, free_port};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tempfile::TempDir;

/// How often it is asked whether it is ready, and how often at most.
const ASKED_EVERY: Duration = Duration::from_millis(50);
const ASKED_MAX: usize = 2_400;

/// A replica with a door. It does not lead, as every replica but one: so it watches and answers, and neither
/// decides nor writes while it is measured.
pub(crate) struct Door {
    // Ends before its folder does.
    server: Server,
    _folder: TempDir,
    /// Where reviews are asked for, on loopback.
    pub(crate) port: u16,
    /// Who vouches for it, PEM.
    pub(crate) authorities: Vec<u8>,
}

impl Door {
    /// Opens a door that runs on these cores. Ends when it has all lists.
    pub(crate) async fn open(bindery: &Path, plane: &ControlPlane, cores: &str) -> Result<Self> {
        let client = plane.client().await?;
        give_the_lease_away(&client).await?;
        let (folder, face, port) = (TempDir::new()?, free_port()?, free_port()?);
        let arguments = [
            OsString::from("--cpu-list"),
            cores.into(),
            bindery.into(),
            "serve".into(),
            format!("--kubeconfig={}", plane.kubeconfig().display()).into(),
            format!("--listen=127.0.0.1:{face}").into(),
            format!("--webhook-listen=127.0.0.1:{port}").into(),
            "--certificate-name=127.0.0.1".into(),
        ];
        let log = folder.path().join("bindery.log");
        // taskset becomes the program that it starts.
        let mut server = Server::start(Path::new("taskset"), arguments, &log)?;
        until_ready(&mut server, face).await?;
        let secret = Api::<Secret>::namespaced(client, "kube-system").get("bindery-tls").await?;
        let authorities = secret.data.unwrap_or_default().remove("ca.crt");
        let authorities = authorities.context("Secret kube-system/bindery-tls has no ca.crt")?.0;
        Ok(Self { server, _folder: folder, port, authorities })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }
}

/// Gives the Lease to somebody who is not there, for longer than anything is measured.
async fn give_the_lease_away(client: &kube::Client) -> Result<()> {
    let lease = serde_json::from_value(json!({
        "metadata": {"name": "bindery"},
        "spec": {"holderIdentity": "another replica", "leaseDurationSeconds": 24 * 3600},
    }))?;
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    leases.create(&PostParams::default(), &lease).await.context("the Lease cannot be given away")?;
    Ok(())
}

async fn until_ready(server: &mut Server, face: u16) -> Result<()> {
    let client = kube::Client::try_from(kube::Config::new(format!("http://127.0.0.1:{face}").parse()?))?;
    let mut ticks = tokio::time::interval(ASKED_EVERY);
    let mut asked = 0;
    while client.request_text(http::Request::get("/readyz").body(Vec::new())?).await.is_err() {
        ticks.tick().await;
        server.check()?;
        asked += 1;
        ensure!(asked < ASKED_MAX, "the door does not become ready:\n{}", server.log()?);
    }
    Ok(())
}
