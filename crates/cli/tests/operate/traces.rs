//! Traces, as a collector receives them.

use std::sync::{Arc, Mutex};

use bindery_cluster::{Cluster, Manager, Replica, is_bound_to, poll};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;

/// The received spans with the names of their services.
type Received = Arc<Mutex<Vec<(String, Span)>>>;

async fn collect(listener: TcpListener, received: Received) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let received = Arc::clone(&received);
        let service = service_fn(move |request: Request<Incoming>| {
            let received = Arc::clone(&received);
            async move {
                assert_eq!(request.uri().path(), "/v1/traces");
                let body = request.into_body().collect().await?.to_bytes();
                take(&received, body);
                Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::default()))
            }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

fn take(received: &Received, body: Bytes) {
    for resource_spans in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
        let service = text(&resource_spans.resource.unwrap().attributes, "service.name").unwrap();
        let spans = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
        received.lock().unwrap().extend(spans.map(|span| (service.clone(), span)));
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// The syncs of an object, each with the names of its writes.
fn syncs(received: &Received, object: &str, uid: &str) -> Vec<Vec<String>> {
    let received = received.lock().unwrap();
    let of_object = |span: &&(String, Span)| {
        span.0 == "bindery"
            && span.1.name == "sync"
            && text(&span.1.attributes, "object").as_deref() == Some(object)
            && text(&span.1.attributes, "uid").as_deref() == Some(uid)
    };
    let writes = |sync: &Span| {
        let of_sync = received.iter().filter(|(_, span)| {
            span.name == "write" && span.parent_span_id == sync.span_id && span.trace_id == sync.trace_id
        });
        of_sync.filter_map(|(_, span)| text(&span.attributes, "write")).collect()
    };
    received.iter().filter(of_object).map(|(_, sync)| writes(sync)).collect()
}

#[tokio::test]
async fn a_collector_receives_each_sync_with_its_writes() {
    let cluster = Cluster::start(Manager::Off).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let received = Received::default();
    tokio::spawn(collect(listener, Arc::clone(&received)));
    let environment =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.into()), ("OTEL_BSP_SCHEDULE_DELAY", "100".into())];
    let mut replica = Replica::start(&cluster.kubeconfig(), "first", &[], &environment);
    replica.until_leading().await;
    cluster.create_volume("v", "1Gi").await;
    cluster.create_claim("c", "1Gi").await;
    let claim = cluster.until_claim("c", is_bound_to("v")).await;
    let uid = claim.metadata.uid.unwrap();
    let bind = ["reserve volume", "set volume phase", "bind claim", "set claim status"];
    let object = "persistentvolumeclaim default/c";
    let sent =
        poll(async || syncs(&received, object, &uid).iter().any(|writes| *writes == bind).then_some(()));
    assert!(sent.await.is_some(), "{:?}: {}", received.lock().unwrap(), replica.log());
}
