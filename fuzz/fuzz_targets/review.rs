//! Makes a request to the webhook of any bytes. The API server must understand the answer, the same request
//! must get the same answer, and nothing may be written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(report) = bindery_admission_tests::trial::run(bytes) {
        panic!("{report}");
    }
});
