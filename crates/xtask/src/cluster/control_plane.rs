//! etcd, kube-apiserver, and upstream's controller manager.

use std::path::PathBuf;

use anyhow::Result;
use bindery_servers::{Accounts, Layout};
use serde_json::Value;

use super::servers::Servers;
use super::{Kind, Manager};
use crate::tools::{self, Tool};

/// The programs of a control plane.
pub(super) struct Programs {
    etcd: PathBuf,
    kube_apiserver: PathBuf,
    pub(super) kubectl: PathBuf,
    manager: Option<PathBuf>,
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
    let layout = Layout::on_loopback(place.folder())?;
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
    layout.write_credentials()?;
    let mut etcd = servers.command("etcd", &programs.etcd);
    servers.start("etcd", etcd.args(layout.etcd()))?;
    // Only the controller manager makes the accounts that pods would get.
    let accounts = if kind.manager == Manager::None { Accounts::Ignored } else { Accounts::Given };
    let mut api_server = servers.command("kube-apiserver", &programs.kube_apiserver);
    servers.start("kube-apiserver", api_server.args(layout.api_server(accounts)))?;
    Ok(())
}

/// Waits until kube-apiserver is ready, and has made its namespaces.
///
/// # Errors
/// When it does not become so.
pub(super) fn until_ready(servers: &mut Servers<'_>, programs: &Programs) -> Result<()> {
    let reader = servers.reader(&programs.kubectl);
    servers.until("kube-apiserver is ready", || Ok(reader.get("/readyz").filter(|answer| answer == "ok")))?;
    // It may say so before it has made the namespaces that everybody counts on.
    for name in ["default", "kube-system"] {
        let path = format!("/api/v1/namespaces/{name}");
        servers.until(&format!("there is the namespace {name}"), || Ok(reader.get(&path)))?;
    }
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
    let controllers = match kind.manager {
        Manager::None => return Ok(()),
        Manager::Full => "*",
        Manager::WithoutBinder => bindery_servers::ALL_BUT_THE_BINDER,
    };
    let mut manager = servers.command("kube-controller-manager", program);
    servers.start("kube-controller-manager", manager.args(layout.manager(controllers)?))?;
    Ok(())
}

/// Waits until pods are let in: each gets its namespace's service account, which the controller manager
/// makes.
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
