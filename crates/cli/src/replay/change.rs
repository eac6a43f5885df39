//! How a decision differs from the recorded one.

use bindery_core::{Action, Decision};

/// What differs between two decisions about the same request; the first that applies.
pub(super) fn change(then: &Decision, now: &Decision) -> &'static str {
    match (then.chosen(), now.chosen()) {
        (Some(then), Some(now)) if then != now => return "binds another volume",
        (None, Some(_)) => return "binds a volume, and did not",
        (Some(_), None) => return "binds no volume, and did",
        _ => {}
    }
    let starts = |action: &&Action| matches!(action, Action::StartOperation(_));
    let emits = |action: &&Action| matches!(action, Action::Emit(_));
    if !then.actions().filter(starts).eq(now.actions().filter(starts)) {
        "provisions, deletes or recycles otherwise"
    } else if !then.actions().filter(|it| !emits(it)).eq(now.actions().filter(|it| !emits(it))) {
        "writes otherwise"
    } else if then.steps != now.steps || then.tallies != now.tallies {
        "gives other reasons or events"
    } else {
        "waits or goes on otherwise"
    }
}

#[cfg(test)]
mod tests {
    use bindery_core::{ClaimKey, Operation, OperationKind, Outcome, Reason, Tally};

    use super::*;

    fn of(actions: &[Action]) -> Decision {
        Decision::new(actions.iter().cloned().map(Into::into).collect(), Outcome::Done)
    }

    #[test]
    fn the_largest_difference_is_told() {
        let binds = |name: &str| {
            let claim = bindery_kit::claim(ClaimKey::new("ns", "c")).target();
            of(&[Action::ReserveVolume { volume: bindery_kit::volume(name).target(), claim, mark: true }])
        };
        let starts = of(&[Action::StartOperation(Operation {
            kind: OperationKind::Provision,
            plugin: "p".into(),
            uid: "u".into(),
        })]);
        let requeues = of(&[Action::EnqueueClaim(ClaimKey::new("ns", "c"))]);
        let tally = Tally { reason: Reason::TooSmall, count: 1, nearest: Vec::new() };
        let tells = Decision { tallies: vec![tally], ..Decision::done() };
        let waits = Decision { wait_ms: 1, ..Decision::done() };
        for (then, now, told) in [
            (binds("a"), binds("b"), "binds another volume"),
            (Decision::done(), binds("b"), "binds a volume, and did not"),
            (binds("a"), starts.clone(), "binds no volume, and did"),
            (Decision::done(), starts, "provisions, deletes or recycles otherwise"),
            (Decision::done(), requeues, "writes otherwise"),
            (Decision::done(), tells, "gives other reasons or events"),
            (Decision::done(), waits, "waits or goes on otherwise"),
        ] {
            assert_eq!(change(&then, &now), told);
        }
    }
}
