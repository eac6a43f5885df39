//! The binder's [`Port`] over a Kubernetes client.

use std::sync::Arc;

use bindery_controller::{Note, Port, Purpose, Target, Write, WriteError, Written};
use bindery_core::steer::SteerWrite;
use bindery_core::{Action, Claim, ClaimKey, Declared, Lookup, Text, Timestamp, Volume};
use bindery_store::Observed;
use http::{HeaderValue, Method};
use parking_lot::RwLock;
use serde::de::IgnoredAny;

use crate::client::ApiClient;
use crate::decode;
use crate::encoding::EncodedObject;
use crate::events::Events;
use crate::limit::Pressure;
use crate::request::{self, Outgoing, Template};
use crate::rest::{self, Fault};

/// Marks a live read that only the guard makes, so that proxies, faults and audits can tell it apart.
pub const GUARD_HEADER: &str = "x-bindery-guard";
/// Value of [`GUARD_HEADER`].
pub const GUARD_LIVE_READ: &str = "live-read";

/// A clock: seconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A cluster behind a Kubernetes client.
pub struct ApiPort {
    client: ApiClient,
    clock: Clock,
    events: Events,
    declared: RwLock<Arc<Declared>>,
}

/// The clock of the machine.
pub fn system_clock() -> Clock {
    Arc::new(|| jiff::Timestamp::now().as_second())
}

impl ApiPort {
    /// A port to the cluster of this client.
    pub fn new(client: impl Into<ApiClient>, clock: Clock, events: Events) -> Self {
        Self { client: client.into().limited(), clock, events, declared: RwLock::default() }
    }

    /// Decodes the facts that policies declare.
    #[must_use]
    pub fn declaring(self, declared: Declared) -> Self {
        *self.declared.write() = Arc::new(declared);
        self
    }

    fn declared(&self) -> Arc<Declared> {
        Arc::clone(&self.declared.read())
    }

    /// The client of the cluster.
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    /// How many requests are sent at the same time by it and the plugins of its client, and why no more.
    pub fn pressure(&self) -> Pressure {
        self.client.pressure()
    }

    /// Why the API server refuses the credentials of its client; see [`ApiClient::refusal`].
    pub fn refusal(&self) -> Option<String> {
        self.client.refusal().borrow().clone()
    }

    async fn get(&self, path: &str, purpose: Purpose) -> Result<EncodedObject, Fault> {
        let mut request = rest::request(Method::GET, path, None)?;
        if purpose == Purpose::Guard {
            request.headers_mut().insert(GUARD_HEADER, HeaderValue::from_static(GUARD_LIVE_READ));
        }
        rest::send(&self.client, request).await
    }
}

impl Port for ApiPort {
    type Template = Template;

    fn declare(&self, declared: Arc<Declared>) {
        *self.declared.write() = declared;
    }

    async fn read_volume(&self, name: &Text, purpose: Purpose) -> Lookup<Arc<Volume>> {
        match request::volume_path(name) {
            Ok(path) => lookup(self.get(&path, purpose).await, ("persistentvolumes", name), |object| {
                decode::volume(object, &self.declared())
            }),
            Err(error) => Lookup::Failed(error.to_string().into()),
        }
    }

    async fn read_claim(&self, key: &ClaimKey, purpose: Purpose) -> Lookup<Arc<Claim>> {
        match request::claim_path(key) {
            Ok(path) => {
                let decode = |object: &EncodedObject| decode::claim(object, &self.declared());
                lookup(self.get(&path, purpose).await, ("persistentvolumeclaims", &key.name), decode)
            }
            Err(error) => Lookup::Failed(error.to_string().into()),
        }
    }

    async fn write(&self, write: &Write<Template>) -> Result<Written, WriteError> {
        let Outgoing { method, path, body } = request::of(write)?;
        let object = rest::send(&self.client, rest::request(method, &path, Some(&body))?).await?;
        match (&write.action, write.target()) {
            (Action::DeleteVolume { .. }, _) => deleted(&object),
            (_, Target::Claim(_)) => written(decode::claim(&object, &self.declared())).map(Written::Claim),
            _ => written(decode::volume(&object, &self.declared())).map(Written::Volume),
        }
    }

