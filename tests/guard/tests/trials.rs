//! The body of the fuzz target, and the default engine, over bytes that are the same in every run.

use bindery_engine::DefaultEngine;
use bindery_guard_tests::trial::{self, Verdict};

/// Bytes of the trial of that number (xorshift64*).
fn bytes(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let length = usize::try_from(number % 320).expect("a length");
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()[7]
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn no_bytes_talk_the_guard_round() {
    for number in 0..20_000 {
        if let Err(report) = trial::run(&bytes(number)) {
            panic!("trial {number}: {report}");
        }
    }
}

#[test]
fn a_trial_depends_on_its_bytes_alone() {
    for number in 0..200 {
        assert_eq!(trial::run(&bytes(number)), trial::run(&bytes(number)));
    }
}

#[test]
fn what_the_default_engine_decides_is_allowed() {
    let mut allowed = 0;
    for number in 0..20_000 {
        match trial::run_engine(&bytes(number), &DefaultEngine) {
            Ok(verdict) => allowed += u32::from(verdict == Verdict::Upstream),
            Err(report) => panic!("trial {number}: {report}"),
        }
    }
    assert!(allowed > 5_000, "{allowed} decisions wrote something");
}
