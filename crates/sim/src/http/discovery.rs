//! Paths without a resource: discovery, health, version, documents.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use super::accept::JSON;
use super::route::Query;
use super::{SimBody, openapi, respond};
use crate::registry::GROUPS;

const TEXT: &str = "text/plain; charset=utf-8";

/// The media type of the discovery of all groups in one document, which clients since 1.26 request.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The recorded discovery of a real server, cut to the served resources (`examples/capture.rs`).
static DISCOVERY: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/discovery.json"))
        .expect("the discovery data is generated JSON")
});

/// Answers a request that is not for a resource.
pub(crate) fn answer(method: &Method, path: &str, query: &Query, headers: &HeaderMap) -> Response<SimBody> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return not_found();
    }
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    match path {
        "" => json_answer(&json!({"paths": paths()})),
        "version" => json_answer(&version()),
        "healthz" | "livez" | "readyz" => health(path, query),
        "api" | "apis" if takes_aggregated(accept) => aggregated(path),
        "api" => json_answer(&json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        "apis" => json_answer(&DISCOVERY["groups"]),
        "openapi/v2" => openapi_v2(accept),
        "openapi/v3" => json_answer(&openapi::index()),
        _ => match path.strip_prefix("openapi/v3/") {
            Some(group_version) => openapi::document(group_version)
                .map_or_else(not_found, |document| respond(StatusCode::OK, JSON, document)),
            None => group(path).map_or_else(not_found, json_answer),
        },
    }
}

fn json_answer(value: &Value) -> Response<SimBody> {
    respond(StatusCode::OK, JSON, value.to_string())
}

/// The real server's answer for an unknown path.
fn not_found() -> Response<SimBody> {
    respond(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")
}

/// The OpenAPI v2 document, in JSON or protobuf.
fn openapi_v2(accept: &str) -> Response<SimBody> {
    if openapi::V2_PROTOBUF_ASKED.iter().any(|media_type| accept.contains(media_type)) {
        respond(StatusCode::OK, openapi::V2_PROTOBUF, openapi::V2_DOCUMENT)
    } else {
        json_answer(&openapi::v2())
    }
}

fn health(path: &str, query: &Query) -> Response<SimBody> {
    let text =
        if query.has("verbose") { format!("[+]ping ok\n{path} check passed\n") } else { "ok".to_owned() };
    respond(StatusCode::OK, TEXT, text)
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.2+bindery",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": concat!("linux/", env!("CARGO_PKG_NAME")),
    })
}

fn paths() -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in GROUPS {
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/v1"));
    }
    let fixed = ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    paths.extend(fixed.map(str::to_owned));
    paths
}

/// Whether a client accepts the aggregated form in the served version.
fn takes_aggregated(accept: &str) -> bool {
    accept.split(',').any(|clause| {
        let given: Vec<&str> = clause.split(';').map(str::trim).collect();
        given[0] == JSON && AGGREGATED.split(';').all(|wanted| given.contains(&wanted))
    })
}

fn aggregated(root: &str) -> Response<SimBody> {
    let body = DISCOVERY["aggregated"][root].to_string();
    let mut response = respond(StatusCode::OK, AGGREGATED, body);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// `apis/GROUP`, `apis/GROUP/v1` and `api/v1`.
fn group(path: &str) -> Option<&'static Value> {
    if let Some(list) = DISCOVERY["lists"].get(path) {
        return Some(list);
    }
    let name = path.strip_prefix("apis/")?;
    DISCOVERY["groups"]["groups"].as_array()?.iter().find(|group| group["name"] == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::registry::RESOURCES;

    #[test]
    fn discovery_lists_the_resources_of_the_registry() {
        let mut listed = BTreeSet::new();
        for (path, list) in DISCOVERY["lists"].as_object().unwrap() {
            for resource in list["resources"].as_array().unwrap() {
                listed.insert(format!("{path}/{}", resource["name"].as_str().unwrap()));
            }
        }
        for resource in &RESOURCES {
            let path = resource.path();
            assert!(listed.contains(&format!("{path}/{}", resource.plural)), "{}", resource.qualified());
            let status = listed.contains(&format!("{path}/{}/status", resource.plural));
            assert_eq!(status, resource.has_status, "{}", resource.qualified());
            let scale = listed.contains(&format!("{path}/{}/scale", resource.plural));
            assert_eq!(scale, resource.has_scale, "{}", resource.qualified());
            let list = &DISCOVERY["lists"][path.as_str()]["resources"];
            let listed =
                list.as_array().unwrap().iter().find(|other| other["name"] == resource.plural).unwrap();
            assert_eq!(listed["kind"], resource.kind);
            assert_eq!(listed["namespaced"], resource.namespaced);
        }
    }

    #[test]
    fn only_a_client_that_accepts_aggregated_discovery_gets_it() {
        assert!(takes_aggregated(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        ));
        assert!(!takes_aggregated("application/json"));
        assert_eq!(DISCOVERY["aggregated"]["apis"]["items"].as_array().unwrap().len(), GROUPS.len());
    }
}
