//! Any bytes are a request to the door: it is answered in a way that an API server understands, twice alike,
//! and nothing is written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(report) = bindery_admission_tests::trial::run(bytes) {
        panic!("{report}");
    }
});
