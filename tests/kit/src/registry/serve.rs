//! The requests of a registry.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::store::{Store, digest};
use super::{Intercept, Referrers, RegistrySettings, Reply};

/// The token that the registry gives and takes.
const TOKEN: &str = "a-token";
/// A piece of an endless body.
const PIECE: [u8; 4096] = [b' '; 4096];

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What all requests share.
pub(super) struct Shared {
    settings: RegistrySettings,
    address: SocketAddr,
    pub(super) store: Mutex<Store>,
    pub(super) intercept: Mutex<Option<Intercept>>,
    pub(super) requests: Mutex<Vec<(Method, String, Option<String>)>>,
    pub(super) bodies: Mutex<Vec<Bytes>>,
}

impl Shared {
    pub(super) fn new(settings: RegistrySettings, address: SocketAddr) -> Self {
        let (store, intercept, requests, bodies) = Default::default();
        Self { settings, address, store, intercept, requests, bodies }
    }
}

/// Accepts connections for ever.
pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let acceptor = shared.settings.certificate.as_ref().map(|(certificate, key)| acceptor(certificate, key));
    while let Ok((stream, _)) = listener.accept().await {
        let (shared, acceptor) = (Arc::clone(&shared), acceptor.clone());
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(stream, shared).await;
                    }
                }
                None => connection(stream, shared).await,
            }
        });
    }
}

fn acceptor(certificate: &str, key: &str) -> TlsAcceptor {
    let certificates = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_no_client_auth().with_single_cert(certificates, key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, shared: Arc<Shared>) {
    let is_garbage = {
        let intercept = shared.intercept.lock().unwrap();
        let reply = intercept.as_ref().and_then(|answer| answer(&Method::CONNECT, "", &HeaderMap::new()));
        matches!(reply, Some(Reply::Garbage))
    };
    if is_garbage {
        _ = stream.write_all(b"\x00\x01 no HTTP \r\n\r\n").await;
        return;
    }
    let service = service_fn(|request| answer(request, Arc::clone(&shared)));
    _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let authorization = head.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    // Of a client that breaks off, nothing.
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    shared.bodies.lock().unwrap().push(body.clone());
    shared.requests.lock().unwrap().push((head.method.clone(), path.clone(), authorization.clone()));
    let reply = {
        let intercept = shared.intercept.lock().unwrap();
        intercept.as_ref().and_then(|answer| answer(&head.method, &path, &head.headers))
    };
    match reply {
        Some(Reply::Answer(response)) => return Ok(response.map(whole)),
        Some(Reply::Hang | Reply::Garbage) => std::future::pending().await,
        Some(Reply::Endless) => return Ok(Response::new(endless())),
        None => {}
    }
    let answer = shared.answer(&head.method, &path, &head.headers, authorization.as_deref(), &body);
    Ok(answer.map(whole))
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

/// A piece after the other, for ever.
fn endless() -> Body {
    Endless.boxed_unsync()
}

struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE)))))
    }
}

fn status(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"{\"errors\":[{\"message\":\"no\"}]}"));
    *response.status_mut() = status;
    response
}

impl Shared {
    fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        authorization: Option<&str>,
        body: &Bytes,
    ) -> Response<Bytes> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let basic =
            |(user, password)| format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        if path == "/token" {
            let wanted = self.settings.token_for.map(basic);
            return if authorization == wanted.as_deref() {
                Response::new(format!("{{\"token\":\"{TOKEN}\"}}").into())
            } else {
                status(StatusCode::UNAUTHORIZED)
            };
        }
        let bearer = self.settings.token_for.map(|_| format!("Bearer {TOKEN}"));
        let wanted = bearer.clone().or(self.settings.basic_for.map(basic));
        if wanted.is_some() && authorization != wanted.as_deref() {
            let scheme = if self.settings.certificate.is_some() { "https" } else { "http" };
            let challenge = match bearer {
                Some(_) => {
                    format!(
                        "Bearer realm=\"{scheme}://localhost:{}/token\",service=\"kit\"",
                        self.address.port()
                    )
                }
                None => "Basic realm=\"kit\"".to_owned(),
            };
            let mut response = status(StatusCode::UNAUTHORIZED);
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
            return response;
        }
        self.distribute(method, path, query, headers, body)
    }

    fn distribute(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Response<Bytes> {
        let mut store = self.store.lock().unwrap();
        let place = path.strip_prefix("/v2/").unwrap_or_default();
        if place.is_empty() {
            // Other clients ask first whether this is a registry.
            return Response::new(Bytes::from_static(b"{}"));
        }
        if let Some((repository, name)) = place.split_once("/manifests/") {
            return match *method == Method::PUT {
                true => self.put_manifest(&mut store, repository, name, headers, body),
                false => manifest(&store, repository, name),
            };
        }
        if let Some((repository, digest)) = place.split_once("/referrers/")
            && self.settings.referrers != Referrers::Untold
        {
            let mut response = Response::new(
                store.referrers(repository, digest, self.settings.referrers).to_string().into(),
            );
            let media_type = "application/vnd.oci.image.index.v1+json";
            response.headers_mut().insert(CONTENT_TYPE, media_type.parse().unwrap());
            return response;
        }
        if place.ends_with("/blobs/uploads/") && *method == Method::POST {
            let mut response = status(StatusCode::ACCEPTED);
            response
                .headers_mut()
                .insert(LOCATION, format!("{path}{}?state=x", store.begin_upload()).parse().unwrap());
            return response;
        }
        if place.contains("/blobs/uploads/") && *method == Method::PATCH {
            store.uploads.entry(path.to_owned()).or_default().extend_from_slice(body);
            let mut response = status(StatusCode::ACCEPTED);
            response.headers_mut().insert(LOCATION, format!("{path}?state=y").parse().unwrap());
            return response;
        }
        if place.contains("/blobs/uploads/") && *method == Method::PUT {
            let mut whole = store.uploads.remove(path).unwrap_or_default();
            whole.extend_from_slice(body);
            let named = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "digest");
            let is_right = named.is_some_and(|(_, digest)| digest == store.put_blob(&whole));
            return status(if is_right { StatusCode::CREATED } else { StatusCode::BAD_REQUEST });
        }
        match place.split_once("/blobs/").and_then(|(_, digest)| store.blobs.get(digest)) {
            Some(bytes) => Response::new(Bytes::copy_from_slice(bytes)),
            None => status(StatusCode::NOT_FOUND),
        }
    }
    fn put_manifest(
        &self,
        store: &mut Store,
        repository: &str,
        name: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Response<Bytes> {
        let media_type = headers.get(CONTENT_TYPE).unwrap().to_str().unwrap();
        store.put_manifest(repository, name, media_type, body);
        let manifest: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let mut response = status(StatusCode::CREATED);
        if let Some(subject) = manifest["subject"]["digest"].as_str()
            && self.settings.referrers != Referrers::Untold
        {
            response.headers_mut().insert("oci-subject", subject.parse().unwrap());
        }
        response
    }
}

fn manifest(store: &Store, repository: &str, name: &str) -> Response<Bytes> {
    match store.manifest(repository, name) {
        Some((media_type, bytes)) => {
            let mut response = Response::new(Bytes::copy_from_slice(bytes));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, media_type.parse().unwrap());
            headers.insert("docker-content-digest", digest(bytes).parse().unwrap());
            response
        }
        None => status(StatusCode::NOT_FOUND),
    }
}
