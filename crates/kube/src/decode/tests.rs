//! Decoding of each field.

mod unreadable;

use bindery_core::{
    AccessMode, BindingMode, Claim, ClaimFact, ClaimPhase, Class, Declared, ReclaimPolicy, Requirement,
    Selector, SelectorOperator, Volume, VolumeFact, VolumeMode, VolumePhase,
};
use serde_json::{Value, json};

use super::*;

fn readable<N, T: Clone>(decoded: Result<(N, Observed<T>), DecodeError>) -> T {
    match decoded.unwrap().1 {
        Observed::Readable(object) => Arc::unwrap_or_clone(object),
        Observed::Unreadable(unreadable) => panic!("{}", unreadable.why),
    }
}

fn a_volume(change: Value) -> Volume {
    readable(volume(&merged(base_volume(), change), Declared::NONE))
}

fn a_claim(change: Value) -> Claim {
    readable(claim(&merged(base_claim(), change), Declared::NONE))
}

fn a_class(change: Value) -> Class {
    let base = json!({"metadata": {"name": "c1", "uid": "u3"}, "provisioner": "p"});
    readable(class(&merged(base, change), Declared::NONE))
}

fn why<N, T>(decoded: Result<(N, Observed<T>), DecodeError>) -> String {
    match decoded.unwrap().1 {
        Observed::Unreadable(unreadable) => {
            assert_eq!((&*unreadable.uid.0, &*unreadable.version.0), ("u1", "5"));
            unreadable.why.to_string()
        }
        Observed::Readable(_) => panic!("it is readable"),
    }
}

/// `base` with the fields of `change`; null replaces a field, and does not remove it.
fn merged(base: Value, change: Value) -> Value {
    match (base, change) {
        (Value::Object(mut base), Value::Object(change)) => {
            for (key, value) in change {
                let field = base.remove(&key).unwrap_or_default();
                base.insert(key, merged(field, value));
            }
            base.into()
        }
        (_, change) => change,
    }
}

fn base_volume() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "v1", "uid": "u1", "resourceVersion": "5", "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/tmp/x", "type": ""},
        },
        "status": {"phase": "Available", "lastPhaseTransitionTime": null},
    })
}

fn base_claim() -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "c1", "uid": "u1", "resourceVersion": "5"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    })
}

#[test]
fn a_volume_is_reduced_to_what_decisions_need() {
    let plain = a_volume(json!({}));
    assert_eq!((&*plain.name, &*plain.uid.0, &*plain.version.0), ("v1", "u1", "5"));
    assert_eq!(plain.capacity, Some(Quantity::bytes(5 << 30)));
    assert_eq!(plain.access_modes, [AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany]);
    assert_eq!((&*plain.class, plain.mode, &*plain.source), ("", VolumeMode::Filesystem, "hostPath"));
    assert_eq!((plain.policy, plain.phase), (ReclaimPolicy::Retain, VolumePhase::Available));
    assert_eq!((plain.claim_ref, plain.deleting, plain.node_affinity), (None, false, false));

    let rich = a_volume(json!({
        "metadata": {
            "deletionTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"zone": "a"},
            "finalizers": ["kubernetes.io/pv-protection"],
            "annotations": {
                "pv.kubernetes.io/bound-by-controller": "",
                "pv.kubernetes.io/provisioned-by": "p",
                "pv.kubernetes.io/migrated-to": "",
                "volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi",
            },
        },
        "spec": {
            "claimRef": {"namespace": "ns", "name": "c1", "uid": "u2"},
            "volumeMode": "Block",
            "storageClassName": "gold",
            "volumeAttributesClassName": "",
            "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
            "hostPath": null,
            "csi": {"driver": "d", "volumeHandle": "h"},
        },
    }));
    assert!(rich.deleting && rich.node_affinity && rich.is_csi() && rich.annotations.bound_by_controller);
    assert_eq!(rich.annotations.provisioned_by.as_deref(), Some("p"));
    assert_eq!(rich.annotations.migrated_to.as_deref(), Some(""));
    assert_eq!(rich.annotations.pre_resize_capacity, Some(Quantity::bytes(1 << 30)));
    assert_eq!(
        (&*rich.class, rich.mode, rich.attributes_class.as_deref()),
        ("gold", VolumeMode::Block, Some(""))
    );
    assert_eq!(rich.claim_ref.unwrap().uid, Some("u2".into()));
    assert_eq!(rich.finalizers, ["kubernetes.io/pv-protection".into()]);
}

