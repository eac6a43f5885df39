//! Creates and deletes volumes.

use std::fs;
use std::io::ErrorKind;

use tonic::{Request, Response, Status};

use crate::proto::csi::controller_server::Controller;
use crate::proto::csi::controller_service_capability::{self, Rpc, rpc};
use crate::proto::csi::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerServiceCapability,
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, Volume,
};
use crate::{Folders, failed};

#[tonic::async_trait]
impl Controller for Folders {
    /// If a volume with the name exists, it is returned: callers repeat requests without an answer.
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let folder = self.volume(&request.name)?;
        fs::create_dir_all(&folder).map_err(|error| failed("create", &folder, error))?;
        let volume = Volume {
            capacity_bytes: request.capacity_range.map_or(0, |range| range.required_bytes),
            volume_id: request.name,
        };
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    /// The deletion of a missing volume succeeds.
    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let folder = self.volume(&request.into_inner().volume_id)?;
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("delete", &folder, error)),
            _ => Ok(Response::new(DeleteVolumeResponse {})),
        }
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let rpc = Rpc { r#type: rpc::Type::CreateDeleteVolume.into() };
        let capability =
            ControllerServiceCapability { r#type: Some(controller_service_capability::Type::Rpc(rpc)) };
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: vec![capability] }))
    }
}