    async fn read_reservation(&self, name: &Text) -> Lookup<(Arc<Volume>, bool)> {
        let path = match request::volume_path(name) {
            Ok(path) => path,
            Err(error) => return Lookup::Failed(error.to_string().into()),
        };
        let answer = self.get(&path, Purpose::Guard).await;
        let is_own = answer.as_ref().is_ok_and(decode::has_reserved);
        let decode = |object: &EncodedObject| decode::volume(object, &self.declared());
        lookup(answer, ("persistentvolumes", name), decode).map(|volume| (volume, is_own))
    }

    async fn steer(&self, write: &SteerWrite) -> Result<Written, WriteError> {
        let Outgoing { method, path, body } = request::of_steering(write)?;
        let object = rest::send(&self.client, rest::request(method, &path, Some(&body))?).await?;
        match Target::from(write) {
            Target::Claim(_) => written(decode::claim(&object, &self.declared())).map(Written::Claim),
            _ => written(decode::volume(&object, &self.declared())).map(Written::Volume),
        }
    }

    fn emit(&self, note: &Note) {
        self.events.emit(note, (self.clock)());
    }

    /// The time of this machine, or that of the API server if it is earlier: the API server has written since
    /// when a volume is released, and a clock that is ahead must not make its deletion due.
    fn now(&self) -> Timestamp {
        let own = (self.clock)();
        self.client.server_time().now().map_or(own, |theirs| own.min(theirs))
    }
}

type Decoded<N, T> = Result<(N, Observed<T>), decode::DecodeError>;

/// What an API server's answer says of the object that was asked for, by its resource's plural and its name.
/// Only the answer that this very object does not exist counts as absence, because volumes are released and
/// deleted on this answer.
fn lookup<N, T>(
    answer: Result<EncodedObject, Fault>,
    (plural, name): (&str, &str),
    decode: impl Fn(&EncodedObject) -> Decoded<N, T>,
) -> Lookup<Arc<T>> {
    match answer {
        Ok(object) => match decode(&object) {
            Ok((_, Observed::Readable(object))) => Lookup::Found(object),
            Ok((_, Observed::Unreadable(unreadable))) => Lookup::Unreadable(unreadable.why),
            Err(error) => Lookup::Failed(error.to_string().into()),
        },
        Err(fault) if fault.is_absence_of(plural, name) => Lookup::Absent,
        Err(fault) => Lookup::Failed(fault.to_string().into()),
    }
}

/// The API server's answer to a deletion. A proxy may send a text with the status of success, and a deletion
/// that is taken for accepted is not tried again.
fn deleted(answer: &EncodedObject) -> Result<Written, WriteError> {
    if let EncodedObject::Json(answer) = answer
        && let Err(error) = serde_json::from_slice::<IgnoredAny>(answer)
    {
        return Err(WriteError::Failed(format!("the answer to the deletion is not JSON: {error}")));
    }
    Ok(Written::Deletion)
}

fn written<N, T>(decoded: Decoded<N, T>) -> Result<Arc<T>, WriteError> {
    match decoded {
        Ok((_, Observed::Readable(object))) => Ok(object),
        Ok((_, Observed::Unreadable(unreadable))) => Err(WriteError::Unreadable(unreadable.why.to_string())),
        Err(error) => Err(WriteError::Unreadable(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_absence_of_the_object_that_was_asked_for_counts() {
        let answer = |code, reason: &str, kind: &str, name: &str| {
            let (reason, kind, name) = (reason.to_owned(), kind.to_owned(), name.to_owned());
            let fault =
                Fault::Refused { code, reason, kind, name, message: String::new(), retry_after: None };
            lookup(Err(fault), ("persistentvolumeclaims", "c1"), |object| {
                decode::claim(object, Declared::NONE)
            })
        };
        assert_eq!(answer(404, "NotFound", "persistentvolumeclaims", "c1"), Lookup::Absent);
        for (code, reason, kind, name) in [
            (404, "NotFound", "persistentvolumeclaims", "c2"),
            (404, "NotFound", "persistentvolumes", "c1"),
            // "the server could not find the requested resource"
            (404, "NotFound", "", ""),
            (404, "", "", ""),
            (410, "Gone", "persistentvolumeclaims", "c1"),
        ] {
            let lookup = answer(code, reason, kind, name);
            assert!(matches!(lookup, Lookup::Failed(_)), "{code} {reason} {kind} {name}: {lookup:?}");
        }
    }
}
