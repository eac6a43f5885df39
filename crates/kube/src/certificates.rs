//! The certificates of the webhook: kept in a Secret, and trusted by the configurations of the webhooks.
//!
//! A JSON patch sets `clientConfig.caBundle` and nothing else, under a field manager of its own. This leaves
//! the rest of the configuration to the chart. With server-side apply, Bindery would co-own the webhooks, and
//! the API server would refuse a release of the chart that drops or renames one: the name and caBundle left
//! behind are not a valid webhook. A full update would undo changes that Bindery has not seen. The chart must
//! not name `caBundle`; then no other field manager owns it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::StreamExt as _;
use http::Method;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::client::ApiClient;
use crate::rest::{self, Fault};

/// The field manager of these writes.
const FIELD_MANAGER: &str = "bindery-certificates";
/// Annotation of the Secret: its content is Bindery's.
const MARK: &str = "bindery.dev/certificates";
/// The annotation's text, for people who read the Secret.
const MARK_TEXT: &str = "made and renewed by Bindery; its guide for operators says how to replace them";
/// Tools that look for certificates find them by this type.
const SECRET_TYPE: &str = "kubernetes.io/tls";

/// The data of the Secret.
pub type Data = BTreeMap<String, Vec<u8>>;

/// Trusted authorities, in PEM, by the name of each webhook.
pub type Bundles = BTreeMap<String, Vec<u8>>;

/// What replicas share: the Secret with the certificates, and the configurations that trust them.
/// Writes name the version that was read, and return whether it was still the current one.
pub trait CertificateStorage: Send + Sync + 'static {
    /// The version of an object.
    type Version: Send + Sync;
    /// Names the object and the remedy.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether a setting is wrong, so that trying again does not help.
    fn is_permanent(error: &Self::Error) -> bool;

    /// Reads the Secret, from the API server and not from a cache; `None` if it does not exist.
    fn read_secret(&self) -> impl Future<Output = Result<Option<(Data, Self::Version)>, Self::Error>> + Send;

    /// Replaces the Secret, or creates it if none was read.
    fn write_secret(
        &self,
        data: &Data,
        over: Option<&Self::Version>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Reads the trusted authorities; `None` if there is no configuration.
    fn read_bundles(
        &self,
    ) -> impl Future<Output = Result<Option<(Bundles, Self::Version)>, Self::Error>> + Send;

    /// Whether none of the configurations was missing when they were read.
    fn are_all_there(&self, read: &Self::Version) -> bool;

    /// Replaces the trusted authorities, in PEM, of every webhook.
    fn write_bundles(
        &self,
        authorities: &[u8],
        over: &Self::Version,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

/// A Secret and the configurations of the webhooks.
#[derive(Clone)]
pub struct CertificateStore {
    client: ApiClient,
    namespace: String,
    secret: String,
    validating: String,
    mutating: Option<String>,
}

/// An object, or the configurations in a list, as they were read. A write over it fails if one has changed
/// since.
pub struct Read(Value);

/// A configuration of webhooks: its kind, the path of it, and its name.
struct Configuration<'a> {
    kind: &'static str,
    path: String,
    name: &'a str,
}

/// Why the Secret or the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateStoreError {
    /// The API server refused, or did not answer.
    #[error("the {object} cannot be {verb}: {fault}")]
    Fault {
        /// Kind and name of the object.
        object: String,
        /// The attempted action.
        verb: &'static str,
        /// The API server's answer.
        fault: String,
    },
    /// Another program owns the Secret.
    #[error(
        "the Secret {secret} holds data that Bindery has not written (it has no annotation {MARK}): name \
         another one, or delete it if it is not needed"
    )]
    Foreign {
        /// Its namespace and name.
        secret: String,
    },
}

impl CertificateStore {
    /// The Secret with that namespace and name, and the ValidatingWebhookConfiguration with that name. They
    /// need not exist yet.
    pub fn new(client: impl Into<ApiClient>, namespace: &str, secret: &str, validating: &str) -> Self {
        let [namespace, secret, validating] = [namespace, secret, validating].map(str::to_owned);
        Self { client: client.into(), namespace, secret, validating, mutating: None }
    }

