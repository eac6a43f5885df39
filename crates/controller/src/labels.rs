//! Which volumes get the labels of claims whose class waits for a pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bindery_core::Text;
use bindery_policy::Scored;

/// Most volumes with the label of one claim.
const LABELS_MAX: usize = 32;

/// A volume that a claim may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) volume: Text,
    /// Volumes with equal ones can be reached from the same nodes.
    pub(crate) topology: Option<u64>,
    pub(crate) score: u32,
}

impl Candidate {
    pub(crate) fn of((volume, score): &Scored) -> Self {
        Self { volume: volume.name.clone(), topology: volume.topology, score: *score }
    }
}

/// The volumes of each claim of a pod that get its label, from its candidates in upstream's order.
///
/// The scheduler takes the smallest labelled volume that a node can reach, for one claim after the other. So
/// in each topology every claim has one volume that no other claim of the pod is offered, if there are so
/// many, and all others of its highest score: whatever the scheduler takes first, something is left for the
/// rest. Scores choose within a topology, never the topology. Where there are more topologies than a claim
/// gets labels, those that serve most of the pod's claims come first.
pub(crate) fn labels(claims: &[Vec<Candidate>]) -> Vec<BTreeSet<Text>> {
    let mut topologies: BTreeMap<Option<u64>, Topology<'_>> = BTreeMap::new();
    for (claim, candidates) in claims.iter().enumerate() {
        for candidate in candidates {
            let topology = topologies.entry(candidate.topology);
            topology.or_insert_with(|| Topology::of(claims.len())).candidates[claim].push(candidate);
        }
    }
    let mut topologies: Vec<Topology<'_>> = topologies.into_values().collect();
    topologies.iter_mut().for_each(Topology::give);
    topologies.sort_by_key(|topology| Reverse(topology.owners.len()));
    (0..claims.len()).map(|claim| first_of_each(&topologies, claim)).collect()
}

/// The volumes that can be reached from the same nodes.
struct Topology<'a> {
    /// The candidates of each claim, highest score first.
    candidates: Vec<Vec<&'a Candidate>>,
    /// The claim that has a volume for itself.
    owners: BTreeMap<&'a Text, usize>,
}

impl<'a> Topology<'a> {
    fn of(claims: usize) -> Self {
        Self { candidates: vec![Vec::new(); claims], owners: BTreeMap::new() }
    }

    /// Gives as many claims as possible a volume for themselves.
    fn give(&mut self) {
        for claim in 0..self.candidates.len() {
            // Stable: upstream's order within a score.
            self.candidates[claim].sort_by_key(|candidate| Reverse(candidate.score));
            self.give_to(claim, &mut BTreeSet::new());
        }
    }

    /// Finds a volume for one more claim; where none of a score is left, others may get another one for it
    /// (Kuhn's algorithm).
    fn give_to(&mut self, claim: usize, seen: &mut BTreeSet<&'a Text>) -> bool {
        let candidates = self.candidates[claim].clone();
        for of_score in candidates.chunk_by(|a, b| a.score == b.score) {
            let (owned, free): (Vec<_>, Vec<_>) =
                of_score.iter().map(|it| &it.volume).partition(|volume| self.owners.contains_key(*volume));
            let found = free.first().copied().or_else(|| {
                let mut owned = owned.into_iter();
                owned.find(|volume| seen.insert(volume) && self.give_to(self.owners[*volume], seen))
            });
            if let Some(volume) = found {
                self.owners.insert(volume, claim);
                return true;
            }
        }
        false
    }

    /// The volumes that a claim is offered, its own first.
    fn offered(&self, claim: usize) -> impl Iterator<Item = &'a Text> {
        let candidates = &self.candidates[claim];
        let best = candidates.first().map(|candidate| candidate.score);
        let owner = |candidate: &&Candidate| self.owners.get(&candidate.volume).copied();
        let own = candidates.iter().copied().filter(move |candidate| owner(candidate) == Some(claim));
        let is_shared =
            move |candidate: &&Candidate| Some(candidate.score) == best && owner(candidate).is_none();
        own.chain(candidates.iter().copied().filter(is_shared)).map(|candidate| &candidate.volume)
    }
}

/// The first volumes of each topology, then the second ones, and so on, up to [`LABELS_MAX`].
fn first_of_each(topologies: &[Topology<'_>], claim: usize) -> BTreeSet<Text> {
    let mut offered: Vec<_> = topologies.iter().map(|topology| topology.offered(claim)).collect();
    let mut labelled = BTreeSet::new();
    while labelled.len() < LABELS_MAX {
        let round: Vec<&Text> = offered.iter_mut().filter_map(Iterator::next).collect();
        if round.is_empty() {
            break;
        }
        labelled.extend(round.into_iter().take(LABELS_MAX - labelled.len()).cloned());
    }
    labelled
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates of claims: volume, topology and score of each.
    fn claims(claims: &[&[(&str, u64, u32)]]) -> Vec<Vec<Candidate>> {
        let candidate = |(volume, topology, score): &(&str, u64, u32)| Candidate {
            volume: (*volume).into(),
            topology: Some(*topology),
            score: *score,
        };
        claims.iter().map(|candidates| candidates.iter().map(candidate).collect()).collect()
    }

    fn labelled(given: &[&[(&str, u64, u32)]]) -> Vec<Vec<String>> {
        let names = |names: BTreeSet<Text>| names.iter().map(ToString::to_string).collect();
        labels(&claims(given)).into_iter().map(names).collect()
    }

    #[test]
    fn the_highest_score_of_each_topology_gets_the_label() {
        let one: &[_] = &[("a", 1, 5), ("b", 1, 9), ("c", 1, 9), ("d", 2, 1), ("e", 2, 0)];
        assert_eq!(labelled(&[one]), [["b", "c", "d"]]);
    }

    #[test]
    fn claims_of_a_pod_never_contend_for_the_last_volume_of_a_topology() {
        // Both prefer a, and the second one has nothing else.
        assert_eq!(labelled(&[&[("a", 1, 9), ("b", 1, 1)], &[("a", 1, 9)]]), [["b"], ["a"]]);
        // Both may have c.
        let three: &[_] = &[("a", 1, 0), ("b", 1, 0), ("c", 1, 0)];
        assert_eq!(labelled(&[three, three]), [["a", "c"], ["b", "c"]]);
    }

    #[test]
    fn a_claim_gets_labels_in_as_many_topologies_as_there_are_labels() {
        let names: Vec<String> = (0..100).map(|number| format!("v{number:02}")).collect();
        let one: Vec<_> = names.iter().zip(0..).map(|(name, number)| (&**name, number / 2, 0)).collect();
        let given = &labelled(&[&one])[0];
        assert_eq!(given.len(), LABELS_MAX);
        assert!(given.iter().all(|name| name[1..].parse::<u64>().is_ok_and(|number| number % 2 == 0)));
        // Where both claims of a pod can be served comes first.
        let last = labelled(&[&one, &[("w", 49, 0)]]);
        assert!(last[0].contains(&"v98".to_owned()), "{last:?}");
    }
}
