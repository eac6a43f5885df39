//! Observe mode beside upstream, whose writes the test makes.

use std::sync::Arc;

use bindery_controller::{Binder, Compared, Configuration, Mode, Parts, Settings, Steerable};
use bindery_core::{
    Claim, ClaimPhase, ClaimRef, Key, Quantity, Requirement, SelectorOperator, Volume, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::{AtMostTwice, Logged, class, policy};
use bindery_policy::{Chain, Matches, Policy};
use bindery_store::{Author, Authors, Delivered, Delivery, Kind, Object, ObjectKey};
use tracing::level_filters::LevelFilter;

use crate::double::{Double, binder_of, claim, holding, parts, volume};
use crate::operating::run_during;

/// A binder in observe mode, and its cluster.
struct Stage {
    double: Double,
    binder: Arc<Binder<Double>>,
    version: u64,
}

impl Stage {
    fn new(volumes: &[Volume], claims: &[Claim]) -> Self {
        Self::with_policies(volumes, claims, Vec::new())
    }

    fn with_policies(volumes: &[Volume], claims: &[Claim], policies: Vec<Policy>) -> Self {
        let double = holding(volumes.iter().cloned(), claims.iter().cloned());
        let settings = Settings { mode: Mode::Observe, ..Settings::default() };
        let policies = Arc::new(Chain::new(policies));
        let configuration = Configuration { policies, ..Configuration::default() };
        let binder = binder_of(Parts { settings, configuration, ..parts(&double, DefaultEngine) });
        binder.observe();
        Self { double, binder, version: 10 }
    }

    fn tell_volume(&mut self, mut volume: Volume) -> Volume {
        self.version += 1;
        volume.version = self.version.to_string().as_str().into();
        self.binder.intake().deliver(Delivery::applied(volume.clone()));
        volume
    }

    fn tell_claim(&mut self, mut claim: Claim) -> Claim {
        self.version += 1;
        claim.version = self.version.to_string().as_str().into();
        self.binder.intake().deliver(Delivery::applied(claim.clone()));
        claim
    }

    /// All of upstream's writes for a bind, in its order.
    fn bind(&mut self, claim: &Claim, volume: &Volume) {
        self.tell_volume(reserved(volume, claim));
        self.tell_claim(bound(claim, volume));
    }

    /// Number of claims that are the same, tied, different, not comparable.
    fn counts(&self) -> [u64; 4] {
        let [counts @ .., _] = self.all_counts();
        counts
    }

    /// The same, and the number of claims that a policy applies to.
    fn all_counts(&self) -> [u64; 5] {
        Compared::ALL.map(|compared| self.binder.observation().count(compared))
    }
}

fn reference(claim: &Claim) -> ClaimRef {
    let key = claim.key.clone();
    ClaimRef { namespace: key.namespace, name: key.name, uid: Some(claim.uid.clone()) }
}

/// The volume as upstream's first write leaves it.
fn reserved(volume: &Volume, claim: &Claim) -> Volume {
    let mut volume = volume.clone();
    volume.annotations.bound_by_controller |= volume.claim_ref.is_none();
    volume.claim_ref = Some(reference(claim));
    volume
}

/// The claim as upstream's third write leaves it.
fn bound(claim: &Claim, volume: &Volume) -> Claim {
    let mut claim = claim.clone();
    claim.annotations.bind_completed = true;
    claim.volume_name = Some(volume.name.clone());
    claim.status.phase = ClaimPhase::Bound;
    claim
}

fn sized(name: &str, gibibytes: u64) -> Volume {
    Volume { capacity: Some(Quantity::bytes(gibibytes << 30)), ..volume(name) }
}

#[test]
fn upstream_s_choice_is_held_against_what_bindery_would_choose() {
    let other_class = || Volume { class: "slow".into(), ..volume("other") };
    let two_modes = || {
        let mut volume = volume("b");
        volume.access_modes.push(bindery_core::AccessMode::ReadOnlyMany);
        volume
    };
    for (what, volumes, chosen, expected) in [
        ("the only one", vec![volume("a")], 0, [1, 0, 0, 0]),
        ("the closest fit", vec![sized("a", 1), sized("b", 5)], 0, [1, 0, 0, 0]),
        ("one of two equals", vec![volume("a"), volume("b")], 1, [0, 1, 0, 0]),
        ("a larger one", vec![sized("a", 1), sized("b", 5)], 1, [0, 0, 1, 0]),
        ("one with more modes", vec![volume("a"), two_modes()], 1, [0, 0, 1, 0]),
        ("one that does not fit", vec![other_class()], 0, [0, 0, 1, 0]),
        ("one that does not fit though another does", vec![volume("a"), other_class()], 1, [0, 0, 1, 0]),
    ] {
        let claim = claim("c");
        let mut stage = Stage::new(&volumes, std::slice::from_ref(&claim));
        stage.bind(&claim, &volumes[chosen]);
        assert_eq!(stage.counts(), expected, "{what}");
    }
}

#[tokio::test]
async fn a_claim_that_could_be_steered_counts_by_what_it_would_get() {
    let csi = class("csi", "csi.example.com", None);
    let classless = Claim { class: None, ..claim("c") };
    let named = |class: &str| Claim { class: Some(class.into()), ..claim("c") };
    let of_csi = |name, size| Volume { class: "csi".into(), ..sized(name, size) };
    for (what, claim, volumes, chosen, expected) in [
        ("the same", named(""), vec![sized("a", 1), sized("b", 5)], 0, [1, 0, 0, 0]),
        ("a policy prefers another", named(""), vec![sized("a", 5), sized("b", 2)], 0, [0, 1, 0, 0]),
        ("a policy rejects all", named(""), vec![sized("a", 5)], 0, [0, 0, 1, 0]),
        ("it could get a class later", classless, vec![sized("a", 1)], 0, [0; 4]),
        ("its class has a provisioner", named("csi"), vec![of_csi("a", 1)], 0, [0; 4]),
        ("it has a source", Claim { data_source: true, ..named("") }, vec![sized("a", 1)], 0, [0; 4]),
    ] {
        let policies = vec![policy("twice", AtMostTwice::narrowing())];
        let mut stage = Stage::with_policies(&volumes, std::slice::from_ref(&claim), policies);
        stage.binder.intake().deliver(Delivery::applied(csi.clone()));
        // The verdicts of policies are kept.
        stage.binder.sync(&Key::Claim(claim.key.clone())).await;
        stage.bind(&claim, &volumes[chosen]);
        let counts = Steerable::ALL.map(|steerable| stage.binder.observation().steerable(steerable));
        assert_eq!(counts, expected, "{what}");
    }
}

#[test]
fn a_claim_is_counted_once_by_its_uid() {
    let (claim, volume) = (claim("c"), volume("v"));
    let mut stage = Stage::new(std::slice::from_ref(&volume), std::slice::from_ref(&claim));
    stage.bind(&claim, &volume);
    stage.tell_volume(Volume { claim_ref: None, ..volume.clone() });
    stage.tell_claim(claim.clone());
    stage.bind(&claim, &volume);
    assert_eq!(stage.counts(), [1, 0, 0, 0]);

    // Another claim of that name is another claim.
    stage.binder.intake().deliver(Delivery::Gone(ObjectKey::Claim(claim.key.clone())));
    stage.tell_volume(volume.clone());
    let mut next = claim;
    next.uid = "another".into();
    let next = stage.tell_claim(next);
    stage.bind(&next, &volume);
    assert_eq!(stage.counts(), [2, 0, 0, 0]);
}

#[test]
fn a_claim_that_bindery_bound_is_not_compared() {
    let (claim, small, large) = (claim("c"), sized("a", 1), sized("b", 5));
    for (reserves, completes, expected) in [
        (Author::Bindery, Author::Bindery, [0; 4]),
        // Upstream completes a bind that Bindery began.
        (Author::Bindery, Author::Other("kube-controller-manager".into()), [0; 4]),
        (Author::Unknown, Author::Bindery, [0, 0, 1, 0]),
    ] {
        let log = Logged::from(LevelFilter::WARN);
        let stage = Stage::new(&[small.clone(), large.clone()], std::slice::from_ref(&claim));
        let tell = |object: Object, authors: Authors| {
            let delivered = Delivered { object, authors: Some(authors.into()) };
            stage.binder.intake().deliver(Delivery::Applied(delivered));
        };
        let volume = Volume { version: "11".into(), ..reserved(&large, &claim) };
        tell(volume.into(), Authors { claim_ref: reserves, ..Authors::default() });
        let claim = Claim { version: "12".into(), ..bound(&claim, &large) };
        tell(claim.into(), Authors { bind_completed: completes, ..Authors::default() });
        assert_eq!(stage.counts(), expected);
        assert_eq!(log.text().is_empty(), expected == [0; 4], "{}", log.text());
    }
}

#[test]
fn the_order_in_which_volumes_were_chosen_is_theirs_whichever_watch_lags() {
    let [one, two] = [claim("c1"), claim("c2")];
    let [small, large] = [sized("a", 1), sized("b", 5)];
    let mut stage = Stage::new(&[small.clone(), large.clone()], &[one.clone(), two.clone()]);
    // The second claim's last event comes before that of the first claim's volume, which would seem to be
    // free.
    stage.tell_claim(bound(&two, &large));
    stage.tell_volume(reserved(&small, &one));
    stage.tell_volume(reserved(&large, &two));
    stage.tell_claim(bound(&one, &small));
    assert_eq!(stage.counts(), [2, 0, 0, 0]);
}

#[test]
fn a_volume_made_or_reserved_by_others_is_compared_at_the_bind() {
    let claim = claim("c");
    // An external provisioner creates it so.
    let mut stage = Stage::new(&[volume("closer")], std::slice::from_ref(&claim));
    let provisioned = stage.tell_volume(reserved(&volume("provisioned"), &claim));
    assert_eq!(stage.counts(), [0; 4]);
    stage.tell_claim(bound(&claim, &provisioned));
    assert_eq!(stage.counts(), [1, 0, 0, 0]);

    // A user reserves it, with or without the UID.
    for uid in [None, Some(claim.uid.clone())] {
        let (a, b) = (volume("a"), volume("b"));
        let mut stage = Stage::new(&[a, b.clone()], std::slice::from_ref(&claim));
        let claim_ref = Some(ClaimRef { uid, ..reference(&claim) });
        let b = stage.tell_volume(Volume { claim_ref, ..b });
        assert_eq!(stage.counts(), [0; 4]);
        stage.bind(&claim, &b);
        assert_eq!(stage.counts(), [1, 0, 0, 0]);
    }
}

#[test]
fn an_undecidable_choice_is_not_compared() {
    let (claim, a, b) = (claim("c"), volume("a"), volume("b"));
    // The claim was not seen before.
    let mut stage = Stage::new(std::slice::from_ref(&b), &[]);
    stage.tell_volume(reserved(&b, &claim));
    assert_eq!(stage.counts(), [0, 0, 0, 1]);

    // The watch was interrupted.
    let stage = Stage::new(std::slice::from_ref(&b), std::slice::from_ref(&claim));
    let listed = Volume { version: "11".into(), ..reserved(&b, &claim) };
    stage.binder.intake().deliver(Delivery::listed(Kind::Volume, [listed], "11"));
    assert_eq!(stage.counts(), [0, 0, 0, 1]);

    // The claim is gone before the event of its volume.
    let mut stage = Stage::new(std::slice::from_ref(&b), std::slice::from_ref(&claim));
    stage.tell_claim(bound(&claim, &b));
    stage.binder.intake().deliver(Delivery::Gone(ObjectKey::Claim(claim.key.clone())));
    assert_eq!(stage.counts(), [0, 0, 0, 1]);

    // A better volume became available, possibly after upstream had chosen.
    let late = Volume { phase: VolumePhase::Pending, ..sized("late", 1) };
    let mut stage = Stage::new(&[sized("b", 5), late.clone()], std::slice::from_ref(&claim));
    stage.tell_volume(Volume { phase: VolumePhase::Available, ..late });
    stage.bind(&claim, &sized("b", 5));
    assert_eq!(stage.counts(), [0, 0, 0, 1]);
    // The next choice shows that upstream has seen it.
    let next = stage.tell_claim(crate::double::claim("next"));
    stage.tell_volume(a.clone());
    stage.bind(&next, &a);
    assert_eq!(stage.counts().iter().sum::<u64>(), 2);
}

#[test]
fn a_claim_of_a_policy_is_counted_apart() {
    let (claim, small, large) = (claim("c"), sized("a", 1), sized("b", 5));
    let of = |classes: &[&str], team: Option<&str>| {
        let requirement = |team: &str| Requirement {
            key: "team".into(),
            operator: SelectorOperator::In,
            values: vec![team.into()],
        };
        let classes = classes.iter().map(|class| (*class).into()).collect();
        let namespace = team.map(requirement).into_iter().collect();
        Matches { classes, namespace, ..Matches::default() }
    };
    for (what, matches, expected) in [
        ("it applies", of(&[], None), [0, 0, 0, 0, 1]),
        ("it is for another class", of(&["fast"], None), [0, 0, 1, 0, 0]),
        ("the labels of the namespace are not known", of(&[], Some("red")), [0, 0, 0, 1, 0]),
    ] {
        let log = Logged::from(LevelFilter::WARN);
        let policies = vec![Policy { matches, ..policy("twice", AtMostTwice::judging()) }];
        let volumes = [small.clone(), large.clone()];
        let mut stage = Stage::with_policies(&volumes, std::slice::from_ref(&claim), policies);
        stage.bind(&claim, &large);
        assert_eq!(stage.all_counts(), expected, "{what}");
        assert_eq!(log.text().is_empty(), expected[2] == 0, "{what}: {}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn policies_decide_and_nothing_is_done() {
    let too_large = sized("v", 5);
    let policies = vec![policy("twice", AtMostTwice::judging())];
    let claims = [claim("fits"), Claim { request: Quantity::bytes(3 << 30), ..claim("larger") }];
    let stage = Stage::with_policies(std::slice::from_ref(&too_large), &claims, policies);
    run_during(&stage.binder, async {
        stage.double.until("the larger one is awaited", || stage.binder.observation().awaited() == 1).await;
        stage.double.rest().await;
        assert_eq!(stage.binder.policies().activities().next().map(|policy| policy.verdicts_kept), Some(2));
        assert!(stage.double.writes().is_empty() && stage.double.reasons().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn everything_is_decided_and_nothing_is_done() {
    let (fits, too_large) = (claim("fits"), claim("too-large"));
    let too_large = Claim { request: Quantity::bytes(1 << 40), ..too_large };
    let mut released = reserved(&volume("released"), &claim("gone"));
    released.phase = VolumePhase::Bound;
    let mut stage = Stage::new(&[volume("v"), released], &[fits.clone(), too_large]);
    let binder = Arc::clone(&stage.binder);
    run_during(&binder, async {
        let decisions = || stage.binder.metrics().decisions.get();
        stage.double.until("both claims and both volumes are decided", || decisions() >= 4).await;
        stage.double.rest().await;
        assert_eq!(stage.binder.observation().awaited(), 1);
        stage.bind(&fits, &volume("v"));
        let awaited = || stage.binder.observation().awaited();
        stage.double.until("what upstream chose is compared", || awaited() == 0).await;
        stage.double.rest().await;
        assert_eq!(stage.counts(), [1, 0, 0, 0]);
        assert!(stage.double.writes().is_empty() && stage.double.reasons().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_awaited_for_long_is_told_of_once_by_its_name() {
    let log = Logged::from(LevelFilter::INFO);
    let (soon, late) = (claim("soon"), claim("late"));
    let mut stage = Stage::new(&[volume("a"), volume("b")], &[soon.clone(), late.clone()]);
    let binder = Arc::clone(&stage.binder);
    run_during(&binder, async {
        let awaited = |stage: &Stage| stage.binder.observation().awaited();
        stage.double.until("both claims are awaited", || awaited(&stage) == 2).await;
        stage.bind(&soon, &volume("a"));
        stage.double.rest().await;
        assert_eq!(awaited(&stage), 1);
        let log = log.text();
        let told: Vec<_> = log.lines().filter(|line| line.contains("has not bound")).collect();
        assert_eq!(told.len(), 1, "{log}");
        for part in ["ns/late", &late.uid.0, "bindery=b"] {
            assert!(told[0].contains(part), "no {part:?} in {}", told[0]);
        }
    })
    .await;
}
