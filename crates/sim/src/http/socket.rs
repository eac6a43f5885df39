//! The simulator on a socket.

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{SimService, Socket};
use crate::sim::Sim;

/// The time to close connections after `stop`, so that a peer that does not read cannot keep the server
/// alive.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// The pause after an accept error, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time between two looks for pods whose grace period is over.
const TICK: Duration = Duration::from_secs(1);

/// Accepts connections until `stop`.
pub(crate) async fn serve(
    sim: Sim,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let service = SimService::new(sim.clone(), Some(Socket { address: listener.local_addr()?, stopped }));
    let connections = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    let mut ticks = tokio::time::interval(TICK);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            _ = ticks.tick() => {
                sim.end_pods();
                continue;
            }
            () = &mut stop => break,
        };
        // Small answers must not wait for each other. The connection also works without the option.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
        let service = TowerToHyperService::new(service.clone());
        let builder = auto::Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended with an error");
            }
        });
    }
    drop(listener);
    stopping.send_replace(true);
    if tokio::time::timeout(DRAIN_TIME_MAX, connections.shutdown()).await.is_err() {
        tracing::debug!("connections were cut off while draining");
    }
    Ok(())
}
