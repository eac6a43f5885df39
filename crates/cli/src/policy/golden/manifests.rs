//! Manifests from which given facts are read.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bindery_core::{ClaimFact, ClaimKey, Quantity, QuantityFormat, Text, VolumeFact};
use bindery_policy::{AskedPolicy, Candidates};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::EXTRA_MAX;
use crate::policy::cases::File;
use crate::yaml;

/// The manifests of a case.
#[derive(Default)]
pub(super) struct Manifests {
    claim: Value,
    namespace: Value,
    class: Value,
    volumes: Vec<Value>,
    /// That of a reclaimer.
    pub(super) volume: Value,
    siblings: Vec<Value>,
}

impl Manifests {
    /// A claim with these facts. That of a reclaimer has no request.
    pub(super) fn claim(
        &mut self,
        key: &ClaimKey,
        facts: &[ClaimFact],
        values: &[Option<Text>],
        request: Option<Quantity>,
    ) {
        let mut claim = object("v1", "PersistentVolumeClaim", &key.name);
        claim["metadata"]["namespace"] = json!(*key.namespace);
        if let Some(request) = request {
            claim["spec"]["resources"]["requests"]["storage"] = json!(amount(request));
        }
        for (fact, value) in facts.iter().zip(values) {
            let Some(value) = value else { continue };
            let meta = &mut claim["metadata"];
            match fact {
                ClaimFact::Namespace => meta["namespace"] = json!(**value),
                ClaimFact::Name => meta["name"] = json!(**value),
                ClaimFact::Label(key) => meta["labels"][&**key] = json!(**value),
                ClaimFact::Annotation(key) => meta["annotations"][&**key] = json!(**value),
                ClaimFact::OwnerName => {
                    meta["ownerReferences"] = json!([{"name": **value, "controller": true}]);
                }
                // It is in the name.
                ClaimFact::OwnerOrdinal => {}
                ClaimFact::NamespaceLabel(key) => {
                    self.namespace["metadata"]["labels"][&**key] = json!(**value);
                }
                ClaimFact::ClassParameter(key) => self.class["parameters"][&**key] = json!(**value),
            }
        }
        self.name_others(&claim["metadata"]["namespace"]);
        self.claim = claim;
    }

    /// Completes the manifests of namespace and class.
    fn name_others(&mut self, namespace: &Value) {
        for (object, version, kind, name) in [
            (&mut self.namespace, "v1", "Namespace", namespace),
            (&mut self.class, "storage.k8s.io/v1", "StorageClass", &json!("recorded")),
        ] {
            if !object.is_null() {
                object["apiVersion"] = json!(version);
                object["kind"] = json!(kind);
                object["metadata"]["name"] = name.clone();
            }
        }
    }

    /// Volumes with these rows, and siblings with as many volumes as were counted.
    pub(super) fn volumes(&mut self, names: &[Text], rows: &Candidates, policy: &AskedPolicy) -> Result<()> {
        let text = |place: u32| -> Option<Text> { rows.texts.get((place as usize).checked_sub(1)?).cloned() };
        let mut counts = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            let values: Vec<Option<Text>> = rows.columns.iter().map(|column| text(column[at])).collect();
            let mut facts: Vec<(&VolumeFact, &Option<Text>)> = policy.columns.iter().zip(&values).collect();
            let count = rows.spread.get(at).copied().unwrap_or_default();
            // A value that the policy does not see may be any.
            let unseen: Option<Text> = Some(format!("recorded-{count}").into());
            if let Some(spread) = &policy.spread {
                let seen = facts.iter().find(|(fact, _)| **fact == spread.by).map(|(_, value)| *value);
                facts.extend(seen.is_none().then_some((&spread.by, &unseen)));
                counts.insert(seen.unwrap_or(&unseen).clone(), count);
            }
            let capacity = Quantity { whole: rows.whole[at], nanos: rows.nanos[at], ..Quantity::ZERO };
            self.volumes.push(volume(name, capacity, facts.into_iter()));
        }
        // Each sibling has the claim's manifest, and a case that is larger than a file is not written.
        let siblings: usize = counts.values().map(|count| *count as usize).sum();
        let bytes = self.claim.to_string().len().saturating_mul(siblings);
        ensure!(bytes <= EXTRA_MAX, "there are too many siblings");
        for (value, count) in counts {
            for _ in 0..count {
                let name: Text = format!("sibling-{}", self.siblings.len() + 1).into();
                let mut claim = self.claim.clone();
                claim["metadata"]["name"] = json!(*name);
                let by = policy.spread.iter().map(|spread| (&spread.by, &value));
                self.siblings.push(json!({"claim": claim, "volume": volume(&name, Quantity::bytes(1), by)}));
            }
        }
        Ok(())
    }

    /// A file with the case, whose title and answer are added later. It is read as it is written, so that
    /// what YAML cannot say is found.
    pub(super) fn file(self, settings: &str) -> Result<File> {
        let Self { claim, namespace, class, volumes, volume, siblings } = self;
        let settings = serde_json::from_str(settings).context("its settings are no JSON")?;
        let fields = [
            ("settings", settings),
            ("claim", claim),
            ("namespace", namespace),
            ("class", class),
            ("volumes", volumes.into()),
            ("volume", volume),
            ("siblings", siblings.into()),
        ];
        let mut text = Vec::new();
        for field in fields.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([])) {
            yaml::write(&mut text, &BTreeMap::from([field]))?;
        }
        File::parse("recorded.yaml".into(), format!("case: recorded\n{}", String::from_utf8(text)?))
    }
}

fn object(version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}})
}

/// The manifest of a volume with these facts.
pub(super) fn volume<'a>(
    name: &Text,
    capacity: Quantity,
    facts: impl Iterator<Item = (&'a VolumeFact, &'a Option<Text>)>,
) -> Value {
    let mut volume = object("v1", "PersistentVolume", name);
    volume["spec"]["capacity"]["storage"] = json!(amount(capacity));
    let mut affinity = Vec::new();
    for (fact, value) in facts {
        let Some(value) = value else { continue };
        let spec = &mut volume["spec"];
        match fact {
            VolumeFact::Topology(key) => {
                affinity.push(json!({"key": **key, "operator": "In", "values": [**value]}));
            }
            VolumeFact::ClassName => spec["storageClassName"] = json!(**value),
            VolumeFact::Source if spec[&**value].is_null() => spec[&**value] = json!({}),
            VolumeFact::Source => {}
            VolumeFact::Driver => spec["csi"]["driver"] = json!(**value),
            VolumeFact::ReclaimPolicy => spec["persistentVolumeReclaimPolicy"] = json!(**value),
            VolumeFact::PhaseTransition => {
                let at = value.parse().ok().and_then(|at| Timestamp::from_second(at).ok());
                volume["status"]["lastPhaseTransitionTime"] = json!(at.map(|at| at.to_string()));
            }
            VolumeFact::Label(key) => volume["metadata"]["labels"][&**key] = json!(**value),
            VolumeFact::Annotation(key) => volume["metadata"]["annotations"][&**key] = json!(**value),
        }
    }
    if !affinity.is_empty() {
        let terms = json!([{"matchExpressions": affinity}]);
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = terms;
    }
    volume
}

fn amount(quantity: Quantity) -> String {
    Quantity { format: QuantityFormat::BinarySi, ..quantity }.to_string()
}
