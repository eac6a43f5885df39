//! Which clients are let in.

use bindery_webhook::certificates::Authorities;
use bindery_webhook::server::Limits;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::world::{Authority, Site, check, clients};

#[tokio::test]
async fn where_certificates_are_asked_for_only_who_has_the_right_one_is_let_in() {
    let (cluster, stranger) = (Authority::new(), Authority::new());
    let site =
        Site::start_with(Limits::default(), Some(clients(&cluster, &["kube-apiserver", "api.svc"]))).await;
    for version in [&TLS13, &TLS12] {
        let client = || site.client().only(version);
        for wrong in [
            client(),
            client().with(stranger.client("api.svc", "kube-apiserver")),
            client().with(cluster.client("other.svc", "kubelet")),
            // Not a certificate for clients.
            client().with(cluster.server()),
        ] {
            assert!(wrong.ask(site.address).await.is_err());
            assert!(wrong.http2().ask(site.address).await.is_err());
        }
        for right in [cluster.client("other.svc", "kube-apiserver"), cluster.client("api.svc", "x")] {
            check(&client().with(right.clone()).ask(site.address).await.unwrap());
            check(&client().with(right).http2().ask(site.address).await.unwrap());
        }
    }
    assert_eq!(site.traffic.handshake_errors(), 16);
}

#[tokio::test]
async fn without_names_every_client_of_the_authority_is_let_in() {
    let cluster = Authority::new();
    let site = Site::start_with(Limits::default(), Some(clients(&cluster, &[]))).await;
    check(&site.client().with(cluster.client("any.svc", "any")).ask(site.address).await.unwrap());
    assert!(site.client().ask(site.address).await.is_err());
}

#[tokio::test]
async fn another_authority_of_clients_holds_from_the_next_connection_on() {
    let (before, after) = (Authority::new(), Authority::new());
    let site = Site::start_with(Limits::default(), Some(clients(&before, &[]))).await;
    let [old, new] = [&before, &after].map(|authority| site.client().with(authority.client("x.svc", "x")));
    let mut call = old.call(site.address).await.unwrap();
    check(&call.ask("/validate", "review").await.unwrap());
    site.credentials.believe(&Authorities::from_pem(after.pem.as_bytes()).unwrap());
    check(&call.ask("/validate", "review").await.unwrap());
    assert!(old.ask(site.address).await.is_err());
    check(&new.ask(site.address).await.unwrap());
}
