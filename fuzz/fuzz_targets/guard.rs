//! Any bytes are a world, a request and a decision: what the guard allows is harmless, and what the default
//! engine decides is allowed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(report) = bindery_guard_tests::trial::run(bytes) {
        panic!("{report}");
    }
});
