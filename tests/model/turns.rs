//! The turns of replicas, each run once.
//!
//! The real code is a function of what a replica knows when its turn begins and of what happens to the turn
//! afterwards. So a turn in flight is a number: a [`Turn`] is a place in a tree whose branches are the
//! happenings, and the real code runs once for each place, however many states of the model have it.

use std::sync::Arc;

use bindery_controller::{WriteError, Written};
use bindery_core::Engine;
use bindery_store::{Delivery, Kind};
use rustc_hash::FxHashMap;

use crate::objects::{Contents, Each, Id, Seen, Stored, number_of};
use crate::replay::{self, Happening, Memory, Reply, Request};
use crate::versions::Versions;

/// What a replica knows: a number of a [`Knowledge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct View(u32);

/// A turn in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Turn(u32);

/// What a replica knows between two turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Knowledge {
    /// Its caches.
    pub(crate) cache: Each<Seen>,
    /// Own writes over them.
    pub(crate) assumed: Each<Option<Seen>>,
    /// Volumes whose deletion was accepted, and that the cache still has.
    pub(crate) accepted: Each<bool>,
}

/// What happens to a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A watch delivers a new state of an object.
    Delivered(Id, Seen),
    /// The request was answered.
    Answered(Answer),
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// A live read found this.
    Read(Id, Seen),
    /// A write left this.
    Written(Id, Seen),
    /// The deletion of a volume was accepted.
    Deleted(Id),
    /// The object is another one, or has another version.
    Conflict,
    /// The object does not exist.
    NotFound,
    /// The API server does not accept the object.
    Invalid,
    /// No answer came.
    Lost,
    /// The plugin has destroyed the data.
    Destroyed,
}

/// A turn after something has happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for the answer to a request.
    Asks(Turn),
    /// It has ended, and the replica knows this.
    Ended(View),
}

/// The turns that were run.
pub(crate) struct Turns {
    engines: Vec<Arc<dyn Engine>>,
    pub(crate) contents: Contents,
    known: Vec<Knowledge>,
    views: FxHashMap<Knowledge, View>,
    waiting: Vec<Waiting>,
    begun: FxHashMap<Begun, Stage>,
    continued: FxHashMap<(Turn, Event), Stage>,
    told: FxHashMap<(View, Id, Seen), View>,
    /// How often the real code was run.
    pub(crate) runs: usize,
}

/// How a turn begins: what its replica knows, the object, and which engine decides.
type Begun = (View, Id, u8);

/// A turn that waits for an answer.
struct Waiting {
    began: Begun,
    /// What happened since it began.
    events: Arc<[Event]>,
    request: Arc<Request>,
    is_operating: bool,
}

impl Turns {
    pub(crate) fn new(engines: Vec<Arc<dyn Engine>>) -> Self {
        Self {
            engines,
            contents: Contents::new(),
            known: Vec::new(),
            views: FxHashMap::default(),
            waiting: Vec::new(),
            begun: FxHashMap::default(),
            continued: FxHashMap::default(),
            told: FxHashMap::default(),
            runs: 0,
        }
    }

    /// What a replica knows that has just listed everything.
    pub(crate) fn current(&mut self, now: &Each<Seen>) -> View {
        self.view(Knowledge { cache: *now, assumed: [None; 4], accepted: [false; 4] })
    }

    pub(crate) fn knowledge(&self, view: View) -> &Knowledge {
        &self.known[view.0 as usize]
    }

    /// The request that a turn waits for.
    pub(crate) fn request(&self, turn: Turn) -> &Arc<Request> {
        &self.waiting(turn).request
    }

    /// What the API server has told a turn about an object: by live reads and by answers to writes.
    pub(crate) fn told_live(&self, turn: Turn, id: Id) -> impl Iterator<Item = Seen> {
        self.waiting(turn).events.iter().filter_map(move |event| match event {
            Event::Answered(Answer::Read(of, seen) | Answer::Written(of, seen)) if *of == id => Some(*seen),
            _ => None,
        })
    }

    /// What a turn may have taken an object for: what it was told, and what the caches of its replica had.
    pub(crate) fn known(&self, turn: Turn, id: Id) -> impl Iterator<Item = Seen> {
        let Waiting { began, events, .. } = self.waiting(turn);
        let Knowledge { cache, assumed, .. } = self.knowledge(began.0);
        let delivered = events.iter().filter_map(move |event| match event {
            Event::Delivered(of, seen) if *of == id => Some(*seen),
            _ => None,
        });
        let cached = [cache[id.index()]].into_iter().chain(assumed[id.index()]).chain(delivered);
        cached.chain(self.told_live(turn, id))
    }

