//! etcd, kube-apiserver, and upstream's controller manager.

use std::path::PathBuf;

use anyhow::Result;
use bindery_servers::{Accounts, Layout};
use serde_json::Value;

use super::servers::Servers;
use super::{Composition, Manager};
use crate::tools::{self, Tool};

/// The programs of a control plane.
pub(super) struct Programs {
    /// The cluster that they are for.
    pub(super) composition: Composition,
    etcd: PathBuf,
    kube_apiserver: PathBuf,
    pub(super) kubectl: PathBuf,
    manager: Option<PathBuf>,
}

impl Programs {
    /// Installs the missing programs.
    pub(super) fn install(composition: Composition) -> Result<Self> {
        Ok(Self {
            composition,
            etcd: tools::install(Tool::Etcd)?,
            kube_apiserver: tools::install(Tool::KubeApiserver)?,
            kubectl: tools::install(Tool::Kubectl)?,
            manager: match composition.manager {
                Manager::None => None,
                Manager::Full | Manager::WithoutBinder => Some(tools::install(Tool::KubeControllerManager)?),
            },
        })
    }
}

/// Starts a control plane without nodes on free ports of loopback, and returns its record.
pub(super) fn start_alone(servers: &mut Servers<'_>, programs: &Programs) -> Result<Value> {
    let place = servers.place();
    let layout = Layout::on_loopback(place.folder())?;
    start(servers, programs, &layout)?;
    until_ready(servers, programs)?;
    start_manager(servers, programs, &layout)?;
    until_pods_are_admitted(servers, programs)?;
    Ok(programs.composition.record(servers))
}

/// Starts etcd and kube-apiserver.
pub(super) fn start(servers: &mut Servers<'_>, programs: &Programs, layout: &Layout) -> Result<()> {
    layout.write_credentials()?;
    let mut etcd = servers.command("etcd", &programs.etcd);
    servers.start("etcd", etcd.args(layout.etcd()))?;
    // The controller manager makes the service accounts that pods get.
    let accounts = if programs.manager.is_none() { Accounts::Ignored } else { Accounts::Given };
    let mut api_server = servers.command("kube-apiserver", &programs.kube_apiserver);
    servers.start("kube-apiserver", api_server.args(layout.api_server(accounts)))?;
    Ok(())
}

/// Waits until kube-apiserver is ready and has made its namespaces.
pub(super) fn until_ready(servers: &mut Servers<'_>, programs: &Programs) -> Result<()> {
    let reader = servers.reader(&programs.kubectl);
    servers.until("kube-apiserver is ready", || Ok(reader.get("/readyz").filter(|answer| answer == "ok")))?;
    // It reports readiness before it has made them.
    for name in ["default", "kube-system"] {
        let path = format!("/api/v1/namespaces/{name}");
        servers.until(&format!("the namespace {name} exists"), || Ok(reader.get(&path)))?;
    }
    Ok(())
}

/// Starts upstream's controller manager, if the cluster has one.
pub(super) fn start_manager(servers: &mut Servers<'_>, programs: &Programs, layout: &Layout) -> Result<()> {
    let Some(program) = &programs.manager else { return Ok(()) };
    let controllers = match programs.composition.manager {
        Manager::None => return Ok(()),
        Manager::Full => "*",
        Manager::WithoutBinder => bindery_servers::ALL_BUT_THE_BINDER,
    };
    let mut manager = servers.command("kube-controller-manager", program);
    servers.start("kube-controller-manager", manager.args(layout.manager(controllers)?))?;
    Ok(())
}

/// Waits until the API server admits pods: each gets its namespace's service account, which the controller
/// manager makes.
pub(super) fn until_pods_are_admitted(servers: &mut Servers<'_>, programs: &Programs) -> Result<()> {
    if programs.manager.is_none() {
        return Ok(());
    }
    let reader = servers.reader(&programs.kubectl);
    servers.until("pods have a service account", || {
        Ok(reader.get("/api/v1/namespaces/default/serviceaccounts/default"))
    })?;
    Ok(())
}
