//! Serves an empty simulator, on the machine's clock, for `kubectl -s http://ADDRESS`.
//!
//! ```sh
//! cargo run -p bindery-sim --example serve -- 127.0.0.1:8001
//! ```

use bindery_sim::{Clock, Sim, SimOptions};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    eprintln!("serving on http://{}; end with Ctrl-C", listener.local_addr()?);
    let sim = Sim::new(SimOptions { clock: Clock::Real, ..SimOptions::default() });
    let stop = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("Ctrl-C cannot be waited for: {error}");
            std::future::pending::<()>().await;
        }
    };
    sim.serve(listener, stop).await
}
