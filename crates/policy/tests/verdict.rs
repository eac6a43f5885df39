//! What the policies of a claim say about one volume.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bindery_core::{
    Claim, ClaimFact, ClaimKey, Facts, Lookup, MatchVerdict, Requirement, SelectorOperator, Spread, Stop,
    Volume,
};
use bindery_kit::{SameZone, ZONE, policy, volume};
use bindery_policy::{AnswerCache, Chain, RelatedObjects, Rounds};

/// A claim in a zone.
fn claim(zone: &str) -> Claim {
    let facts: Facts<ClaimFact> = [(ClaimFact::Label(ZONE.into()), zone.into())].into_iter().collect();
    Claim { facts, ..bindery_kit::claim(ClaimKey::new("ns", "c")) }
}

/// What the policies say about a volume, once they have judged it.
fn verdict(
    chain: &Chain,
    claim: &Claim,
    volume: &Volume,
    related: &RelatedObjects<'_>,
) -> Result<MatchVerdict, Stop> {
    let (kept, mut rounds) = (AnswerCache::default(), Rounds::default());
    loop {
        match chain.verdict(claim, volume, related, &kept, &mut rounds) {
            Err(Stop::Judge) => rounds.perform(chain, &kept).unwrap(),
            verdict => return verdict,
        }
    }
}

#[test]
fn a_fact_in_a_sentence_is_cut_and_is_no_template() {
    let chain = Chain::new(vec![policy("zone", SameZone)]);
    let related = RelatedObjects {
        namespace: Lookup::Absent,
        class: Lookup::Absent,
        siblings: &|_: &Spread| panic!("no policy spreads"),
    };
    let sentence = |of_claim: &str, of_volume: &str| {
        let labels = [(ZONE.into(), of_volume.into())].into();
        match verdict(&chain, &claim(of_claim), &Volume { labels, ..volume("v") }, &related) {
            Ok(MatchVerdict::Rejected { reason, .. }) => reason.to_string(),
            verdict => panic!("{verdict:?}"),
        }
    };
    assert_eq!(sentence("{volume.0}{claim.0}", "{"), "its zone is {, not {volume.0}{claim.0}");
    let cut = format!("{}…", "ä".repeat(128));
    assert_eq!(sentence(&"ä".repeat(129), "b"), format!("its zone is b, not {cut}"));
}

#[test]
fn a_policy_applies_by_class_claim_and_namespace() {
    let siblings = |_: &Spread| panic!("no policy spreads");
    let related =
        |namespace: Lookup<_>| RelatedObjects { namespace, class: Lookup::Absent, siblings: &siblings };
    let teams = |team: &str| Lookup::Found(Arc::new([("team".into(), team.into())].into()));
    let requirement = |key: &str, value: &str| Requirement {
        key: key.into(),
        operator: SelectorOperator::In,
        values: vec![value.into()],
    };
    let mut selective = policy("zone", SameZone);
    selective.matches.classes = vec!["fast".into(), "".into()];
    selective.matches.claim = vec![requirement(ZONE, "a")];
    selective.matches.namespace = vec![requirement("team", "red")];
    let chain = Chain::new(vec![selective]);
    let verdict = |claim: &Claim, namespace| {
        verdict(&chain, claim, &volume("elsewhere"), &related(namespace)).map_err(|stop| stop.to_string())
    };
    let rejected = MatchVerdict::Rejected { policy: "zone".into(), reason: "its zone is none, not a".into() };
    assert_eq!(verdict(&claim("a"), teams("red")), Ok(rejected));
    assert_eq!(verdict(&claim("a"), teams("blue")), Ok(MatchVerdict::Allowed));
    assert_eq!(verdict(&claim("b"), teams("red")), Ok(MatchVerdict::Allowed));
    let slow = Claim { class: Some("slow".into()), ..claim("a") };
    assert_eq!(verdict(&slow, teams("red")), Ok(MatchVerdict::Allowed));
    let unknown =
        "policy zone: whether it applies depends on the labels of namespace ns: it is not known yet";
    assert_eq!(verdict(&claim("a"), Lookup::Absent), Err(unknown.to_owned()));
}
