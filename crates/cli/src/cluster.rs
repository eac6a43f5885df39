//! The cluster that a command works on.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use bindery_kube::ApiClient;

/// The cluster.
#[derive(clap::Args)]
pub(crate) struct ClusterArguments {
    /// Kubeconfig of the cluster. By default those of the variable `KUBECONFIG`, else `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. By default the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArguments {
    /// A client of the cluster.
    pub(crate) async fn client(&self) -> Result<ApiClient> {
        let client = ApiClient::of_user(self.kubeconfig.as_deref(), self.context.as_deref()).await;
        let client = client.map(|(client, _)| client);
        client.context("the kubeconfig cannot be used; name one by --kubeconfig")
    }
}
