//! A cluster as a value, and every step that it can take.
//!
//! A step is the smallest thing that others can see: a turn begins and runs to its first request; a request
//! is carried out and the turn runs to its next one; a watch delivers one change; a user edits one object.
//!
//! # What is exact
//!
//! - Engine, guard, store, overlay and executor are the real ones, and so are the requests of a turn.
//! - The API server checks UID and version of each write, and changes one object at a time.
//! - Volumes and claims lag separately, at each replica, by any number of changes.
//!
//! # What is more than can happen
//!
//! - Any object may have a turn at any time, whether or not the queue would give it one. Backoff, wakes and
//!   lists that a replica asks for are left out.
//! - Both replicas decide all the time, as if neither knew that it does not lead.
//!
//! # What is less than can happen
//!
//! - A replica has one turn in flight. Two replicas stand for two turns; reservations and key locks within
//!   one replica have tests of their own (`crates/controller/tests/binder`, `tests/settle`).
//! - A deletion is seen by the replica whose turn asked for it until its cache shows it, or it crashes.
//! - There are no classes, pods and nodes, so nothing is provisioned.
//! - Budgets bound what users do, crashes and lost answers.
//!
//! # What is left out because it changes nothing
//!
//! - Replicas that change places: the lower one comes first.
//! - The numbers of versions: only their order counts, so they are numbered anew after each step.
//! - Deliveries while a write of a sync is in flight. The remaining writes follow from the decision, and the
//!   overlay ends the same, so the delivery can as well come when the turn has ended.

mod canonical;
mod step;
mod words;

use std::sync::Arc;

use bindery_invariants::Rule;
use bindery_store::Kind;
use rustc_hash::FxHashMap;

pub(crate) use self::step::Step;
use crate::law;
use crate::objects::{Each, Id, Seen, Stored};
use crate::replay::Request;
use crate::server::{self, Effect};
use crate::turns::{Answer, Event, Stage, Turn, Turns, View};
use crate::user::{self, Edit};
use crate::world::{Budget, World};

/// Number of replicas.
pub(crate) const REPLICAS: usize = 2;
/// The kinds whose deliveries the model has.
const KINDS: [Kind; 2] = [Kind::Volume, Kind::Claim];

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The objects of the API server.
    pub(crate) now: Each<Seen>,
    /// For each kind, the changes that a replica has not seen, oldest first.
    unseen: [Vec<(Id, Seen)>; KINDS.len()],
    replicas: [Replica; REPLICAS],
    /// A write that is still on its way, though its turn has given up.
    late: Option<Turn>,
    left: Budget,
    /// Edits that were made, as bits by their place in the world's list.
    edited: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Replica {
    work: Work,
    /// For each kind, how many of the last changes it has not seen.
    behind: [u8; KINDS.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Idle(View),
    /// A turn waits, and its request has not arrived.
    Asks(Turn),
    /// The request was answered, and the answer is on its way.
    Answered(Turn, Answer),
}

/// Takes steps.
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) turns: Turns,
    steps: Vec<Step>,
    effects: FxHashMap<(Turn, Each<Seen>), Arc<Arrived>>,
}

/// What the arrival of a request does.
struct Arrived {
    effect: Effect,
    broken: [Vec<Vec<law::Break>>; 2],
}

/// A step that breaks a law: which.
pub(crate) struct Broken(pub(crate) String);

impl Cluster {
    pub(crate) fn new(world: World, turns: Turns) -> Self {
        let mut steps = vec![Step::ArriveLate];
        for replica in 0..REPLICAS {
            for engine in 0..turns.engines() {
                steps.extend(Id::all().map(|id| Step::Begin(replica, id, engine)));
            }
            steps.extend([Step::Arrive(replica), Step::Return(replica)]);
            steps.extend([Step::Deliver(replica, 0), Step::Deliver(replica, 1)]);
            steps.extend([Step::LoseAnswer(replica), Step::Delay(replica)]);
            steps.extend([Step::Crash(replica), Step::CrashWriting(replica)]);
        }
        steps.extend(Id::claims().flat_map(|id| [Step::Delete(id), Step::Create(id)]));
        steps.extend(Id::all().map(Step::Release));
        steps.extend((0..world.edits.len()).map(Step::Edit));
        Self { world, turns, steps, effects: FxHashMap::default() }
    }

    /// The first state.
    pub(crate) fn initial(&mut self) -> State {
        let contents = &mut self.turns.contents;
        let now = self.world.objects.clone().map(|stored| {
            let content = contents.number(&stored);
            Seen { content, version: u16::from(stored != Stored::Absent) }
        });
        let replica = Replica { work: Work::Idle(self.turns.current(&now)), behind: [0; 2] };
        self.canonical(State {
            now,
            unseen: Default::default(),
            replicas: [replica.clone(), replica],
            late: None,
            left: self.world.budget,
            edited: 0,
        })
    }