#[test]
fn the_beta_class_annotation_takes_precedence_even_if_empty() {
    let beta = |value: &str| {
        let annotations = json!({"volume.beta.kubernetes.io/storage-class": value});
        json!({"metadata": {"annotations": annotations}})
    };
    let with_field = |value: &str| merged(beta(value), json!({"spec": {"storageClassName": "field"}}));
    assert_eq!(&*a_volume(with_field("beta")).class, "beta");
    assert_eq!(&*a_volume(with_field("")).class, "");
    assert_eq!(a_claim(with_field("beta")).class.as_deref(), Some("beta"));
    assert_eq!(a_claim(with_field("")).class.as_deref(), Some(""));
    assert_eq!(a_claim(json!({"spec": {"storageClassName": ""}})).class.as_deref(), Some(""));
    assert_eq!(a_claim(json!({})).class, None);
}

#[test]
fn an_empty_claim_uid_or_volume_name_is_none() {
    let reserved = a_volume(json!({"spec": {"claimRef": {"namespace": "ns", "name": "c1", "uid": ""}}}));
    assert_eq!(reserved.claim_ref.unwrap().uid, None);
    assert_eq!(a_claim(json!({"spec": {"volumeName": ""}})).volume_name, None);
    assert_eq!(a_claim(json!({"spec": {"volumeName": "v1"}})).volume_name.as_deref(), Some("v1"));
}

#[test]
fn a_claim_is_reduced_to_what_decisions_need() {
    let plain = a_claim(json!({}));
    assert_eq!((plain.key.to_string().as_str(), plain.request), ("ns/c1", Quantity::bytes(1 << 30)));
    assert_eq!(
        (plain.status.phase, plain.status.has_capacity, plain.data_source),
        (ClaimPhase::Pending, false, false)
    );
    let rich = a_claim(json!({
        "metadata": {"annotations": {
            "pv.kubernetes.io/bind-completed": "yes",
            "volume.kubernetes.io/selected-node": "",
            "volume.kubernetes.io/storage-provisioner": "p",
            "volume.beta.kubernetes.io/storage-provisioner": "q",
        }},
        "spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "s"}, "resources": {"requests": null}},
        "status": {
            "phase": "Bound", "accessModes": ["ReadWriteOncePod"], "capacity": {"storage": "1500m"},
            "currentVolumeAttributesClassName": "silver",
        },
    }));
    assert!(rich.annotations.bind_completed && !rich.annotations.bound_by_controller && rich.data_source);
    assert_eq!(rich.annotations.selected_node.as_deref(), Some(""));
    assert_eq!(rich.annotations.beta_storage_provisioner.as_deref(), Some("q"));
    assert_eq!(rich.request, Quantity::ZERO);
    assert_eq!(rich.status.access_modes, [AccessMode::ReadWriteOncePod]);
    assert_eq!(rich.status.capacity, Some(Quantity::parse("1500m").unwrap()));
    assert_eq!(rich.status.attributes_class.as_deref(), Some("silver"));
    let numbers = a_claim(json!({"spec": {"resources": {"requests": {"storage": 1024}}}}));
    assert_eq!(numbers.request, Quantity::bytes(1024));
}

#[test]
fn an_unknown_reclaim_policy_or_old_capacity_is_readable() {
    for (policy, expected) in [
        (json!("Delete"), ReclaimPolicy::Delete),
        (json!("Recycle"), ReclaimPolicy::Recycle),
        (json!("Burn"), ReclaimPolicy::Unknown),
        (json!(""), ReclaimPolicy::Unknown),
        (json!(null), ReclaimPolicy::Unknown),
    ] {
        let volume = a_volume(json!({"spec": {"persistentVolumeReclaimPolicy": policy}}));
        assert_eq!(volume.policy, expected);
    }
    let odd = json!({"metadata": {"annotations": {"volume.alpha.kubernetes.io/pre-resize-capacity": "?"}}});
    assert_eq!(a_volume(odd).annotations.pre_resize_capacity, None);
}

