//! An API server in memory, behind the binder's [`Port`].

mod apply;
mod objects;
mod waiting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bindery_controller::{DecidedRecord, Intake, Journal, Note, Port, Purpose, Write, WriteError, Written};
use bindery_core::steer::SteerWrite;
use bindery_core::{Action, Claim, ClaimKey, Lookup, Regarding, Subject, Text, Timestamp, Volume};
use bindery_store::{Delivery, Kind, Object};
use tokio::sync::{Notify, Semaphore, mpsc};

pub use apply::Change;
pub use objects::{Fault, Faults, Objects, VOLUME_PROTECTION};

/// The binder's time, in seconds since the Unix epoch.
pub const NOW: Timestamp = 1_700_000_000;
/// Permits of a gate that lets all requests through.
const PERMITS: usize = 1_000;

/// An API server in memory. It applies writes as kube-apiserver does, with preconditions, versions and
/// finalizers. Clones share their objects; `X` is further state of a test.
pub struct InMemoryApi<X = ()> {
    shared: Arc<Shared<X>>,
    /// Writes wait for a permit. There are plenty unless a test takes them.
    pub gate: Arc<Semaphore>,
    /// Live reads of volumes wait for a permit. There are plenty unless a test takes them.
    pub reads_gate: Arc<Semaphore>,
}

/// Takes what the server's watch delivers.
type Watch = Arc<dyn Fn(Delivery) + Send + Sync>;

struct Shared<X> {
    objects: Mutex<Objects<X>>,
    watch: Mutex<Option<Watch>>,
    delay: Mutex<Delay>,
    /// Notified of each write that was carried out.
    written: Notify,
}

/// How long a request takes to arrive, and its answer to come back.
#[derive(Clone, Copy, Debug)]
enum Delay {
    /// Other tasks get this many turns.
    Yields(usize),
    /// This much time of tokio's clock passes.
    Lasts(Duration),
}

impl<X> Clone for InMemoryApi<X> {
    fn clone(&self) -> Self {
        let [gate, reads_gate] = [&self.gate, &self.reads_gate].map(Arc::clone);
        Self { shared: Arc::clone(&self.shared), gate, reads_gate }
    }
}

impl InMemoryApi {
    /// An API server without volumes and claims.
    #[expect(clippy::new_without_default, reason = "tests create it in one way")]
    pub fn new() -> Self {
        Self::with(())
    }
}

impl<X> InMemoryApi<X> {
    /// An API server without volumes and claims, with further state of a test.
    pub fn with(extra: X) -> Self {
        let shared = Shared {
            objects: Mutex::new(Objects::new(extra)),
            watch: Mutex::default(),
            delay: Mutex::new(Delay::Yields(0)),
            written: Notify::new(),
        };
        let gate = || Arc::new(Semaphore::new(PERMITS));
        Self { shared: Arc::new(shared), gate: gate(), reads_gate: gate() }
    }

