//! What is known of objects that cannot be read.

use super::*;
use crate::encoding::EncodedObject;

#[test]
fn a_malformed_field_is_unreadable_and_named() {
    for (change, field) in [
        (json!({"spec": {"accessModes": ["ReadSometimes"]}}), "spec.accessModes: \"ReadSometimes\""),
        (json!({"spec": {"capacity": {"storage": "5GB"}}}), "spec.capacity.storage: \"5GB\""),
        (json!({"spec": {"capacity": {"storage": "-5"}}}), "spec.capacity.storage: \"-5\""),
        (json!({"spec": {"capacity": {"storage": "20E"}}}), "spec.capacity.storage: \"20E\""),
        (json!({"spec": {"volumeMode": "Tape"}}), "spec.volumeMode: \"Tape\""),
        // Only a missing mode means Filesystem.
        (json!({"spec": {"volumeMode": ""}}), "spec.volumeMode: \"\""),
        (json!({"status": {"phase": "Confused"}}), "status.phase: \"Confused\""),
        (json!({"spec": {"claimRef": "c1"}}), "spec.claimRef: "),
        (json!({"spec": {"claimRef": {"namespace": "ns", "uid": "u"}}}), "spec.claimRef.name: \"\""),
        (
            json!({"spec": {"claimRef": {"namespace": "..", "name": "c", "uid": "u"}}}),
            "spec.claimRef.namespace: \"..\"",
        ),
        (json!({"spec": {"accessModes": "ReadWriteOnce"}}), "spec.accessModes: "),
    ] {
        let why = why(volume(&merged(base_volume(), change), Declared::NONE));
        assert!(why.starts_with(field), "{why} should begin with {field}");
    }
    for (change, field) in [
        (
            json!({"spec": {"resources": {"requests": {"storage": "20E"}}}}),
            "spec.resources.requests.storage: \"20E\"",
        ),
        (json!({"status": {"accessModes": ["RWO"]}}), "status.accessModes: \"RWO\""),
        (json!({"status": {"capacity": {"storage": "x"}}}), "status.capacity.storage: \"x\""),
        (json!({"status": {"phase": "Available"}}), "status.phase: \"Available\""),
        (json!({"spec": {"volumeName": 7}}), "spec.volumeName: "),
    ] {
        let why = why(claim(&merged(base_claim(), change), Declared::NONE));
        assert!(why.starts_with(field), "{why} should begin with {field}");
    }
    assert!(volume(&json!({"metadata": {}}), Declared::NONE).is_err());
    assert!(claim(b"{".as_slice(), Declared::NONE).is_err());
}

/// A field of a message in Protocol Buffers: a text, bytes or another message.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("a short field");
    [&[(tag << 3) | 2, length][..], content].concat()
}

/// An object of any kind in Protocol Buffers, with a label and an annotation of that value.
fn annotated(value: &[u8]) -> EncodedObject {
    let entry = |value: &[u8]| [field(1, b"team"), field(2, value)].concat();
    let metadata = [
        field(1, b"c1"),
        field(3, b"ns"),
        field(5, b"u1"),
        field(6, b"5"),
        field(11, &entry(b"db")),
        field(12, &entry(value)),
    ];
    EncodedObject::Protobuf(field(1, &metadata.concat()).into())
}

/// Protocol Buffers let a client store any bytes as text.
#[test]
fn an_object_with_an_annotation_that_is_not_utf8_is_not_absent() {
    let (odd, even) = (annotated(b"\xff"), annotated(b"a"));
    let (key, observed) = claim(&odd, Declared::NONE).unwrap();
    assert_eq!(key, ClaimKey::new("ns", "c1"));
    let why = why(Ok((key, observed)));
    assert!(why.contains("annotations") && why.contains("UTF-8"), "{why}");
    assert_eq!(&*volume(&odd, Declared::NONE).unwrap().0, "c1");
    assert!(matches!(class(&odd, Declared::NONE), Ok((_, Observed::Unreadable(_)))));

    assert!(pod(&even).unwrap().content.is_ok());
    let pod = pod(&odd).unwrap();
    assert_eq!((&*pod.namespace, &*pod.name), ("ns", "c1"));
    assert!(pod.content.unwrap_err().contains("UTF-8"));
    assert_eq!(uid(&odd), "u1");

    for kind in [Kind::Node, Kind::Namespace] {
        assert_eq!(object(kind, &odd, Declared::NONE), object(kind, &even, Declared::NONE));
        assert!(object(kind, &odd, Declared::NONE).is_ok());
    }
    assert_eq!(object_key(Kind::Volume, &odd), Ok(ObjectKey::Volume("c1".into())));
}
