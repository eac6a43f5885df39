//! Mounts volumes for pods: a bind mount of the volume's folder at kubelet's path.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use tonic::{Request, Response, Status};

use crate::proto::csi::node_server::Node;
use crate::proto::csi::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};
use crate::{Folders, failed};

#[tonic::async_trait]
impl Node for Folders {
    /// Kubelet repeats this while the pod runs.
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (folder, target) = (self.volume(&request.volume_id)?, PathBuf::from(request.target_path));
        if !folder.is_dir() {
            return Err(Status::not_found(format!("there is no volume {}", request.volume_id)));
        }
        fs::create_dir_all(&target).map_err(|error| failed("create", &target, error))?;
        if !is_same(&folder, &target) {
            mount_bind(&folder, &target).map_err(|error| failed("mount on", &target, error))?;
        }
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (folder, target) = (self.volume(&request.volume_id)?, PathBuf::from(request.target_path));
        if is_same(&folder, &target) {
            unmount(&target, UnmountFlags::empty()).map_err(|error| failed("unmount", &target, error))?;
        }
        if target.exists() {
            fs::remove_dir(&target).map_err(|error| failed("remove", &target, error))?;
        }
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(NodeGetCapabilitiesResponse {}))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse { node_id: self.node.clone() }))
    }
}

/// Whether two paths are the same folder, because one is mounted on the other.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}
