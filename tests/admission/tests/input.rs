//! Bad input: each has its documented answer, and the next good review is answered.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seeds are printed")]

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bindery_admission_tests::{World, claim, create, trial, update, volume};
use bindery_webhook::PATH;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};
use tower::ServiceExt as _;

#[tokio::test]
async fn what_is_no_review_is_refused_with_the_reason() {
    let world = World::default();
    let good = create(&claim("c", "1Gi", json!({})));
    let changed = |change: fn(&mut Value)| {
        let mut review = good.clone();
        change(&mut review);
        review.to_string()
    };
    for (body, said) in [
        (String::new(), "the body is no AdmissionReview: EOF"),
        ("not JSON".to_owned(), "the body is no AdmissionReview: expected"),
        ("[]".to_owned(), "this server answers AdmissionReview"),
        ("[7]".to_owned(), "the body is no AdmissionReview"),
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
        (changed(|review| review["request"]["uid"] = Value::Null), "the body is no AdmissionReview"),
        (changed(|review| review["request"]["operation"] = 7.into()), "the body is no AdmissionReview"),
        (good.to_string() + "}", "trailing"),
        (good.to_string().replacen("\"kind\"", "\"kind\":\"\",\"kind\"", 1), "duplicate"),
        ("[".repeat(100_000), "the body is no AdmissionReview"),
    ] {
        let answer = world.send(body.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer.text.contains(said), "{body}: {}", answer.text);
    }
    let answer = world.send(vec![b'{', 0xff, 0xfe]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(world.response(&good).await["allowed"], json!(true));
    assert!(world.scrape().contains("bindery_admission_bad_requests_total 15\n"), "{}", world.scrape());
}

/// Nobody has to read an answer, and it takes memory until somebody does.
#[tokio::test]
async fn no_answer_is_long_however_long_the_review_is() {
    const ANSWER_MAX: usize = 4096;
    let long = "x".repeat(500_000);
    let world = World::default().having(&[volume("v", "1Gi", json!({}))]);
    let good = create(&claim("c", "8Gi", json!({"volumeName": "v"})));
    let (mut uid, mut version, mut request) = (good.clone(), good.clone(), good);
    uid["request"]["uid"] = long.as_str().into();
    version["apiVersion"] = long.as_str().into();
    request["request"] = long.as_str().into();
    for review in [uid, version, request] {
        let answer = world.send(review.to_string()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.text.len() < ANSWER_MAX, "{} bytes", answer.text.len());
    }
    let named = claim(&long, "8Gi", json!({"volumeName": "v"}));
    let denied = world.send(create(&named).to_string()).await;
    assert_eq!(denied.json.unwrap()["response"]["allowed"], json!(false));
    assert!(denied.text.len() < ANSWER_MAX, "{} bytes", denied.text.len());
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    for (method, path, status) in [
        ("GET", PATH, StatusCode::METHOD_NOT_ALLOWED),
        ("DELETE", PATH, StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "/mutate", StatusCode::NOT_FOUND),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let response = World::default().router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_passes_with_a_warning_that_names_the_field() {
    let world = World::default();
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
        let response = world.response(&review).await;
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
        assert!(world.scrape().contains(&counted), "no {counted} in {}", world.scrape());
    }
}

/// What it mends will be bound, and nobody says otherwise; what was wrong before is not held against it.
#[tokio::test]
async fn an_update_of_what_could_not_be_read_passes_with_a_warning_that_says_so() {
    let world = World::default().having(&[volume("v", "1Gi", json!({}))]);
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
        let response = world.response(&review).await;
        assert_eq!(response["allowed"], json!(true), "{response}");
        let warning = response["warnings"][0].as_str().unwrap();
        let not_checked = "Bindery has not checked this request: it cannot read the object as it was: ";
        assert!(warning.starts_with(not_checked) && warning.chars().count() <= 120, "{warning}");
        assert!(warning.contains(said), "{warning}");
    }
    let counted = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"unreadable\"} 3\n";
    assert!(world.scrape().contains(counted), "{}", world.scrape());
}

/// Nobody knows what to do with so many; reading them would cost many times the memory that it took to send
/// them.
#[tokio::test]
async fn what_has_more_parts_than_any_object_passes_unread_with_a_warning() {
    let world = World::default();
    let many = |parts: usize| create(&volume("v", "1Gi", json!({"unknown": vec![0; parts]})));
    let response = world.response(&many(99_000)).await;
    assert_eq!(response, json!({"uid": response["uid"], "allowed": true}));
    let response = world.response(&many(101_000)).await;
    assert_eq!(response["allowed"], json!(true));
    let told = "Bindery has not checked this request: it has more than 100000 fields and entries of lists";
    assert_eq!(response["warnings"], json!([told]));
    let counted = "bindery_admission_reviews_total{kind=\"volume\",outcome=\"unreadable\"} 1\n";
    assert!(world.scrape().contains(counted), "{}", world.scrape());
}

#[tokio::test]
async fn other_kinds_operations_and_subresources_pass() {
    let world = World::default().having(&[volume("v", "1Gi", json!({}))]);
    let denied = create(&claim("c", "8Gi", json!({"volumeName": "v"})));
    assert_eq!(world.response(&denied).await["allowed"], json!(false));
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
        let response = world.response(&review).await;
        assert_eq!(response, json!({"uid": review["request"]["uid"], "allowed": true}));
    }
    let counted = "bindery_admission_reviews_total{kind=\"other\",outcome=\"passed\"} 2\n";
    assert!(world.scrape().contains(counted), "{}", world.scrape());
}

#[tokio::test]
async fn a_tenant_learns_nothing_of_claims_in_other_namespaces() {
    let mut owner = claim("payroll", "1Gi", json!({"volumeName": "v"}));
    owner["metadata"]["namespace"] = "finance".into();
    owner["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let of = json!({"claimRef": {"namespace": "finance", "name": "payroll", "uid": "uid-payroll"}});
    let world = World::default().having(&[volume("v", "1Gi", of), owner]);
    let response = world.response(&create(&claim("c", "1Gi", json!({"volumeName": "v"})))).await;
    assert_eq!(response["allowed"], json!(false));
    assert!(
        !response.to_string().contains("payroll") && !response.to_string().contains("finance"),
        "{response}"
    );
}

#[test]
fn any_bytes_are_answered_in_a_way_that_an_api_server_understands() {
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let result =
        runner.run(&vec(any::<u8>(), 0..200), |bytes| trial::run(&bytes).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
}
