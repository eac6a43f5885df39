//! What the watches deliver.

use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Class, Text, Version, Volume};

use super::Store;
use crate::change::Change;
use crate::observed::{Kind, Observed, PodRecord};

impl Store {
    /// A volume was added or changed, as the watch or a resync says.
    pub fn apply_volume(&self, name: Text, mut observed: Observed<Volume>) -> Change {
        self.compact_volume(&mut observed);
        self.state_mut().apply_volume(name, observed)
    }

    /// A volume is gone. Answers the object that was there, as the overlay had it.
    pub fn remove_volume(&self, name: &str) -> (Change, Option<Arc<Volume>>) {
        self.state_mut().remove_volume(name)
    }

    /// All volumes, as a complete list says (needed after a 410): what is not in it is gone, and is answered.
    ///
    /// A list is believed even where it is older than what is known: after a restore of etcd versions start
    /// again below those that were seen. It is believed over own writes too, unless they were answered after
    /// [`Store::list_begins`] of this list: those it may not show yet.
    pub fn replace_volumes(&self, mut list: Vec<(Text, Observed<Volume>)>) -> (Change, Vec<Arc<Volume>>) {
        list.iter_mut().for_each(|(_, observed)| self.compact_volume(observed));
        self.state_mut().replace_volumes(list)
    }

    /// The known and the listed version of a volume that a consistent list has in an older state than the
    /// watch has told: etcd was restored, even if the list's own version is higher than all that are known.
    /// To be asked before [`Store::replace_volumes`].
    pub fn regressed_volume(&self, list: &[(Text, Observed<Volume>)]) -> Option<(Version, Version)> {
        let state = self.state();
        list.iter().find_map(|(name, listed)| state.volumes.find(name)?.cached.regression(listed))
    }

    /// The same of a claim.
    pub fn regressed_claim(&self, list: &[(ClaimKey, Observed<Claim>)]) -> Option<(Version, Version)> {
        let state = self.state();
        list.iter().find_map(|(key, listed)| state.claim_regression(key, listed))
    }

    /// A claim was added or changed.
    pub fn apply_claim(&self, key: ClaimKey, mut observed: Observed<Claim>) -> Change {
        self.compact_claim(&mut observed);
        self.state_mut().apply_claim(key, observed)
    }

    /// A claim is gone. Answers the object that was there, as the overlay had it.
    pub fn remove_claim(&self, key: &ClaimKey) -> (Change, Option<Arc<Claim>>) {
        self.state_mut().remove_claim(key)
    }

    /// All claims; see [`Store::replace_volumes`].
    pub fn replace_claims(&self, mut list: Vec<(ClaimKey, Observed<Claim>)>) -> (Change, Vec<Arc<Claim>>) {
        list.iter_mut().for_each(|(_, observed)| self.compact_claim(observed));
        self.state_mut().replace_claims(list)
    }

    /// A class was added or changed. Classes carry no version here: the newest delivery wins.
    pub fn apply_class(&self, name: Text, observed: Observed<Class>) -> Change {
        self.state_mut().change_classes(|classes| {
            classes.insert(name, observed);
        })
    }

    /// A class is gone.
    pub fn remove_class(&self, name: &str) -> Change {
        self.state_mut().change_classes(|classes| {
            classes.remove(name);
        })
    }

    /// All classes.
    pub fn replace_classes(&self, list: Vec<(Text, Observed<Class>)>) -> Change {
        self.state_mut().change_classes(|classes| *classes = list.into_iter().collect())
    }

    /// A pod was added or changed. The newest delivery wins.
    pub fn apply_pod(&self, pod: PodRecord) -> Change {
        self.state_mut().apply_pod(pod)
    }

    /// A pod is gone.
    pub fn remove_pod(&self, namespace: &str, name: &str) -> Change {
        self.state_mut().remove_pod(namespace.into(), name.into())
    }

    /// All pods.
    pub fn replace_pods(&self, list: Vec<PodRecord>) -> Change {
        self.state_mut().replace_pods(list)
    }

    /// A node is known.
    pub fn apply_node(&self, name: Text) -> Change {
        self.state_mut().apply_node(name)
    }

    /// A node is gone.
    pub fn remove_node(&self, name: &str) -> Change {
        self.state_mut().remove_node(name)
    }

    /// All nodes.
    pub fn replace_nodes(&self, list: Vec<Text>) -> Change {
        self.state_mut().replace_nodes(list)
    }

    /// A consistent list of the kind is about to be requested, to be handed over when it is complete. One
    /// list of a kind is under way at a time; a list that was given up is forgotten when the next one begins.
    pub fn list_begins(&self, kind: Kind) {
        self.state_mut().list_begins(kind);
    }

    /// How many lists of the kind have begun. What was known at one number, and is not in the list that a
    /// higher number began, is so no more.
    pub fn lists_begun(&self, kind: Kind) -> u64 {
        self.state().lists_begun(kind)
    }

    /// The initial list of a kind is complete.
    pub fn mark_synced(&self, kind: Kind) {
        self.state_mut().mark_synced(kind);
    }

    /// What is known is not to be decided on: each kind counts as synced again when its next list is
    /// complete.
    pub fn mark_unsynced(&self) {
        self.state_mut().mark_unsynced();
    }

    /// Shares texts while the object is still nobody else's.
    fn compact_volume(&self, observed: &mut Observed<Volume>) {
        if let Observed::Readable(volume) = observed {
            self.share_volume(volume);
        }
    }

    fn compact_claim(&self, observed: &mut Observed<Claim>) {
        if let Observed::Readable(claim) = observed {
            self.share_claim(claim);
        }
    }
}
