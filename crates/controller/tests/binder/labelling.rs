//! Steered claims of classes that wait for a pod, on a cluster in memory, in which the test is the scheduler
//! and, in mode steer, upstream's binder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Mode, REASON_UNWRITABLE, WriteError};
use bindery_core::steer::steered_to;
use bindery_core::{BindingMode, Claim, ClaimPhase, ClaimRef, Volume, VolumePhase};
use bindery_kit::{Fewest, Larger, SameZone, gib, policy};
use bindery_policy::Policy;
use bindery_store::{Delivery, Object, ObservedPod, PodContent};
use tokio::time::Instant;

use crate::double::{Double, holding, volume};
use crate::operating::run_during;
use crate::policies::{in_zone, key, zoned};
use crate::steering::{self, steered};

/// A steered claim in zone `a`, of a class that waits.
pub(crate) fn claim(name: &str) -> Claim {
    Claim { steered: true, class: Some("local".into()), ..zoned(name) }
}

/// A volume of that class, in zone `a`.
pub(crate) fn local(name: &str, size: u64) -> Volume {
    in_zone(Volume { class: "local".into(), capacity: Some(gib(size)), ..volume(name) }, "a")
}

fn binder(double: &Double, policies: Vec<Policy>) -> Arc<Binder<Double>> {
    binder_in(Mode::Steer, double, policies)
}

fn binder_in(mode: Mode, double: &Double, policies: Vec<Policy>) -> Arc<Binder<Double>> {
    let binder = steering::binder_in(mode, double, policies);
    deliver_class(&binder);
    binder
}

/// Delivers that class.
pub(crate) fn deliver_class(binder: &Binder<Double>) {
    let class =
        bindery_kit::class("local", "kubernetes.io/no-provisioner", Some(BindingMode::WaitForFirstConsumer));
    binder.intake().deliver(Delivery::applied(class));
}

/// A pod without a node uses these claims.
pub(crate) fn use_claims(binder: &Binder<Double>, claims: &[&str]) {
    let claims = claims.iter().map(|&name| name.into()).collect();
    let content = Ok(PodContent { claims, scheduled: false, terminated: false });
    let pod = ObservedPod { namespace: "ns".into(), name: "p".into(), content };
    binder.intake().deliver(Delivery::applied(Object::Pod(pod)));
}

/// The volumes with the label of a claim.
pub(crate) fn labelled(double: &Double, name: &str) -> BTreeSet<String> {
    let key = claim(name).key;
    let objects = double.objects();
    let has_label = |volume: &&Arc<Volume>| steered_to(volume).any(|(claim, _)| claim == key);
    objects.volumes.values().filter(has_label).map(|volume| volume.name.to_string()).collect()
}

/// Takes a volume for a claim, as the scheduler does.
fn take(double: &Double, volume: &str, claim: &str) {
    let uid = Some(double.claim(claim).uid);
    let claim_ref = Some(ClaimRef { namespace: "ns".into(), name: claim.into(), uid });
    let taken = Volume { claim_ref, ..double.volume(volume) };
    double.change(|objects| objects.put_volume(taken));
}

/// Binds a claim to a volume, as the scheduler and the binder do.
fn bind(double: &Double, volume: &str, claim: &str) {
    take(double, volume, claim);
    let (taken, waiting) = (double.volume(volume), double.claim(claim));
    double.change(|objects| {
        objects.put_volume(Volume { phase: VolumePhase::Bound, ..taken });
        let mut bound = Claim { volume_name: Some(volume.into()), ..waiting };
        bound.status.phase = ClaimPhase::Bound;
        objects.put_claim(bound);
    });
}

pub(crate) fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn volumes_are_labelled_from_the_pod_of_a_claim_to_its_bind() {
    let double = holding([local("v", 1), local("w", 2), volume("other-class")], [claim("c")]);
    let binder = binder(&double, Vec::new());
    binder.sync(&key("c")).await.result.unwrap();
    assert_eq!(labelled(&double, "c"), names(&[]));
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        double.until("volumes are labelled", || labelled(&double, "c") == names(&["v", "w"])).await;
        bind(&double, "v", "c");
        double.until("the labels are removed", || labelled(&double, "c").is_empty()).await;
    })
    .await;
    assert!(double.writes().is_empty(), "nothing of upstream's loop is done");
}

