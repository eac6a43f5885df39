//! Asks the API server what the client's user may do.

use std::fmt;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::timeout;

use crate::client::ApiClient;
use crate::rest::{self, Fault};

/// A user asks here what it may do itself (`SelfSubjectAccessReview`). By default every user may ask, by the
/// ClusterRole `system:basic-user`.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Longest time for one review.
const REVIEW_MAX: Duration = Duration::from_secs(5);

/// Something that a user may or may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// As RBAC names it: `patch`.
    pub verb: &'static str,
    /// API group of the resource; `""` is the core group.
    pub group: &'static str,
    /// In the plural: `persistentvolumes`.
    pub resource: &'static str,
    /// `status`, or `""`.
    pub subresource: &'static str,
    /// Namespace and name of one object; `None` means every object in every namespace.
    pub object: Option<(String, String)>,
}

/// Why it is not known what a user may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    /// The API server does not answer such reviews, or not to this user.
    #[error("the API server does not review rights: {0}")]
    Unsupported(String),
    /// The API server did not answer this time, or does not accept the user's credentials.
    #[error("{0}")]
    NoAnswer(String),
}

/// Returns those of these rights that the client's user lacks.
///
/// # Errors
///
/// A review failed; the rights after it were not asked for.
pub async fn missing_rights(client: &ApiClient, rights: &[Right]) -> Result<Vec<Right>, RightsError> {
    let mut missing = Vec::new();
    for right in rights {
        if !right.is_granted(client).await? {
            missing.push(right.clone());
        }
    }
    Ok(missing)
}

impl Right {
    async fn is_granted(&self, client: &ApiClient) -> Result<bool, RightsError> {
        let mut attributes = json!({
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
        });
        if let Some((namespace, name)) = &self.object {
            attributes["namespace"] = namespace.as_str().into();
            attributes["name"] = name.as_str().into();
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let answer = rest::json(client, Method::POST, REVIEWS, Some(&review));
        match timeout(REVIEW_MAX, answer).await.unwrap_or(Err(Fault::TooLate)) {
            Ok(answer) => answer["status"]["allowed"]
                .as_bool()
                .ok_or_else(|| RightsError::Unsupported("the answer has no status.allowed".to_owned())),
            Err(fault @ Fault::Refused { code: 401 | 429 | 500..=599, .. }) => {
                Err(RightsError::NoAnswer(fault.to_string()))
            }
            Err(fault @ Fault::Refused { .. }) => Err(RightsError::Unsupported(fault.to_string())),
            Err(fault) => Err(RightsError::NoAnswer(fault.to_string())),
        }
    }
}

/// As `kubectl auth can-i` takes it: `patch persistentvolumes/status`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        match &self.object {
            Some((namespace, name)) => write!(f, " {namespace}/{name}"),
            None => Ok(()),
        }
    }
}
