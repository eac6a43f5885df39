//! The rules for the creation of a claim in CEL, as ValidatingAdmissionPolicies.
//!
//! CEL sees the claim and one parameter. A rule about the volume that a claim names has all volumes as parameters
//! and is evaluated for each. So CEL cannot express `volume-missing` and `class-missing`. `volume-of-other` uses
//! only the volume, as CEL cannot see the other claim.

use serde_json::{Value, json};

/// A policy and its binding.
pub(crate) struct Policy {
    /// The name of the policy and its binding.
    pub(crate) name: &'static str,
    /// The object in `params`.
    pub(crate) parameter: Parameter,
    /// `Deny` or `Warn`.
    action: &'static str,
    /// Each rule with the condition of objects that pass it.
    rules: &'static [(&'static str, &'static str)],
}

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    Volume,
    Class,
}

/// Properties of a claim and a volume.
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

const CLASS_RULES: [(&str, &str); 2] = [
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

/// All policies: 13 of the 15 rules for the creation of a claim.
pub(crate) const POLICIES: [Policy; 3] = [
    Policy { name: "bindery-denies", parameter: Parameter::Volume, action: "Deny", rules: &DENIED },
    Policy { name: "bindery-warns", parameter: Parameter::Volume, action: "Warn", rules: &WARNED },
    Policy {
        name: "bindery-warns-of-classes",
        parameter: Parameter::Class,
        action: "Warn",
        rules: &CLASS_RULES,
    },
];

/// The rules that deny.
pub(crate) fn denying() -> impl Iterator<Item = &'static str> {
    DENIED.iter().map(|(rule, _)| *rule)
}

impl Policy {
    /// The policy object.
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

    /// The binding to one parameter or, without a name, to all.
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