#[tokio::test(start_paused = true)]
async fn labels_follow_what_policies_prefer_and_allow() {
    let double = holding([local("small", 1), local("large", 2)], [claim("c")]);
    let binder = binder(&double, vec![policy("zone", SameZone), policy("larger", Larger { zone: None })]);
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        double
            .until("the preferred volume is labelled", || labelled(&double, "c") == names(&["large"]))
            .await;
        let moved = in_zone(double.volume("large"), "b");
        double.change(|objects| objects.put_volume(moved));
        double.until("the allowed volume is labelled", || labelled(&double, "c") == names(&["small"])).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_claim_that_was_made_again_get_its_uid() {
    let double = holding([local("v", 1)], [claim("c")]);
    let binder = binder(&double, Vec::new());
    let uid = || {
        let volume = double.volume("v");
        steered_to(&volume).map(|(_, uid)| uid.to_string()).next()
    };
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        double.until("the volume is labelled", || uid().as_deref() == Some("uid-c")).await;
        double.change(|objects| objects.put_claim(Claim { uid: "uid-again".into(), ..claim("c") }));
        double.until("the label is another", || uid().as_deref() == Some("uid-again")).await;
        double.change(|objects| objects.remove_claim(&claim("c").key));
        double.until("the label is removed", || uid().is_none()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn claims_of_a_pod_are_offered_a_volume_each() {
    let double = holding([local("v", 1), local("w", 1)], [claim("c"), claim("d")]);
    let binder = binder(&double, Vec::new());
    run_during(&binder, async {
        use_claims(&binder, &["c", "d"]);
        let is_done = || (labelled(&double, "c"), labelled(&double, "d")) == (names(&["v"]), names(&["w"]));
        double.until("each has one", is_done).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_mode_own_a_labelled_volume_that_the_scheduler_takes_is_bound() {
    let double = holding([local("v", 1), in_zone(local("elsewhere", 1), "b")], [claim("c")]);
    let binder = binder_in(Mode::Own, &double, vec![policy("zone", SameZone)]);
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        double.until("volumes are labelled", || labelled(&double, "c") == names(&["v"])).await;
        take(&double, "v", "c");
        let is_done =
            || double.claim("c").status.phase == ClaimPhase::Bound && labelled(&double, "c").is_empty();
        double.until("the claim is bound, and no volume is labelled", is_done).await;
        // The claim is gone before its turn: that of the volume removes what is left.
        let mut late = local("elsewhere", 1);
        late.labels.insert("gone.ns.steer.bindery.dev/claim".into(), "uid-gone".into());
        double.change(|objects| objects.put_volume(late));
        double.until("the label that was left is removed", || labelled(&double, "gone").is_empty()).await;
    })
    .await;
    assert_eq!(double.claim("c").volume_name.as_deref(), Some("v"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_policies_reject_all_volumes_is_told_so() {
    let double = holding([in_zone(local("v", 1), "b")], [claim("c")]);
    let binder = binder(&double, vec![policy("zone", SameZone)]);
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        double.until("its user is told", || double.reasons() == ["VolumesRejected"]).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_loses_its_label_when_a_sibling_gets_too_many() {
    // The claim may not have w, so that it gets no turn by a change of this volume alone.
    let claims = [Claim { request: gib(2), ..claim("c") }, claim("d")];
    let double = holding([local("v", 2), local("w", 1)], claims);
    let binder = binder(&double, vec![policy("spread", Fewest { most: 1, barrier: None })]);
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        double.until("it is offered v", || labelled(&double, "c") == names(&["v"])).await;
        take(&double, "w", "d");
        double.until("none is offered", || labelled(&double, "c").is_empty()).await;
    })
    .await;
}

/// Has a pod use claim `d`, and waits until a new volume has its label.
async fn until_labelled_for_d(double: &Double, binder: &Binder<Double>) {
    use_claims(binder, &["d"]);
    double.rest().await;
    double.change(|objects| objects.put_volume(local("v", 1)));
    double.until("it is labelled", || labelled(double, "d") == names(&["v"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_passes_a_claim_that_is_older_than_its_class() {
    let double = holding([], [claim("c")]);
    let binder = steering::binder(&double);
    run_during(&binder, async {
        double.rest().await;
        deliver_class(&binder);
        double.change(|objects| objects.put_claim(claim("d")));
        until_labelled_for_d(&double, &binder).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_passes_a_claim_that_was_made_again_and_is_not_steered() {
    let double = holding([], [claim("c")]);
    let binder = binder(&double, Vec::new());
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        double.rest().await;
        double.change(|objects| {
            objects.put_claim(Claim { uid: "uid-again".into(), steered: false, ..claim("c") });
            objects.put_claim(claim("d"));
        });
        until_labelled_for_d(&double, &binder).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn labels_that_others_remove_are_put_back_less_and_less_often() {
    let double = holding([local("v", 1)], [claim("c")]);
    let binder = binder(&double, Vec::new());
    let removes = async {
        loop {
            double.until("it is labelled", || !labelled(&double, "c").is_empty()).await;
            double.change(|objects| {
                let mut plain = Volume::clone(&objects.volumes["v"]);
                plain.labels.clear();
                objects.put_volume(plain);
            });
        }
    };
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        tokio::select! {
            () = removes => {}
            () = double.until("its user is told", || double.reasons() == ["ReservationRemoved"]) => {}
        }
        assert_eq!(binder.claims_paused(), 1);
        let labels = steered(&double).iter().filter(|name| **name == "label volume for claim").count();
        assert!((5..20).contains(&labels), "{labels}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_label_that_bindery_itself_has_removed_is_put_back_at_once() {
    let double = holding([local("small", 1)], [claim("c"), Claim { steered: false, ..claim("other") }]);
    let binder = binder(&double, vec![policy("larger", Larger { zone: None })]);
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        for _ in 0..12 {
            double.until("the smaller is labelled", || labelled(&double, "c") == names(&["small"])).await;
            double.change(|objects| objects.put_volume(local("large", 2)));
            double.until("the larger is labelled", || labelled(&double, "c") == names(&["large"])).await;
            take(&double, "large", "other");
            let taken = Instant::now();
            double.until("the smaller is again", || labelled(&double, "c") == names(&["small"])).await;
            // By the virtual clock.
            assert!(taken.elapsed() < Duration::from_millis(500), "{:?}", taken.elapsed());
        }
    })
    .await;
    assert_eq!((double.reasons(), binder.claims_paused()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_claim_that_is_made_again_and_again_go_at_once() {
    let double = holding([local("v", 1)], []);
    let binder = binder(&double, Vec::new());
    run_during(&binder, async {
        use_claims(&binder, &["c"]);
        for time in 0..15 {
            let uid = format!("uid-{time}");
            double.change(|objects| objects.put_claim(Claim { uid: uid.as_str().into(), ..claim("c") }));
            double.until("the volume is labelled", || labelled(&double, "c") == names(&["v"])).await;
            bind(&double, "v", "c");
            let bound = Instant::now();
            double.until("the label is removed", || labelled(&double, "c").is_empty()).await;
            // By the virtual clock.
            assert!(bound.elapsed() < Duration::from_millis(500), "{:?}", bound.elapsed());
            double.change(|objects| {
                objects.remove_claim(&claim("c").key);
                objects.put_volume(local("v", 1));
            });
        }
        assert_eq!(binder.claims_paused(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_label_that_the_api_server_does_not_take_is_told_and_the_others_put() {
    for mode in [Mode::Steer, Mode::Own] {
        let double = holding([local("v", 1), local("w", 2)], [claim("c")]);
        let binder = binder_in(mode, &double, Vec::new());
        use_claims(&binder, &["c"]);
        double.fail_write(1, WriteError::Forbidden("cannot patch".to_owned()));
        assert!(binder.sync(&key("c")).await.result.is_err());
        let told = double.reasons().into_iter().filter(|reason| *reason == REASON_UNWRITABLE).count();
        assert_eq!((told, labelled(&double, "c")), (1, names(&["w"])), "{mode:?}");
    }
}
