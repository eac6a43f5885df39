//! Invalid input gets its documented answer, and the next review is answered.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seeds are printed")]

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bindery_admission_tests::{Replica, claim, create, trial, update, volume};
use bindery_webhook::PATH;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};
use tower::ServiceExt as _;

#[tokio::test]
async fn a_body_that_is_not_a_review_is_refused_with_the_reason() {
    let replica = Replica::default();
    let good = create(&claim("c", "1Gi", json!({})));
    let changed = |change: fn(&mut Value)| {
        let mut review = good.clone();
        change(&mut review);
        review.to_string()
    };
    for (body, said) in [
        (String::new(), "the body is not an AdmissionReview: EOF"),
        ("not JSON".to_owned(), "the body is not an AdmissionReview: expected"),
        ("[]".to_owned(), "this server answers AdmissionReview"),
        ("[7]".to_owned(), "the body is not an AdmissionReview"),
        (
            "{}".to_owned(),
            "the body is \"\" of \"\"; this server answers AdmissionReview of admission.k8s.io/v1",
        ),
        (
            changed(|review| review["apiVersion"] = "admission.k8s.io/v1beta1".into()),
            "list v1 in admissionReviewVersions",
        ),
        (changed(|review| review["kind"] = "Pod".into()), "\"Pod\""),
        (changed(|review| review["request"] = Value::Null), "the review has no request"),
        (changed(|review| review["request"]["uid"] = "".into()), "request.uid is missing"),
        (changed(|review| review["request"]["uid"] = Value::Null), "the body is not an AdmissionReview"),
        (changed(|review| review["request"]["operation"] = 7.into()), "the body is not an AdmissionReview"),
        (good.to_string() + "}", "trailing"),
        (good.to_string().replacen("\"kind\"", "\"kind\":\"\",\"kind\"", 1), "duplicate"),
        ("[".repeat(100_000), "the body is not an AdmissionReview"),
    ] {
        let answer = replica.send(body.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer.text.contains(said), "{body}: {}", answer.text);
    }
    let answer = replica.send(vec![b'{', 0xff, 0xfe]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(replica.response(&good).await["allowed"], json!(true));
    assert!(replica.scrape().contains("bindery_admission_bad_requests_total 15\n"), "{}", replica.scrape());
}

/// An answer takes memory until its client reads it.
#[tokio::test]
async fn answers_stay_short_however_long_the_review_is() {
    const ANSWER_MAX: usize = 4096;
    let long = "x".repeat(500_000);
    let replica = Replica::default().having(&[volume("v", "1Gi", json!({}))]);
    let good = create(&claim("c", "8Gi", json!({"volumeName": "v"})));
    let (mut uid, mut version, mut request) = (good.clone(), good.clone(), good);
    uid["request"]["uid"] = long.as_str().into();
    version["apiVersion"] = long.as_str().into();
    request["request"] = long.as_str().into();
    for review in [uid, version, request] {
        let answer = replica.send(review.to_string()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.text.len() < ANSWER_MAX, "{} bytes", answer.text.len());
    }
    let named = claim(&long, "8Gi", json!({"volumeName": "v"}));
    let denied = replica.send(create(&named).to_string()).await;
    assert_eq!(denied.json.unwrap()["response"]["allowed"], json!(false));
    assert!(denied.text.len() < ANSWER_MAX, "{} bytes", denied.text.len());
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    for (method, path, status) in [
        ("GET", PATH, StatusCode::METHOD_NOT_ALLOWED),
        ("DELETE", PATH, StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "/convert", StatusCode::NOT_FOUND),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let response = Replica::default().router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
    }
}

#[tokio::test]
async fn an_unreadable_object_passes_with_a_warning_naming_the_field() {
    let replica = Replica::default();
    let quantity = create(&claim("c", "10Gx", json!({})));
    let mode = create(&claim("c", "1Gi", json!({"accessModes": ["ReadWriteTwice"]})));
    let size = create(&volume("v", "-1", json!({})));
    let mut missing = create(&claim("c", "1Gi", json!({})));
    missing["request"]["object"] = Value::Null;
    for (review, said) in [
        (quantity, "spec.resources.requests.storage: \"10Gx\" is not a quantity"),
        (mode, "spec.accessModes: \"ReadWriteTwice\" is not an access mode"),
        (size, "spec.capacity.storage: \"-1\" is negative"),
        (missing, "request.object is missing"),
    ] {
        let response = replica.response(&review).await;
        assert_eq!(response["allowed"], json!(true), "{response}");
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(
            warning.starts_with("Bindery cannot read this object") && warning.chars().count() <= 120,
            "{warning}"
        );
        assert!(warning.contains(&said[..said.len().min(40)]), "{warning}");
    }
    for counted in ["claim\",outcome=\"unreadable\"} 3\n", "volume\",outcome=\"unreadable\"} 1\n"] {
        let counted = format!("bindery_admission_reviews_total{{kind=\"{counted}");
        assert!(replica.scrape().contains(&counted), "no {counted} in {}", replica.scrape());
    }
}

/// The new object will be bound; which of its faults are old is unknown.
#[tokio::test]
async fn an_update_of_an_unreadable_object_passes_with_a_warning() {
    let replica = Replica::default().having(&[volume("v", "1Gi", json!({}))]);
    let odd_modes = json!({"accessModes": ["ReadWriteTwice"]});
    let reserved = json!({"claimRef": {"namespace": "ns", "name": "c"}});
    let large = claim("c", "8Gi", json!({"volumeName": "v"}));
    for (review, said) in [
        (
            update(&volume("v", "1Gi", reserved), &volume("v", "1Gi", odd_modes.clone())),
            "spec.accessModes: \"Read",
        ),
        (update(&large, &claim("c", "8Gi", odd_modes)), "spec.accessModes: \"Read"),
        (update(&large, &claim("c", "10Gx", json!({}))), "spec.resources.requests.storage: \"10Gx"),
        (update(&large, &Value::Null), "request.oldObject is missing"),
    ] {
        let response = replica.response(&review).await;
        assert_eq!(response["allowed"], json!(true), "{response}");
        let warning = response["warnings"][0].as_str().unwrap();
        let not_checked = "Bindery has not checked this request: it cannot read the object as it was: ";
        assert!(warning.starts_with(not_checked) && warning.chars().count() <= 120, "{warning}");
        assert!(warning.contains(said), "{warning}");
    }
    let counted = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"unreadable\"} 3\n";
    assert!(replica.scrape().contains(counted), "{}", replica.scrape());
}

/// Decoding these would cost many times the memory of the request.
#[tokio::test]
async fn an_object_with_too_many_fields_passes_unread_with_a_warning() {
    let replica = Replica::default();
    let many = |parts: usize| create(&volume("v", "1Gi", json!({"unknown": vec![0; parts]})));
    let response = replica.response(&many(99_000)).await;
    assert_eq!(response, json!({"uid": response["uid"], "allowed": true}));
    let response = replica.response(&many(101_000)).await;
    assert_eq!(response["allowed"], json!(true));
    let told = "Bindery has not checked this request: it has more than 100000 fields and entries of lists";
    assert_eq!(response["warnings"], json!([told]));
    let counted = "bindery_admission_reviews_total{kind=\"volume\",outcome=\"unreadable\"} 1\n";
    assert!(replica.scrape().contains(counted), "{}", replica.scrape());
}

#[tokio::test]
async fn other_kinds_operations_and_subresources_pass() {
    let replica = Replica::default().having(&[volume("v", "1Gi", json!({}))]);
    let denied = create(&claim("c", "8Gi", json!({"volumeName": "v"})));
    assert_eq!(replica.response(&denied).await["allowed"], json!(false));
    let changes: [fn(&mut Value); 5] = [
        |request| request["kind"]["kind"] = "Pod".into(),
        |request| request["kind"]["group"] = "example.com".into(),
        |request| request["subResource"] = "status".into(),
        |request| request["operation"] = "CONNECT".into(),
        |request| request["operation"] = "DELETE".into(),
    ];
    for change in changes {
        let mut review = denied.clone();
        change(&mut review["request"]);
        let response = replica.response(&review).await;
        assert_eq!(response, json!({"uid": review["request"]["uid"], "allowed": true}));
    }
    let counted = "bindery_admission_reviews_total{kind=\"other\",outcome=\"passed\"} 2\n";
    assert!(replica.scrape().contains(counted), "{}", replica.scrape());
}

#[tokio::test]
async fn a_tenant_learns_nothing_of_claims_in_other_namespaces() {
    let mut owner = claim("payroll", "1Gi", json!({"volumeName": "v"}));
    owner["metadata"]["namespace"] = "finance".into();
    owner["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let of = json!({"claimRef": {"namespace": "finance", "name": "payroll", "uid": "uid-payroll"}});
    let replica = Replica::default().having(&[volume("v", "1Gi", of), owner]);
    let response = replica.response(&create(&claim("c", "1Gi", json!({"volumeName": "v"})))).await;
    assert_eq!(response["allowed"], json!(false));
    assert!(
        !response.to_string().contains("payroll") && !response.to_string().contains("finance"),
        "{response}"
    );
}

#[test]
fn any_bytes_get_an_answer_that_an_api_server_understands() {
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let result =
        runner.run(&vec(any::<u8>(), 0..200), |bytes| trial::run(&bytes).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
}
