//! Version 0.1 of the contract.

mod bindings {
    #![allow(missing_docs, unreachable_pub, reason = "generated code; wit/ has the documentation")]
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

    wasmtime::component::bindgen!({
        path: "../../wit/0.1",
        world: "engine",
        imports: { default: trappable },
    });
}

/// The interface that an engine exports. wasmtime finds later patch versions under this name too.
const INTERFACE: &str = "bindery:policy/decide@0.1.0";

macro_rules! since_0_2 {
    ({ $($new:tt)* } else { $($old:tt)* }) => { $($old)* };
}

// The same file as in the component: see there.
#[expect(dead_code, reason = "the component's half of the progress of an operation")]
#[path = "../../../component/src/carry.rs"]
mod carry;
// The same file for each version.
#[path = "engine_world.rs"]
mod engine_world;

pub(crate) use engine_world::Prepared;
