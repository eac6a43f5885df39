//! Connections to an API server that notice a dead peer.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt as _};
use tower::{BoxError, ServiceBuilder};

/// Idle time before the first keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which the connection is closed.
const KEEPALIVE_RETRIES: u32 = 3;
/// Time without acknowledgement of sent data after which the connection is closed.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// A client of a cluster. This follows `kube::Client::try_from`, which has no option for TCP keepalive.
/// Without it, a connection whose server has lost its power would stay in the pool, and each request on it
/// would wait for its own time limit.
pub(crate) fn connect(config: kube::Config) -> kube::Result<kube::Client> {
    let connector = config.rustls_https_connector_with_connector(tcp_connector())?;
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build(connector));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

fn tcp_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    connector
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::net::TcpListener;
    use tower::Service as _;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_closed_within_half_a_minute_of_its_peers_death() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let connection = tcp_connector().call(uri).await.unwrap();
        let socket = SockRef::from(connection.inner());
        assert!(socket.keepalive().unwrap());
        let probes = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        let half_a_minute = Duration::from_secs(30);
        assert_eq!(socket.tcp_keepalive_time().unwrap() + probes, half_a_minute, "an idle connection");
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(half_a_minute), "unacknowledged data");
    }
}