    /// Whether a delivery can change what a turn does before it ends. The writes of a sync follow from its
    /// decision, whatever its caches are told meanwhile.
    pub(crate) fn heeds_deliveries(&self, turn: Turn) -> bool {
        let waiting = self.waiting(turn);
        waiting.is_operating || !matches!(*waiting.request, Request::Write(_))
    }

    /// How many engines there are.
    pub(crate) fn engines(&self) -> u8 {
        u8::try_from(self.engines.len()).expect("there are few engines")
    }

    /// Begins a turn on an object; `None` if the replica does not know the object, or has nothing left to do
    /// with it.
    pub(crate) fn begin(&mut self, view: View, id: Id, engine: u8) -> Option<Stage> {
        let knowledge = self.knowledge(view);
        if knowledge.accepted[id.index()] || !knowledge.cache[id.index()].exists() {
            return None;
        }
        if let Some(stage) = self.begun.get(&(view, id, engine)) {
            return Some(*stage);
        }
        let stage = self.run((view, id, engine), Arc::default());
        self.begun.insert((view, id, engine), stage);
        Some(stage)
    }

    /// Goes on with a turn.
    pub(crate) fn proceed(&mut self, turn: Turn, event: Event) -> Stage {
        if let Some(stage) = self.continued.get(&(turn, event)) {
            return *stage;
        }
        let waiting = self.waiting(turn);
        let (began, events) = (waiting.began, waiting.events.iter().copied().chain([event]).collect());
        let stage = self.run(began, events);
        self.continued.insert((turn, event), stage);
        stage
    }

    /// A watch delivers a new state of an object between two turns.
    pub(crate) fn tell(&mut self, view: View, id: Id, seen: Seen) -> View {
        if let Some(after) = self.told.get(&(view, id, seen)) {
            return *after;
        }
        let mut knowledge = self.knowledge(view).clone();
        let memory = self.memory(&knowledge);
        let assumed = replay::tell(memory, self.contents.delivery(id, seen));
        self.deliver(&mut knowledge, id, seen);
        knowledge.assumed = assumed.map(|assumed| assumed.map(|stored| self.seen(&stored)));
        let after = self.view(knowledge);
        self.told.insert((view, id, seen), after);
        after
    }

    fn deliver(&self, knowledge: &mut Knowledge, id: Id, seen: Seen) {
        let before = std::mem::replace(&mut knowledge.cache[id.index()], seen);
        knowledge.accepted[id.index()] &= self.uid(before) == self.uid(seen);
    }

    fn uid(&self, seen: Seen) -> Option<&str> {
        match self.contents.get(seen.content) {
            Stored::Absent => None,
            Stored::Volume(volume) => Some(&volume.uid.0),
            Stored::Claim(claim) => Some(&claim.uid.0),
        }
    }

    /// Notes every version that a replica knows between two turns.
    pub(crate) fn note_versions(&self, view: View, versions: &mut Versions) {
        let Knowledge { cache, assumed, .. } = self.knowledge(view);
        for id in Id::all() {
            versions.note(id, cache[id.index()]);
            assumed[id.index()].into_iter().for_each(|seen| versions.note(id, seen));
        }
    }

    /// Notes every version that a turn has to do with.
    pub(crate) fn note_versions_of(&self, turn: Turn, versions: &mut Versions) {
        let Waiting { began, events, .. } = self.waiting(turn);
        self.note_versions(began.0, versions);
        for event in &**events {
            match event {
                Event::Delivered(id, seen) => versions.note(*id, *seen),
                Event::Answered(Answer::Read(id, seen) | Answer::Written(id, seen)) => {
                    versions.note(*id, *seen)
                }
                Event::Answered(_) => {}
            }
        }
    }

    /// What a replica knows, with other versions.
    pub(crate) fn renumber(&mut self, view: View, versions: &Versions) -> View {
        let mut knowledge = self.knowledge(view).clone();
        for id in Id::all() {
            let at = id.index();
            knowledge.cache[at] = versions.renumbered(id, knowledge.cache[at]);
            knowledge.assumed[at] = knowledge.assumed[at].map(|seen| versions.renumbered(id, seen));
        }
        self.view(knowledge)
    }

    pub(crate) fn renumber_answer(&self, answer: Answer, versions: &Versions) -> Answer {
        match answer {
            Answer::Read(id, seen) => Answer::Read(id, versions.renumbered(id, seen)),
            Answer::Written(id, seen) => Answer::Written(id, versions.renumbered(id, seen)),
            answer => answer,
        }
    }

