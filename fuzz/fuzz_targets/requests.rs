//! Sends requests that any bytes choose to the playground's API server. Their answers are bounded, and none
//! makes the server panic.
#![no_main]

#[path = "../../crates/sim/tests/requests.rs"]
mod requests;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(report) = requests::run(bytes) {
        panic!("{report}");
    }
});
