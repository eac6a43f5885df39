//! The rules of a claim's creation in CEL, as ValidatingAdmissionPolicies.
//!
//! CEL sees the claim and one parameter. So a rule about the volume that a claim names takes volumes for
//! parameters and is evaluated once for each, and can say what is wrong with one, but not that there is none:
//! `volume-missing` and `class-missing` cannot be said. `volume-of-other` goes by the volume alone, since the
//! other claim is not to be seen.

use serde_json::{Value, json};

/// A policy and how it is bound.
pub(crate) struct Policy {
    /// Its name, and that of its binding.
    pub(crate) name: &'static str,
    /// What its expressions know as `params`.
    pub(crate) parameter: Parameter,
    /// `Deny` or `Warn`.
    action: &'static str,
    /// Rule and what holds where it finds nothing.
    rules: &'static [(&'static str, &'static str)],
}

/// What kind of object a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    Volume,
    Class,
}

/// What a claim and a volume have to do with each other.
const VARIABLES: [(&str, &str); 4] = [
    (
        "mine",
        "has(params.spec.claimRef) && params.spec.claimRef.namespace == request.namespace && \
         params.spec.claimRef.name == object.metadata.name && \
         (!has(params.spec.claimRef.uid) || params.spec.claimRef.uid == object.metadata.uid)",
    ),
    ("free", "!has(params.spec.claimRef) && !has(params.metadata.deletionTimestamp)"),
    (
        "leaving",
        "has(params.metadata.deletionTimestamp) || params.?status.?phase.orValue('') in ['Released', 'Failed']",
    ),
    (
        "fits",
        "quantity(params.spec.capacity.storage).compareTo(quantity(object.spec.resources.requests.storage)) >= 0 && \
         object.spec.?storageClassName.orValue('') == params.spec.?storageClassName.orValue('') && \
         object.spec.?volumeMode.orValue('Filesystem') == params.spec.?volumeMode.orValue('Filesystem') && \
         object.spec.?volumeAttributesClassName.orValue('') == params.spec.?volumeAttributesClassName.orValue('') && \
         object.spec.accessModes.all(mode, mode in params.spec.accessModes)",
    ),
];

const DENIED: [(&str, &str); 6] = [
    (
        "volume-too-small",
        "!variables.free || \
         quantity(params.spec.capacity.storage).compareTo(quantity(object.spec.resources.requests.storage)) >= 0",
    ),
    (
        "class-differs",
        "!variables.free || \
         object.spec.?storageClassName.orValue('') == params.spec.?storageClassName.orValue('')",
    ),
    (
        "volume-mode-differs",
        "!variables.free || \
         object.spec.?volumeMode.orValue('Filesystem') == params.spec.?volumeMode.orValue('Filesystem')",
    ),
    (
        "attributes-class-differs",
        "!variables.free || object.spec.?volumeAttributesClassName.orValue('') == \
         params.spec.?volumeAttributesClassName.orValue('')",
    ),
    (
        "access-modes-missing",
        "!variables.free || object.spec.accessModes.all(mode, mode in params.spec.accessModes)",
    ),
    (
        "volume-of-other",
        "!has(params.spec.claimRef) || variables.mine || params.?status.?phase.orValue('') != 'Bound'",
    ),
];

const WARNED: [(&str, &str); 5] = [
    (
        "volume-reserved",
        "!has(params.spec.claimRef) || variables.mine || variables.leaving || \
         params.?status.?phase.orValue('') == 'Bound'",
    ),
    ("volume-leaving", "!variables.leaving"),
    (
        "volume-oversized",
        "quantity(params.spec.capacity.storage).sub(quantity(object.spec.resources.requests.storage))\
         .sub(quantity(object.spec.resources.requests.storage)).sub(quantity(object.spec.resources.requests.storage))\
         .compareTo(quantity(object.spec.resources.requests.storage)) <= 0",
    ),
    ("name-defeats-affinity", "!has(params.spec.nodeAffinity)"),
    ("pair-mismatch", "!variables.mine || variables.fits"),
];

const OF_CLASSES: [(&str, &str); 2] = [
    (
        "name-defeats-wait",
        "!has(object.spec.volumeName) || params.?volumeBindingMode.orValue('') != 'WaitForFirstConsumer'",
    ),
    (
        "provisioner-unknown",
        "has(object.spec.volumeName) || !params.provisioner.startsWith('kubernetes.io/') || params.provisioner in \
         ['kubernetes.io/no-provisioner', 'kubernetes.io/aws-ebs', 'kubernetes.io/azure-disk', \
         'kubernetes.io/azure-file', 'kubernetes.io/cinder', 'kubernetes.io/gce-pd', 'kubernetes.io/portworx-volume', \
         'kubernetes.io/vsphere-volume']",
    ),
];

/// All of them: 13 of the 15 rules that a claim's creation can break.
pub(crate) const POLICIES: [Policy; 3] = [
    Policy { name: "bindery-denies", parameter: Parameter::Volume, action: "Deny", rules: &DENIED },
    Policy { name: "bindery-warns", parameter: Parameter::Volume, action: "Warn", rules: &WARNED },
    Policy {
        name: "bindery-warns-of-classes",
        parameter: Parameter::Class,
        action: "Warn",
        rules: &OF_CLASSES,
    },
];

/// Names of the rules that deny.
pub(crate) fn denying() -> impl Iterator<Item = &'static str> {
    DENIED.iter().map(|(rule, _)| *rule)
}

impl Policy {
    /// The policy as an object of Kubernetes.
    pub(crate) fn object(&self) -> Value {
        let (kind, concerns) = match self.parameter {
            Parameter::Volume => (
                json!({"apiVersion": "v1", "kind": "PersistentVolume"}),
                "object.spec.?volumeName.orValue('') == params.metadata.name",
            ),
            Parameter::Class => (
                json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}),
                "object.spec.?storageClassName.orValue('') == params.metadata.name",
            ),
        };
        let named = |(name, expression): &(&str, &str)| json!({"name": name, "expression": expression});
        let variables = match self.parameter {
            Parameter::Volume => VARIABLES.iter().map(named).collect::<Value>(),
            Parameter::Class => json!([]),
        };
        let rules = self.rules.iter().map(|(rule, holds)| json!({"expression": holds, "message": rule}));
        json!({
            "metadata": {"name": self.name},
            "spec": {
                "failurePolicy": "Fail",
                "paramKind": kind,
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["persistentvolumeclaims"],
                }]},
                "matchConditions": [{"name": "concerns", "expression": concerns}],
                "variables": variables,
                "validations": rules.collect::<Value>(),
            },
        })
    }

    /// Its binding, to one parameter or, without a name, to every one.
    pub(crate) fn binding(&self, parameter: Option<&str>) -> Value {
        let mut reference = json!({"parameterNotFoundAction": "Allow"});
        match parameter {
            Some(name) => reference["name"] = name.into(),
            None => reference["selector"] = json!({}),
        }
        json!({
            "metadata": {"name": self.name},
            "spec": {"policyName": self.name, "validationActions": [self.action], "paramRef": reference},
        })
    }
}
