//! The settings of leader election.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bindery_kube::{ApiClient, ForeignWriterMark, LeaseSettings};

use crate::settings;

#[derive(clap::Args)]
pub(super) struct LeaseArguments {
    /// Namespace of the Lease that replicas compete for.
    #[arg(long, value_name = "NAMESPACE", env = "BINDERY_LEASE_NAMESPACE", default_value = "kube-system")]
    lease_namespace: String,
    /// Name of the Lease that replicas compete for.
    #[arg(long, value_name = "NAME", env = "BINDERY_LEASE_NAME", default_value = "bindery")]
    lease_name: String,
    /// Name of this replica in the Lease; each replica needs its own. By default the name of the host and a
    /// number.
    #[arg(long, value_name = "NAME", env = "BINDERY_IDENTITY", value_parser = identity)]
    identity: Option<String>,
    /// Seconds after which a silent leader counts as dead.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_LEASE_DURATION", default_value_t = 15,
          value_parser = settings::whole::<u64>(3..=3600))]
    lease_duration: u64,
}

impl LeaseArguments {
    /// The Lease as the object of events.
    pub(super) fn mark(&self, client: &ApiClient) -> ForeignWriterMark {
        ForeignWriterMark::new(client.clone(), &self.settings())
    }

    /// The Lease, and this replica's name in it.
    pub(super) fn settings(&self) -> LeaseSettings {
        LeaseSettings {
            namespace: self.lease_namespace.clone(),
            name: self.lease_name.clone(),
            identity: self.identity.clone().unwrap_or_else(default_identity),
            duration: Duration::from_secs(self.lease_duration),
        }
    }
}

/// The name of the host, as in a pod, and a number that tells replicas on one host apart. The same for the
/// whole life of the process.
fn default_identity() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    let identity = IDENTITY.get_or_init(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{host}-{}-{:x}", std::process::id(), since_1970.subsec_nanos())
    });
    identity.clone()
}

/// Reads an identity. An empty one in the Lease means that the Lease is free.
fn identity(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        return Err(
            "it is empty: give each replica a name of its own, or leave the setting out for the name of the \
                    host and a number",
        );
    }
    Ok(text.to_owned())
}
