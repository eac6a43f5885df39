//! The HTTP server of a replica: admission reviews over TLS, and health and metrics without.
//!
//! [`server`] accepts connections, with the certificates of [`tls`] and [`certificates`]; [`admission()`]
//! answers reviews. [`serve`] answers `/livez`, `/readyz` and `/metrics` in the formats of Kubernetes' own
//! components: `ok`, or one line for each [`Check`] that failed (`?verbose` shows all), and OpenMetrics text.
//!
//! # Guarantees
//!
//! - Each request runs the checks; no answer comes from a cache.
//! - Health and metrics need no authentication and hold no secrets: names of checks, and numbers.

mod admission;
pub mod certificates;
mod health;
pub mod server;
pub mod tls;

pub use admission::{
    AdmissionMetrics, AdmissionRule, AdmissionSettings, BODY_MAX, Level, Levels, MUTATE_PATH, PATH,
    POLICY_PATH, PolicyFinding, PolicyReviewer, ReviewPermit, Reviewer, RuleLevel, RuleLevelError,
    SteeredClass, SteeredClassError, admission,
};
pub use health::{Check, Health, router, serve};
