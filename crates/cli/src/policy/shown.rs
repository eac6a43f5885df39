//! The objects of a case, as Bindery reads them from a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use bindery_core::{ClaimRef, Class, Counted, Declared, Lookup, Spread, Text, Volume};
use bindery_kube::decode;
use bindery_policy::{
    ClaimView, Metadata, NamespaceLabels, RelatedObjects, Released, claim_facts, claim_view, shown,
};
use bindery_store::{Delivery, Observed, Store};
use serde_json::Value;

use super::cases::{Case, Pair};
use crate::objects::Title;

/// What a policy is shown of a case.
pub(crate) struct Shown {
    pub(crate) claim: ClaimView,
    pub(crate) volumes: Vec<Arc<Volume>>,
    /// The volumes of the claim's siblings, where the policy spreads.
    pub(crate) counted: Option<Counted>,
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
        names_agree(case)?;
        let claim = readable(&case.claim, decode::claim(&case.claim, &declared))?;
        let class = class(case, &declared)?;
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
        let store = siblings(&case.siblings, &declared)?;
        let siblings = |spread: &Spread| store.siblings(&claim, spread);
        let counted = metadata.spread.as_ref().map(&siblings);
        let related = RelatedObjects { namespace: namespace(case), class, siblings: &siblings };
        Ok(Self { claim: claim_view(metadata, &claim, &related), volumes, counted })
    }
}

/// Checks that the objects of a case, as far as they have names, can be those of one claim.
fn names_agree(case: &Case) -> Result<()> {
    let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
    let claim = &case.claim;
    if let (Some(of), Some(namespace)) = (claim["metadata"]["namespace"].as_str(), name(&case.namespace))
        && of != namespace
    {
        bail!("the claim is in namespace {of}, and the namespace is {namespace}; give both the same name");
    }
    if let (Some(of), Some(class)) = (claim["spec"]["storageClassName"].as_str(), name(&case.class))
        && of != class
    {
        bail!("the claim asks for class {of}, and the class is {class}; give both the same name");
    }
    let mut names = BTreeSet::new();
    match case.volumes.iter().filter_map(name).find(|name| !names.insert(name.clone())) {
        Some(twice) => bail!("there are two volumes of name {twice}; rename one"),
        None => Ok(()),
    }
}

/// A store with other claims and their volumes, which counts as that of a cluster does.
fn siblings(pairs: &[Pair], declared: &Declared) -> Result<Store> {
    let store = Store::new();
    store.keep_spreads(&declared.spreads);
    for Pair { claim, volume } in pairs {
        let claim = readable(claim, decode::claim(claim, declared))?;
        let (namespace, name) = (claim.key.namespace.clone(), claim.key.name.clone());
        let owner = ClaimRef { namespace, name, uid: None };
        let volume = readable(volume, decode::volume(volume, declared))?;
        store.deliver(Delivery::applied(claim));
        store.deliver(Delivery::applied(Volume { claim_ref: Some(owner), ..Volume::clone(&volume) }));
    }
    Ok(store)
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
            let class = class(case, &declared)?;
            Some(claim_facts(metadata, &claim, &namespace(case), &class))
        }
    };
    Ok(Released { claim, ..shown(metadata, &volume, None) })
}

fn declared(metadata: &Metadata) -> Declared {
    let mut declared = Declared::default();
    metadata.declare(&mut declared);
    declared
}

fn class(case: &Case, declared: &Declared) -> Result<Lookup<Arc<Class>>> {
    Ok(match &case.class {
        Value::Null => Lookup::Absent,
        class => Lookup::Found(readable(class, decode::class(class, declared))?),
    })
}

fn namespace(case: &Case) -> NamespaceLabels {
    Lookup::Found(Arc::new(labels(&case.namespace)))
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
