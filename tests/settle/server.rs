//! The API server of a world: objects with versions, watches, failures, and the law that every write of the
//! binder is held against.

mod apply;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use bindery_controller::{Note, Port, Purpose, Write, WriteError, Written};
use bindery_core::{
    Claim, ClaimKey, Class, FINALIZER_EXTERNAL, Lookup, Text, Timestamp, Uid, Version, Volume, VolumePhase,
};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;
use tokio::time::Instant;

pub(crate) use apply::Change;

use crate::law::{self, uid_in};
use crate::world::{PROTECTION, Weather};

/// The API server, shared by the binder, the watches and the others.
#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Mutex<Inner>>,
    weather: Weather,
    /// Told of every write that was carried out.
    changed: Arc<Notify>,
}

/// What the API server holds, and what it remembers of the past.
pub(crate) struct Inner {
    pub(crate) volumes: BTreeMap<Text, Arc<Volume>>,
    pub(crate) claims: BTreeMap<ClaimKey, Arc<Claim>>,
    pub(crate) classes: BTreeMap<Text, Class>,
    /// Every state that a volume, or a claim, ever had.
    pub(crate) past_volumes: Vec<Arc<Volume>>,
    pub(crate) past_claims: Vec<Arc<Claim>>,
    /// The states under the names of volumes that are over, and when each ended; nothing: there was no
    /// volume.
    ended: Vec<(Instant, Text, Option<Arc<Volume>>)>,
    /// Nobody but the binder acts, and all that it was told is true.
    pub(crate) calm: bool,
    pub(crate) assets: Assets,
    /// What becomes of the requests that come next.
    pub(crate) faults: VecDeque<Option<Fault>>,
    version: u64,
    requests: Vec<(Write<Volume>, Result<(), WriteError>)>,
    /// What broke the law.
    violations: Vec<String>,
    volume_watch: UnboundedSender<(Text, Option<Arc<Volume>>)>,
    claim_watch: UnboundedSender<(ClaimKey, Option<Arc<Claim>>)>,
}

/// What a watch delivers, in order: a name and the object, or that it is gone.
pub(crate) struct Watches {
    pub(crate) volumes: UnboundedReceiver<(Text, Option<Arc<Volume>>)>,
    pub(crate) claims: UnboundedReceiver<(ClaimKey, Option<Arc<Claim>>)>,
}

/// What the plugin has done.
#[derive(Debug, Default)]
pub(crate) struct Assets {
    /// UIDs of claims that something was provisioned for.
    pub(crate) provisioned: BTreeSet<Uid>,
    /// UIDs of volumes whose asset was deleted.
    pub(crate) deleted: BTreeSet<Uid>,
    /// UIDs of volumes whose asset was scrubbed and not offered again since.
    pub(crate) recycled: BTreeSet<Uid>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not carried out.
    Refused(WriteError),
    /// It is carried out, and nobody learns of it.
    AnswerLost,
}

impl Server {
    /// A server without objects.
    pub(crate) fn new(classes: Vec<Class>, weather: Weather, calm: bool) -> (Self, Watches) {
        let (volume_watch, volumes) = unbounded_channel();
        let (claim_watch, claims) = unbounded_channel();
        let inner = Inner {
            volumes: BTreeMap::new(),
            claims: BTreeMap::new(),
            classes: classes.into_iter().map(|class| (class.name.clone(), class)).collect(),
            past_volumes: Vec::new(),
            past_claims: Vec::new(),
            ended: Vec::new(),
            calm,
            assets: Assets::default(),
            faults: VecDeque::new(),
            version: 100,
            requests: Vec::new(),
            violations: Vec::new(),
            volume_watch,
            claim_watch,
        };
        let server = Self { inner: Arc::new(Mutex::new(inner)), weather, changed: Arc::default() };
        (server, Watches { volumes, claims })
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Until the binder has a write carried out; at once, if it had one since this was asked last.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn weather(&self) -> Weather {
        self.weather
    }

    async fn take_time(&self) {
        for _ in 0..self.weather.yields {
            yield_now().await;
        }
    }
}

impl Inner {
    /// How many writes of the binder were carried out so far.
    pub(crate) fn changes(&self) -> usize {
        self.requests.iter().filter(|(_, result)| result.is_ok()).count()
    }

    /// The writes that the binder asked for, and how each ended.
    pub(crate) fn requests(&self) -> String {
        self.requests.iter().fold(String::new(), |mut text, (write, result)| {
            let _ = writeln!(text, "  {result:?} {write:?}");
            text
        })
    }

    /// What broke the law, if anything did.
    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Something broke the law.
    pub(crate) fn accuse(&mut self, violation: String) {
        self.violations.push(violation);
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }

    /// The states under the name of a volume that the binder may have learnt for the decision whose write
    /// has come, by a live read or from the answer to a write: that of now, and those that ended since the
    /// clock last moved, because no time passes from a read to the write that rests on it. In a calm world
    /// it is that of now.
    pub(crate) fn states_now(&self, name: &Text) -> impl Iterator<Item = Option<&Arc<Volume>>> {
        let is_of_now = |at: Instant| !self.calm && at == Instant::now();
        let ended = self.ended.iter().rev().take_while(move |(at, ..)| is_of_now(*at));
        let ended = ended.filter(move |(_, of, _)| of == name).map(|(.., state)| state.as_ref());
        std::iter::once(self.volumes.get(name)).chain(ended)
    }

