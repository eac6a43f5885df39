//! The HTTP face of a binder: is it alive, is it ready, what has it done; and the door where API servers ask
//! for reviews.
//!
//! [`server`] is what listens, [`tls`] and [`certificates`] what the door shows, [`admission()`] what it
//! answers. [`serve`] answers `/livez`, `/readyz` and `/metrics` on a listener of the caller's. Paths and
//! formats are those of Kubernetes' own components: `ok`, or one line for each [`Check`] that failed
//! (`?verbose` shows all), and metrics in the OpenMetrics text format.
//!
//! # Guarantees
//!
//! - A check is asked for at every request; nothing is answered from memory.
//! - What is served needs no authentication and so tells no secrets: names of checks, and numbers.

mod admission;
pub mod certificates;
mod health;
mod routes;
pub mod server;
pub mod tls;

pub use admission::{
    AdmissionMetrics, AdmissionSettings, BODY_MAX, DoorRule, Level, Levels, PATH, Reviewer, RuleLevel,
    RuleLevelError, admission,
};
pub use health::{Check, Health};
pub use routes::{router, serve};
