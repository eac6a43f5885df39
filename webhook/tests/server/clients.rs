//! Client certificates.

use bindery_kit::Authority;
use bindery_webhook::certificates::Authorities;
use bindery_webhook::server::Limits;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::fixture::{NAME, TestServer, check, clients};

#[tokio::test]
async fn only_clients_with_an_accepted_certificate_are_answered() {
    let (cluster, stranger) = (Authority::new(), Authority::new());
    let server =
        TestServer::start_with(Limits::default(), Some(clients(&cluster, &["kube-apiserver", "api.svc"])))
            .await;
    for version in [&TLS13, &TLS12] {
        let client = || server.client().only(version);
        for wrong in [
            client(),
            client().with(stranger.client("api.svc", "kube-apiserver")),
            client().with(cluster.client("other.svc", "kubelet")),
            // A server's certificate.
            client().with(cluster.server(NAME)),
        ] {
            assert!(wrong.ask(server.address).await.is_err());
            assert!(wrong.http2().ask(server.address).await.is_err());
        }
        for right in [cluster.client("other.svc", "kube-apiserver"), cluster.client("api.svc", "x")] {
            check(&client().with(right.clone()).ask(server.address).await.unwrap());
            check(&client().with(right).http2().ask(server.address).await.unwrap());
        }
    }
    assert_eq!(server.stats.handshake_errors.get(), 16);
}

/// Without names every client of the authority is answered.
#[tokio::test]
async fn another_client_authority_applies_to_the_next_connection() {
    let (before, after) = (Authority::new(), Authority::new());
    let server = TestServer::start_with(Limits::default(), Some(clients(&before, &[]))).await;
    let [old, new] = [&before, &after].map(|authority| server.client().with(authority.client("x.svc", "x")));
    let mut connection = old.connect(server.address).await.unwrap();
    check(&connection.ask("/validate", "review").await.unwrap());
    server.credentials.trust_clients_of(&Authorities::from_pem(after.pem().as_bytes()).unwrap());
    check(&connection.ask("/validate", "review").await.unwrap());
    for refused in [old, server.client()] {
        assert!(refused.ask(server.address).await.is_err());
    }
    check(&new.ask(server.address).await.unwrap());
}
