//! One turn of a replica, on the real binder.
//!
//! A turn is a sync of one object, with the operations that the sync starts. It cannot be cloned, so it is
//! repeated from its beginning: the binder's requests are answered as they were answered before, and where
//! the answers end, the turn's next request is found.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bindery_controller::{
    Binder, Configuration, Note, Order, Parts, Plugin, PluginError, Port, Purpose, Settings, Write,
    WriteError, Written,
};
use bindery_core::{
    Claim, ClaimKey, Engine, Lookup, Plugin as Description, PluginOperation, Source, Text, Timestamp, Volume,
};
use bindery_store::{Delivery, Store};
use futures::future::{BoxFuture, FutureExt as _, poll_fn};
use futures::task::noop_waker;
use parking_lot::Mutex;

use crate::objects::{Each, Id, Stored};

/// The name of the in-tree plugin.
pub(crate) const PLUGIN: &str = "kubernetes.io/host-path";
/// The binder's time, in seconds since the Unix epoch.
const NOW: Timestamp = 1_700_000_000;

/// A request of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A live read of an object.
    Read(Id),
    /// A write.
    Write(Box<Write<Volume>>),
    /// The plugin destroys the data of a volume: it deletes its asset, or scrubs it.
    Destroy(Id),
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Read(Stored),
    Written(Result<Written, WriteError>),
    Destroyed,
}

/// What happens to a turn.
pub(crate) enum Happening {
    Reply(Reply),
    Delivery(Delivery),
}

/// How far a turn has come.
pub(crate) struct Stand {
    /// Its next request; `None` if it has ended.
    pub(crate) request: Option<Request>,
    /// Whether the sync has ended, and one of its operations runs.
    pub(crate) is_operating: bool,
    /// The own writes that lie over the caches.
    pub(crate) assumed: Each<Option<Stored>>,
}

/// What a replica has when a turn begins.
pub(crate) struct Memory {
    /// Lists that fill its caches.
    pub(crate) lists: Vec<Delivery>,
    /// Own writes that the caches do not show yet.
    pub(crate) assumed: Vec<Stored>,
}

/// Runs a turn on an object until its first request after all that has happened.
pub(crate) fn replay(engine: &Arc<dyn Engine>, memory: Memory, id: Id, happened: Vec<Happening>) -> Stand {
    let line = Line::default();
    let binder = binder(&line, engine);
    memory.lists.into_iter().for_each(|list| binder.intake().deliver(list));
    assume(binder.store(), memory.assumed);
    let has_ended = run(&binder, &line, id, happened);
    let state = std::mem::take(&mut *line.0.lock());
    assert!(has_ended || state.request.is_some(), "the turn waits for something other than an answer");
    let (request, is_operating) = (state.request, state.is_operating);
    Stand { request, is_operating, assumed: all_assumed(binder.store()) }
}

/// The own writes that lie over the caches after a delivery.
pub(crate) fn tell(memory: Memory, delivery: Delivery) -> Each<Option<Stored>> {
    let store = Store::new();
    memory.lists.into_iter().for_each(|list| drop(store.deliver(list)));
    assume(&store, memory.assumed);
    store.deliver(delivery);
    all_assumed(&store)
}

fn assume(store: &Store, assumed: Vec<Stored>) {
    for assumed in assumed {
        match assumed {
            Stored::Volume(volume) => drop(store.assume_volume(volume)),
            Stored::Claim(claim) => drop(store.assume_claim(claim)),
            Stored::Absent => {}
        }
    }
}

fn all_assumed(store: &Store) -> Each<Option<Stored>> {
    [0, 1, 2, 3].map(|id| assumed(store, Id(id)))
}

