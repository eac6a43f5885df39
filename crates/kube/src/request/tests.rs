//! The bodies of requests, compared byte for byte if upstream's matter.

use bindery_core::steer::{Choice, Reservation};
use bindery_core::{AccessMode, ClaimPhase, FinalizerEdit, Message, Quantity, VolumePhase};

use super::*;

fn volume() -> VolumeTarget {
    VolumeTarget { name: "v1".into(), uid: "uv".into(), version: "7".into() }
}

fn claim() -> ClaimTarget {
    ClaimTarget { key: ClaimKey::new("ns", "c1"), uid: "uc".into(), version: "9".into() }
}

fn sent(write: impl Into<Write<Template>>) -> (String, String, Value) {
    let outgoing = of(&write.into()).unwrap();
    (outgoing.method.to_string(), outgoing.path, outgoing.body)
}

#[test]
fn a_bind_is_four_patches() {
    let (method, path, body) = sent(Action::ReserveVolume { volume: volume(), claim: claim(), mark: true });
    assert_eq!(
        (method.as_str(), path.as_str()),
        ("PATCH", "/api/v1/persistentvolumes/v1?fieldManager=bindery")
    );
    assert_eq!(
        body,
        json!({
            "metadata": {
                "uid": "uv", "resourceVersion": "7",
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {"claimRef": {
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "ns", "name": "c1",
                "uid": "uc", "resourceVersion": "9", "fieldPath": null,
            }},
        })
    );
    let (_, path, body) =
        sent(Action::SetVolumePhase { volume: volume(), phase: VolumePhase::Bound, message: Message::Empty });
    assert_eq!(path, "/api/v1/persistentvolumes/v1/status?fieldManager=bindery");
    assert_eq!(body["status"], json!({"phase": "Bound", "message": null}));
    let (_, path, body) =
        sent(Action::BindClaim { claim: claim(), volume: volume(), set_volume_name: true, mark: false });
    assert_eq!(path, "/api/v1/namespaces/ns/persistentvolumeclaims/c1?fieldManager=bindery");
    assert_eq!(
        body,
        json!({
            "metadata": {
                "uid": "uc", "resourceVersion": "9",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": "v1"},
        })
    );
    let (_, path, body) = sent(Action::SetClaimStatus {
        claim: claim(),
        phase: ClaimPhase::Bound,
        access_modes: Edit::Set(vec![AccessMode::ReadWriteOnce]),
        capacity: CapacityChange::Whole(Quantity::parse("1024Mi").unwrap()),
        attributes_class: Edit::Keep,
    });
    assert_eq!(path, "/api/v1/namespaces/ns/persistentvolumeclaims/c1/status?fieldManager=bindery");
    assert_eq!(
        body["status"],
        json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}})
    );
}

#[test]
fn a_claim_without_volume_loses_what_the_volume_gave_it() {
    let (_, _, body) = sent(Action::SetClaimStatus {
        claim: claim(),
        phase: ClaimPhase::Lost,
        access_modes: Edit::Set(Vec::new()),
        capacity: CapacityChange::Remove,
        attributes_class: Edit::Remove,
    });
    let status = json!({
        "phase": "Lost", "accessModes": null, "capacity": null, "currentVolumeAttributesClassName": null,
    });
    assert_eq!(body["status"], status);
}

#[test]
fn an_unbind_clears_what_the_binder_wrote_and_keeps_what_the_user_wrote() {
    let (_, _, body) = sent(Action::UnbindVolume { volume: volume(), clear: Clear::Whole });
    assert_eq!(body["spec"], json!({"claimRef": null}));
    assert_eq!(body["metadata"]["annotations"], json!({"pv.kubernetes.io/bound-by-controller": null}));
    let (_, _, body) = sent(Action::UnbindVolume { volume: volume(), clear: Clear::Uid });
    assert_eq!(body["spec"], json!({"claimRef": {"uid": null}}));
    assert_eq!(body["metadata"], json!({"uid": "uv", "resourceVersion": "7"}));
}

#[test]
fn finalizers_and_migration_go_in_one_patch() {
    let annotate = Write::from(Action::AnnotateVolume {
        volume: volume(),
        migrated_to: Edit::Remove,
        in_tree_finalizer: FinalizerEdit::Add,
        external_finalizer: FinalizerEdit::Keep,
    });
    let finalizers = Some(vec!["a".into(), "kubernetes.io/pv-controller".into()]);
    let (_, _, body) = sent(Write { finalizers, ..annotate });
    assert_eq!(
        body,
        json!({"metadata": {
            "uid": "uv", "resourceVersion": "7",
            "annotations": {"pv.kubernetes.io/migrated-to": null},
            "finalizers": ["a", "kubernetes.io/pv-controller"],
        }})
    );
}

