//! Reads and patches objects as JSON, for commands of users.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Method;
use serde_json::Value;

use crate::client::ApiClient;
use crate::request::segment;
use crate::rest::{self, Fault};

/// Objects in one page of a list (client-go's default).
const PAGE: u32 = 500;

/// The type of Secrets with credentials of registries, and their key.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// Why objects could not be read or patched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The object does not exist: the API server's message.
    #[error("{0}")]
    Absent(String),
    /// The user lacks the right to read: the API server's message.
    #[error("{0}")]
    Forbidden(String),
    /// The object has changed since it was read: the API server's message.
    #[error("{0}")]
    Conflict(String),
    /// The API server did not answer, or not as expected.
    #[error("{0}")]
    Failed(String),
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        let message = fault.message().into_owned();
        match fault {
            Fault::Refused { code: 404, .. } => Self::Absent(message),
            Fault::Refused { code: 403, .. } => Self::Forbidden(message),
            Fault::Refused { code: 409, .. } => Self::Conflict(message),
            Fault::Refused { code: 401, .. } => {
                Self::Failed("the API server does not accept the credentials (401)".to_owned())
            }
            fault => Self::Failed(fault.to_string()),
        }
    }
}

/// Reads the object of that name in a collection, such as `/api/v1/persistentvolumes`.
pub async fn get(client: &ApiClient, collection: &str, name: &str) -> Result<Value, ReadError> {
    let name = segment(name).map_err(|error| ReadError::Failed(error.to_string()))?;
    Ok(rest::json(client, Method::GET, &format!("{collection}/{name}"), None).await?)
}

/// The docker configuration (`.dockerconfigjson`) in a Secret of type `kubernetes.io/dockerconfigjson`.
///
/// # Errors
///
/// The Secret could not be read, does not exist, or is of another type. The error has nothing of its data.
pub async fn docker_config(client: &ApiClient, namespace: &str, name: &str) -> Result<Vec<u8>, ReadError> {
    let secret = get(client, &format!("/api/v1/namespaces/{namespace}/secrets"), name).await?;
    if secret["type"] != DOCKER_CONFIG {
        return Err(ReadError::Failed(format!("its type is {}, not {DOCKER_CONFIG:?}", secret["type"])));
    }
    let data = secret["data"][DOCKER_CONFIG_KEY].as_str().map(|data| BASE64_STANDARD.decode(data));
    let missing = || ReadError::Failed(format!("it has no data of key {DOCKER_CONFIG_KEY:?}"));
    data.and_then(Result::ok).ok_or_else(missing)
}

/// Applies a merge patch (RFC 7386) to the object of that name in a collection. Returns the object.
pub async fn merge(
    client: &ApiClient,
    collection: &str,
    name: &str,
    patch: &Value,
) -> Result<Value, ReadError> {
    let name = segment(name).map_err(|error| ReadError::Failed(error.to_string()))?;
    Ok(rest::json(client, Method::PATCH, &format!("{collection}/{name}"), Some(patch)).await?)
}

/// Lists all objects of a collection, page by page. Items of such a list have neither apiVersion nor kind.
pub async fn list(client: &ApiClient, collection: &str) -> Result<Vec<Value>, ReadError> {
    let mut items = Vec::new();
    let mut token = String::new();
    loop {
        let path = match token.as_str() {
            "" => format!("{collection}?limit={PAGE}"),
            token => format!("{collection}?limit={PAGE}&continue={}", rest::encode(token)),
        };
        let mut page = rest::json(client, Method::GET, &path, None).await?;
        if let Value::Array(page) = page["items"].take() {
            items.extend(page);
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => return Ok(items),
        }
    }
}