    /// Every step of the model, possible or not.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The state after a step; `None` if the step is not possible or changes nothing.
    ///
    /// # Errors
    ///
    /// The step breaks a law.
    pub(crate) fn take(&mut self, state: &State, step: Step) -> Result<Option<State>, Broken> {
        let mut after = state.clone();
        let is_taken = match step {
            Step::Begin(replica, id, engine) => self.begin(&mut after, replica, id, engine),
            Step::Arrive(replica) => self.arrive(&mut after, replica)?,
            Step::Return(replica) => self.give_back(&mut after, replica),
            Step::LoseAnswer(replica) => self.lose_answer(&mut after, replica)?,
            Step::Delay(replica) => self.delay(&mut after, replica),
            Step::ArriveLate => self.arrive_late(&mut after)?,
            Step::Deliver(replica, kind) => self.deliver(&mut after, replica, kind),
            Step::Crash(replica) => self.crash(&mut after, replica),
            Step::CrashWriting(replica) => self.crash_writing(&mut after, replica),
            Step::Delete(id) => self.delete(&mut after, id),
            Step::Release(id) => self.release(&mut after, id),
            Step::Create(id) => self.create(&mut after, id),
            Step::Edit(at) => self.edit(&mut after, at),
        };
        Ok(is_taken.then(|| self.canonical(after)))
    }

    fn begin(&mut self, state: &mut State, replica: usize, id: Id, engine: u8) -> bool {
        let Work::Idle(view) = state.replicas[replica].work else { return false };
        let Some(stage) = self.turns.begin(view, id, engine) else { return false };
        state.replicas[replica].work = stage.into();
        stage != Stage::Ended(view)
    }

    fn arrive(&mut self, state: &mut State, replica: usize) -> Result<bool, Broken> {
        let Work::Asks(turn) = state.replicas[replica].work else { return Ok(false) };
        if let Request::Read(id) = **self.turns.request(turn) {
            state.replicas[replica].work = Work::Answered(turn, Answer::Read(id, state.now[id.index()]));
            return Ok(true);
        }
        let answer = self.carry_out(state, turn)?;
        state.replicas[replica].work = self.turns.proceed(turn, Event::Answered(answer)).into();
        Ok(true)
    }

    fn give_back(&mut self, state: &mut State, replica: usize) -> bool {
        let Work::Answered(turn, answer) = state.replicas[replica].work else { return false };
        state.replicas[replica].work = self.turns.proceed(turn, Event::Answered(answer)).into();
        true
    }

    fn lose_answer(&mut self, state: &mut State, replica: usize) -> Result<bool, Broken> {
        let Some(turn) = self.writing(state, replica) else { return Ok(false) };
        if !take_one(&mut state.left.lost) {
            return Ok(false);
        }
        self.carry_out(state, turn)?;
        state.replicas[replica].work = self.turns.proceed(turn, Event::Answered(Answer::Lost)).into();
        Ok(true)
    }

    fn delay(&mut self, state: &mut State, replica: usize) -> bool {
        let Some(turn) = self.writing(state, replica) else { return false };
        if state.late.is_some() || !take_one(&mut state.left.lost) {
            return false;
        }
        state.late = Some(turn);
        state.replicas[replica].work = self.turns.proceed(turn, Event::Answered(Answer::Lost)).into();
        true
    }

    fn arrive_late(&mut self, state: &mut State) -> Result<bool, Broken> {
        let Some(turn) = state.late.take() else { return Ok(false) };
        let before = state.now;
        self.carry_out(state, turn)?;
        Ok(state.now != before)
    }

    fn deliver(&mut self, state: &mut State, replica: usize, kind: usize) -> bool {
        let Replica { work, behind } = &mut state.replicas[replica];
        let Some(at) = state.unseen[kind].len().checked_sub(usize::from(behind[kind])) else { return false };
        let Some((id, seen)) = state.unseen[kind].get(at).copied() else { return false };
        *work = match *work {
            Work::Idle(view) => Work::Idle(self.turns.tell(view, id, seen)),
            Work::Asks(turn) if !self.turns.heeds_deliveries(turn) => return false,
            Work::Asks(turn) => self.turns.proceed(turn, Event::Delivered(id, seen)).into(),
            Work::Answered(turn, answer) => match self.turns.proceed(turn, Event::Delivered(id, seen)) {
                Stage::Asks(turn) => Work::Answered(turn, answer),
                Stage::Ended(_) => unreachable!("a delivery ends no turn that waits for an answer"),
            },
        };
        behind[kind] -= 1;
        state.forget_seen();
        true
    }

    fn crash(&mut self, state: &mut State, replica: usize) -> bool {
        if !take_one(&mut state.left.crashes) {
            return false;
        }
        let view = self.turns.current(&state.now);
        state.replicas[replica] = Replica { work: Work::Idle(view), behind: [0; 2] };
        state.forget_seen();
        true
    }

    fn crash_writing(&mut self, state: &mut State, replica: usize) -> bool {
        let Some(turn) = self.writing(state, replica) else { return false };
        if state.late.is_some() || !self.crash(state, replica) {
            return false;
        }
        state.late = Some(turn);
        true
    }