#[test]
fn a_provisioned_volume_is_completed() {
    let template = Template(json!({"spec": {"persistentVolumeReclaimPolicy": "Delete", "nfs": {}}}));
    let create = |template| {
        let (name, class, plugin) = ("pvc-uc".into(), "gold".into(), "p".into());
        let write = Write::from(Action::CreateVolume { claim: claim(), name, class, plugin });
        Write { template: Some(template), ..write }
    };
    let (method, path, body) = sent(create(template));
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/api/v1/persistentvolumes?fieldManager=bindery"));
    assert_eq!(body["metadata"]["name"], "pvc-uc");
    assert_eq!(body["metadata"]["finalizers"], json!(["kubernetes.io/pv-controller"]));
    assert_eq!(
        body["metadata"]["annotations"],
        json!({"pv.kubernetes.io/bound-by-controller": "yes", "pv.kubernetes.io/provisioned-by": "p"})
    );
    assert_eq!(body["spec"]["claimRef"]["uid"], "uc");
    assert_eq!(body["spec"]["storageClassName"], "gold");
    let retained = Template(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    assert_eq!(sent(create(retained)).2["metadata"].get("finalizers"), None);
    assert!(of(&create(Template(json!([])))).is_err());
}

#[test]
fn a_delete_has_preconditions() {
    let (method, path, body) = sent(Action::DeleteVolume { volume: volume() });
    assert_eq!((method.as_str(), path.as_str()), ("DELETE", "/api/v1/persistentvolumes/v1"));
    assert_eq!(body["preconditions"], json!({"uid": "uv", "resourceVersion": "7"}));
}

#[test]
fn a_name_cannot_become_another_path() {
    for name in ["", ".", "..", "a/b", "../b", "a%2fb"] {
        assert!(volume_path(name).is_err(), "{name:?}");
        assert!(claim_path(&ClaimKey::new("ns", name)).is_err(), "{name:?}");
        assert!(claim_path(&ClaimKey::new(name, "c")).is_err(), "{name:?}");
        assert!(config_map_path("ns", name).is_err(), "{name:?}");
        assert!(config_map_path(name, "m").is_err(), "{name:?}");
    }
    for (name, segment) in [("a?b", "a%3Fb"), ("a#b", "a%23b"), ("a b", "a%20b"), ("ü", "%C3%BC")] {
        assert_eq!(volume_path(name).unwrap(), format!("/api/v1/persistentvolumes/{segment}"));
        let path = format!("/api/v1/namespaces/{segment}/configmaps/{segment}");
        assert_eq!(config_map_path(name, name).unwrap(), path);
    }
}

#[test]
fn a_reservation_of_mode_steer_has_no_uid_of_the_claim() {
    let reservation = Reservation { claim: ClaimKey::new("ns", "c1"), uid: "uc".into(), released: false };
    let Outgoing { method, path, body } =
        of_steering(&SteerWrite::Reserve { volume: volume(), reservation }).unwrap();
    let reserved = json!({
        "metadata": {
            "uid": "uv", "resourceVersion": "7",
            "annotations": {"steer.bindery.dev/reserved-for": "ns/c1 uc"},
        },
        "spec": {"claimRef": {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "ns", "name": "c1",
        }},
    });
    assert_eq!((method.as_str(), body), ("PATCH", reserved));
    assert_eq!(path, "/api/v1/persistentvolumes/v1?fieldManager=bindery");
    let released = json!({
        "metadata": {
            "uid": "uv", "resourceVersion": "7", "annotations": {"steer.bindery.dev/reserved-for": null},
        },
        "spec": {"claimRef": null},
    });
    assert_eq!(of_steering(&SteerWrite::Release { volume: volume() }).unwrap().body, released);
}

#[test]
fn writes_of_mode_steer_to_a_claim_only_annotate_it() {
    let choice = Choice { volume: "v1".into(), uid: "uv".into(), withdrawn: false };
    for (write, key, value) in [
        (SteerWrite::Choose { claim: claim(), choice }, "steer.bindery.dev/choice", "v1 uv"),
        (SteerWrite::Touch { claim: claim() }, "steer.bindery.dev/touched", "9"),
    ] {
        let Outgoing { path, body, .. } = of_steering(&write).unwrap();
        assert_eq!(path, "/api/v1/namespaces/ns/persistentvolumeclaims/c1?fieldManager=bindery");
        let annotations = json!({key: value});
        let expected = json!({"uid": "uc", "resourceVersion": "9", "annotations": annotations});
        assert_eq!(body, json!({"metadata": expected}));
    }
}