    /// Keeps a new state of a volume and tells the watch.
    pub(crate) fn put_volume(&mut self, mut volume: Volume) -> Arc<Volume> {
        volume.version = self.next_version();
        let volume = Arc::new(volume);
        self.past_volumes.push(Arc::clone(&volume));
        let is_over = volume.deleting && volume.finalizers.is_empty();
        let before = if is_over {
            self.volumes.remove(&volume.name)
        } else {
            self.volumes.insert(volume.name.clone(), Arc::clone(&volume))
        };
        self.ended.push((Instant::now(), volume.name.clone(), before));
        // Closed where the world has come to its end.
        let _ = self.volume_watch.send((volume.name.clone(), (!is_over).then(|| Arc::clone(&volume))));
        self.unprotect(&volume);
        volume
    }

    /// Keeps a new state of a claim and tells the watch.
    pub(crate) fn put_claim(&mut self, mut claim: Claim) -> Arc<Claim> {
        claim.version = self.next_version();
        let claim = Arc::new(claim);
        self.past_claims.push(Arc::clone(&claim));
        self.claims.insert(claim.key.clone(), Arc::clone(&claim));
        let _ = self.claim_watch.send((claim.key.clone(), Some(Arc::clone(&claim))));
        claim
    }

    /// Removes a claim for good.
    pub(crate) fn remove_claim(&mut self, key: &ClaimKey) {
        if self.claims.remove(key).is_some() {
            let _ = self.claim_watch.send((key.clone(), None));
        }
    }

    /// Marks a volume for deletion; it goes with its last finalizer.
    pub(crate) fn delete_volume(&mut self, name: &Text) {
        if let Some(volume) = self.volumes.get(name).filter(|volume| !volume.deleting) {
            let deleting = Volume { deleting: true, ..Volume::clone(volume) };
            self.put_volume(deleting);
        }
    }

    /// What the controller of pv-protection and an external provisioner do: a volume that is to go and is not
    /// Bound loses their finalizers.
    fn unprotect(&mut self, volume: &Volume) {
        let is_theirs = |finalizer: &Text| [PROTECTION, FINALIZER_EXTERNAL].contains(&&**finalizer);
        let is_protected = volume.finalizers.iter().any(is_theirs);
        if volume.deleting && is_protected && volume.phase != VolumePhase::Bound {
            let mut bare = volume.clone();
            bare.finalizers.retain(|finalizer| !is_theirs(finalizer));
            self.put_volume(bare);
        }
    }

    /// Carries out a write of the binder, unless it is refused.
    fn carry_out(&mut self, write: &Write<Volume>, fault: Option<Fault>) -> Result<Written, WriteError> {
        if let Some(Fault::Refused(error)) = fault {
            return Err(error);
        }
        let change = apply::change(self, write)?;
        if let Err(violation) = law::check(self, write, &change) {
            self.accuse(format!("{violation}: {write:?}"));
        }
        let written = match change {
            Change::Volume { after, .. } => {
                if uid_in(&after).is_none() {
                    self.assets.recycled.remove(&after.uid);
                }
                Written::Volume(self.put_volume(after))
            }
            Change::Claim { after, .. } => Written::Claim(self.put_claim(after)),
            Change::Deletion { before } => {
                self.delete_volume(&before.name);
                Written::Deletion
            }
        };
        if fault == Some(Fault::AnswerLost) {
            return Err(WriteError::Failed("the connection broke".to_owned()));
        }
        Ok(written)
    }
}

impl Port for Server {
    type Template = Volume;

    async fn read_volume(&self, name: &Text, _: Purpose) -> Lookup<Arc<Volume>> {
        self.take_time().await;
        let found = self.inner().volumes.get(name).cloned();
        self.take_time().await;
        found.map_or(Lookup::Absent, Lookup::Found)
    }

    async fn read_claim(&self, key: &ClaimKey, _: Purpose) -> Lookup<Arc<Claim>> {
        self.take_time().await;
        let found = self.inner().claims.get(key).cloned();
        self.take_time().await;
        found.map_or(Lookup::Absent, Lookup::Found)
    }

    async fn write(&self, write: &Write<Volume>) -> Result<Written, WriteError> {
        self.take_time().await;
        let result = {
            let mut inner = self.inner();
            let fault = inner.faults.pop_front().flatten();
            let result = inner.carry_out(write, fault);
            inner.requests.push((write.clone(), result.as_ref().map(|_| ()).map_err(Clone::clone)));
            if result.is_ok() {
                self.changed.notify_one();
            }
            result
        };
        self.take_time().await;
        result
    }

    fn emit(&self, _: &Note) {}

    fn now(&self) -> Timestamp {
        1_700_000_000
    }
}
