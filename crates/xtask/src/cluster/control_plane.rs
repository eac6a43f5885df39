//! etcd, kube-apiserver, and upstream's controller manager.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::servers::Servers;
use super::{Kind, Manager, credentials};
use crate::tools::{self, Tool};

/// The programs of a control plane.
pub(super) struct Programs {
    etcd: PathBuf,
    kube_apiserver: PathBuf,
    pub(super) kubectl: PathBuf,
    manager: Option<PathBuf>,
}

/// Where a control plane listens and writes.
pub(super) struct Layout {
    /// etcd's data.
    pub(super) data: PathBuf,
    pub(super) etcd_port: u16,
    pub(super) peer_port: u16,
    /// kube-apiserver's port.
    pub(super) port: u16,
    /// Where nodes find kube-apiserver; without nodes it is on loopback only.
    pub(super) advertised: Option<Ipv4Addr>,
    /// By which the cluster's own programs find kube-apiserver.
    pub(super) kubeconfig: PathBuf,
}

impl Programs {
    /// Installs what is missing.
    ///
    /// # Errors
    /// When a program cannot be installed.
    pub(super) fn install(kind: Kind) -> Result<Self> {
        Ok(Self {
            etcd: tools::install(Tool::Etcd)?,
            kube_apiserver: tools::install(Tool::KubeApiserver)?,
            kubectl: tools::install(Tool::Kubectl)?,
            manager: match kind.manager {
                Manager::None => None,
                Manager::Full | Manager::WithoutBinder => Some(tools::install(Tool::KubeControllerManager)?),
            },
        })
    }
}

/// Starts a control plane without nodes on free ports of loopback; returns what is to be written down.
///
/// # Errors
/// When a server does not become ready.
pub(super) fn start_alone(servers: &mut Servers<'_>, kind: Kind, programs: &Programs) -> Result<Value> {
    let place = servers.place();
    let layout = Layout {
        data: place.file("etcd"),
        etcd_port: free_port()?,
        peer_port: free_port()?,
        port: free_port()?,
        advertised: None,
        kubeconfig: place.kubeconfig(),
    };
    credentials::write_kubeconfig(place, &layout.kubeconfig, layout.port)?;
    start(servers, kind, programs, &layout)?;
    until_ready(servers, programs)?;
    start_manager(servers, kind, programs, &layout)?;
    until_pods_may_come(servers, kind, programs)?;
    Ok(kind.record(servers))
}

/// Starts etcd and kube-apiserver.
///
/// # Errors
/// When a program cannot be started.
pub(super) fn start(
    servers: &mut Servers<'_>,
    kind: Kind,
    programs: &Programs,
    layout: &Layout,
) -> Result<()> {
    let place = servers.place();
    credentials::write(place)?;
    let client_url = format!("http://127.0.0.1:{}", layout.etcd_port);
    let mut etcd = servers.command("etcd", &programs.etcd);
    etcd.arg("--data-dir").arg(&layout.data);
    etcd.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
    etcd.args(["--listen-peer-urls", &format!("http://127.0.0.1:{}", layout.peer_port)]);
    // Nothing is to survive the machine.
    etcd.arg("--unsafe-no-fsync");
    servers.start("etcd", &mut etcd)?;

    let mut api_server = servers.command("kube-apiserver", &programs.kube_apiserver);
    api_server.args(["--etcd-servers", &client_url, "--secure-port", &layout.port.to_string()]);
    match layout.advertised {
        Some(address) => {
            api_server.args(["--bind-address", "0.0.0.0", "--advertise-address", &address.to_string()]);
            api_server.args(["--allow-privileged", "--kubelet-preferred-address-types", "InternalIP"]);
        }
        None => _ = api_server.args(["--bind-address", "127.0.0.1"]),
    }
    api_server.args(["--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/16"]);
    api_server.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    api_server.arg("--service-account-key-file").arg(place.file("service-account.pub"));
    api_server.arg("--service-account-signing-key-file").arg(place.file("service-account.key"));
    api_server.arg("--token-auth-file").arg(place.file("tokens.csv"));
    api_server.arg("--cert-dir").arg(place.folder());
    if kind.manager == Manager::None {
        // Only the controller manager makes the accounts that it would ask for.
        api_server.args(["--disable-admission-plugins", "ServiceAccount"]);
    }
    servers.start("kube-apiserver", &mut api_server)?;
    Ok(())
}

/// Waits until kube-apiserver is ready.
///
/// # Errors
/// When it does not become so.
pub(super) fn until_ready(servers: &mut Servers<'_>, programs: &Programs) -> Result<()> {
    let reader = servers.reader(&programs.kubectl);
    servers.until("kube-apiserver is ready", || Ok(reader.get("/readyz").filter(|answer| answer == "ok")))?;
    Ok(())
}

/// Starts upstream's controller manager, where it is wanted.
///
/// # Errors
/// When it cannot be started.
pub(super) fn start_manager(
    servers: &mut Servers<'_>,
    kind: Kind,
    programs: &Programs,
    layout: &Layout,
) -> Result<()> {
    let Some(program) = &programs.manager else { return Ok(()) };
    let place = servers.place();
    let mut manager = servers.command("kube-controller-manager", program);
    manager.arg("--kubeconfig").arg(&layout.kubeconfig).arg("--leader-elect=false");
    if kind.manager == Manager::WithoutBinder {
        manager.arg("--controllers=*,-persistentvolume-binder-controller");
    }
    manager.arg("--service-account-private-key-file").arg(place.file("service-account.key"));
    manager.arg("--root-ca-file").arg(credentials::certificate(place));
    manager.arg("--cert-dir").arg(place.folder());
    manager.args(["--bind-address", "127.0.0.1", "--secure-port", &free_port()?.to_string()]);
    servers.start("kube-controller-manager", &mut manager)?;
    Ok(())
}

/// Waits until pods are let in: each gets its namespace's service account, which the controller manager makes.
///
/// # Errors
/// When there is none after a while.
pub(super) fn until_pods_may_come(servers: &mut Servers<'_>, kind: Kind, programs: &Programs) -> Result<()> {
    if kind.manager == Manager::None {
        return Ok(());
    }
    let reader = servers.reader(&programs.kubectl);
    servers.until("there is a service account for pods", || {
        Ok(reader.get("/api/v1/namespaces/default/serviceaccounts/default"))
    })?;
    Ok(())
}

/// A port of this machine's loopback that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of loopback is free")?;
    Ok(listener.local_addr()?.port())
}
