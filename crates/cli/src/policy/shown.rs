//! What a policy is shown of the manifests of a case.

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_core::{ClaimFact, Quantity, Text, VolumeFact};
use bindery_policy::{Candidates, ClaimView, Metadata};
use serde_json::Value;

use super::cases::Case;
use crate::objects::Title;

/// A volume as a policy is shown it.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) capacity: Quantity,
    /// The declared columns, in order.
    pub(crate) columns: Vec<Option<Text>>,
}

/// The claim of a case.
pub(crate) fn claim(metadata: &Metadata, case: &Case) -> Result<ClaimView> {
    let request = quantity(&case.claim, &case.claim["spec"]["resources"]["requests"]["storage"])?;
    let facts = metadata.claim_facts.iter().map(|fact| claim_fact(fact, case)).collect();
    Ok(ClaimView { request, facts })
}

/// The volumes of a case.
pub(crate) fn rows(metadata: &Metadata, case: &Case, claim: &ClaimView) -> Result<Vec<Row>> {
    let row = |volume: &Value| {
        let capacity = quantity(volume, &volume["spec"]["capacity"]["storage"])?;
        if capacity < claim.request {
            bail!("{} is smaller than the claim requests, so no policy is asked about it", Title(volume));
        }
        let name = volume["metadata"]["name"].as_str().context("a volume has no metadata.name")?.to_owned();
        let columns = metadata.columns.iter().map(|fact| column(fact, volume)).collect();
        Ok(Row { name, capacity, columns })
    };
    case.volumes.iter().map(row).collect()
}

/// Rows as columns.
pub(crate) fn candidates(metadata: &Metadata, rows: &[&Row]) -> Candidates {
    let mut texts: Vec<Text> = Vec::new();
    let mut place = |text: &Option<Text>| {
        let Some(text) = text else { return 0 };
        let place = texts.iter().position(|known| known == text).unwrap_or_else(|| {
            texts.push(text.clone());
            texts.len() - 1
        });
        u32::try_from(place + 1).unwrap_or(u32::MAX)
    };
    let columns = 0..metadata.columns.len();
    let columns =
        columns.map(|column| rows.iter().map(|row| place(&row.columns[column])).collect()).collect();
    Candidates {
        whole: rows.iter().map(|row| row.capacity.whole).collect(),
        nanos: rows.iter().map(|row| row.capacity.nanos).collect(),
        texts,
        columns,
        spread: Vec::new(),
    }
}

fn quantity(object: &Value, amount: &Value) -> Result<Quantity> {
    let text = match amount {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => bail!("{} has no amount of storage", Title(object)),
    };
    Quantity::parse(&text).map_err(|error| anyhow!("{}: {error}", Title(object)))
}

fn claim_fact(fact: &ClaimFact, case: &Case) -> Option<Text> {
    let meta = &case.claim["metadata"];
    match fact {
        ClaimFact::Namespace => Some(meta["namespace"].as_str().unwrap_or("default").into()),
        ClaimFact::Name => text(&meta["name"]),
        ClaimFact::Label(key) => text(&meta["labels"][&**key]),
        ClaimFact::Annotation(key) => text(&meta["annotations"][&**key]),
        ClaimFact::NamespaceLabel(key) => text(&case.namespace["metadata"]["labels"][&**key]),
        ClaimFact::ClassParameter(key) => text(&case.class["parameters"][&**key]),
        ClaimFact::OwnerName => {
            let owners = meta["ownerReferences"].as_array()?;
            text(&owners.iter().find(|owner| owner["controller"] == true)?["name"])
        }
        ClaimFact::OwnerOrdinal => {
            let (_, ordinal) = meta["name"].as_str()?.rsplit_once('-')?;
            ordinal.parse::<u32>().is_ok().then(|| ordinal.into())
        }
    }
}

fn column(fact: &VolumeFact, volume: &Value) -> Option<Text> {
    let (meta, spec) = (&volume["metadata"], &volume["spec"]);
    match fact {
        VolumeFact::Label(key) => text(&meta["labels"][&**key]),
        VolumeFact::Annotation(key) => text(&meta["annotations"][&**key]),
        VolumeFact::Topology(key) => topology(key, &spec["nodeAffinity"]["required"]["nodeSelectorTerms"]),
        VolumeFact::ClassName => Some(spec["storageClassName"].as_str().unwrap_or_default().into()),
        VolumeFact::Source => {
            let is_source = |name: &&String| {
                name.as_str() != "capacity" && name.as_str() != "nodeAffinity" && name.as_str() != "claimRef"
            };
            let fields = spec.as_object()?.iter();
            let mut objects = fields.filter(|(_, value)| value.is_object()).map(|(name, _)| name);
            objects.find(is_source).map(|name| name.as_str().into())
        }
        VolumeFact::Driver => text(&spec["csi"]["driver"]),
        VolumeFact::ReclaimPolicy => {
            Some(spec["persistentVolumeReclaimPolicy"].as_str().unwrap_or("Retain").into())
        }
    }
}

/// The only value that every term requires of a node label.
fn topology(key: &str, terms: &Value) -> Option<Text> {
    let value = |term: &Value| {
        let of_key = |needed: &&Value| needed["key"] == key && needed["operator"] == "In";
        let needed = term["matchExpressions"].as_array()?.iter().find(of_key)?;
        match needed["values"].as_array()?.as_slice() {
            [value] => text(value),
            _ => None,
        }
    };
    let mut values = terms.as_array()?.iter().map(value);
    let first = values.next()??;
    values.all(|value| value.as_ref() == Some(&first)).then_some(first)
}

fn text(value: &Value) -> Option<Text> {
    value.as_str().map(Text::from)
}
