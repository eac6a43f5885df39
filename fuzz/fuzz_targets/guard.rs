//! Makes a world, a request and a decision of any bytes. What the guard allows must be harmless, and it must
//! allow what the default engine decides.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(report) = bindery_guard_tests::trial::run(bytes) {
        panic!("{report}");
    }
});
