//! What answers and failed handshakes say about credentials.

use std::net::Ipv4Addr;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::source::{Field, FieldValue};
use super::*;

/// A client whose API server answers with the status in the request's path.
fn credentials() -> Credentials {
    let service = tower::service_fn(async |request: Request<Body>| {
        let status = request.uri().path().trim_start_matches('/').parse::<u16>().unwrap();
        Response::builder().status(status).body(Body::empty())
    });
    Credentials::fixed(kube::Client::new(service, "default"))
}

async fn answer(credentials: &Credentials, status: u16) -> Option<String> {
    let request = Request::get(format!("/{status}")).body(Body::empty()).unwrap();
    assert_eq!(credentials.send(request).await.unwrap().status(), status);
    credentials.refusal().borrow().clone()
}

#[tokio::test(start_paused = true)]
async fn refusals_count_after_ten_seconds_until_one_request_is_accepted() {
    let credentials = credentials();
    assert_eq!(answer(&credentials, 401).await, None);
    tokio::time::advance(REFUSED_AFTER - Duration::from_millis(1)).await;
    assert_eq!(answer(&credentials, 401).await, None);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(answer(&credentials, 503).await, None);
    let why = Some("it answers 401 Unauthorized".to_owned());
    assert_eq!(answer(&credentials, 401).await, why);
    assert_eq!(answer(&credentials, 500).await, why);
    // 403 means that the user is known.
    assert_eq!(answer(&credentials, 403).await, None);
    assert_eq!(answer(&credentials, 401).await, None);
}

#[tokio::test]
async fn an_answer_to_replaced_credentials_changes_nothing() {
    let credentials = credentials();
    let shared = &credentials.shared;
    let replaced = shared.current.lock().generation;
    let client = shared.current.lock().client().1;
    shared.replace(Connected { client, config: None });
    shared.note(replaced, Acceptance::Refused(String::new()));
    assert!(!shared.is_refused());
    assert_eq!(answer(&credentials, 401).await, None);
    shared.note(replaced, Acceptance::Accepted);
    assert!(shared.is_refused());
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Serves on loopback with a certificate of this authority, and requires one from clients.
async fn serve_tls(authority: &CertifiedIssuer<'static, KeyPair>) -> http::Uri {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([Ipv4Addr::LOCALHOST.to_string()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap().der().clone();
    let mut clients = RootCertStore::empty();
    clients.add(authority.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            drop(acceptor.accept(stream).await);
        }
    });
    uri
}

/// What a failed request to this server says about a client with a certificate of `own` that trusts
/// `trusted`.
async fn acceptance(
    server: &http::Uri,
    own: &CertifiedIssuer<'static, KeyPair>,
    trusted: &CertifiedIssuer<'static, KeyPair>,
) -> Acceptance {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::default().signed_by(&key, own).unwrap();
    let field =
        |name, pem: String| Field { name, owner: String::new(), value: FieldValue::Inline(pem.into_bytes()) };
    let source = Source {
        config: kube::Config::new(server.clone()),
        authorities: Some(field("certificate-authority", trusted.pem())),
        identity: Some((
            field("client-certificate", certificate.pem()),
            field("client-key", key.serialize_pem()),
        )),
        token: None,
        plugin: None,
    };
    let made = source.client(&source.read().unwrap()).unwrap();
    Acceptance::of(&made.client.send(Request::get("/version").body(Body::empty()).unwrap()).await)
}

#[tokio::test]
async fn a_handshake_that_fails_for_a_certificate_is_a_refusal() {
    let [server, stranger] = [authority(), authority()];
    let uri = serve_tls(&server).await;
    let refusal = async |own, trusted| match acceptance(&uri, own, trusted).await {
        Acceptance::Refused(why) => why,
        _ => String::new(),
    };
    assert!(refusal(&stranger, &server).await.starts_with("it refuses the TLS handshake: "));
    assert!(refusal(&server, &stranger).await.starts_with("its own certificate is not accepted: "));
    // The server ends the connection without an answer.
    assert!(matches!(acceptance(&uri, &server, &server).await, Acceptance::Unknown));
}
