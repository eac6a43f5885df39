//! Which volume a claim gets.

use bindery_core::{
    AccessMode, Failure, Outcome, Reason, Requirement, Selector, SelectorOperator, Subject, Text, VolumeMode,
    VolumePhase,
};

use crate::cluster::ListCluster;
use crate::{check_claim, claim, class, decide, gi, reserved_for, volume};

/// The volume that `claim` gets.
#[track_caller]
fn chosen(cluster: &mut ListCluster, claim: &bindery_core::Claim) -> Option<String> {
    let decision = decide(cluster, Subject::SyncClaim(claim.clone().into()));
    let lines = crate::lines::decision(&decision);
    let bind = lines.iter().find_map(|line| line.strip_prefix("bind c to "))?;
    bind.split(' ').next().map(str::to_owned)
}

#[test]
fn the_smallest_that_fits_wins_and_ties_break_by_name() {
    let sizes = [("a", 9), ("c", 6), ("b", 6), ("d", 4)];
    let volumes: Vec<_> = sizes.map(|(name, size)| volume(name, |v| v.capacity = Some(gi(size)))).into();
    assert_eq!(chosen(&mut ListCluster::new(volumes, []), &claim("c", |_| {})).unwrap(), "b");
}

#[test]
fn a_volume_that_does_not_fit_is_skipped() {
    type Change = fn(&mut bindery_core::Volume);
    let changes: [Change; 7] = [
        |v| v.phase = VolumePhase::Released,
        |v| v.class = "gold".into(),
        |v| v.mode = VolumeMode::Block,
        |v| v.attributes_class = Some("fast".into()),
        |v| v.deleting = true,
        |v| v.access_modes = vec![AccessMode::ReadWriteMany],
        |v| v.claim_ref = reserved_for("d"),
    ];
    for change in changes {
        let mut cluster =
            ListCluster::new([volume("a", change), volume("b", |v| v.capacity = Some(gi(9)))], []);
        assert_eq!(chosen(&mut cluster, &claim("c", |_| {})).unwrap(), "b");
    }
}

#[test]
fn fewer_modes_win_over_less_capacity_and_even_over_a_reservation() {
    let wide = |v: &mut bindery_core::Volume| {
        v.access_modes = vec![AccessMode::ReadWriteMany, AccessMode::ReadWriteOnce];
    };
    let narrow = volume("narrow", |v| v.capacity = Some(gi(50)));
    let mut cluster = ListCluster::new([volume("wide", wide), narrow.clone()], []);
    assert_eq!(chosen(&mut cluster, &claim("c", |_| {})).unwrap(), "narrow");
    let reserved = volume("reserved", |v| {
        wide(v);
        v.claim_ref = reserved_for("c");
    });
    let mut cluster = ListCluster::new([reserved.clone(), narrow], []);
    assert_eq!(chosen(&mut cluster, &claim("c", |_| {})).unwrap(), "narrow");
    let mut cluster = ListCluster::new([reserved, volume("wide", wide)], []);
    assert_eq!(chosen(&mut cluster, &claim("c", |_| {})).unwrap(), "reserved");
}

#[test]
fn a_reserved_volume_must_fit_in_size_and_modes_but_not_in_class() {
    type Change = fn(&mut bindery_core::Volume);
    let rows: [(Change, &str); 7] = [
        (|v| v.class = "gold".into(), "r"),
        (|v| v.phase = VolumePhase::Failed, "r"),
        (|v| v.capacity = Some(gi(1)), "free"),
        (|v| v.capacity = None, "free"),
        (|v| v.mode = VolumeMode::Block, "free"),
        (|v| v.attributes_class = Some("fast".into()), "free"),
        (|v| v.deleting = true, "free"),
    ];
    for (change, expected) in rows {
        let reserved = volume("r", |v| {
            v.claim_ref = reserved_for("c");
            v.capacity = Some(gi(8));
            change(v);
        });
        let mut cluster = ListCluster::new([reserved, volume("free", |_| {})], []);
        assert_eq!(chosen(&mut cluster, &claim("c", |_| {})).unwrap(), expected);
    }
}

#[test]
fn an_invalid_selector_fails_only_where_there_is_something_to_select() {
    let c = claim("c", |c| c.selector = Some(Selector::Invalid("no operator \"Near\"".into())));
    check_claim(&mut ListCluster::new([], []), &c, &["Normal FailedBinding on c", "done"]);
    let decision = decide(&mut ListCluster::new([volume("v", |_| {})], []), Subject::SyncClaim(c.into()));
    assert_eq!(decision.outcome, Outcome::Failed(Failure::SelectorInvalid("no operator \"Near\"".into())));
}

#[test]
fn labels_are_part_of_the_query() {
    let tier = Requirement { key: "tier".into(), operator: SelectorOperator::In, values: vec!["b".into()] };
    let c = claim("c", |c| c.selector = Some(Selector::Requirements(vec![tier])));
    let labelled =
        |name: &str, tier: &str| volume(name, |v| v.labels = [("tier".into(), tier.into())].into());
    let mut cluster = ListCluster::new([labelled("v", "a"), labelled("w", "b")], []);
    assert_eq!(chosen(&mut cluster, &c).unwrap(), "w");
    // No requirement is met by all.
    let any = claim("c", |c| c.selector = Some(Selector::Requirements(Vec::new())));
    assert_eq!(chosen(&mut cluster, &any).unwrap(), "v");
}

#[test]
fn a_volume_picked_by_another_decision_is_skipped() {
    let mut cluster = ListCluster::new([volume("a", |_| {}), volume("b", |v| v.capacity = Some(gi(9)))], []);
    cluster.in_flight = vec!["a".into()];
    assert_eq!(chosen(&mut cluster, &claim("c", |_| {})).unwrap(), "b");
}

#[test]
fn where_only_picked_volumes_fit_the_claim_waits() {
    let mut cluster = ListCluster::new([volume("a", |_| {})], []);
    cluster.in_flight = vec!["a".into()];
    cluster.classes = vec![class("gold", |c| c.default = true)];
    // No default class, no event, no provisioning because of them.
    let decision = decide(&mut cluster, Subject::SyncClaim(claim("c", |_| {}).into()));
    assert_eq!((decision.steps.len(), &decision.outcome), (0, &Outcome::Done));
    assert_eq!(decision.tallies[0].reason, Reason::InFlight);
    assert_eq!(decision.tallies[0].nearest, [Text::from("a")]);
}

/// The pages that the last decision asked for.
fn pages(cluster: &ListCluster) -> Vec<&str> {
    cluster.asked.iter().filter_map(|asked| asked.strip_prefix("candidates 1 ")).collect()
}

#[test]
fn pages_grow_to_a_limit_and_end_with_the_rows() {
    // One row more than pages of growing limits hold.
    let names: Vec<Text> = (0..4681).map(|number| format!("v{number:04}").into()).collect();
    let mut cluster = ListCluster::new(names.iter().map(|name| volume(name, |_| {})).collect::<Vec<_>>(), []);
    cluster.in_flight = names[..4680].to_vec();
    assert_eq!(chosen(&mut cluster, &claim("c", |_| {})).unwrap(), "v4680");
    assert_eq!(pages(&cluster), ["8", "64", "512", "4096", "4096"]);
    // Where no row can be taken, no page is asked for after the last one.
    cluster.in_flight = names;
    let decision = decide(&mut cluster, Subject::SyncClaim(claim("c", |_| {}).into()));
    assert_eq!((decision.tallies[0].count, decision.tallies[0].nearest.len()), (4681, 16));
    assert_eq!(pages(&cluster), ["8", "64", "512", "4096", "4096"]);
}
