//! A registry on loopback that speaks the OCI distribution API 1.1, and answers as a test says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod serve;
mod store;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use tokio::runtime::{Builder, Runtime};

use self::serve::Shared;

/// How a registry tells the referrers of a manifest.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Referrers {
    /// With their types of artifact.
    #[default]
    ByArtifact,
    /// With the types of their configurations, as go-containerregistry's registry does.
    ByConfiguration,
    /// It has no API for them.
    Untold,
}

impl Referrers {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::ByArtifact, Self::ByConfiguration, Self::Untold];
}

/// How a registry behaves.
#[derive(Default)]
pub struct RegistrySettings {
    /// How it tells the referrers of a manifest.
    pub referrers: Referrers,
    /// Name and password that it wants: for a token.
    pub token_for: Option<(&'static str, &'static str)>,
    /// Name and password that it wants with each request.
    pub basic_for: Option<(&'static str, &'static str)>,
    /// Certificate and key of the server, in PEM. Without them it has no TLS.
    pub certificate: Option<(String, String)>,
}

/// What a registry answers.
pub enum Reply {
    /// This.
    Answer(Response<Bytes>),
    /// Nothing, for ever.
    Hang,
    /// A header, then bytes without end.
    Endless,
    /// Bytes that are no HTTP.
    Garbage,
}

/// What decides about a request before the registry does: method, path with query, and header.
type Intercept = Box<dyn Fn(&Method, &str, &HeaderMap) -> Option<Reply> + Send + Sync>;

/// A registry that runs until it is dropped.
pub struct OciRegistry {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl OciRegistry {
    /// Starts a registry with these settings.
    pub fn start(settings: RegistrySettings) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::new(settings, address));
        runtime.spawn(serve::run(listener, Arc::clone(&shared)));
        Self { address, shared, runtime: Some(runtime) }
    }

    /// Host and port.
    pub fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// From now on, `answer` is asked first.
    pub fn intercept(
        &self,
        answer: impl Fn(&Method, &str, &HeaderMap) -> Option<Reply> + Send + Sync + 'static,
    ) {
        *self.shared.intercept.lock().unwrap() = Some(Box::new(answer));
    }

    /// From now on, every request hangs.
    pub fn hang(&self) {
        self.intercept(|_, _, _| Some(Reply::Hang));
    }

    /// From now on, requests for blobs that the other registry has are redirected there, to its TLS.
    pub fn redirect_blobs(&self, to: &Self) {
        let (host, there) = (to.host(), Arc::clone(&to.shared));
        self.intercept(move |_, path, _| {
            let (_, digest) = path.split_once("/blobs/")?;
            let redirect =
                || Response::builder().status(307).header("location", format!("https://{host}{path}"));
            let is_there = there.store.lock().unwrap().blobs.contains_key(digest);
            is_there.then(|| Reply::Answer(redirect().body(Bytes::new()).unwrap()))
        });
    }

    /// From now on, it is honest.
    pub fn recover(&self) {
        *self.shared.intercept.lock().unwrap() = None;
    }

    /// The requests so far: method, path with query, and `Authorization`.
    pub fn requests(&self) -> Vec<(Method, String, Option<String>)> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The bodies of these requests.
    pub fn bodies(&self) -> Vec<Bytes> {
        self.shared.bodies.lock().unwrap().clone()
    }

    /// The bytes of a manifest by tag or digest.
    pub fn manifest(&self, repository: &str, name: &str) -> Option<Vec<u8>> {
        self.shared.store.lock().unwrap().manifest(repository, name).map(|(_, bytes)| bytes.clone())
    }

    /// Stores a manifest under a tag or its digest, and its digest.
    pub fn put_manifest(&self, repository: &str, name: &str, bytes: &[u8]) -> String {
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        self.shared.store.lock().unwrap().put_manifest(repository, name, media_type, bytes)
    }

    /// Stores a blob, and its digest.
    pub fn put_blob(&self, bytes: &[u8]) -> String {
        self.shared.store.lock().unwrap().put_blob(bytes)
    }

    /// Changes the bytes of a blob or manifest, whose digest stays.
    pub fn corrupt(&self, digest: &str) {
        self.shared.store.lock().unwrap().corrupt(digest);
    }
}

impl Drop for OciRegistry {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
