//! The fields of volumes and claims that the rules need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::quantity::thousandths;

/// Annotation of a volume that mode steer has reserved: `NAMESPACE/NAME UID` of the claim.
const RESERVED_FOR: &str = "steer.bindery.dev/reserved-for";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Metadata of a volume or claim.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) finalizers: BTreeSet<String>,
    pub(crate) is_deleted: bool,
}

/// A claimRef.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) kind: String,
    /// `namespace/name`.
    pub(crate) key: String,
    /// `""`: any claim of that name.
    pub(crate) uid: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) meta: Meta,
    pub(crate) capacity: i128,
    pub(crate) access_modes: BTreeSet<String>,
    pub(crate) class: String,
    pub(crate) mode: String,
    pub(crate) attributes_class: String,
    pub(crate) policy: String,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) phase: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// `namespace/name`.
    pub(crate) key: String,
    pub(crate) meta: Meta,
    pub(crate) request: i128,
    pub(crate) access_modes: BTreeSet<String>,
    pub(crate) class: String,
    pub(crate) mode: String,
    pub(crate) attributes_class: String,
    /// Without the requirement that steers it.
    pub(crate) selector: Vec<Requirement>,
    /// Whether no volume has a label that it requires, so that upstream finds none by itself.
    pub(crate) is_steered: bool,
    /// `""`: none.
    pub(crate) volume_name: String,
    pub(crate) phase: String,
    pub(crate) status_capacity: Option<i128>,
    pub(crate) status_access_modes: BTreeSet<String>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: BTreeSet<String>,
}

impl Volume {
    /// # Errors
    ///
    /// A field has a value that no API server stores; the text names object and field.
    pub(crate) fn of(object: &Value) -> Result<Self, String> {
        let name = text(object, "/metadata/name");
        let capacity =
            amount(object, "/spec/capacity/storage").map_err(|why| format!("volume {name}: {why}"))?;
        let meta = Meta::of(object);
        Ok(Self {
            capacity: capacity.unwrap_or_default(),
            access_modes: texts(object, "/spec/accessModes"),
            class: class(object, &meta),
            mode: mode(object),
            attributes_class: text(object, "/spec/volumeAttributesClassName"),
            policy: text(object, "/spec/persistentVolumeReclaimPolicy"),
            reservation: object.pointer("/spec/claimRef").filter(|value| value.is_object()).map(|value| {
                Reservation {
                    kind: format!("{} {}", text(value, "/apiVersion"), text(value, "/kind")),
                    key: format!("{}/{}", text(value, "/namespace"), text(value, "/name")),
                    uid: text(value, "/uid"),
                }
            }),
            phase: text(object, "/status/phase"),
            name,
            meta,
        })
    }

    /// Whether it is reserved for this claim, by UID or by name alone.
    pub(crate) fn is_reserved_for(&self, claim: &Claim) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_some_and(|it| it.key == claim.key && (it.uid.is_empty() || it.uid == claim.meta.uid))
    }

    /// The UID of the claim that mode steer has reserved it for.
    pub(crate) fn steered_for(&self) -> Option<&str> {
        let (key, uid) = self.meta.annotations.get(RESERVED_FOR)?.split_once(' ')?;
        let reservation = self.reservation.as_ref().filter(|it| it.key == key)?;
        (reservation.uid.is_empty() || reservation.uid == uid).then_some(uid)
    }

    /// The UID of the claim that it is reserved for.
    pub(crate) fn claim_uid(&self) -> Option<&str> {
        self.reservation.as_ref().map(|it| it.uid.as_str()).filter(|uid| !uid.is_empty())
    }
}

impl Claim {
    /// # Errors
    ///
    /// A field has a value that no API server stores; the text names object and field.
    pub(crate) fn of(object: &Value) -> Result<Self, String> {
        let key = format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let named = |why: String| format!("claim {key}: {why}");
        let request = amount(object, "/spec/resources/requests/storage").map_err(named)?;
        let status_capacity = amount(object, "/status/capacity/storage").map_err(named)?;
        let meta = Meta::of(object);
        let (name, namespace) = (text(object, "/metadata/name"), text(object, "/metadata/namespace"));
        let steering = format!("{name}.{namespace}.steer.bindery.dev/claim");
        let steers = |needed: &Requirement| needed.key == steering && needed.operator == "Exists";
        let (steering, selector): (Vec<_>, Vec<_>) = selector(object).into_iter().partition(steers);
        Ok(Self {
            request: request.unwrap_or_default(),
            access_modes: texts(object, "/spec/accessModes"),
            class: class(object, &meta),
            mode: mode(object),
            attributes_class: text(object, "/spec/volumeAttributesClassName"),
            selector,
            is_steered: !steering.is_empty(),
            volume_name: text(object, "/spec/volumeName"),
            phase: text(object, "/status/phase"),
            status_capacity,
            status_access_modes: texts(object, "/status/accessModes"),
            key,
            meta,
        })
    }

    /// Whether its first bind is complete.
    pub(crate) fn is_completed(&self) -> bool {
        self.meta.annotations.contains_key("pv.kubernetes.io/bind-completed")
    }
}

impl Meta {
    fn of(object: &Value) -> Self {
        let map = |pointer: &str| {
            let entries = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
            entries.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
        };
        Self {
            uid: text(object, "/metadata/uid"),
            labels: map("/metadata/labels"),
            annotations: map("/metadata/annotations"),
            finalizers: texts(object, "/metadata/finalizers"),
            is_deleted: object.pointer("/metadata/deletionTimestamp").is_some_and(|value| !value.is_null()),
        }
    }

    /// Whether the binder chose the other side of this object.
    pub(crate) fn is_bound_by_controller(&self) -> bool {
        self.annotations.contains_key("pv.kubernetes.io/bound-by-controller")
    }

    /// The provisioner that created it.
    pub(crate) fn provisioned_by(&self) -> Option<&str> {
        self.annotations.get("pv.kubernetes.io/provisioned-by").map(String::as_str)
    }
}

/// The text at a pointer, or `""`.
pub(crate) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(object: &Value, pointer: &str) -> BTreeSet<String> {
    let items = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn amount(object: &Value, pointer: &str) -> Result<Option<i128>, String> {
    let Some(value) = object.pointer(pointer) else { return Ok(None) };
    let amount = value.as_str().and_then(thousandths);
    amount.map(Some).ok_or_else(|| format!("{pointer} is {value}, which is not a quantity"))
}

/// The deprecated annotation takes precedence over the field.
fn class(object: &Value, meta: &Meta) -> String {
    meta.annotations.get(BETA_CLASS).cloned().unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

fn mode(object: &Value) -> String {
    let mode = text(object, "/spec/volumeMode");
    if mode.is_empty() { "Filesystem".to_owned() } else { mode }
}

fn selector(object: &Value) -> Vec<Requirement> {
    let labels =
        object.pointer("/spec/selector/matchLabels").and_then(Value::as_object).into_iter().flatten();
    let equals = labels.map(|(key, value)| Requirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: value.as_str().map(str::to_owned).into_iter().collect(),
    });
    let expressions = object.pointer("/spec/selector/matchExpressions").and_then(Value::as_array);
    let expressions = expressions.into_iter().flatten().map(|expression| Requirement {
        key: text(expression, "/key"),
        operator: text(expression, "/operator"),
        values: texts(expression, "/values"),
    });
    equals.chain(expressions).collect()
}
