//! Steps in words, for the way to a broken law.

use super::{Cluster, State, Step, Work};
use crate::replay::Request;
use crate::turns::Turn;

impl Cluster {
    /// What a step is, in words; before it is taken.
    pub(crate) fn describe(&self, state: &State, step: Step) -> String {
        let request = |replica: usize| match state.replicas[replica].work {
            Work::Asks(turn) | Work::Answered(turn, _) => self.request(turn),
            Work::Idle(_) => String::new(),
        };
        let contents = &self.turns.contents;
        match step {
            Step::Begin(replica, id, _) => format!("replica {replica} decides {id}"),
            Step::Arrive(replica) => format!("replica {replica} {}", request(replica)),
            Step::Return(replica) => format!("replica {replica} gets the answer"),
            Step::LoseAnswer(replica) => {
                format!("replica {replica} {}, the answer is lost", request(replica))
            }
            Step::Delay(replica) => format!("replica {replica} {}, and that is late", request(replica)),
            Step::ArriveLate => match state.late {
                Some(turn) => format!("late: {}", self.request(turn)),
                None => String::new(),
            },
            Step::Deliver(replica, kind) => {
                let unseen = &state.unseen[kind];
                let at = unseen.len() - usize::from(state.replicas[replica].behind[kind]);
                format!("replica {replica} sees {}", contents.describe(unseen[at].0, unseen[at].1))
            }
            Step::Crash(replica) => format!("replica {replica} crashes"),
            Step::CrashWriting(replica) => {
                format!("replica {replica} crashes, and late is: {}", request(replica))
            }
            Step::Delete(id) => format!("a user deletes {id}"),
            Step::Release(id) => format!("the protection of {id} ends"),
            Step::Create(id) => format!("a user makes {id} again"),
            Step::Edit(at) => format!("a user: {:?}", self.world.edits[at]),
        }
    }

    fn request(&self, turn: Turn) -> String {
        match &**self.turns.request(turn) {
            Request::Read(id) => format!("reads {id} live"),
            Request::Destroy(id) => format!("destroys the data of {id}"),
            Request::Write(write) => format!("writes {:?}", write.action),
        }
    }
}
