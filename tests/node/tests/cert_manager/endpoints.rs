//! The webhook endpoints of a release's pods, and the certificates that they show.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use bindery_chart::{NAMESPACE, RELEASE, offered};
use bindery_cluster::{Server, free_port};
use bindery_node::installation::{Installation, PODS};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::issuing::CertManager;

const PORT: u16 = 8443;

/// A port on loopback for each pod, which kubectl forwards to its endpoint.
pub(crate) struct Endpoints(Vec<(u16, Server)>);

impl Endpoints {
    pub(crate) async fn find(installation: &Installation) -> Self {
        let pods = installation.kubectl(&["get", "pods", "--selector", PODS, "--output", "name"]);
        let forwarded = pods.lines().map(|pod| forward(installation, pod));
        let endpoints = Self(forwarded.collect());
        assert_eq!(endpoints.0.len(), 2, "{pods}");
        for (port, _) in &endpoints.0 {
            let look = async || TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).await.ok();
            installation.objects.until_found("a port that kubectl forwards", look).await;
        }
        endpoints
    }

    /// Waits until all pods show the first certificate of this PEM. Until then, each certificate that they
    /// show must be valid for the authority that the API server trusts at that time.
    pub(crate) async fn until_shown(
        &self,
        installation: &Installation,
        cert_manager: &CertManager,
        pem: &[u8],
    ) {
        let certificate = CertificateDer::from_pem_slice(pem).unwrap();
        let look = async || {
            let trusted = cert_manager.trusted().await.expect("the injector must not remove an authority");
            let mut all = true;
            for (port, _) in &self.0 {
                let shown = shown(*port, &trusted).await;
                all &= shown.unwrap_or_else(|why| panic!("a new connection fails: {why}")) == certificate;
            }
            all.then_some(())
        };
        installation.objects.until_found("the new certificate at all endpoints", look).await;
    }
}

fn forward(installation: &Installation, pod: &str) -> (u16, Server) {
    let port = free_port().unwrap();
    let arguments = [
        "port-forward".to_owned(),
        pod.to_owned(),
        format!("{port}:{PORT}"),
        format!("--kubeconfig={}", installation.node.kubeconfig().display()),
        format!("--namespace={NAMESPACE}"),
    ];
    let log = installation.folder.path().join("port-forward.log");
    let server = Server::start(&offered("BINDERY_KUBECTL"), arguments.map(OsString::from), &log);
    (port, server.unwrap())
}

/// The certificate that a server shows to a client that asks for the Service's name and trusts these
/// authorities.
async fn shown(port: u16, trusted: &[u8]) -> io::Result<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(format!("{RELEASE}.{NAMESPACE}.svc")).unwrap();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().expect("a server must have shown its certificate");
    Ok(chain[0].clone())
}
