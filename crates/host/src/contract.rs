//! The versions of the contract that engines are made for.

mod function;
mod v0_1;
mod v0_2;

use bindery_core::{Decision, Request};
use wasmtime::component::Component;
use wasmtime::{Result, Store};

use crate::call::Call;

/// A decision, or what is wrong with the answer.
pub(crate) type Decided = std::result::Result<Decision, String>;

/// An engine, ready to be instantiated.
pub(crate) enum Contract {
    V0_1(v0_1::Prepared),
    V0_2(v0_2::Prepared),
}

impl Contract {
    /// Binds an engine to the version that it is made for, `major.minor`.
    pub(crate) fn new(component: &Component, version: (u64, u64)) -> Result<Self> {
        Ok(match version {
            (0, 1) => Self::V0_1(v0_1::Prepared::new(component)?),
            _ => Self::V0_2(v0_2::Prepared::new(component)?),
        })
    }

    /// Instantiates the engine in `store` and has it decide.
    pub(crate) fn decide(&self, store: &mut Store<Call>, request: &Request) -> Result<Decided> {
        match self {
            Self::V0_1(prepared) => prepared.decide(store, request),
            Self::V0_2(prepared) => prepared.decide(store, request),
        }
    }
}
