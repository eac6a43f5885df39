//! The subresource `scale`: the replicas of a workload, as an object of its own kind.

use serde_json::{Value, json};

use super::{Answer, body, existing, patch, update};
use crate::field::FieldErrors;
use crate::http::route::{Call, Verb};
use crate::object;
use crate::registry::SCALE;
use crate::state::State;
use crate::status::{ApiError, ApiResult};

/// GET, PUT or PATCH.
pub(super) fn serve(state: &mut State, call: &Call) -> ApiResult<Answer> {
    let workload = existing(state, call)?;
    let mut warnings = Vec::new();
    let of_scale = Call { resource: &SCALE, ..call.clone() };
    let mut scale = match call.verb {
        Verb::Get => return Ok(Answer::ok(scale(&workload))),
        Verb::Patch => patch::patch_scale(&of_scale, scale(&workload), &mut warnings)?,
        _ => body::read_and_decode(&of_scale, &mut warnings)?,
    };
    body::check_namespace(&of_scale, &mut scale)?;
    body::check_name(&of_scale, &scale)?;
    let replicas = object::number(&scale, "/spec/replicas");
    let mut errors = FieldErrors::default();
    if replicas < 0 {
        errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0");
    }
    ApiError::check(SCALE.kind, SCALE.group, &call.name, &errors)?;
    let mut scaled = (*workload).clone();
    scaled["spec"]["replicas"] = replicas.into();
    scaled["metadata"]["resourceVersion"] = object::resource_version(&scale).into();
    let stored = update::replace(state, call, &workload, scaled, &mut warnings)?;
    Ok(Answer { code: 200, body: self::scale(&stored), warnings })
}

/// The Scale of a workload. Its selector has the labels only.
fn scale(workload: &Value) -> Value {
    let labels = ["/spec/selector/matchLabels", "/spec/selector"];
    let labels = labels.iter().find_map(|pointer| workload.pointer(pointer)?.as_object());
    let label = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or(""));
    let selector = labels.into_iter().flatten().map(label).collect::<Vec<_>>().join(",");
    let mut scale = json!({
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version(),
        "metadata": {},
        "spec": {},
        "status": {"replicas": object::number(workload, "/status/replicas"), "selector": selector},
    });
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        scale["metadata"][field] = workload["metadata"][field].clone();
    }
    // As Go omits an empty number.
    if let replicas @ 1.. = object::number(workload, "/spec/replicas") {
        scale["spec"]["replicas"] = replicas.into();
    }
    scale
}
