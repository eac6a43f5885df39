//! The driver's program: one socket for provisioner and kubelet, and one for its registration.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bindery_csi_driver::proto::csi::controller_server::ControllerServer;
use bindery_csi_driver::proto::csi::identity_server::IdentityServer;
use bindery_csi_driver::proto::csi::node_server::NodeServer;
use bindery_csi_driver::proto::registration::registration_server::RegistrationServer;
use bindery_csi_driver::{Folders, Registration};
use clap::Parser;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// A CSI driver whose volumes are folders.
#[derive(Parser)]
struct Arguments {
    /// Socket for CSI.
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
    /// Socket for kubelet, in its folder of plugins: `/var/lib/kubelet/plugins_registry`.
    #[arg(long, value_name = "FILE")]
    registration_socket: PathBuf,
    /// The folder of the volumes.
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// Name of the node that this runs on.
    #[arg(long)]
    node: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folders = Folders::new(arguments.folder, arguments.node);
    let csi = Server::builder()
        .add_service(IdentityServer::new(folders.clone()))
        .add_service(ControllerServer::new(folders.clone()))
        .add_service(NodeServer::new(folders))
        .serve_with_incoming(listen(&arguments.socket)?);
    // Second, since a registered driver must answer.
    let registration = Server::builder()
        .add_service(RegistrationServer::new(Registration::new(&arguments.socket)))
        .serve_with_incoming(listen(&arguments.registration_socket)?);
    tokio::try_join!(csi, registration).context("a socket has failed")?;
    Ok(())
}

/// Listens on a socket, and replaces one that an earlier run has left.
fn listen(path: &Path) -> Result<UnixListenerStream> {
    let why = || format!("cannot listen at {}", path.display());
    if path.exists() {
        fs::remove_file(path).with_context(why)?;
    }
    Ok(UnixListenerStream::new(UnixListener::bind(path).with_context(why)?))
}
