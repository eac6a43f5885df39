//! A node's namespaces for network, mounts and processes, held by one process.
//!
//! When that process ends, the kernel kills all other processes of the node, unmounts its mounts and removes
//! its network. So nothing has to be cleaned up, and nothing can be left behind.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

use super::processes;
use super::servers::Servers;

/// The node's address, from the block that is reserved for documentation.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// The node's default router, which does not exist.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The node's own folders, as namespace.sh makes them.
pub(super) const FOLDERS: [&str; 3] = ["/run", "/var/lib", "/var/log"];
const SCRIPT: &str = include_str!("namespace.sh");

/// Makes the namespaces, in which all servers are started from now on. Returns the process that holds them.
pub(super) fn start(servers: &mut Servers<'_>) -> Result<Pid> {
    let place = servers.place();
    place.write("namespace.sh", SCRIPT)?;
    let ready = place.file("namespace.ready");
    let mut unshare = servers.outside("namespace", "unshare");
    unshare.args(["--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL"]);
    unshare.args(["--mount-proc", "--", "sh"]).arg(place.file("namespace.sh"));
    unshare.args([ADDRESS.to_string(), ROUTER.to_string()]).arg(&ready);
    let parent = servers.start("namespace", &mut unshare)?;
    let first = servers.until("the node's namespaces exist", || {
        if ready.is_file() { processes::child_of(place.folder(), parent) } else { Ok(None) }
    })?;
    servers.enter(first);
    Ok(first)
}

/// Makes a command run in the namespaces that a process holds.
pub(super) fn enter(command: &mut Command, holder: Pid) {
    command.args(["--target", &holder.to_string(), "--net", "--mount", "--pid", "--"]);
}

/// Lets this machine reach the API server in the node's network, which has no other connection: socat listens
/// on loopback here and connects there. Writes the kubeconfig for it.
pub(super) fn open(servers: &mut Servers<'_>, holder: Pid, port: u16) -> Result<()> {
    let place = servers.place();
    let outside = bindery_servers::free_port().context("no port for the relay")?;
    bindery_servers::write_kubeconfig(place.folder(), &place.kubeconfig(), outside)?;
    let mut relay = servers.outside("relay", "socat");
    // When one direction ends, the other one may go on for a day: a client may wait long for its answer.
    relay.args(["-t", "86400"]).arg(format!("TCP-LISTEN:{outside},bind=127.0.0.1,reuseaddr,fork,nodelay"));
    relay.arg(format!(
        "EXEC:nsenter --target {holder} --net -- socat -t 86400 - TCP\\:127.0.0.1\\:{port}\\,nodelay"
    ));
    servers.start("relay", &mut relay)?;
    Ok(())
}