    /// The turn to which the same happened, with other versions.
    pub(crate) fn renumber_turn(&mut self, turn: Turn, versions: &Versions) -> Turn {
        let waiting = self.waiting(turn);
        let ((view, id, engine), events) = (waiting.began, Arc::clone(&waiting.events));
        let view = self.renumber(view, versions);
        let mut stage = self.begin(view, id, engine);
        for event in &*events {
            let event = match *event {
                Event::Delivered(id, seen) => Event::Delivered(id, versions.renumbered(id, seen)),
                Event::Answered(answer) => Event::Answered(self.renumber_answer(answer, versions)),
            };
            let Some(Stage::Asks(turn)) = stage else { break };
            stage = Some(self.proceed(turn, event));
        }
        match stage {
            Some(Stage::Asks(turn)) => turn,
            _ => panic!("a turn depends on the numbers of versions"),
        }
    }

    /// Runs the real code from the beginning of a turn.
    fn run(&mut self, began: Begun, events: Arc<[Event]>) -> Stage {
        self.runs += 1;
        let mut knowledge = self.knowledge(began.0).clone();
        let memory = self.memory(&knowledge);
        let engine = Arc::clone(&self.engines[usize::from(began.2)]);
        let happened = events.iter().map(|event| self.happening(*event)).collect();
        let stand = replay::replay(&engine, memory, began.1, happened);
        for event in &*events {
            match event {
                Event::Delivered(id, seen) => self.deliver(&mut knowledge, *id, *seen),
                Event::Answered(Answer::Deleted(id)) => {
                    knowledge.accepted[id.index()] = knowledge.cache[id.index()].exists();
                }
                Event::Answered(_) => {}
            }
        }
        knowledge.assumed = stand.assumed.map(|assumed| assumed.map(|stored| self.seen(&stored)));
        let Some(request) = stand.request else { return Stage::Ended(self.view(knowledge)) };
        let turn = Turn(u32::try_from(self.waiting.len()).expect("there is memory for fewer"));
        let (request, is_operating) = (Arc::new(request), stand.is_operating);
        self.waiting.push(Waiting { began, events, request, is_operating });
        Stage::Asks(turn)
    }

    fn memory(&mut self, knowledge: &Knowledge) -> Memory {
        let assumed = knowledge.assumed.iter().flatten();
        Memory {
            assumed: assumed.map(|seen| self.contents.versioned(*seen)).collect(),
            lists: Kind::ALL
                .into_iter()
                .map(|kind| match kind {
                    Kind::Volume | Kind::Claim => self.contents.list(kind, &knowledge.cache),
                    _ => Delivery::listed(kind, Vec::<bindery_core::Class>::new(), "1"),
                })
                .collect(),
        }
    }

    fn happening(&mut self, event: Event) -> Happening {
        let answer = match event {
            Event::Delivered(id, seen) => return Happening::Delivery(self.contents.delivery(id, seen)),
            Event::Answered(answer) => answer,
        };
        let why = String::new;
        Happening::Reply(match answer {
            Answer::Read(_, seen) => Reply::Read(self.contents.versioned(seen)),
            Answer::Written(_, seen) => Reply::Written(Ok(match self.contents.versioned(seen) {
                Stored::Volume(volume) => Written::Volume(volume),
                Stored::Claim(claim) => Written::Claim(claim),
                Stored::Absent => Written::Deletion,
            })),
            Answer::Deleted(_) => Reply::Written(Ok(Written::Deletion)),
            Answer::Conflict => Reply::Written(Err(WriteError::Conflict(why()))),
            Answer::NotFound => Reply::Written(Err(WriteError::NotFound(why()))),
            Answer::Invalid => Reply::Written(Err(WriteError::Invalid(why()))),
            Answer::Lost => Reply::Written(Err(WriteError::Failed(why()))),
            Answer::Destroyed => Reply::Destroyed,
        })
    }

    fn seen(&mut self, stored: &Stored) -> Seen {
        let version = match stored {
            Stored::Absent => 0,
            Stored::Volume(volume) => number_of(&volume.version),
            Stored::Claim(claim) => number_of(&claim.version),
        };
        Seen { content: self.contents.number(stored), version }
    }

    fn view(&mut self, knowledge: Knowledge) -> View {
        if let Some(view) = self.views.get(&knowledge) {
            return *view;
        }
        let view = View(u32::try_from(self.known.len()).expect("there is memory for fewer"));
        self.known.push(knowledge.clone());
        self.views.insert(knowledge, view);
        view
    }

    fn waiting(&self, turn: Turn) -> &Waiting {
        &self.waiting[turn.0 as usize]
    }
}
