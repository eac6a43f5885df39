//! The cluster that a command works on.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use bindery_kube::ApiClient;
use bindery_kube::read::ReadError;
use serde_json::Value;

use crate::manifest::Manifest;
use crate::objects::Resource;

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
        Ok(self.client_and_namespace("").await?.0)
    }

    /// A client of the cluster, and the namespace of the context. The error names the remedy, and behind it
    /// `or_else`, what may be given instead.
    pub(crate) async fn client_and_namespace(&self, or_else: &str) -> Result<(ApiClient, String)> {
        let client = ApiClient::of_user(self.kubeconfig.as_deref(), self.context.as_deref()).await;
        client.with_context(|| match &self.kubeconfig {
            Some(path) => format!("--kubeconfig {} cannot be used", path.display()),
            None => format!("the kubeconfig cannot be used; name one by --kubeconfig{or_else}"),
        })
    }
}

/// The error of a read or patch for a user, who may lack one of these rights.
pub(crate) fn explained(rights: &str) -> impl Fn(ReadError) -> anyhow::Error {
    move |error| match error {
        ReadError::Forbidden(message) => anyhow!("{message}; ask for this right: {rights}"),
        error => error.into(),
    }
}

/// An object that was read from a cluster.
pub(crate) fn manifest(resource: Resource, object: Value) -> Manifest {
    let (file, place) = ("the cluster".to_owned(), "its API".to_owned());
    Manifest { file, place, object: resource.complete(object) }
}
