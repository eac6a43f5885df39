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
        Ok(Self { bindery })
    }

    /// The binder's process, where there is one.
    pub(crate) fn id(&self, plane: &mut ControlPlane) -> Option<u32> {
        match &self.bindery {
            Some(replica) => Some(replica.server.id()),
            None => plane.manager().map(|manager| manager.id()),
        }
    }

    /// Where Bindery tells whether it is ready.
    pub(crate) fn health(&self) -> Option<String> {
        self.bindery.as_ref().map(|replica| format!("http://127.0.0.1:{}", replica.port))
    }

    /// Ends the binder.
    pub(crate) fn end(self, plane: &mut ControlPlane) -> Result<()> {
        drop(self.bindery);
        plane.set_manager(Manager::Off)
    }
}
