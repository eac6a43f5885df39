//! A cluster in memory behind the port, and engines that do as they are told.

mod apply;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bindery_controller::{
    Binder, Facts, Intake, Journal, Key, Note, Parts, Port, Purpose, Settings, Verdict, Write, WriteError,
    Written,
};
use bindery_core::{
    Claim, ClaimKey, Cluster, Decision, Engine, EngineFault, Evidence, Lookup, Regarding, Request, Subject,
    Text, Timestamp, Volume,
};
pub(crate) use bindery_kit::volume;
use bindery_store::{Kind, Observed, Store};
use tokio::sync::{Semaphore, mpsc};

/// The finalizer of the controller that protects volumes in use.
pub(crate) const PROTECTION: &str = "kubernetes.io/pv-protection";
/// How long that controller takes to let a volume go.
const PROTECTION_LASTS: Duration = Duration::from_secs(1);

/// The cluster. Writes are applied as an API server would, versions included.
#[derive(Clone)]
pub(crate) struct Double {
    inner: Arc<Mutex<Inner>>,
    /// Writes wait for a permit; there are plenty unless a test takes them away.
    pub(crate) gate: Arc<Semaphore>,
    /// Live reads of volumes wait for a permit of these.
    pub(crate) reads_gate: Arc<Semaphore>,
    version: Arc<AtomicU64>,
}

#[derive(Default)]
struct Inner {
    volumes: BTreeMap<Text, Volume>,
    claims: BTreeMap<ClaimKey, Claim>,
    /// What the writes that come are answered, instead of being made.
    failures: Vec<(usize, WriteError)>,
    writes: Vec<Write<()>>,
    reads: Vec<(String, Purpose)>,
    /// Live reads of volumes that came, whether or not they were let through.
    volume_reads: usize,
    failing_reads: usize,
    notes: Vec<Note>,
    /// What was decided, asked for and done, in order.
    story: Vec<&'static str>,
    /// How long a request takes to come, and its answer to come back.
    latency: Duration,
    watch: Option<Arc<dyn Fn(Told) + Send + Sync>>,
}

/// What a watch delivers.
pub(crate) enum Told {
    Volume(Volume),
    VolumeGone(Text),
    Claim(Claim),
}

impl Double {
    pub(crate) fn new() -> Self {
        let inner = Arc::<Mutex<Inner>>::default();
        let gate = || Arc::new(Semaphore::new(1_000));
        Self { inner, gate: gate(), reads_gate: gate(), version: Arc::new(AtomicU64::new(100)) }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics while it holds the cluster")
    }

    pub(crate) fn add_volume(&self, volume: &Volume) {
        self.inner().volumes.insert(volume.name.clone(), volume.clone());
    }

    /// Delivers a complete list of volumes, as their watch does when one is wanted.
    pub(crate) fn list_volumes(&self, intake: &Intake) {
        let ticket = intake.freshness().list_begins(Kind::Volume);
        let volumes = self.inner().volumes.clone();
        let observed = |(name, volume)| (name, Observed::Readable(Arc::new(volume)));
        intake.volumes(volumes.into_iter().map(observed).collect());
        intake.freshness().list_complete(Kind::Volume, ticket);
    }

    pub(crate) fn add_claim(&self, claim: &Claim) {
        self.inner().claims.insert(claim.key.clone(), claim.clone());
    }

    pub(crate) fn volume(&self, name: &str) -> Volume {
        self.inner().volumes[name].clone()
    }

    pub(crate) fn has_volume(&self, name: &str) -> bool {
        self.inner().volumes.contains_key(name)
    }

    pub(crate) fn claim(&self, name: &str) -> Claim {
        self.inner().claims[&ClaimKey::new("ns", name)].clone()
    }

    /// Has the `nth` write from now on (from 1) fail.
    pub(crate) fn fail_write(&self, nth: usize, error: WriteError) {
        let mut inner = self.inner();
        let at = inner.writes.len() + nth - 1;
        inner.failures.push((at, error));
    }

