//! Asks the API server what the client's user may do.

use std::fmt;
use std::time::Duration;

use bindery_controller::Mode;
use http::Method;
use serde_json::json;

use crate::client::ApiClient;
use crate::lease::LeaseSettings;
use crate::rest::{self, Fault};

/// A user asks here what it may do itself (`SelfSubjectAccessReview`). By default every user may ask, by the
/// ClusterRole `system:basic-user`.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Longest time for one review.
const REVIEW_MAX: Duration = Duration::from_secs(5);

/// Rights that leading takes: group, resource, subresource, verbs. Rights of optional settings, such as
/// recycling, are not among them, because most claims are bound without those.
const TO_LEAD: [(&str, &str, &str, &[&str]); 5] = [
    ("", "persistentvolumes", "", &["list", "watch", "get", "patch"]),
    ("", "persistentvolumeclaims", "", &["list", "watch", "get", "patch"]),
    ("", "nodes", "", &["list", "watch"]),
    ("", "pods", "", &["list", "watch"]),
    ("storage.k8s.io", "storageclasses", "", &["list", "watch"]),
];
/// Further rights that leading takes where policies are cluster objects.
const TO_LEAD_WITH_POLICIES: [(&str, &str, &str, &[&str]); 3] = [
    ("policy.bindery.dev", "engines", "", &["list", "watch"]),
    ("policy.bindery.dev", "matchpolicies", "", &["list", "watch"]),
    ("policy.bindery.dev", "reclaimpolicies", "", &["list", "watch"]),
];
/// Further rights that leading takes in mode own.
const TO_OWN: [(&str, &str, &str, &[&str]); 2] =
    [("", "persistentvolumes", "status", &["patch"]), ("", "persistentvolumeclaims", "status", &["patch"])];

/// Something that a user may or may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    /// As RBAC names it: `patch`.
    verb: &'static str,
    /// API group of the resource; `""` is the core group.
    group: &'static str,
    /// In the plural: `persistentvolumes`.
    resource: &'static str,
    /// `status`, or `""`.
    subresource: &'static str,
    /// Namespace and name of one object; `None` means every object in every namespace.
    object: Option<(String, String)>,
}

/// Why it is not known what a user may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RightsError {
    /// The API server does not answer such reviews, or not to this user.
    #[error("the API server does not review rights: {0}")]
    Unsupported(String),
    /// The API server did not answer this time, or does not accept the user's credentials.
    #[error("{0}")]
    NoAnswer(String),
}

/// The rights that leading takes in a mode, with those for namespaces where a policy reads their labels, and
/// those for policies that are cluster objects.
pub(crate) fn rights_to_lead(
    lease: &LeaseSettings,
    mode: Mode,
    reads_namespaces: bool,
    loads_policies: bool,
) -> Vec<Right> {
    let of_lease = ["get", "update"].map(|verb| Right {
        verb,
        group: "coordination.k8s.io",
        resource: "leases",
        subresource: "",
        object: Some((lease.namespace.clone(), lease.name.clone())),
    });
    let namespaces = reads_namespaces.then_some(("", "namespaces", "", &["list", "watch"][..]));
    let own = TO_OWN.into_iter().filter(|_| mode == Mode::Own);
    let policies = TO_LEAD_WITH_POLICIES.into_iter().filter(|_| loads_policies);
    let others = TO_LEAD.into_iter().chain(own).chain(namespaces).chain(policies).flat_map(
        |(group, resource, subresource, verbs)| {
            verbs.iter().map(move |verb| Right { verb, group, resource, subresource, object: None })
        },
    );
    others.chain(of_lease).collect()
}

/// Returns those of these rights that the client's user lacks.
///
/// # Errors
///
/// A review failed; the rights after it were not asked for.
pub(crate) async fn missing_rights(client: &ApiClient, rights: &[Right]) -> Result<Vec<Right>, RightsError> {
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
        match rest::json(&client.within(REVIEW_MAX), Method::POST, REVIEWS, Some(&review)).await {
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
