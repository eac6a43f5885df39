//! Any bytes are a request to the webhook: the API server understands the answer, the same request gets the
//! same answer, and nothing is written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(report) = bindery_admission_tests::trial::run(bytes) {
        panic!("{report}");
    }
});
