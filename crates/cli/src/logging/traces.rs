//! Traces by OTLP over HTTP: what was done to each object, and how long each part took.
//!
//! Spans wait in a bounded queue and are sent in batches from a thread of their own; they are dropped while
//! the collector is down or slow. OpenTelemetry's variables `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and
//! `OTEL_BSP_*` apply.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Runtime;

/// The service of the traces, unless `OTEL_SERVICE_NAME` is set.
const SERVICE: &str = "bindery";
/// Path of traces below the endpoint of a collector.
const PATH: &str = "/v1/traces";
/// Most time that sending a batch may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends spans; on drop it sends those that wait.
pub(crate) struct Traces(SdkTracerProvider);

/// Sends requests from the exporter's thread, which has no runtime.
#[derive(Debug)]
struct Sender {
    runtime: Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Traces {
    /// Starts sending to the collector at `endpoint`.
    pub(crate) fn to(endpoint: &Uri) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::builder(TokioExecutor::new())
            // The runtime does not run between two batches, so it cannot notice a closed connection.
            .pool_max_idle_per_host(0)
            .build_http();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender { runtime, client })
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}{PATH}", endpoint.to_string().trim_end_matches('/')))
            .build()
            .context("traces cannot be sent")?;
        let resource = Resource::builder();
        let named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
        let resource = if named { resource } else { resource.with_service_name(SERVICE) }.build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource);
        Ok(Self(provider.build()))
    }

    /// The tracer of this program.
    pub(crate) fn tracer(&self) -> SdkTracer {
        self.0.tracer(SERVICE)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // The process ends; a collector that is down is not worth an error.
        let _ = self.0.shutdown();
    }
}

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let exchange = async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            Ok::<_, HttpError>(Response::from_parts(parts, body.collect().await?.to_bytes()))
        };
        self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, exchange).await? })
    }
}

/// Reads the endpoint of a collector.
pub(crate) fn endpoint(text: &str) -> Result<Uri, String> {
    let allowed = "an endpoint is http://HOST:PORT of an OTLP collector, without TLS: run one beside Bindery";
    let endpoint: Uri = text.parse().map_err(|error| format!("{error}; {allowed}"))?;
    if endpoint.scheme_str() != Some("http") || endpoint.host().is_none() {
        return Err(allowed.to_owned());
    }
    Ok(endpoint)
}