    /// Has every request take that long to come, and its answer to come back.
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.inner().latency = latency;
    }

    /// Has what changes delivered: at once, before the answer of the write that changed it, or each after a
    /// lag.
    pub(crate) fn watch(&self, intake: &Intake, lag: Duration) {
        let intake = intake.clone();
        let deliver = move |told| match told {
            Told::Volume(volume) => {
                intake.volume(volume.name.clone(), Observed::Readable(Arc::new(volume)));
            }
            Told::VolumeGone(name) => intake.volume_gone(&name),
            Told::Claim(claim) => intake.claim(claim.key.clone(), Observed::Readable(Arc::new(claim))),
        };
        if lag.is_zero() {
            self.inner().watch = Some(Arc::new(deliver));
            return;
        }
        let (sender, mut receiver) = mpsc::unbounded_channel();
        self.inner().watch =
            Some(Arc::new(move |told| sender.send(told).expect("the watch lives as long as its runtime")));
        tokio::spawn(async move {
            while let Some(told) = receiver.recv().await {
                pass(lag).await;
                deliver(told);
            }
        });
    }

    fn tell(&self, told: Told) {
        let watch = self.inner().watch.clone();
        if let Some(watch) = watch {
            watch(told);
        }
    }

    /// Notes what happens.
    pub(crate) fn note(&self, what: &'static str) {
        self.inner().story.push(what);
    }

    /// What happened so far.
    pub(crate) fn whole_story(&self) -> Vec<&'static str> {
        self.inner().story.clone()
    }

    /// What happened so far; what was repeated without anything else in between is told once.
    pub(crate) fn story(&self) -> Vec<&'static str> {
        let mut story = self.whole_story();
        story.dedup();
        story
    }

    /// Has so many live reads fail.
    pub(crate) fn fail_reads(&self, times: usize) {
        self.inner().failing_reads = times;
    }

    pub(crate) fn writes(&self) -> Vec<Write<()>> {
        self.inner().writes.clone()
    }

    pub(crate) fn write_names(&self) -> Vec<&'static str> {
        self.inner().writes.iter().map(Write::name).collect()
    }

    /// How many live reads of volumes came, whether or not they were let through.
    pub(crate) fn volume_reads(&self) -> usize {
        self.inner().volume_reads
    }

    /// How much happened so far.
    pub(crate) fn activity(&self) -> [usize; 4] {
        let inner = self.inner();
        [inner.volume_reads, inner.writes.len() + inner.reads.len(), inner.notes.len(), inner.story.len()]
    }

    pub(crate) fn reads(&self) -> Vec<(String, Purpose)> {
        self.inner().reads.clone()
    }

    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.inner().notes.iter().map(|note| note.reason).collect()
    }

    /// The reasons that objects were told of.
    pub(crate) fn notes_about(&self, is_about: impl Fn(&Regarding) -> bool) -> Vec<&'static str> {
        let inner = self.inner();
        inner.notes.iter().filter(|note| is_about(&note.regarding)).map(|note| note.reason).collect()
    }

    fn read<T>(
        &self,
        what: String,
        purpose: Purpose,
        get: impl FnOnce(&Inner) -> Option<T>,
    ) -> Lookup<Arc<T>> {
        let mut inner = self.inner();
        inner.reads.push((what, purpose));
        if inner.failing_reads > 0 {
            inner.failing_reads -= 1;
            return Lookup::Failed("the line is dead".into());
        }
        get(&inner).map_or(Lookup::Absent, |object| Lookup::Found(Arc::new(object)))
    }
}

impl Double {
    async fn travel(&self) {
        let latency = self.inner().latency;
        if !latency.is_zero() {
            pass(latency).await;
        }
    }

    /// A volume whose deletion was accepted goes with its last finalizer, that of the protection after a
    /// while.
    fn let_go(&self, deletion: &Write<()>) {
        let Write::DeleteVolume { volume } = deletion else { return };
        let volume = self.volume(&volume.name);
        if volume.finalizers.is_empty() {
            self.inner().volumes.remove(&volume.name);
            self.tell(Told::VolumeGone(volume.name));
            return;
        }
        assert_eq!(volume.finalizers, [PROTECTION.into()], "nobody else would take it off");
        self.tell(Told::Volume(volume.clone()));
        let double = self.clone();
        tokio::spawn(async move {
            pass(PROTECTION_LASTS).await;
            double.inner().volumes.remove(&volume.name);
            double.tell(Told::VolumeGone(volume.name));
        });
    }
}

/// Lets the cluster's own time pass, which is the subject of tests: what overlaps with what. It is that of
/// tokio's paused clock, so that no test waits for it.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

impl Port for Double {
    type Template = ();

    async fn read_volume(&self, name: &Text, purpose: Purpose) -> Lookup<Arc<Volume>> {
        self.travel().await;
        self.inner().volume_reads += 1;
        let _permit = self.reads_gate.acquire().await.expect("the gate is never closed");
        self.read(name.to_string(), purpose, |inner| inner.volumes.get(name).cloned())
    }

    async fn read_claim(&self, key: &ClaimKey, purpose: Purpose) -> Lookup<Arc<Claim>> {
        self.travel().await;
        self.read(key.to_string(), purpose, |inner| inner.claims.get(key).cloned())
    }

