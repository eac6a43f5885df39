//! The decisions that need a live read of a volume or a new list, and what these cost.

use std::time::Duration;

use bindery_controller::{Binder, Purpose, Settings, SyncError, WriteError};
use bindery_core::{Claim, ClaimPhase, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::{Fault, gib};
use bindery_store::{Delivery, Kind};

use crate::double::{Double, binder, claim, holding, volume};
use crate::operating::run_during;
use crate::policies::key;
use crate::syncing::taken;

/// A claim that is bound to a volume.
fn bound(name: &str, volume: &Volume) -> Claim {
    let mut claim = claim(name);
    claim.volume_name = Some(volume.name.clone());
    claim.annotations.bind_completed = true;
    claim.status.phase = ClaimPhase::Bound;
    claim.status.access_modes = volume.access_modes.clone();
    (claim.status.has_capacity, claim.status.capacity) = (true, volume.capacity);
    claim
}

fn is_list_wanted(binder: &Binder<Double>) -> bool {
    binder.intake().freshness().is_list_wanted(Kind::Volume)
}

#[tokio::test]
async fn a_claim_is_lost_only_after_its_volume_was_read() {
    let guard_read = |name: &str| (name.to_owned(), Purpose::Guard);
    let [v1, v2] = [("v1", "c1"), ("v2", "c2")].map(|(name, by)| taken(name, by));
    let world = || {
        let double = holding([], [bound("c1", &v1), bound("c2", &v2)]);
        (binder(&double, DefaultEngine), double)
    };

    // The volumes are gone.
    let (binder, double) = world();
    assert_eq!(binder.sync(&key("c1")).await.result, Ok(()));
    assert_eq!(double.reads(), [guard_read("v1")]);
    assert_eq!(double.claim("c1").status.phase, ClaimPhase::Lost);

    // The watch has missed these volumes.
    let (binder, double) = world();
    double.add_volume(&v1);
    double.add_volume(&v2);
    assert!(matches!(binder.sync(&key("c1")).await.result, Err(SyncError::Stale { .. })));
    assert!(is_list_wanted(&binder));
    assert_eq!(binder.sync(&key("c2")).await.result, Err(SyncError::AwaitsList));
    assert_eq!(double.reads(), [guard_read("v1")]);
    double.list_volumes(binder.intake());
    for name in ["c1", "c2"] {
        assert_eq!(binder.sync(&key(name)).await.result, Ok(()));
    }
    assert_eq!((double.reads().len(), double.writes(), double.reasons()), (1, vec![], vec![]));

    // A failed read does not show that the volume is absent.
    let (binder, double) = world();
    double.fail_reads(2);
    assert!(matches!(binder.sync(&key("c1")).await.result, Err(SyncError::Unproven(_))));
    assert_eq!((double.reads().len(), double.writes()), (2, vec![]));
    assert!(!is_list_wanted(&binder));
}

#[tokio::test]
async fn a_claim_with_a_reserved_volume_is_bound_only_after_a_live_read() {
    // An earlier decision has made the first two writes of the bind.
    let world = || {
        let double = holding([taken("v1", "c1")], [claim("c1")]);
        (binder(&double, DefaultEngine), double)
    };
    let (binder, double) = world();
    assert_eq!(binder.sync(&key("c1")).await.result, Ok(()));
    assert_eq!(double.reads(), [("v1".to_owned(), Purpose::Guard)]);
    assert_eq!(double.write_names(), ["bind claim", "set claim status"]);

    // The watch has missed that the volume was given to another claim.
    let (binder, double) = world();
    double.add_volume(&taken("v1", "c2"));
    assert!(matches!(binder.sync(&key("c1")).await.result, Err(SyncError::Stale { .. })));
    assert_eq!((double.writes(), is_list_wanted(&binder)), (vec![], true));
    double.list_volumes(binder.intake());
    assert_eq!(binder.sync(&key("c1")).await.result, Ok(()));
    assert_eq!(double.claim("c1").volume_name, None);
}

#[tokio::test]
async fn a_claim_gets_no_second_volume_while_it_may_have_one() {
    let sized = |name: &str, size| Volume { capacity: Some(gib(size)), ..volume(name) };
    let world = async |fault| {
        let double = holding([sized("v1", 2)], [claim("c1")]);
        let binder = binder(&double, DefaultEngine);
        double.objects().faults.insert(1, fault);
        assert!(matches!(binder.sync(&key("c1")).await.result, Err(SyncError::Write { .. })));
        // The watch brings this better volume, and nothing of the first one.
        double.add_volume(&sized("v2", 1));
        binder.intake().deliver(Delivery::applied(double.volume("v2")));
        (double, binder)
    };
    let is_free = |double: &Double, name: &str| double.volume(name).claim_ref.is_none();

    let (double, binder) = world(Fault::AnswerLost).await;
    assert_eq!(binder.sync(&key("c1")).await.result, Ok(()));
    assert_eq!(double.claim("c1").volume_name.as_deref(), Some("v1"));
    assert!(is_free(&double, "v2"));

    let never_came = WriteError::Failed("the connection broke".to_owned());
    let (double, binder) = world(Fault::Refused(never_came)).await;
    double.fail_reads(2);
    assert!(matches!(binder.sync(&key("c1")).await.result, Err(SyncError::Unproven(_))));
    assert!(is_free(&double, "v1") && is_free(&double, "v2"));
    assert_eq!(binder.sync(&key("c1")).await.result, Ok(()));
    assert_eq!(double.claim("c1").volume_name.as_deref(), Some("v2"));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_doubtful_claims_cost_few_reads_and_one_list() {
    const CLAIMS: usize = 10_000;
    let double = Double::new();
    let volumes: Vec<Volume> = (0..CLAIMS).map(|n| taken(&format!("v{n:05}"), &format!("c{n:05}"))).collect();
    for (n, volume) in volumes.iter().enumerate() {
        double.add_claim(&bound(&format!("c{n:05}"), volume));
    }
    let binder = binder(&double, DefaultEngine);
    // The watch has missed all volumes; only the last one is really gone.
    volumes[..CLAIMS - 1].iter().for_each(|volume| double.add_volume(volume));
    double.set_latency(Duration::from_millis(1));
    run_during(&binder, async {
        double.rest().await;
        let reads = double.volume_reads();
        assert!((1..=Settings::default().in_flight_max).contains(&reads), "{reads} reads");
        assert!(is_list_wanted(&binder));
        // The claim whose read contradicted the cache is tried once more, and then waits like the others.
        assert_eq!(binder.metrics().decisions.get(), u64::try_from(CLAIMS + reads).expect("few"));
        assert_eq!((double.writes(), binder.keys_waiting()), (vec![], 0));

        double.list_volumes(binder.intake());
        double.rest().await;
        assert!(!is_list_wanted(&binder));
        assert_eq!((double.volume_reads(), double.write_names()), (reads + 1, vec!["set claim status"]));
        assert_eq!(double.claim("c09999").status.phase, ClaimPhase::Lost);
        assert_eq!(binder.keys_failing(), 0);
    })
    .await;
}

/// As after a restore of etcd that the watch has missed: etcd gave out version 1 a second time.
#[tokio::test(start_paused = true)]
async fn a_kind_whose_cached_version_keeps_conflicting_is_listed_again() {
    let double = holding([volume("v1")], [claim("c1")]);
    let binder = binder(&double, DefaultEngine);
    double.add_volume(&Volume { version: "2".into(), ..volume("v1") });
    double.watch(binder.intake(), Duration::ZERO);
    run_during(&binder, async {
        double.until("a list is wanted", || is_list_wanted(&binder)).await;
        double.list_volumes(binder.intake());
        double.rest().await;
    })
    .await;
    assert_eq!(double.claim("c1").status.phase, ClaimPhase::Bound);
}