#[test]
fn selectors_become_requirements() {
    let selector = |json: Value| a_claim(json!({"spec": {"selector": json}})).selector;
    let requirement = |key: &str, operator, values: &[&str]| Requirement {
        key: key.into(),
        operator,
        values: values.iter().map(|value| Text::from(*value)).collect(),
    };
    assert_eq!(selector(json!(null)), None);
    assert_eq!(selector(json!({})), Some(Selector::Requirements(Vec::new())));
    assert_eq!(
        selector(json!({
            "matchLabels": {"b": "", "a.io/x": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "NotIn", "values": ["1", "2"]},
                {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist", "values": []},
            ],
        })),
        Some(Selector::Requirements(vec![
            requirement("a.io/x", SelectorOperator::In, &["1"]),
            requirement("b", SelectorOperator::In, &[""]),
            requirement("c", SelectorOperator::NotIn, &["1", "2"]),
            requirement("d", SelectorOperator::Exists, &[]),
            requirement("e", SelectorOperator::DoesNotExist, &[]),
        ]))
    );
    for (expression, complaint) in [
        (json!({"key": "a", "operator": "Near"}), "\"Near\" is not a valid label selector operator"),
        (json!({"key": "a", "operator": "In"}), "values: Invalid value: []: for 'in', 'notin' operators"),
        (
            json!({"key": "a", "operator": "Exists", "values": ["1"]}),
            "values: Invalid value: [\"1\"]: values set must be empty",
        ),
        (json!({"key": "-a", "operator": "Exists"}), "key: Invalid value: \"-a\": name part"),
        (json!({"key": "A_b/x", "operator": "Exists"}), "key: Invalid value: \"A_b/x\": prefix part"),
        (
            json!({"key": "a", "operator": "In", "values": ["1", "x y"]}),
            "values[1][a]: Invalid value: \"x y\"",
        ),
    ] {
        match selector(json!({"matchExpressions": [expression]})) {
            Some(Selector::Invalid(text)) => assert!(text.starts_with(complaint), "{text}"),
            other => panic!("{complaint}: {other:?}"),
        }
    }
}

#[test]
fn a_class_is_reduced_to_what_decisions_need() {
    let plain = a_class(json!({}));
    assert_eq!(
        (plain.binding_mode, plain.default, plain.mount_options, plain.created),
        (None, false, false, 0)
    );
    let rich = a_class(json!({
        "metadata": {
            "creationTimestamp": "1970-01-01T00:01:00Z",
            "annotations": {"storageclass.beta.kubernetes.io/is-default-class": "true"},
        },
        "volumeBindingMode": "WaitForFirstConsumer",
        "mountOptions": ["ro"],
    }));
    assert_eq!(rich.binding_mode, Some(BindingMode::WaitForFirstConsumer));
    assert_eq!((rich.default, rich.mount_options, rich.created), (true, true, 60));
    let no = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "True"}}});
    assert!(!a_class(no).default);
    let odd =
        json!({"metadata": {"name": "c", "uid": "u1", "resourceVersion": "5"}, "volumeBindingMode": "Later"});
    assert!(why(class(&odd, Declared::NONE)).starts_with("volumeBindingMode: \"Later\""));
}