    async fn write(&self, write: &Write<()>) -> Result<Written, WriteError> {
        self.note(write.name());
        self.travel().await;
        let _permit = self.gate.acquire().await.expect("the gate is never closed");
        let failure = {
            let mut inner = self.inner();
            let at = inner.writes.len();
            inner.writes.push(write.clone());
            inner.failures.iter().position(|(nth, _)| *nth == at).map(|found| inner.failures.remove(found).1)
        };
        let result = failure.map_or_else(|| self.apply(write), Err);
        match &result {
            Ok(Written::Volume(volume)) => self.tell(Told::Volume(volume.as_ref().clone())),
            Ok(Written::Claim(claim)) => self.tell(Told::Claim(claim.as_ref().clone())),
            Ok(Written::Deletion) => self.let_go(write),
            Err(_) => {}
        }
        self.travel().await;
        result
    }

    fn record(&self, note: &Note) {
        self.inner().notes.push(note.clone());
    }

    fn now(&self) -> Timestamp {
        1_000
    }
}

impl Journal for Double {
    fn decided(&self, _: &Key, evidence: Evidence, _: Verdict) {
        self.note(match evidence.request.subject {
            Subject::SyncClaim(_) => "claim decided",
            Subject::SyncVolume(_) => "volume decided",
            _ => "step decided",
        });
    }
}

/// An engine that does as it is told.
pub(crate) struct Scripted<F>(pub(crate) F);

impl<F> Engine for Scripted<F>
where
    F: Fn(&Request, &mut dyn Cluster) -> Result<Decision, EngineFault> + Send + Sync,
{
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        self.0(request, cluster)
    }

    fn digest(&self) -> &str {
        "scripted"
    }
}

/// A binder on the cluster, whose store knows all that the cluster holds.
pub(crate) fn binder(double: &Double, engine: impl Engine + 'static) -> Arc<Binder<Double>> {
    synced(unsynced(double, engine))
}

/// A binder of these parts, whose store knows all that the cluster holds.
pub(crate) fn binder_of(parts: Parts<Double>) -> Arc<Binder<Double>> {
    let double = parts.port.clone();
    let binder = Binder::new(parts);
    deliver(&double, &binder);
    synced(Arc::new(binder))
}

fn synced(binder: Arc<Binder<Double>>) -> Arc<Binder<Double>> {
    Kind::ALL.into_iter().for_each(|kind| binder.intake().synced(kind));
    binder
}

/// What a binder on the cluster is made of.
pub(crate) fn parts(double: &Double, engine: impl Engine + 'static) -> Parts<Double> {
    Parts {
        store: Arc::new(Store::new()),
        port: double.clone(),
        engine: Arc::new(engine),
        facts: Facts::default(),
        settings: Settings::default(),
        journal: Some(Arc::new(double.clone())),
    }
}

/// A binder on the cluster before its lists are complete.
pub(crate) fn unsynced(double: &Double, engine: impl Engine + 'static) -> Arc<Binder<Double>> {
    let binder = Binder::new(parts(double, engine));
    deliver(double, &binder);
    Arc::new(binder)
}

/// Delivers all that the cluster holds, as watches do.
pub(crate) fn deliver(double: &Double, binder: &Binder<Double>) {
    let (volumes, claims) = {
        let inner = double.inner();
        (inner.volumes.clone(), inner.claims.clone())
    };
    for (name, volume) in volumes {
        binder.intake().volume(name, Observed::Readable(Arc::new(volume)));
    }
    for (key, claim) in claims {
        binder.intake().claim(key, Observed::Readable(Arc::new(claim)));
    }
}

/// Delivers all of a kind that the cluster holds, as a complete list.
pub(crate) fn deliver_list(double: &Double, binder: &Binder<Double>, kind: Kind) {
    let (volumes, claims) = {
        let inner = double.inner();
        (inner.volumes.clone(), inner.claims.clone())
    };
    let intake = binder.intake();
    match kind {
        Kind::Volume => {
            let list = volumes.into_iter().map(|(name, volume)| (name, Observed::Readable(Arc::new(volume))));
            intake.volumes(list.collect());
        }
        Kind::Claim => {
            let list = claims.into_iter().map(|(key, claim)| (key, Observed::Readable(Arc::new(claim))));
            intake.claims(list.collect());
        }
        Kind::Class => intake.classes(Vec::new()),
        Kind::Pod => intake.pods(Vec::new()),
        Kind::Node => intake.nodes(Vec::new()),
    }
}

/// A claim for 1 GiB.
pub(crate) fn claim(name: &str) -> Claim {
    bindery_kit::claim(ClaimKey::new("ns", name))
}