    /// The same, with the MutatingWebhookConfiguration of that name.
    #[must_use]
    pub fn with_mutating(self, mutating: Option<String>) -> Self {
        Self { mutating, ..self }
    }

    /// Notifies `changes` of every change of the objects, while it is polled.
    pub async fn watch(&self, changes: Arc<Notify>) {
        let client = self.client.kube();
        let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), &self.namespace);
        let validating = Api::<PartialObjectMeta<ValidatingWebhookConfiguration>>::all(client.clone());
        let mutating = Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(client.clone());
        let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let secret = watcher(secrets, named(&self.secret)).default_backoff().map(|event| event.map(drop));
        let validating = watcher(validating, named(&self.validating)).default_backoff();
        let mut streams = vec![secret.boxed(), validating.map(|event| event.map(drop)).boxed()];
        if let Some(name) = &self.mutating {
            let mutating = watcher(mutating, named(name)).default_backoff();
            streams.push(mutating.map(|event| event.map(drop)).boxed());
        }
        let mut events = futures::stream::select_all(streams);
        while let Some(event) = events.next().await {
            match event {
                Ok(()) => changes.notify_one(),
                Err(error) => tracing::warn!(
                    secret = self.secret_name(),
                    configuration = self.validating,
                    %error,
                    "one of them cannot be watched; trying again"
                ),
            }
        }
    }

    /// Reads an object; `None` if it does not exist.
    async fn read(&self, path: &str) -> Result<Option<Value>, Fault> {
        match rest::json(&self.client, Method::GET, path, None).await {
            Err(Fault::Refused { code: 404, .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    fn secret_name(&self) -> String {
        format!("{}/{}", self.namespace, self.secret)
    }

    fn secrets_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", rest::encode(&self.namespace))
    }

    fn secret_path(&self) -> String {
        format!("{}/{}", self.secrets_path(), rest::encode(&self.secret))
    }

    fn configurations(&self) -> impl Iterator<Item = Configuration<'_>> {
        let of = |kind, resource, name| {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}/{}", rest::encode(name));
            Configuration { kind, path, name }
        };
        let validating =
            of("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &self.validating);
        let mutating = self.mutating.as_ref();
        let mutating =
            mutating.map(|name| of("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", name));
        [validating].into_iter().chain(mutating)
    }

    fn secret_error(&self, verb: &'static str, fault: &Fault) -> CertificateStoreError {
        let object = format!("Secret {}", self.secret_name());
        CertificateStoreError::Fault { object, verb, fault: fault.to_string() }
    }
}

impl Configuration<'_> {
    fn error(&self, verb: &'static str, fault: &Fault) -> CertificateStoreError {
        let object = format!("{} {}", self.kind, self.name);
        CertificateStoreError::Fault { object, verb, fault: fault.to_string() }
    }
}

impl CertificateStorage for CertificateStore {
    type Version = Read;
    type Error = CertificateStoreError;

    fn is_permanent(error: &CertificateStoreError) -> bool {
        matches!(error, CertificateStoreError::Foreign { .. })
    }

    async fn read_secret(&self) -> Result<Option<(Data, Read)>, CertificateStoreError> {
        let object =
            self.read(&self.secret_path()).await.map_err(|fault| self.secret_error("read", &fault))?;
        let Some(object) = object else { return Ok(None) };
        let data = object["data"].as_object().into_iter().flatten();
        let data: BTreeMap<_, _> = data.map(|(key, value)| (key.clone(), decoded(value))).collect();
        if !data.is_empty() && object["metadata"]["annotations"][MARK].is_null() {
            return Err(CertificateStoreError::Foreign { secret: self.secret_name() });
        }
        Ok(Some((data, Read(object))))
    }