    fn delete(&mut self, state: &mut State, id: Id) -> bool {
        let Some(claim) = self.turns.contents.get(state.now[id.index()].content).claim() else {
            return false;
        };
        if claim.deleting || !take_one(&mut state.left.deletions) {
            return false;
        }
        let after = bindery_core::Claim { deleting: true, ..(**claim).clone() };
        self.change(state, id, &after.into());
        true
    }

    fn release(&mut self, state: &mut State, id: Id) -> bool {
        let Some(after) = user::release(&self.turns.contents, state.now[id.index()]) else { return false };
        self.change(state, id, &after);
        true
    }

    fn create(&mut self, state: &mut State, id: Id) -> bool {
        let Stored::Claim(claim) = &self.world.objects[id.index()] else { return false };
        if state.now[id.index()].exists() || !take_one(&mut state.left.creations) {
            return false;
        }
        // Unlike each claim before it.
        let uid = format!("{id}-again-{}", state.left.creations);
        let claim = bindery_core::Claim { uid: uid.as_str().into(), ..(**claim).clone() };
        self.change(state, id, &claim.into());
        true
    }

    fn edit(&mut self, state: &mut State, at: usize) -> bool {
        let edit: Edit = self.world.edits[at];
        let Some((id, after)) = edit.apply(&self.turns.contents, &state.now) else { return false };
        if !take_one(&mut state.left.edits) {
            return false;
        }
        state.edited |= 1 << at;
        self.change(state, id, &after);
        true
    }

    /// The turn of a replica if its next request is a write.
    fn writing(&self, state: &State, replica: usize) -> Option<Turn> {
        let Work::Asks(turn) = state.replicas[replica].work else { return None };
        matches!(**self.turns.request(turn), Request::Write(_)).then_some(turn)
    }

    /// Carries out a write, or has the plugin destroy data.
    fn carry_out(&mut self, state: &mut State, turn: Turn) -> Result<Answer, Broken> {
        let arrived = self.arrived(state, turn);
        if let Some(broken) = law::verdict(&arrived.broken, &self.broken_by_user(state)) {
            return Err(Broken(broken));
        }
        if let Some((id, seen)) = arrived.effect.change {
            self.put(state, id, seen);
        }
        Ok(arrived.effect.answer)
    }

    /// Rules that the edits so far break.
    pub(crate) fn broken_by_user(&self, state: &State) -> Vec<Rule> {
        let edits = self.world.edits.iter().enumerate();
        let done = edits.filter(|(at, _)| state.edited & (1 << at) != 0);
        done.flat_map(|(_, edit)| edit.breaks()).copied().collect()
    }

    fn arrived(&mut self, state: &State, turn: Turn) -> Arc<Arrived> {
        if let Some(arrived) = self.effects.get(&(turn, state.now)) {
            return Arc::clone(arrived);
        }
        let request = Arc::clone(self.turns.request(turn));
        let live = [0, 1, 2, 3].map(|id| self.turns.told_live(turn, Id(id)).collect());
        let known = [0, 1, 2, 3].map(|id| self.turns.known(turn, Id(id)).collect());
        let contents = &mut self.turns.contents;
        let told = law::Told { now: &state.now, live: &live, known: &known };
        let broken = law::broken_by(contents, &told, &request);
        let effect = match &*request {
            Request::Write(write) => server::write(contents, &state.now, write),
            Request::Read(_) | Request::Destroy(_) => Effect { answer: Answer::Destroyed, change: None },
        };
        let arrived = Arc::new(Arrived { effect, broken });
        self.effects.insert((turn, state.now), Arc::clone(&arrived));
        arrived
    }

    fn change(&mut self, state: &mut State, id: Id, after: &Stored) {
        let content = self.turns.contents.number(after);
        self.put(state, id, state.now[id.index()].next(content));
    }

    /// Stores a new state of an object, which the watches have not delivered yet.
    fn put(&self, state: &mut State, id: Id, seen: Seen) {
        state.now[id.index()] = seen;
        let kind = usize::from(!id.is_volume());
        state.unseen[kind].push((id, seen));
        for replica in &mut state.replicas {
            replica.behind[kind] += 1;
        }
    }
}

impl State {
    /// Drops changes that both replicas have seen.
    fn forget_seen(&mut self) {
        for (kind, unseen) in self.unseen.iter_mut().enumerate() {
            let behind = self.replicas.iter().map(|replica| usize::from(replica.behind[kind])).max();
            unseen.drain(..unseen.len() - behind.unwrap_or_default());
        }
    }
}

impl From<Stage> for Work {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Asks(turn) => Self::Asks(turn),
            Stage::Ended(view) => Self::Idle(view),
        }
    }
}

/// Takes one from a budget; returns whether there was one.
fn take_one(left: &mut u8) -> bool {
    let one = left.checked_sub(1);
    *left = one.unwrap_or_default();
    one.is_some()
}