#[test]
fn a_pod_is_reduced_to_its_claims_and_whether_it_runs() {
    let record = |change: Value| {
        let base = json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "c1"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "c", "emptyDir": {}},
        ]}});
        super::pod(&merged(base, change))
    };
    let pod = |change| record(change).unwrap().content.unwrap();
    let odd = record(json!({"spec": {"nodeName": 7}})).unwrap();
    assert_eq!((&*odd.namespace, &*odd.name), ("ns", "p"));
    assert!(odd.content.unwrap_err().starts_with("spec.nodeName: "));
    assert!(record(json!({"metadata": {"name": 7}})).is_err());
    let plain = pod(json!({}));
    assert_eq!(plain.claims, ["c1".into(), Text::from("p-b")]);
    assert!(!plain.scheduled && !plain.terminated);
    assert!(pod(json!({"spec": {"nodeName": "n"}})).scheduled);
    assert!(pod(json!({"status": {"phase": "Succeeded"}})).terminated);
    assert!(pod(json!({"status": {"phase": "Failed"}})).terminated);
    assert!(!pod(json!({"status": {"phase": "Running"}})).terminated);
    let deleting = |statuses: Value| {
        let metadata = json!({"deletionTimestamp": "2026-01-02T03:04:05Z"});
        pod(json!({"metadata": metadata, "status": {"containerStatuses": statuses}}))
    };
    assert!(deleting(json!(null)).terminated);
    assert!(
        deleting(json!([{"state": {"waiting": {}}}, {"state": {"terminated": {"exitCode": 0}}}])).terminated
    );
    assert!(!deleting(json!([{"state": {"waiting": {}}}, {"state": {"running": {}}}])).terminated);
    assert!(!deleting(json!([{"state": {}}])).terminated);
    assert!(!pod(json!({"status": {"containerStatuses": [{"state": {"waiting": {}}}]}})).terminated);
}

#[test]
fn declared_facts_are_decoded_and_no_others() {
    let term =
        |values: &[&str]| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]});
    let local = |terms: &[Value]| {
        json!({"metadata": {"annotations": {"a": "1", "b": "2"}, "labels": {"l": "x"}}, "spec": {
            "hostPath": null, "csi": {"driver": "d.example.com", "volumeHandle": "h"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }})
    };
    let columns = [
        VolumeFact::Annotation("a".into()),
        VolumeFact::Annotation("missing".into()),
        VolumeFact::Topology("zone".into()),
        VolumeFact::Driver,
        VolumeFact::Label("l".into()),
    ];
    let declared = Declared { volumes: columns.clone().into(), ..Declared::default() };
    let decoded =
        |terms: &[Value]| -> Volume { readable(volume(&merged(base_volume(), local(terms)), &declared)) };
    let same = decoded(&[term(&["a"]), term(&["a"])]);
    // Labels have a field of their own.
    let texts = columns.each_ref().map(|column| same.facts.get(column).map(|text| text.to_string()));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(texts, [some("1"), None, some("a"), some("d.example.com"), None]);
    for terms in [&[term(&["a"]), term(&["b"])][..], &[term(&["a", "b"])], &[json!({})], &[]] {
        assert_eq!(decoded(terms).facts.get(&columns[2]), None, "{terms:?}");
    }
    assert!(a_volume(local(&[term(&["a"])])).facts.is_empty());

    let facts = [
        ClaimFact::Label("l".into()),
        ClaimFact::Annotation("a".into()),
        ClaimFact::OwnerName,
        ClaimFact::OwnerOrdinal,
    ];
    let declared = Declared { claims: facts.clone().into(), ..Declared::default() };
    let owned = |name: &str, value: &str| {
        json!({"metadata": {"name": name, "labels": {"l": value}, "annotations": {"a": "1"},
            "ownerReferences": [
            {"name": "other"}, {"name": "postgres", "controller": true},
        ]}})
    };
    let texts = |name: &str, value: &str| {
        let claim = readable(claim(&merged(base_claim(), owned(name, value)), &declared));
        facts.each_ref().map(|fact| claim.facts.get(fact).map(|text| text.to_string()))
    };
    assert_eq!(texts("data-postgres-2", "x"), [some("x"), some("1"), some("postgres"), some("2")]);
    assert_eq!(texts("data-postgres-2x", "y")[3], None);
    assert_eq!(texts("2", &"z".repeat(4_097)), [None, some("1"), some("postgres"), None]);

    let fact = ClaimFact::ClassParameter("type".into());
    let declared = Declared { claims: [fact.clone()].into(), ..Declared::default() };
    let object =
        json!({"metadata": {"name": "c"}, "provisioner": "p", "parameters": {"type": "ssd", "x": "y"}});
    let class = readable(class(&object, &declared));
    assert_eq!(class.parameters.get(&fact).map(|text| &**text), Some("ssd"));
}
