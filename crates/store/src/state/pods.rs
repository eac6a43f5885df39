//! Pods, by the claims that they reference.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bindery_core::{ClaimKey, Pod, Text};

use super::State;
use crate::change::Fact;
use crate::delivery::{ObjectKey, PodContent};

/// The pods that reference claims, and those that may. Others are not kept.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    /// By namespace and name of the pod.
    readable: HashMap<(Text, Text), PodContent>,
    by_claim: HashMap<ClaimKey, BTreeMap<Text, Pod>>,
    /// Why pods cannot be read, by namespace and then by name: each may use every claim of its namespace.
    unreadable: BTreeMap<Text, BTreeMap<Text, Text>>,
}

impl Pods {
    /// Replaces the pod of that name, or removes it. Returns what changed.
    pub(super) fn replace(
        &mut self,
        place: (Text, Text),
        content: Option<Result<PodContent, Text>>,
    ) -> Vec<Fact> {
        let (pod, why) = match content {
            Some(Ok(pod)) => (Some(pod), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let namespace = place.0.clone();
        let complains = self.complain(&namespace, &place.1, why);
        let claims = self.replace_readable(place, pod);
        let facts = claims.into_iter().map(Fact::Pods);
        facts.chain(complains.then_some(Fact::UnreadablePods(namespace))).collect()
    }

    /// The keys of the pods that are kept.
    pub(super) fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        let unreadable = self
            .unreadable
            .iter()
            .flat_map(|(namespace, pods)| pods.keys().map(move |name| (namespace, name)));
        let readable = self.readable.keys().map(|(namespace, name)| (namespace, name));
        readable
            .chain(unreadable)
            .map(|(namespace, name)| ObjectKey::Pod { namespace: namespace.clone(), name: name.clone() })
    }

    /// Returns the claims whose pods changed.
    fn replace_readable(&mut self, place: (Text, Text), pod: Option<PodContent>) -> BTreeSet<ClaimKey> {
        let (namespace, name) = place.clone();
        let pod = pod.filter(|pod| !pod.claims.is_empty());
        let before = match &pod {
            Some(pod) => self.readable.insert(place, pod.clone()),
            None => self.readable.remove(&place),
        };
        if before == pod {
            return BTreeSet::new();
        }
        let mut claims = BTreeSet::new();
        for claim in before.iter().flat_map(|pod| &pod.claims) {
            let key = ClaimKey { namespace: namespace.clone(), name: claim.clone() };
            self.detach(&key, &name);
            claims.insert(key);
        }
        if let Some(pod) = &pod {
            for claim in &pod.claims {
                let key = ClaimKey { namespace: namespace.clone(), name: claim.clone() };
                let (scheduled, terminated) = (pod.scheduled, pod.terminated);
                let entry = Pod { name: name.clone(), scheduled, terminated };
                self.by_claim.entry(key.clone()).or_default().insert(name.clone(), entry);
                claims.insert(key);
            }
        }
        claims
    }

    /// Records why a pod cannot be read, or that it can. Returns whether this changed the complaint of its
    /// namespace.
    fn complain(&mut self, namespace: &Text, name: &Text, why: Option<Text>) -> bool {
        let before = self.complaint(namespace);
        if let Some(why) = why {
            self.unreadable.entry(namespace.clone()).or_default().insert(name.clone(), why);
        } else if let Some(pods) = self.unreadable.get_mut(namespace) {
            pods.remove(name);
            if pods.is_empty() {
                self.unreadable.remove(namespace);
            }
        }
        self.complaint(namespace) != before
    }

    /// Why the pods that use a claim of the namespace are not known: the first pod that cannot be read.
    fn complaint(&self, namespace: &Text) -> Option<Text> {
        let (name, why) = self.unreadable.get(namespace)?.first_key_value()?;
        Some(format!("pod \"{namespace}/{name}\" cannot be read, and may use the claim: {why}").into())
    }

    fn detach(&mut self, claim: &ClaimKey, pod: &Text) {
        if let Some(pods) = self.by_claim.get_mut(claim) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_claim.remove(claim);
            }
        }
    }
}

impl State {
    /// The claims of all pods that use a claim and have no node yet, itself among them. A pod that cannot be
    /// read counts as a user of the claim.
    pub(crate) fn claims_of_waiting_pods(&self, claim: &ClaimKey) -> BTreeSet<ClaimKey> {
        let pods = self.pods.by_claim.get(claim).into_iter().flat_map(BTreeMap::values);
        let waiting = pods.filter(|pod| !pod.scheduled && !pod.terminated);
        let contents = waiting.filter_map(|pod| {
            let place = (claim.namespace.clone(), pod.name.clone());
            self.pods.readable.get(&place)
        });
        let names = contents.flat_map(|pod| &pod.claims);
        let key = |name: &Text| ClaimKey { namespace: claim.namespace.clone(), name: name.clone() };
        let mut claims: BTreeSet<ClaimKey> = names.map(key).collect();
        if self.pods.complaint(&claim.namespace).is_some() {
            claims.insert(claim.clone());
        }
        claims
    }

    /// The pods that reference the claim, by name.
    ///
    /// # Errors
    ///
    /// A pod of the claim's namespace cannot be read, so it may reference the claim; says which.
    pub(crate) fn pods_using(&self, claim: &ClaimKey) -> Result<Vec<Pod>, Text> {
        if let Some(complaint) = self.pods.complaint(&claim.namespace) {
            return Err(complaint);
        }
        Ok(self.pods.by_claim.get(claim).map(|pods| pods.values().cloned().collect()).unwrap_or_default())
    }
}
