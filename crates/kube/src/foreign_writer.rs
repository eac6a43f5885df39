//! The mark that another binder was seen: an annotation on the Lease.
//!
//! Every replica reads it there, it outlives all of them, and the operator removes it with kubectl alone.

mod check;

use bindery_core::{EventType, Timestamp};
use http::Method;
use serde_json::{Value, json};

pub use self::check::ForeignWriterCheck;
use crate::client::ApiClient;
use crate::events;
use crate::keys::FOREIGN_WRITER;
use crate::lease::LeaseSettings;
use crate::rest::{self, Fault};
use crate::watch::until_read;

/// The annotation [`FOREIGN_WRITER`] of one Lease.
#[derive(Clone)]
pub struct ForeignWriterMark {
    client: ApiClient,
    namespace: String,
    lease: String,
}

/// Why the mark cannot be read or set.
#[derive(Debug, thiserror::Error)]
#[error("the Lease {lease} cannot be {verb}: {fault}")]
pub struct MarkError {
    lease: String,
    verb: &'static str,
    fault: Fault,
}

impl ForeignWriterMark {
    /// The mark on a Lease.
    pub fn new(client: impl Into<ApiClient>, lease: &LeaseSettings) -> Self {
        let LeaseSettings { namespace, name, .. } = lease;
        Self { client: client.into(), namespace: namespace.clone(), lease: name.clone() }
    }

    /// The time and reason that were written when the mark was set; `None` while it is not set.
    ///
    /// # Errors
    ///
    /// The Lease cannot be read.
    async fn read(&self) -> Result<Option<String>, MarkError> {
        Ok(annotation(&self.lease().await?).map(str::to_owned))
    }

    /// The same as [`Self::read`], for a new leader: until it is answered.
    async fn until_read(&self) -> Option<String> {
        let lease = format!("Lease {}/{}", self.namespace, self.lease);
        until_read(&self.client, &lease, |client| async move {
            Self { client, ..self.clone() }.read().await.map_err(|error| error.fault)
        })
        .await
    }

    /// Sets the mark with this time and reason. Returns `false` if it was set already; it then keeps its
    /// reason.
    ///
    /// # Errors
    ///
    /// The Lease cannot be read or patched.
    pub async fn set(&self, why: &str, now: Timestamp) -> Result<bool, MarkError> {
        let why = format!("{} {why}", events::time(now));
        loop {
            let lease = self.lease().await?;
            if annotation(&lease).is_some() {
                return Ok(false);
            }
            let change = json!({"metadata": {
                "annotations": {FOREIGN_WRITER: why},
                // If two replicas set the mark at the same time, one of them is refused.
                "resourceVersion": lease["metadata"]["resourceVersion"],
            }});
            match rest::json(&self.client, Method::PATCH, &self.path(), Some(&change)).await {
                Ok(_) => return Ok(true),
                // The holder renews the Lease every few seconds.
                Err(Fault::Refused { code: 409, .. }) => {}
                Err(fault) => return Err(self.error("patched", fault)),
            }
        }
    }

    /// Creates a Warning event about the Lease.
    ///
    /// # Errors
    ///
    /// The Lease cannot be read, or the event cannot be created.
    pub async fn emit(&self, reason: &str, message: &str, now: Timestamp) -> Result<(), MarkError> {
        let lease = self.lease().await?;
        let metadata = json!({"generateName": format!("{}-", self.lease), "namespace": self.namespace});
        let involved = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": self.namespace,
            "name": self.lease,
            "uid": lease["metadata"]["uid"],
        });
        let event = events::body(metadata, involved, EventType::Warning, (reason, message), now);
        let path = format!("/api/v1/namespaces/{}/events", rest::encode(&self.namespace));
        let created = events::send(&self.client, Method::POST, &path, &event).await;
        created.map_err(|fault| self.error("the object of an event", fault))
    }

    async fn lease(&self) -> Result<Value, MarkError> {
        let lease = rest::json(&self.client, Method::GET, &self.path(), None).await;
        lease.map_err(|fault| self.error("read", fault))
    }

    fn path(&self) -> String {
        let (namespace, lease) = (rest::encode(&self.namespace), rest::encode(&self.lease));
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}")
    }

    fn error(&self, verb: &'static str, fault: Fault) -> MarkError {
        MarkError { lease: format!("{}/{}", self.namespace, self.lease), verb, fault }
    }
}

fn annotation(lease: &Value) -> Option<&str> {
    lease["metadata"]["annotations"][FOREIGN_WRITER].as_str()
}
