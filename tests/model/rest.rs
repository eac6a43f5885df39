//! Whether a cluster comes to rest, and how.
//!
//! From each state, both replicas might crash now and one take over that nothing disturbs. It has to come to
//! rest, and then nothing may be wrong, apart from what a user broke. Where it comes to rest depends on the
//! objects alone, so this is found out once for each combination of their contents.

use bindery_invariants::Violation;
use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, State};
use crate::law;
use crate::objects::{Content, Each, Id, Seen};
use crate::replay::Request;
use crate::server;
use crate::turns::{Answer, Event, Stage};
use crate::user;

/// More rounds than any cluster needs until it rests.
const ROUNDS_MAX: usize = 40;

/// The ends that were found.
#[derive(Default)]
pub(crate) struct Rest {
    known: FxHashMap<Each<Content>, Result<Vec<Violation>, String>>,
}

impl Rest {
    /// # Errors
    ///
    /// Writes do not end, or something is wrong at rest that no user broke.
    pub(crate) fn check(&mut self, cluster: &mut Cluster, state: &State) -> Result<(), String> {
        let contents = state.now.map(|seen| seen.content);
        let end = self.known.entry(contents).or_insert_with(|| settle(cluster, state.now));
        let excused = cluster.broken_by_user(state);
        match end {
            Err(why) => Err(why.clone()),
            Ok(violations) => match violations.iter().find(|found| !excused.contains(&found.rule)) {
                Some(violation) => Err(format!("at rest: {violation}")),
                None => Ok(()),
            },
        }
    }
}

/// Lets one replica work alone until nothing changes.
fn settle(cluster: &mut Cluster, mut now: Each<Seen>) -> Result<Vec<Violation>, String> {
    let mut view = cluster.turns.current(&now);
    let mut story = String::new();
    for _ in 0..ROUNDS_MAX {
        let before = now;
        for id in Id::all() {
            let mut changes = Vec::new();
            if let Some(after) = user::release(&cluster.turns.contents, now[id.index()]) {
                let content = cluster.turns.contents.number(&after);
                now[id.index()] = now[id.index()].next(content);
                changes.push((id, now[id.index()]));
            }
            let mut stage = cluster.turns.begin(view, id, 0).unwrap_or(Stage::Ended(view));
            while let Stage::Asks(turn) = stage {
                let request = cluster.turns.request(turn).clone();
                story += &format!("{request:?}\n");
                let answer = match &*request {
                    Request::Read(id) => Answer::Read(*id, now[id.index()]),
                    Request::Destroy(_) => Answer::Destroyed,
                    Request::Write(write) => {
                        let effect = server::write(&mut cluster.turns.contents, &now, write);
                        if let Some((id, seen)) = effect.change {
                            now[id.index()] = seen;
                            changes.push((id, seen));
                            story += &format!("{}\n", cluster.turns.contents.describe(id, seen));
                        }
                        effect.answer
                    }
                };
                stage = cluster.turns.proceed(turn, Event::Answered(answer));
            }
            let Stage::Ended(after) = stage else { unreachable!("a turn without request has ended") };
            view = changes.into_iter().fold(after, |view, (id, seen)| cluster.turns.tell(view, id, seen));
        }
        if now == before {
            let found = law::at_rest(&cluster.turns.contents, &now);
            return Ok(found);
        }
    }
    Err(format!("writes do not end:\n{story}"))
}
