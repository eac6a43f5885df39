//! The driver's registration: kubelet asks every socket in its folder of plugins.

use std::path::Path;

use tonic::{Request, Response, Status};

use crate::NAME;
use crate::proto::registration::registration_server::Registration as Service;
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};

/// Answers kubelet with the driver's name.
#[derive(Clone, Debug)]
pub struct Registration {
    endpoint: String,
}

impl Registration {
    /// Registers the driver at this socket.
    pub fn new(socket: &Path) -> Self {
        Self { endpoint: socket.display().to_string() }
    }
}

#[tonic::async_trait]
impl Service for Registration {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            eprintln!("registered");
        } else {
            eprintln!("kubelet does not take the driver: {}", status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
