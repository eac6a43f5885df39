//! What the door shows, and whom it lets in.

mod client;
mod credentials;

pub use self::client::Clients;
pub use self::credentials::Credentials;
