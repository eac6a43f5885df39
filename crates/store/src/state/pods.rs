//! Pods, by the claims that they reference.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;

use bindery_core::{ClaimKey, Pod, Text};

use super::State;
use crate::change::{Change, Topic};
use crate::observed::PodRecord;

/// The pods that reference claims. Others are not kept.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    /// By namespace and name of the pod.
    records: HashMap<(Text, Text), PodRecord>,
    by_claim: HashMap<ClaimKey, BTreeMap<Text, Pod>>,
}

impl Pods {
    /// Puts a pod in the place of the one of that name, or takes that one out. Answers the claims whose pods
    /// changed.
    fn replace(&mut self, place: (Text, Text), pod: Option<PodRecord>) -> BTreeSet<ClaimKey> {
        let namespace = place.0.clone();
        let pod = pod.filter(|pod| !pod.claims.is_empty());
        let before = match &pod {
            Some(pod) => self.records.insert(place, pod.clone()),
            None => self.records.remove(&place),
        };
        if before == pod {
            return BTreeSet::new();
        }
        let mut claims = BTreeSet::new();
        for claim in before.iter().flat_map(|pod| &pod.claims) {
            let key = ClaimKey { namespace: namespace.clone(), name: claim.clone() };
            self.detach(&key, &before);
            claims.insert(key);
        }
        if let Some(pod) = &pod {
            for claim in &pod.claims {
                let key = ClaimKey { namespace: namespace.clone(), name: claim.clone() };
                let (scheduled, terminated) = (pod.scheduled, pod.terminated);
                let entry = Pod { name: pod.name.clone(), scheduled, terminated };
                self.by_claim.entry(key.clone()).or_default().insert(pod.name.clone(), entry);
                claims.insert(key);
            }
        }
        claims
    }

    fn detach(&mut self, claim: &ClaimKey, pod: &Option<PodRecord>) {
        if let (Some(pods), Some(pod)) = (self.by_claim.get_mut(claim), pod) {
            pods.remove(&pod.name);
            if pods.is_empty() {
                self.by_claim.remove(claim);
            }
        }
    }
}

impl State {
    pub(crate) fn apply_pod(&mut self, pod: PodRecord) -> Change {
        let claims = self.pods.replace((pod.namespace.clone(), pod.name.clone()), Some(pod));
        self.changed(claims.into_iter().map(Topic::Pods).collect())
    }

    pub(crate) fn remove_pod(&mut self, key: &ClaimKey) -> Change {
        let claims = self.pods.replace((key.namespace.clone(), key.name.clone()), None);
        self.changed(claims.into_iter().map(Topic::Pods).collect())
    }

    pub(crate) fn replace_pods(&mut self, list: Vec<PodRecord>) -> Change {
        let before = mem::take(&mut self.pods);
        for pod in list {
            self.pods.replace((pod.namespace.clone(), pod.name.clone()), Some(pod));
        }
        let keys: BTreeSet<&ClaimKey> = before.by_claim.keys().chain(self.pods.by_claim.keys()).collect();
        let topics = keys
            .into_iter()
            .filter(|key| before.by_claim.get(*key) != self.pods.by_claim.get(*key))
            .map(|key| Topic::Pods(key.clone()))
            .collect();
        self.changed(topics)
    }

    pub(crate) fn pods_using(&self, claim: &ClaimKey) -> Vec<Pod> {
        self.pods.by_claim.get(claim).map(|pods| pods.values().cloned().collect()).unwrap_or_default()
    }
}