/// Returns whether the turn has ended.
fn run(binder: &Binder<Line>, line: &Line, id: Id, happened: Vec<Happening>) -> bool {
    let turn = async {
        let synced = binder.sync(&id.key()).await;
        line.0.lock().is_operating = true;
        for pending in synced.operations {
            // An operation that failed is tried again after its backoff, in another turn.
            let _ = binder.perform(pending).await;
        }
    };
    let mut turn = pin!(turn);
    let waker = noop_waker();
    let mut context = Context::from_waker(&waker);
    let mut has_ended = turn.as_mut().poll(&mut context).is_ready();
    for happening in happened {
        match happening {
            Happening::Delivery(delivery) => binder.intake().deliver(delivery),
            Happening::Reply(reply) => {
                assert!(!has_ended, "a turn has no request after its end");
                line.answer(reply);
                has_ended = turn.as_mut().poll(&mut context).is_ready();
            }
        }
    }
    has_ended
}

fn binder(line: &Line, engine: &Arc<dyn Engine>) -> Binder<Line> {
    let plugin: Arc<dyn Plugin<Volume>> = Arc::new(line.clone());
    Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: line.clone(),
        engine: Arc::clone(engine),
        configuration: Configuration {
            plugins: Arc::new([plugin].into_iter().collect()),
            ..Configuration::default()
        },
        settings: Settings::default(),
        journal: None,
    })
}

/// The own write that lies over the cache of an object.
fn assumed(store: &Store, id: Id) -> Option<Stored> {
    let sources = [Source::Cache, Source::Overlay];
    if id.is_volume() {
        return over(sources.map(|source| found(store.volume(source, id.name())))).map(Stored::Volume);
    }
    let key = id.claim_key();
    over(sources.map(|source| found(store.claim(source, &key)))).map(Stored::Claim)
}

fn over<T: PartialEq>([cache, overlay]: [Option<T>; 2]) -> Option<T> {
    if cache == overlay { None } else { overlay }
}

fn found<T>(lookup: Lookup<T>) -> Option<T> {
    if let Lookup::Found(object) = lookup { Some(object) } else { None }
}

fn lookup<T>(object: Option<&Arc<T>>) -> Lookup<Arc<T>> {
    object.map_or(Lookup::Absent, |object| Lookup::Found(Arc::clone(object)))
}

/// The port and the plugin of a turn. It has one request at a time.
#[derive(Clone, Default)]
struct Line(Arc<Mutex<LineState>>);

#[derive(Default)]
struct LineState {
    request: Option<Request>,
    reply: Option<Reply>,
    is_operating: bool,
}

impl Line {
    async fn ask(&self, request: Request) -> Reply {
        self.0.lock().request = Some(request);
        poll_fn(|_| self.0.lock().reply.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    fn answer(&self, reply: Reply) {
        let mut state = self.0.lock();
        state.request = None;
        state.reply = Some(reply);
    }

    async fn read(&self, name: &str) -> Stored {
        match self.ask(Request::Read(Id::named(name))).await {
            Reply::Read(stored) => stored,
            reply => panic!("a read is answered with {reply:?}"),
        }
    }

    async fn destroy(&self, volume: &Volume) -> Result<(), PluginError> {
        self.ask(Request::Destroy(Id::named(&volume.name))).await;
        Ok(())
    }
}

impl Port for Line {
    type Template = Volume;

    async fn read_volume(&self, name: &Text, _: Purpose) -> Lookup<Arc<Volume>> {
        lookup(self.read(name).await.volume())
    }

    async fn read_claim(&self, key: &ClaimKey, _: Purpose) -> Lookup<Arc<Claim>> {
        lookup(self.read(&key.name).await.claim())
    }

    async fn write(&self, write: &Write<Volume>) -> Result<Written, WriteError> {
        match self.ask(Request::Write(Box::new(write.clone()))).await {
            Reply::Written(result) => result,
            reply => panic!("a write is answered with {reply:?}"),
        }
    }

    fn emit(&self, _: &Note) {}

    fn now(&self) -> Timestamp {
        NOW
    }
}

impl Plugin<Volume> for Line {
    fn describe(&self) -> Description {
        bindery_kit::plugin(PLUGIN)
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == "hostPath"
    }

    fn ready(&self, _: PluginOperation) -> Result<(), Text> {
        Ok(())
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Volume, PluginError>> {
        panic!("{} is provisioned, and no class is", order.name)
    }

    fn discard<'a>(&'a self, template: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.destroy(template).boxed()
    }

    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.destroy(volume).boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.destroy(volume).boxed()
    }
}
