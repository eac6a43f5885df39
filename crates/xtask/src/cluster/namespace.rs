//! A node's namespaces: a network, mounts and process numbers of its own, held by one process.
//!
//! When that process ends, the kernel kills all the others, unmounts what they mounted and takes the network
//! away. Nothing is left to be remembered, and so nothing can be forgotten.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::Pid;

use super::processes;
use super::servers::Servers;

/// The node's address, from the block for documentation: nobody's.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// Where the node sends what is for others. Nobody is there.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Folders of which the node has its own, as namespace.sh makes them.
pub(super) const FOLDERS: [&str; 3] = ["/run", "/var/lib", "/var/log"];
const SCRIPT: &str = include_str!("namespace.sh");

/// Makes the namespaces; whatever the servers start from now on is in them. Returns the number of the process
/// that holds them.
///
/// # Errors
/// When something in [`SCRIPT`] fails; the error shows what.
pub(super) fn start(servers: &mut Servers<'_>) -> Result<Pid> {
    let place = servers.place();
    place.write("namespace.sh", SCRIPT)?;
    let ready = place.file("namespace.ready");
    let mut unshare = servers.outside("namespace", "unshare");
    unshare.args(["--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL"]);
    unshare.args(["--mount-proc", "--", "sh"]).arg(place.file("namespace.sh"));
    unshare.args([ADDRESS.to_string(), ROUTER.to_string()]).arg(&ready);
    let parent = servers.start("namespace", &mut unshare)?;
    let first = servers.until("the node's namespaces are there", || {
        if ready.is_file() { processes::child_of(place.folder(), parent) } else { Ok(None) }
    })?;
    servers.enter(first);
    Ok(first)
}

/// Makes a program run in the namespaces that a process holds.
pub(super) fn enter(command: &mut Command, holder: Pid) {
    command.args(["--target", &holder.to_string(), "--net", "--mount", "--pid", "--"]);
}

/// Lets this machine reach the API server in the node's network: writes the kubeconfig for it.
///
/// # Errors
/// When the relay cannot be started or the kubeconfig not be written.
pub(super) fn open(servers: &mut Servers<'_>, holder: Pid, port: u16) -> Result<()> {
    let place = servers.place();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of loopback is free")?;
    let outside = listener.local_addr()?.port();
    bindery_servers::write_kubeconfig(place.folder(), &place.kubeconfig(), outside)?;
    let mut relay = servers.outside("relay", "nsenter");
    relay.args(["--target", &holder.to_string(), "--net", "--"]);
    relay.arg(std::env::current_exe().context("this program cannot find itself")?);
    let inside = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    relay.args(["cluster", "relay", &inside.to_string()]).stdin(Stdio::from(OwnedFd::from(listener)));
    servers.start("relay", &mut relay)?;
    Ok(())
}
