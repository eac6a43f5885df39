//! One state for all that differ in names only.

use super::{Cluster, State, Work};
use crate::objects::Id;
use crate::versions::Versions;

impl Cluster {
    /// The state with its versions numbered anew, from 1 for each object, and its replicas in order. The real
    /// code compares versions and does not look into them.
    pub(super) fn canonical(&mut self, mut state: State) -> State {
        let mut versions = Versions::default();
        state.now.iter().enumerate().for_each(|(at, seen)| versions.note(Id(at as u8), *seen));
        state.unseen.iter().flatten().for_each(|(id, seen)| versions.note(*id, *seen));
        for replica in &state.replicas {
            match replica.work {
                Work::Idle(view) => self.turns.note_versions(view, &mut versions),
                Work::Asks(turn) | Work::Answered(turn, _) => {
                    self.turns.note_versions_of(turn, &mut versions)
                }
            }
        }
        if let Some(turn) = state.late {
            self.turns.note_versions_of(turn, &mut versions);
        }
        if versions.are_canonical() {
            return state.sorted();
        }
        for at in 0..state.now.len() {
            state.now[at] = versions.renumbered(Id(at as u8), state.now[at]);
        }
        state.unseen.iter_mut().flatten().for_each(|(id, seen)| *seen = versions.renumbered(*id, *seen));
        for replica in &mut state.replicas {
            replica.work = match replica.work {
                Work::Idle(view) => Work::Idle(self.turns.renumber(view, &versions)),
                Work::Asks(turn) => Work::Asks(self.turns.renumber_turn(turn, &versions)),
                Work::Answered(turn, answer) => Work::Answered(
                    self.turns.renumber_turn(turn, &versions),
                    self.turns.renumber_answer(answer, &versions),
                ),
            };
        }
        state.late = state.late.map(|turn| self.turns.renumber_turn(turn, &versions));
        state.sorted()
    }
}

impl State {
    /// The replica with the lower numbers first.
    fn sorted(mut self) -> Self {
        self.replicas.sort_unstable();
        self
    }
}
