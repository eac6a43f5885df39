//! The binders that are measured, and how they are started.

use std::path::PathBuf;

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Replica};
use clap::ValueEnum as _;

use crate::extra::{Extra, Modules, Prepared};

#[derive(Clone, Debug)]
pub(crate) enum Binder {
    /// No binder: a client makes the writes of a bind and decides nothing.
    Ceiling,
    /// This program, with what it does beside binding.
    Bindery { program: PathBuf, extras: Vec<Extra>, modules: Modules },
    /// kube-controller-manager with only the binder, without its rate limits.
    Upstream,
}

impl Binder {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Ceiling => "API server's ceiling".to_owned(),
            Self::Bindery { extras, .. } if extras.is_empty() => "Bindery".to_owned(),
            Self::Bindery { extras, .. } => {
                let names = extras.iter().filter_map(Extra::to_possible_value);
                let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
                format!("Bindery with {}", names.join(", "))
            }
            Self::Upstream => "upstream".to_owned(),
        }
    }
}

/// A running binder. Ends with [`RunningBinder::end`], or with its control plane.
pub(crate) struct RunningBinder {
    bindery: Option<(Replica, Prepared)>,
    /// [`synced`] before the start.
    synced_before: usize,
}

impl RunningBinder {
    pub(crate) async fn start(binder: &Binder, plane: &mut ControlPlane) -> Result<Self> {
        let synced_before = synced(plane)?;
        let bindery = match binder {
            Binder::Ceiling => None,
            Binder::Upstream => {
                plane.set_manager(Manager::BinderAlone)?;
                None
            }
            Binder::Bindery { program, extras, modules } => {
                let client = plane.client().await?;
                let mut prepared = Prepared::new(extras, modules, &client).await?;
                let replica = Replica::on(plane, &[program], &prepared.arguments);
                prepared.begin(&client).await;
                Some((replica, prepared))
            }
        };
        Ok(Self { bindery, synced_before })
    }

    /// The process id of the binder, if there is a process.
    pub(crate) fn id(&self, plane: &mut ControlPlane) -> Option<u32> {
        match &self.bindery {
            Some((replica, _)) => Some(replica.id()),
            None => plane.manager().map(|manager| manager.id()),
        }
    }

    /// Whether the binder has all lists. Bindery says so at `/readyz`, upstream in its log.
    pub(crate) async fn is_ready(&self, plane: &ControlPlane) -> Result<bool> {
        match &self.bindery {
            Some((replica, _)) => Ok(replica.is_ready().await),
            None => Ok(synced(plane)? >= self.synced_before + CACHES),
        }
    }

    pub(crate) fn end(self, plane: &mut ControlPlane) -> Result<()> {
        drop(self.bindery);
        plane.set_manager(Manager::Off)
    }
}

/// Upstream's controller manager logs one line for the binder's lists and one for authorization's. The lines
/// are equal; with many volumes the binder's is the later one.
const CACHES: usize = 2;

/// The number of these lines in the log of all controller managers of a control plane.
fn synced(plane: &ControlPlane) -> Result<usize> {
    Ok(plane.manager_log()?.lines().filter(|line| line.ends_with("\"Caches are synced\"")).count())
}
