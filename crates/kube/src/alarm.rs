//! The alarm about another binder, kept where every replica and the operator find it: on the Lease.
//!
//! It is an annotation, so that it outlives every replica and an operator can lift it with nothing but
//! kubectl.

use bindery_core::{EventType, Timestamp};
use http::Method;
use serde_json::{Value, json};

use crate::client::ApiClient;
use crate::events;
use crate::keys::FOREIGN_WRITER;
use crate::rest::{self, Fault};

/// The annotation of one Lease.
#[derive(Clone)]
pub struct Alarm {
    client: ApiClient,
    path: String,
    /// Where events about it are.
    events: String,
    /// Its name, and its namespace and name.
    lease: String,
    name: String,
}

/// Why the alarm cannot be read or raised.
#[derive(Debug, thiserror::Error)]
#[error("the Lease {lease} cannot be {verb}: {fault}")]
pub struct AlarmError {
    lease: String,
    verb: &'static str,
    fault: Fault,
}

/// Who raised the alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// This call: whoever made it tells the others.
    Now,
    /// Somebody else, earlier.
    Before,
}

impl Alarm {
    /// The alarm on the Lease of that namespace and name.
    pub fn new(client: impl Into<ApiClient>, namespace: &str, name: &str) -> Self {
        let folder = rest::encode(namespace);
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{folder}/leases/{}", rest::encode(name));
        let events = format!("/api/v1/namespaces/{folder}/events");
        Self {
            client: client.into(),
            path,
            events,
            lease: name.to_owned(),
            name: format!("{namespace}/{name}"),
        }
    }

    /// What was written on the Lease when it was raised; `None` where it is not, or has been lifted.
    ///
    /// # Errors
    ///
    /// The Lease cannot be read.
    pub async fn read(&self) -> Result<Option<String>, AlarmError> {
        Ok(annotation(&self.get().await?))
    }

    /// Raises it, unless it is raised already: the Lease says when, and why.
    ///
    /// # Errors
    ///
    /// The Lease cannot be read or patched.
    pub async fn raise(&self, why: &str, now: Timestamp) -> Result<Raised, AlarmError> {
        let why = format!("{} {why}", events::time(now));
        loop {
            let lease = self.get().await?;
            if annotation(&lease).is_some() {
                return Ok(Raised::Before);
            }
            let change = json!({"metadata": {
                "annotations": {FOREIGN_WRITER: why},
                // Of two replicas that raise it one is the first.
                "resourceVersion": lease["metadata"]["resourceVersion"],
            }});
            match rest::json(&self.client, Method::PATCH, &self.path, Some(change)).await {
                Ok(_) => return Ok(Raised::Now),
                // Renewed meanwhile, as it is every few seconds.
                Err(Fault::Refused { code: 409, .. }) => {}
                Err(fault) => return Err(self.error("patched", fault)),
            }
        }
    }

    /// Records an event on the Lease.
    ///
    /// # Errors
    ///
    /// The Lease cannot be read, or the event not be created.
    pub async fn tell(&self, reason: &str, message: &str, now: Timestamp) -> Result<(), AlarmError> {
        let lease = self.get().await?;
        let (metadata, time) = (&lease["metadata"], events::time(now));
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": format!("{}.", self.lease), "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "type": EventType::Warning.name(),
            "reason": reason,
            "message": message,
            "source": {"component": events::COMPONENT},
            "reportingComponent": events::COMPONENT,
            "reportingInstance": "",
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        });
        let answer = rest::json(&self.client, Method::POST, &self.events, Some(event)).await;
        answer.map(drop).map_err(|fault| self.error("the object of an event", fault))
    }

    async fn get(&self) -> Result<Value, AlarmError> {
        let answer = rest::json(&self.client, Method::GET, &self.path, None).await;
        answer.map_err(|fault| self.error("read", fault))
    }

    fn error(&self, verb: &'static str, fault: Fault) -> AlarmError {
        AlarmError { lease: self.name.clone(), verb, fault }
    }
}

fn annotation(lease: &Value) -> Option<String> {
    lease["metadata"]["annotations"][FOREIGN_WRITER].as_str().map(str::to_owned)
}
