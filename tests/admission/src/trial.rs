//! Any bytes as a request.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::{Replica, claim, create, update, volume};

/// Longest warning that all clients show in full.
const WARNING_MAX: usize = 120;
const WARNINGS_MAX: usize = 3;

/// Sends a request made of `bytes` twice: the bytes themselves, or a review with them in some fields.
///
/// # Errors
///
/// A report: an API server would not understand the answer, the answer denies without a reason or differs the
/// second time, or something was written.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let body = body(bytes);
    let replica = replica();
    let answers = [(); 2].map(|()| runtime.block_on(replica.send(body.clone())));
    let report = |what: &str| format!("{what}\n{}\n{}", String::from_utf8_lossy(&body), answers[0].text);
    if answers[0] != answers[1] {
        return Err(report("the second answer differs"));
    }
    if !replica.effects().is_empty() {
        return Err(report("something was written"));
    }
    match (answers[0].status, &answers[0].json) {
        (StatusCode::OK, Some(review)) => check(&body, review).map_err(|what| report(&what)),
        (StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE, _) => Ok(()),
        _ => Err(report("the status is not documented")),
    }
}

/// A cluster with a free volume, a pair and half a pair.
fn replica() -> Replica {
    let of = |name: &str, uid: &str| json!({"claimRef": {"namespace": "ns", "name": name, "uid": uid}});
    let mut bound = claim("bound", "1Gi", json!({"volumeName": "taken"}));
    bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    Replica::default().having(&[
        volume("free", "8Gi", json!({})),
        volume("taken", "1Gi", of("bound", "uid-bound")),
        volume("half", "1Gi", of("gone", "uid-gone")),
        claim("waits", "5Gi", json!({})),
        bound,
    ])
}

/// The body for some bytes. The first byte decides whether the rest is the body, or becomes texts in fields
/// of a review.
fn body(bytes: &[u8]) -> Vec<u8> {
    let Some((how, rest)) = bytes.split_first() else { return Vec::new() };
    let texts: Vec<_> = rest.splitn(3, |byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let text = |at: usize| texts.get(at).map_or("", |text| &**text);
    let named = claim("c", text(0), json!({"volumeName": "free", "storageClassName": text(1)}));
    let reserved = json!({"claimRef": {"namespace": "ns", "name": text(0), "uid": text(1)}});
    let review = match how % 6 {
        0 => return rest.to_vec(),
        1 => create(&named),
        2 => update(&named, &claim("c", text(2), json!({"volumeName": text(1)}))),
        3 => create(&volume("v", text(2), reserved)),
        4 => update(&volume("taken", text(2), reserved), &volume("taken", "1Gi", json!({}))),
        _ => {
            let mut review = create(&claim("c", "1Gi", json!({"volumeName": text(0)})));
            review["request"]["operation"] = text(1).into();
            review["request"]["object"]["spec"]["accessModes"] = json!([text(2)]);
            review
        }
    };
    review.to_string().into_bytes()
}

/// Checks an answer against what an API server expects and the documents promise.
fn check(body: &[u8], review: &Value) -> Result<(), String> {
    let sent: Value = serde_json::from_slice(body)
        .map_err(|error| format!("the answer to a review is not JSON: {error}"))?;
    let response = &review["response"];
    if (review["apiVersion"].as_str(), review["kind"].as_str())
        != (Some("admission.k8s.io/v1"), Some("AdmissionReview"))
    {
        return Err("the answer is not a review".to_owned());
    }
    if response["uid"].as_str().is_none() || response["uid"] != sent["request"]["uid"] {
        return Err("the answer has another uid".to_owned());
    }
    let warnings = response["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    let is_short = |text: &str| text.chars().count() <= WARNING_MAX && !text.contains(char::is_control);
    if warnings.len() > WARNINGS_MAX || !warnings.iter().all(|text| text.as_str().is_some_and(is_short)) {
        return Err("the warnings are too many or too long".to_owned());
    }
    match response["allowed"].as_bool() {
        Some(true) => Ok(()),
        Some(false) => explained(&response["status"]),
        None => Err("the answer does not say whether the request is allowed".to_owned()),
    }
}

/// Checks that a denial gives reasons.
fn explained(status: &Value) -> Result<(), String> {
    let causes = status["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let is_told = |cause: &Value| {
        ["field", "reason", "message"]
            .iter()
            .all(|key| cause[*key].as_str().is_some_and(|text| !text.is_empty()))
    };
    let code = status["code"].as_u64();
    if causes.is_empty() || !causes.iter().all(is_told) || !matches!(code, Some(403 | 422)) {
        return Err("the denial does not say why".to_owned());
    }
    Ok(())
}