    async fn write_secret(&self, data: &Data, over: Option<&Read>) -> Result<bool, CertificateStoreError> {
        let metadata = json!({"namespace": self.namespace, "name": self.secret});
        let new = || json!({"apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "metadata": metadata});
        let mut object = over.map_or_else(new, |read| read.0.clone());
        object["data"] = data
            .iter()
            .map(|(key, value)| (key.clone(), Value::from(BASE64_STANDARD.encode(value))))
            .collect();
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = json!({});
        }
        object["metadata"]["annotations"][MARK] = MARK_TEXT.into();
        let (method, path) = match over {
            Some(_) => (Method::PUT, self.secret_path()),
            None => (Method::POST, self.secrets_path()),
        };
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let outcome = rest::json(&self.client, method, &path, Some(&object)).await;
        // A Secret that was deleted since the read is not created again with old data.
        is_done(outcome, over.is_some()).map_err(|fault| self.secret_error("written", &fault))
    }

    async fn read_bundles(&self) -> Result<Option<(Bundles, Read)>, CertificateStoreError> {
        let (mut bundles, mut read) = (Bundles::new(), Vec::new());
        for configuration in self.configurations() {
            let object = self.read(&configuration.path).await;
            let object = object.map_err(|fault| configuration.error("read", &fault))?.unwrap_or_default();
            bundles.extend(webhooks(&object).map(|webhook| {
                let name = webhook["name"].as_str().unwrap_or_default().to_owned();
                (name, decoded(&webhook["clientConfig"]["caBundle"]))
            }));
            read.push(object);
        }
        let is_there = read.iter().any(Value::is_object);
        Ok(is_there.then_some((bundles, Read(read.into()))))
    }

    fn are_all_there(&self, read: &Read) -> bool {
        read.0.as_array().into_iter().flatten().all(Value::is_object)
    }

    async fn write_bundles(&self, authorities: &[u8], over: &Read) -> Result<bool, CertificateStoreError> {
        let bundle = BASE64_STANDARD.encode(authorities);
        for (configuration, read) in self.configurations().zip(over.0.as_array().into_iter().flatten()) {
            let Some(patch) = bundle_patch(read, &bundle) else { continue };
            let path = format!("{}?fieldManager={FIELD_MANAGER}", configuration.path);
            let outcome = rest::json(&self.client, Method::PATCH, &path, Some(&patch)).await;
            if !is_done(outcome, true).map_err(|fault| configuration.error("patched", &fault))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn webhooks(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration["webhooks"].as_array().into_iter().flatten()
}

/// The JSON patch that has each webhook of a configuration trust these authorities; `None` if they do.
fn bundle_patch(read: &Value, bundle: &str) -> Option<Value> {
    let differing = webhooks(read).enumerate();
    let differing = differing.filter(|(_, webhook)| webhook["clientConfig"]["caBundle"] != bundle);
    let mut patch: Vec<_> = differing
        .map(|(at, _)| {
            let path = format!("/webhooks/{at}/clientConfig/caBundle");
            json!({"op": "add", "path": path, "value": bundle})
        })
        .collect();
    let version = &read["metadata"]["resourceVersion"];
    let check = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
    (!patch.is_empty()).then(|| {
        patch.insert(0, check);
        patch.into()
    })
}

/// Whether a write succeeded; `false` if another client was faster.
fn is_done(outcome: Result<Value, Fault>, was_there: bool) -> Result<bool, Fault> {
    match outcome {
        Ok(_) => Ok(true),
        Err(Fault::Refused { code: 409, .. }) => Ok(false),
        Err(Fault::Refused { code: 404, .. }) if was_there => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// The bytes of a field; malformed ones count as empty.
fn decoded(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bindery_sim::{Sim, SimOptions};

    use super::*;

    #[tokio::test]
    async fn given_two_configurations_when_one_is_gone_then_not_all_are_there() {
        let client = kube::Client::new(Sim::new(SimOptions::default()).service(), "default");
        let store = CertificateStore::new(client, "ns", "secret", "validating");
        for (read, expected) in [(json!([{}, {}]), true), (json!([{}, null]), false)] {
            assert_eq!(store.are_all_there(&Read(read)), expected);
        }
    }
}
