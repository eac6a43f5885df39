//! Who binds, and how it is started.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Server};
use tempfile::TempDir;

/// Who binds.
#[derive(Clone, Debug)]
pub(crate) enum Contestant {
    /// Nobody: a client makes the writes of a bind and decides nothing.
    Ceiling,
    /// This program.
    Bindery(PathBuf),
    /// kube-controller-manager with the binder alone, without its rate limits.
    Upstream,
}

impl Contestant {
    /// Its name in the table.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ceiling => "API server's ceiling",
            Self::Bindery(_) => "Bindery",
            Self::Upstream => "upstream",
        }
    }
}

/// A binder that runs. Ended by [`Running::end`], or with its control plane.
pub(crate) struct Running {
    bindery: Option<Replica>,
    /// What [`synced`] counted before it was started.
    synced_before: usize,
}

/// A replica of Bindery alone.
struct Replica {
    // Ends before its folder does.
    server: Server,
    port: u16,
    _folder: TempDir,
}

impl Running {
    /// Starts the binder.
    pub(crate) fn start(contestant: &Contestant, plane: &mut ControlPlane) -> Result<Self> {
        let mut bindery = None;
        let synced_before = synced(plane)?;
        match contestant {
            Contestant::Ceiling => {}
            Contestant::Upstream => plane.set_manager(Manager::BinderAlone)?,
            Contestant::Bindery(program) => {
                let (folder, port) = (TempDir::new()?, bindery_cluster::free_port()?);
                let arguments = [
                    "serve".to_owned(),
                    format!("--kubeconfig={}", plane.kubeconfig().display()),
                    format!("--listen=127.0.0.1:{port}"),
                ];
                let log = folder.path().join("bindery.log");
                let server = Server::start(program, arguments.map(OsString::from), &log)?;
                bindery = Some(Replica { server, port, _folder: folder });
            }
        }
        Ok(Self { bindery, synced_before })
    }

    /// The binder's process, where there is one.
    pub(crate) fn id(&self, plane: &mut ControlPlane) -> Option<u32> {
        match &self.bindery {
            Some(replica) => Some(replica.server.id()),
            None => plane.manager().map(|manager| manager.id()),
        }
    }

    /// Whether the binder has all lists: Bindery says so at `/readyz`, upstream in its log.
    pub(crate) async fn is_ready(&self, plane: &ControlPlane) -> Result<bool> {
        let Some(replica) = &self.bindery else { return Ok(synced(plane)? >= self.synced_before + CACHES) };
        let url = format!("http://127.0.0.1:{}", replica.port);
        let client = kube::Client::try_from(kube::Config::new(url.parse()?))?;
        Ok(client.request_text(http::Request::get("/readyz").body(Vec::new())?).await.is_ok())
    }

    /// Ends the binder.
    pub(crate) fn end(self, plane: &mut ControlPlane) -> Result<()> {
        drop(self.bindery);
        plane.set_manager(Manager::Off)
    }
}

/// Lines by which upstream's controller manager says, once each, that the binder has its lists and that
/// authorization has its own. They do not say whose they are; with many volumes the binder's is the later
/// one.
const CACHES: usize = 2;

/// How many such lines upstream's controller managers have printed.
fn synced(plane: &ControlPlane) -> Result<usize> {
    Ok(plane.manager_log()?.lines().filter(|line| line.ends_with("\"Caches are synced\"")).count())
}
