//! The objects of a case, as Bindery reads them from a cluster.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use bindery_core::{Declared, Lookup, Text, Volume};
use bindery_kube::decode;
use bindery_policy::{ClaimView, Metadata, Released, Surroundings, claim_view, shown};
use bindery_store::Observed;
use serde_json::Value;

use super::cases::Case;
use crate::objects::Title;

/// What a policy is shown of a case.
pub(crate) struct Shown {
    pub(crate) claim: ClaimView,
    pub(crate) volumes: Vec<Arc<Volume>>,
}

impl Shown {
    /// Reads the manifests of a case. An error names the object and the field.
    pub(crate) fn new(metadata: &Metadata, case: &Case) -> Result<Self> {
        let declared = declared(metadata);
        if case.claim.is_null() {
            bail!("the case has no claim");
        }
        for (object, amount) in case.amounts() {
            if amount.is_null() {
                bail!("{} has no amount of storage", Title(object));
            }
        }
        let claim = readable(&case.claim, decode::claim(&case.claim, &declared))?;
        let around = around(case, &declared)?;
        let volumes: Vec<_> = case
            .volumes
            .iter()
            .map(|volume| readable(volume, decode::volume(volume, &declared)))
            .collect::<Result<_>>()?;
        let is_small = |volume: &Arc<Volume>| volume.capacity.unwrap_or_default() < claim.request;
        if let Some(at) = volumes.iter().position(is_small) {
            let small = Title(&case.volumes[at]);
            bail!("{small} is smaller than the claim requests, so no policy is asked about it");
        }
        Ok(Self { claim: claim_view(metadata, &claim, &around), volumes })
    }
}

/// What a reclaimer is shown of a case.
pub(crate) fn released(metadata: &Metadata, case: &Case) -> Result<Released> {
    let declared = declared(metadata);
    if case.volume.is_null() || !case.volumes.is_empty() {
        bail!("a case of a reclaimer has one `volume`, and no `volumes`");
    }
    let volume = readable(&case.volume, decode::volume(&case.volume, &declared))?;
    let claim = match &case.claim {
        Value::Null => None,
        claim => {
            let claim = readable(claim, decode::claim(claim, &declared))?;
            Some(claim_view(metadata, &claim, &around(case, &declared)?).facts)
        }
    };
    Ok(Released { claim, ..shown(metadata, &volume, None) })
}

fn declared(metadata: &Metadata) -> Declared {
    Declared {
        claims: metadata.claim_facts.iter().cloned().collect(),
        volumes: metadata.columns.iter().cloned().collect(),
        ..Declared::default()
    }
}

fn around(case: &Case, declared: &Declared) -> Result<Surroundings> {
    let class = match &case.class {
        Value::Null => Lookup::Absent,
        class => Lookup::Found(readable(class, decode::class(class, declared))?),
    };
    Ok(Surroundings { namespace: Lookup::Found(Arc::new(labels(&case.namespace))), class })
}

fn readable<N, T>(object: &Value, decoded: Result<(N, Observed<T>), impl Display>) -> Result<Arc<T>> {
    match decoded {
        Ok((_, Observed::Readable(object))) => Ok(object),
        Ok((_, Observed::Unreadable(unreadable))) => bail!("{}: {}", Title(object), unreadable.why),
        Err(error) => Err(anyhow!("{}: {error}", Title(object))),
    }
}

fn labels(namespace: &Value) -> BTreeMap<Text, Text> {
    let labels = namespace["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}
