//! The driver's program, called through its sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use bindery_csi_driver::proto::csi::controller_client::ControllerClient;
use bindery_csi_driver::proto::csi::identity_client::IdentityClient;
use bindery_csi_driver::proto::csi::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, GetPluginInfoRequest,
};
use bindery_csi_driver::proto::registration::InfoRequest;
use bindery_csi_driver::proto::registration::registration_client::RegistrationClient;
use tempfile::TempDir;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

struct Driver {
    child: Child,
    folder: TempDir,
}

impl Driver {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bindery-csi-driver"));
        command.arg("--socket").arg(folder.path().join("csi.sock"));
        command.arg("--registration-socket").arg(folder.path().join("registration.sock"));
        command.arg("--folder").arg(folder.path().join("volumes")).arg("--node=node");
        Self { child: command.spawn().unwrap(), folder }
    }

    async fn connect(&mut self, socket: &str) -> Channel {
        let path = self.folder.path().join(socket);
        // A socket is ready when it answers.
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            assert!(self.child.try_wait().unwrap().is_none(), "the driver has ended");
            let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
            if let Ok(channel) = endpoint.connect().await {
                return channel;
            }
        }
    }

    fn volume(&self, id: &str) -> std::path::PathBuf {
        Path::new(self.folder.path()).join("volumes").join(id)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test]
async fn a_repeated_creation_or_deletion_of_a_volume_succeeds() {
    let mut driver = Driver::start();
    let mut controller = ControllerClient::new(driver.connect("csi.sock").await);
    for _ in 0..2 {
        let capacity_range = Some(CapacityRange { required_bytes: 42 });
        let request = CreateVolumeRequest { name: "pvc-1".to_owned(), capacity_range };
        let volume = controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
        assert_eq!((volume.volume_id.as_str(), volume.capacity_bytes), ("pvc-1", 42));
        assert!(driver.volume("pvc-1").is_dir());
    }
    for _ in 0..2 {
        controller.delete_volume(DeleteVolumeRequest { volume_id: "pvc-1".to_owned() }).await.unwrap();
        assert!(!driver.volume("pvc-1").exists());
    }
}

#[tokio::test]
async fn a_volume_id_outside_of_the_folder_is_refused() {
    let mut driver = Driver::start();
    let mut controller = ControllerClient::new(driver.connect("csi.sock").await);
    for id in ["", "..", "a/b", "/etc"] {
        let refused = controller.delete_volume(DeleteVolumeRequest { volume_id: id.to_owned() }).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{id:?}");
    }
}

#[tokio::test]
async fn the_registration_names_the_drivers_socket() {
    let mut driver = Driver::start();
    let mut registration = RegistrationClient::new(driver.connect("registration.sock").await);
    let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(Path::new(&info.endpoint), driver.folder.path().join("csi.sock"));
    let mut identity = IdentityClient::new(driver.connect("csi.sock").await);
    let described = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, described.name);
}
