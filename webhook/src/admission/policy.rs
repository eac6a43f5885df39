//! Reviews of policies and engines that are cluster objects: what cannot work is refused as it is applied.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::request::AdmissionRequest;
use super::response::AdmissionResponse;
use super::wording::Sentence;

/// The warning about an object whose review has not ended in time.
pub(super) const NOT_CHECKED: &str = "Bindery has not checked it: the status will say whether it works";

/// Reason of the cause of a denial, as the API server gives for an invalid field.
const INVALID: &str = "FieldValueInvalid";

/// What a review finds about a policy or an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyFinding {
    /// It cannot work.
    Refused {
        /// The field, such as `spec.settings`.
        field: &'static str,
        /// What is wrong with it, and the remedy.
        why: String,
    },
    /// It is unknown whether it works, or it has no effect for now: a warning.
    Doubtful(String),
}

/// What a review holds. Work that goes on after its future was dropped holds a clone.
pub type ReviewPermit = Arc<OwnedSemaphorePermit>;

/// Reviews policies and engines.
pub trait PolicyReviewer: Send + Sync + 'static {
    /// Reviews an object as it will be stored.
    fn review(&self, object: Value, permit: ReviewPermit) -> BoxFuture<'_, Result<(), PolicyFinding>>;
}

/// The answer to a request about a policy or an engine, once there is a permit for its review.
pub(super) async fn review(
    request: &AdmissionRequest<'_>,
    reviewer: Option<&dyn PolicyReviewer>,
    permits: &Arc<Semaphore>,
) -> AdmissionResponse {
    if request.is_update().is_none() {
        return AdmissionResponse::allowed(&request.uid);
    }
    let Some(reviewer) = reviewer else {
        let why = "it has no effect: Bindery loads no policies of the cluster (policies.objects)";
        return AdmissionResponse::warned(&request.uid, why);
    };
    if let Err(why) = request.check_parts() {
        return AdmissionResponse::warned(&request.uid, &why.to_string());
    }
    let Ok(permit) = Arc::clone(permits).acquire_owned().await else {
        return AdmissionResponse::warned(&request.uid, NOT_CHECKED);
    };
    let object = match request.new_as::<Value>() {
        Ok(object) => object,
        Err(why) => return AdmissionResponse::warned(&request.uid, &why),
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match reviewer.review(object, Arc::new(permit)).await {
        Ok(()) => AdmissionResponse::allowed(&request.uid),
        Err(PolicyFinding::Refused { field, why }) => {
            let sentence = Sentence { field, text: why };
            AdmissionResponse::invalid(&request.uid, request.kind_name(), &name, INVALID, sentence)
        }
        Err(PolicyFinding::Doubtful(why)) => AdmissionResponse::warned(&request.uid, &why),
    }
}