    /// The objects, for reading. Watches report only changes that [`change`](Self::change) makes.
    pub fn objects(&self) -> MutexGuard<'_, Objects<X>> {
        lock(&self.shared.objects)
    }

    /// Changes objects as another client does, and reports the changes to the watch.
    pub fn change<R>(&self, change: impl FnOnce(&mut Objects<X>) -> R) -> R {
        let (result, events) = {
            let mut objects = self.objects();
            let result = change(&mut objects);
            (result, objects.take_events())
        };
        let watch = lock(&self.shared.watch).clone();
        if let Some(watch) = watch {
            events.into_iter().for_each(|event| watch(event));
        }
        result
    }

    /// Reports each later change: before the answer of the write that made it.
    pub fn on_event(&self, watch: impl Fn(Delivery) + Send + Sync + 'static) {
        self.objects().take_events();
        *lock(&self.shared.watch) = Some(Arc::new(watch));
    }

    /// Delivers each later change to a binder's caches: at once if `lag` is zero, else one change after the
    /// other, each after the lag.
    pub fn watch(&self, intake: &Intake, lag: Duration) {
        let intake = intake.clone();
        if lag.is_zero() {
            return self.on_event(move |event| intake.deliver(event));
        }
        let (sender, mut receiver) = mpsc::unbounded_channel();
        // The receiver is gone once the test's runtime has ended.
        self.on_event(move |event| drop(sender.send(event)));
        tokio::spawn(async move {
            while let Some(event) = receiver.recv().await {
                pass(lag).await;
                intake.deliver(event);
            }
        });
    }

    /// Each request takes this long to arrive, and its answer to come back.
    pub fn set_latency(&self, latency: Duration) {
        *lock(&self.shared.delay) = Delay::Lasts(latency);
    }

    /// Other tasks get this many turns before each request arrives, and before its answer comes back.
    pub fn set_yields(&self, turns: usize) {
        *lock(&self.shared.delay) = Delay::Yields(turns);
    }

    /// Delivers a complete list of volumes to a binder's caches, as a watch does when the binder asks for
    /// one.
    pub fn list_volumes(&self, intake: &Intake) {
        intake.list_begins(Kind::Volume);
        self.deliver_list(intake, Kind::Volume, "");
    }

    /// Delivers a complete list of a kind to a binder's caches. There are only volumes and claims.
    pub fn deliver_list(&self, intake: &Intake, kind: Kind, version: &str) {
        let objects: Vec<Object> = match kind {
            Kind::Volume => self.objects().volumes.values().cloned().map(Object::from).collect(),
            Kind::Claim => self.objects().claims.values().cloned().map(Object::from).collect(),
            Kind::Class | Kind::Pod | Kind::Node | Kind::Namespace => Vec::new(),
        };
        intake.deliver(Delivery::listed(kind, objects, version));
    }

    /// Waits for the next write that is carried out; returns at once if there was one since the last call.
    pub async fn written(&self) {
        self.shared.written.notified().await;
    }

    /// Adds a volume as it is, unseen by watches.
    pub fn add_volume(&self, volume: &Volume) {
        self.objects().volumes.insert(volume.name.clone(), Arc::new(volume.clone()));
    }

    /// Adds a claim as it is, unseen by watches.
    pub fn add_claim(&self, claim: &Claim) {
        self.objects().claims.insert(claim.key.clone(), Arc::new(claim.clone()));
    }

    /// The volume of this name, which must exist.
    pub fn volume(&self, name: &str) -> Volume {
        Volume::clone(&self.objects().volumes[name])
    }

    /// The claim of this name in namespace `ns`, which must exist.
    pub fn claim(&self, name: &str) -> Claim {
        Claim::clone(&self.objects().claims[&ClaimKey::new("ns", name)])
    }

    /// Whether a volume of this name exists.
    pub fn has_volume(&self, name: &str) -> bool {
        self.objects().volumes.contains_key(name)
    }

    /// Refuses the `nth` write from now on (from 1).
    pub fn fail_write(&self, nth: usize, error: WriteError) {
        self.objects().faults.insert(nth, Fault::Refused(error));
    }

    /// Leaves this many of the next live reads without an answer.
    pub fn fail_reads(&self, count: usize) {
        self.objects().failing_reads = count;
    }

    /// All requested writes, including refused ones.
    pub fn writes(&self) -> Vec<Write<Volume>> {
        self.objects().writes.iter().map(|(write, _)| write.clone()).collect()
    }

    /// The names of [`writes`](Self::writes).
    pub fn write_names(&self) -> Vec<&'static str> {
        self.objects().writes.iter().map(|(write, _)| write.name()).collect()
    }

    /// The live reads that were answered, in order: the object and the purpose.
    pub fn reads(&self) -> Vec<(String, Purpose)> {
        self.objects().reads.clone()
    }

    /// Number of live reads of volumes that arrived, including those that wait at the gate.
    pub fn volume_reads(&self) -> usize {
        self.objects().volume_reads
    }

    /// The reasons of the events that were recorded, in order.
    pub fn reasons(&self) -> Vec<&'static str> {
        self.notes_about(|_| true)
    }

    /// The reasons of the events that were recorded about certain objects, in order.
    pub fn notes_about(&self, is_about: impl Fn(&Regarding) -> bool) -> Vec<&'static str> {
        let objects = self.objects();
        objects.notes.iter().filter(|note| is_about(&note.regarding)).map(|note| note.reason).collect()
    }

    /// The messages of the events that were recorded, in order.
    pub fn messages(&self) -> Vec<String> {
        self.objects().notes.iter().map(|note| note.message.clone()).collect()
    }

    /// Adds a line to the story.
    pub fn note(&self, what: &'static str) {
        self.objects().story.push(what);
    }

    /// What happened, in order: decisions, names of writes when they arrive, and lines of tests.
    pub fn whole_story(&self) -> Vec<&'static str> {
        self.objects().story.clone()
    }

    /// [`whole_story`](Self::whole_story) with each run of equal lines shortened to one.
    pub fn story(&self) -> Vec<&'static str> {
        let mut story = self.whole_story();
        story.dedup();
        story
    }

    /// A number that grows with each request, event and line of the log.
    pub fn activity(&self) -> usize {
        let objects = self.objects();
        let requests = objects.volume_reads + objects.reads.len() + objects.writes.len();
        requests + objects.notes.len() + objects.story.len()
    }

    async fn travel(&self) {
        let delay = *lock(&self.shared.delay);
        match delay {
            Delay::Yields(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
            Delay::Lasts(Duration::ZERO) => {}
            Delay::Lasts(time) => pass(time).await,
        }
    }

    /// Ends the protection of a volume whose deletion was accepted, after the time that the controller of
    /// `kubernetes.io/pv-protection` takes.
    fn unprotect_later(&self, volume: &Text)
    where
        X: Send + 'static,
    {
        let lasts = self.objects().protection_lasts;
        if !lasts.is_zero() {
            let (api, volume) = (self.clone(), volume.clone());
            tokio::spawn(async move {
                pass(lasts).await;
                api.change(|objects| objects.unprotect(&volume));
            });
        }
    }
}

