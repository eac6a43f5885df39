//! Which volumes get the labels of claims whose class waits for a pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use bindery_core::{Claim, Quantity, Text};
use bindery_policy::Scored;

/// Most volumes with the label of one claim.
const LABELS_MAX: usize = 32;

/// The volumes that a claim may get.
pub(crate) struct ClaimCandidates {
    /// In upstream's order.
    volumes: Vec<Candidate>,
    ranks: Ranks,
}

impl ClaimCandidates {
    pub(crate) fn of(claim: &Claim, allowed: &[Scored]) -> Self {
        let is_choice = allowed.len() > LABELS_MAX;
        let ranks = Ranks(is_choice.then(|| hash(0x811c_9dc5, claim.uid.0.as_bytes())));
        let volumes = allowed.iter().map(|scored| Candidate::of(scored, ranks)).collect();
        Self { volumes, ranks }
    }
}

/// How a claim ranks volumes, and topologies, that are equal otherwise: by a hash of its UID and of each of
/// them. Claims of different pods do not know of each other: with one order for all, each of a thousand would
/// label the same volumes. One volume more or fewer changes the rank of no other one (rendezvous hashing).
///
/// It has the hash of the UID; `None` where volumes are no more than labels.
#[derive(Clone, Copy)]
struct Ranks(Option<u32>);

impl Ranks {
    fn of(self, bytes: &[u8]) -> u32 {
        self.0.map_or(0, |uid| mixed(hash(uid, bytes)))
    }

    fn of_topology(self, topology: Option<u64>) -> u32 {
        self.of(&topology.unwrap_or_default().to_le_bytes())
    }
}

