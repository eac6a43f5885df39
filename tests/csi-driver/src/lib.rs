//! A CSI driver for tests. Its volumes are folders of one machine. An external provisioner and a kubelet use
//! it through the Container Storage Interface only.
//!
//! [`Folders`] answers all of CSI's services; [`Registration`] registers it with kubelet, as the sidecar
//! node-driver-registrar does.

mod controller;
mod node;
pub mod proto;
mod registration;

use std::path::{Path, PathBuf};

use tonic::{Request, Response, Status};

pub use registration::Registration;

use proto::csi::identity_server::Identity;
use proto::csi::plugin_capability::{self, Service, service};
use proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

/// The driver's name, which is the provisioner of storage classes.
pub const NAME: &str = "csi.bindery.test";

/// Volumes that are folders.
#[derive(Clone, Debug)]
pub struct Folders {
    folder: PathBuf,
    node: String,
}

impl Folders {
    /// Keeps volumes in `folder`, on the node with this name.
    pub fn new(folder: PathBuf, node: String) -> Self {
        Self { folder, node }
    }

    /// The folder of a volume.
    fn volume(&self, id: &str) -> Result<PathBuf, Status> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if id.is_empty() || !id.chars().all(is_plain) {
            return Err(Status::invalid_argument(format!("a volume cannot be called {id:?}")));
        }
        Ok(self.folder.join(id))
    }
}

#[tonic::async_trait]
impl Identity for Folders {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(GetPluginInfoResponse { name: NAME.to_owned(), vendor_version: version }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = Service { r#type: service::Type::ControllerService.into() };
        let capability = PluginCapability { r#type: Some(plugin_capability::Type::Service(service)) };
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities: vec![capability] }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse {}))
    }
}

/// The gRPC status for a failed file operation.
fn failed(what: &str, path: &Path, error: impl std::fmt::Display) -> Status {
    Status::internal(format!("cannot {what} {}: {error}", path.display()))
}