impl<X: Send + 'static> Port for InMemoryApi<X> {
    type Template = Volume;

    async fn read_volume(&self, name: &Text, purpose: Purpose) -> Lookup<Arc<Volume>> {
        self.travel().await;
        self.objects().volume_reads += 1;
        let permit = self.reads_gate.acquire().await.expect("the gate is never closed");
        let found = self.objects().read(name.to_string(), purpose, |all| all.volumes.get(name).cloned());
        drop(permit);
        self.travel().await;
        found
    }

    async fn read_claim(&self, key: &ClaimKey, purpose: Purpose) -> Lookup<Arc<Claim>> {
        self.travel().await;
        let found = self.objects().read(key.to_string(), purpose, |all| all.claims.get(key).cloned());
        self.travel().await;
        found
    }

    async fn write(&self, write: &Write<Volume>) -> Result<Written, WriteError> {
        self.note(write.name());
        self.travel().await;
        let permit = self.gate.acquire().await.expect("the gate is never closed");
        let result = self.change(|objects| objects.write(write));
        if result.is_ok() {
            self.shared.written.notify_one();
        }
        if let (Ok(Written::Deletion), Action::DeleteVolume { volume }) = (&result, &write.action) {
            self.unprotect_later(&volume.name);
        }
        drop(permit);
        self.travel().await;
        result
    }

    async fn read_reservation(&self, name: &Text) -> Lookup<(Arc<Volume>, bool)> {
        match self.read_volume(name, Purpose::Guard).await {
            Lookup::Found(volume) => {
                let is_own = self.objects().reserved.contains(name);
                Lookup::Found((volume, is_own))
            }
            Lookup::Absent => Lookup::Absent,
            Lookup::Unreadable(why) => Lookup::Unreadable(why),
            Lookup::Failed(why) => Lookup::Failed(why),
        }
    }

    async fn steer(&self, write: &SteerWrite) -> Result<Written, WriteError> {
        self.note(write.name());
        self.travel().await;
        let permit = self.gate.acquire().await.expect("the gate is never closed");
        let result = self.change(|objects| objects.steer(write));
        if result.is_ok() {
            self.shared.written.notify_one();
        }
        drop(permit);
        self.travel().await;
        result
    }

    fn emit(&self, note: &Note) {
        self.objects().notes.push(note.clone());
    }

    fn now(&self) -> Timestamp {
        NOW
    }
}

impl<X: Send + 'static> Journal for InMemoryApi<X> {
    fn decided(&self, decided: DecidedRecord) {
        self.note(match decided.evidence.request.subject {
            Subject::SyncClaim(_) => "claim decided",
            Subject::SyncVolume(_) => "volume decided",
            _ => "step decided",
        });
    }
}

/// Lets time of tokio's clock pass. Tests pause that clock, so none of them waits.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that panicked has failed already.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