/// FNV-1a of bytes that follow those of the hash `before`: a claim keeps its labels when another replica or
/// version decides.
fn hash(before: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(before, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The last step of MurmurHash3. FNV-1a alone ranks names next to each other if only their ends differ.
fn mixed(hash: u32) -> u32 {
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// A volume that a claim may get.
struct Candidate {
    volume: Text,
    /// Volumes with equal ones can be reached from the same nodes.
    topology: Option<u64>,
    score: u32,
    capacity: Option<Quantity>,
    /// Among volumes of equal score and capacity.
    rank: u32,
}

impl Candidate {
    fn of((volume, score): &Scored, ranks: Ranks) -> Self {
        Self {
            volume: volume.name.clone(),
            topology: volume.topology,
            score: *score,
            capacity: volume.capacity,
            rank: ranks.of(volume.name.as_bytes()),
        }
    }
}

/// The volumes of each claim of a pod that get its label, from its candidates.
///
/// The scheduler takes the smallest labelled volume that a node can reach, for one claim after the other. So
/// in each topology every claim has one volume that no other claim of the pod is offered, if there are so
/// many, and all others of its highest score: whatever the scheduler takes first, something is left for the
/// rest. Scores choose within a topology, never the topology. Where there are more topologies than a claim
/// gets labels, those that serve most of the pod's claims come first. Where volumes are more than labels,
/// each claim has an order of its own among those that are equal.
pub(crate) fn labels(claims: &[ClaimCandidates]) -> Vec<BTreeSet<Text>> {
    let (topologies, labelled) = (topologies(claims), claims.iter().enumerate());
    labelled.map(|(claim, candidates)| first_of_each(&topologies, claim, candidates.ranks)).collect()
}

/// Whether one topology has a volume for each claim that no other claim is offered.
pub(crate) fn are_enough(claims: &[ClaimCandidates]) -> bool {
    topologies(claims).iter().any(|topology| topology.owners.len() == claims.len())
}

/// The topologies of all candidates.
fn topologies(claims: &[ClaimCandidates]) -> Vec<Topology<'_>> {
    let mut topologies: BTreeMap<Option<u64>, Topology<'_>> = BTreeMap::new();
    for (claim, candidates) in claims.iter().enumerate() {
        for candidate in &candidates.volumes {
            let topology = topologies.entry(candidate.topology);
            let topology = topology.or_insert_with(|| Topology::of(candidate.topology, claims.len()));
            topology.candidates[claim].push(candidate);
        }
    }
    let mut topologies: Vec<Topology<'_>> = topologies.into_values().collect();
    topologies.iter_mut().for_each(Topology::give);
    topologies
}

/// The volumes that can be reached from the same nodes.
struct Topology<'a> {
    topology: Option<u64>,
    /// The candidates of each claim, highest score first.
    candidates: Vec<Vec<&'a Candidate>>,
    /// The claim that has a volume for itself.
    owners: BTreeMap<&'a Text, usize>,
}

impl<'a> Topology<'a> {
    fn of(topology: Option<u64>, claims: usize) -> Self {
        Self { topology, candidates: vec![Vec::new(); claims], owners: BTreeMap::new() }
    }

    /// Gives as many claims as possible a volume for themselves.
    fn give(&mut self) {
        // Where one search found no free volume, no later one does.
        let mut in_vain = BTreeSet::new();
        for claim in 0..self.candidates.len() {
            let candidates = &mut self.candidates[claim];
            // Stable: upstream's order within a score.
            candidates.sort_by_key(|candidate| Reverse(candidate.score));
            for equal in candidates.chunk_by_mut(|a, b| a.score == b.score && a.capacity == b.capacity) {
                equal.sort_by_key(|candidate| candidate.rank);
            }
            let mut seen = in_vain.clone();
            if !self.give_to(claim, &mut seen) {
                in_vain = seen;
            }
        }
    }

    /// Finds a volume for one more claim; where none of a score is left, others may get another one for it
    /// (Kuhn's algorithm).
    fn give_to(&mut self, claim: usize, seen: &mut BTreeSet<&'a Text>) -> bool {
        // Each claim comes once in a search.
        let candidates = mem::take(&mut self.candidates[claim]);
        let found = self.find(&candidates, seen);
        self.candidates[claim] = candidates;
        if let Some(volume) = found {
            self.owners.insert(volume, claim);
        }
        found.is_some()
    }

    /// A volume that is free, or whose claim has got another one.
    fn find(&mut self, candidates: &[&'a Candidate], seen: &mut BTreeSet<&'a Text>) -> Option<&'a Text> {
        for of_score in candidates.chunk_by(|a, b| a.score == b.score) {
            let mut volumes = of_score.iter().map(|candidate| &candidate.volume);
            let free = volumes.clone().find(|volume| !self.owners.contains_key(*volume));
            let found = free.or_else(|| {
                volumes.find(|volume| seen.insert(volume) && self.give_to(self.owners[*volume], seen))
            });
            if found.is_some() {
                return found;
            }
        }
        None
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
fn first_of_each(topologies: &[Topology<'_>], claim: usize, ranks: Ranks) -> BTreeSet<Text> {
    let mut ranked: Vec<&Topology<'_>> = topologies.iter().collect();
    ranked.sort_by_cached_key(|topology| {
        (Reverse(topology.owners.len()), ranks.of_topology(topology.topology))
    });
    let mut offered: Vec<_> = ranked.into_iter().map(|topology| topology.offered(claim)).collect();
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
    use std::sync::Arc;

    use bindery_core::{ClaimKey, Volume};

    use super::*;

    /// Candidates of claims: volume, topology and score of each.
    fn claims(claims: &[&[(&str, u64, u32)]]) -> Vec<ClaimCandidates> {
        let candidate = |(volume, topology, score): &(&str, u64, u32)| Candidate {
            volume: (*volume).into(),
            topology: Some(*topology),
            score: *score,
            capacity: None,
            rank: 0,
        };
        let volumes = |of_claim: &&[(&str, u64, u32)]| of_claim.iter().map(candidate).collect();
        let ranks = Ranks(None);
        claims.iter().map(|of_claim| ClaimCandidates { volumes: volumes(of_claim), ranks }).collect()
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

    /// A thousand equal volumes in so many topologies.
    fn thousand(topologies: u64) -> Vec<Scored> {
        let volume = |number: u64| Volume {
            topology: Some(number % topologies),
            ..bindery_kit::volume(&format!("v{number:03}"))
        };
        (0..1_000).map(|number| (Arc::new(volume(number)), 0)).collect()
    }

    /// The volumes with the label of a claim of that UID.
    fn labelled_for(uid: &str, volumes: &[Scored]) -> BTreeSet<Text> {
        let claim = Claim { uid: uid.into(), ..bindery_kit::claim(ClaimKey::new("ns", "c")) };
        labels(&[ClaimCandidates::of(&claim, volumes)]).remove(0)
    }

    #[test]
    fn equal_claims_of_many_volumes_label_different_ones() {
        for (topologies, first) in [(1, "v694"), (40, "v122"), (1_000, "v906")] {
            let volumes = thousand(topologies);
            let mut counts: BTreeMap<Text, usize> = BTreeMap::new();
            for number in 0..100 {
                let given = labelled_for(&format!("uid-{number}"), &volumes);
                assert_eq!(given.len(), LABELS_MAX);
                given.into_iter().for_each(|volume| *counts.entry(volume).or_default() += 1);
            }
            // 3.2 labels each on average.
            assert!(counts.len() > 900 && counts.values().all(|count| *count < 16), "{counts:?}");
            assert_eq!(labelled_for("uid-a", &volumes), labelled_for("uid-a", &volumes));
            // As by all versions of Bindery.
            assert!(labelled_for("uid-a", &volumes).contains(first));
        }
    }

    #[test]
    fn one_volume_more_or_fewer_changes_one_label_of_a_claim_at_most() {
        for topologies in [1, 7, 40, 1_000] {
            let volumes = thousand(topologies);
            let all = labelled_for("uid-a", &volumes);
            let without = |gone: &Text| {
                let left = volumes.iter().filter(|(volume, _)| volume.name != *gone).cloned();
                labelled_for("uid-a", &left.collect::<Vec<_>>())
            };
            let names = volumes.iter().map(|(volume, _)| &volume.name);
            for outside in names.filter(|name| !all.contains(*name)).step_by(30) {
                assert_eq!(without(outside), all, "without {outside}");
            }
            for inside in &all {
                let left = without(inside);
                let kept = left.intersection(&all).count();
                assert_eq!((left.len(), kept), (LABELS_MAX, LABELS_MAX - 1), "without {inside}");
            }
        }
    }
}
