//! Connections to an API server that notice when the other end is gone.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt as _};
use tower::{BoxError, ServiceBuilder};

/// Time without a packet after which the other end is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Time between such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Questions without an answer after which the connection is closed.
const KEEPALIVE_RETRIES: u32 = 3;
/// Time without an acknowledgement of what was sent after which the connection is closed.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// The client of a cluster. This follows `kube::Client::try_from`, which has no option for TCP
/// keepalive: a connection whose server has lost its power would be kept for requests to come, each of which
/// would wait for its own time limit.
///
/// # Errors
///
/// The configuration cannot be used.
pub(crate) fn connect(config: kube::Config) -> kube::Result<kube::Client> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build(connector));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}
