//! A cluster in memory behind the port, and engines that do as they are told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bindery_controller::{Binder, Facts, Note, Parts, Port, Purpose, Settings, Write, WriteError, Written};
use bindery_core::{
    AccessMode, CapacityChange, Claim, ClaimAnnotations, ClaimKey, ClaimPhase, ClaimRef, ClaimStatus,
    Cluster, Decision, Edit, Engine, EngineFault, Lookup, Quantity, ReclaimPolicy, Request, Text, Timestamp,
    Version, Volume, VolumeAnnotations, VolumeMode, VolumePhase,
};
use bindery_store::{Kind, Observed, Store};
use tokio::sync::Semaphore;

/// The cluster. Writes are applied as an API server would, versions included.
#[derive(Clone)]
pub(crate) struct Double {
    inner: Arc<Mutex<Inner>>,
    /// Writes wait for a permit; there are plenty unless a test takes them away.
    pub(crate) gate: Arc<Semaphore>,
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
    failing_reads: usize,
    notes: Vec<Note>,
}

impl Double {
    pub(crate) fn new() -> Self {
        let inner = Arc::<Mutex<Inner>>::default();
        Self { inner, gate: Arc::new(Semaphore::new(1_000)), version: Arc::new(AtomicU64::new(100)) }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics while it holds the cluster")
    }

    pub(crate) fn add_volume(&self, volume: &Volume) {
        self.inner().volumes.insert(volume.name.clone(), volume.clone());
    }

    pub(crate) fn add_claim(&self, claim: &Claim) {
        self.inner().claims.insert(claim.key.clone(), claim.clone());
    }

    pub(crate) fn volume(&self, name: &str) -> Volume {
        self.inner().volumes[name].clone()
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

    pub(crate) fn reads(&self) -> Vec<(String, Purpose)> {
        self.inner().reads.clone()
    }

    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.inner().notes.iter().map(|note| note.reason).collect()
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

    fn next_version(&self) -> Version {
        Version(self.version.fetch_add(1, Ordering::Relaxed).to_string().into())
    }

    fn change_volume(
        &self,
        target: &bindery_core::VolumeTarget,
        change: impl FnOnce(&mut Volume),
    ) -> Result<Written, WriteError> {
        let mut inner = self.inner();
        let Some(volume) = inner.volumes.get_mut(&target.name) else {
            return Err(WriteError::NotFound(target.name.to_string()));
        };
        if (&volume.uid, &volume.version) != (&target.uid, &target.version) {
            return Err(WriteError::Conflict(format!("{} is {}", target.name, volume.version)));
        }
        change(volume);
        volume.version = self.next_version();
        Ok(Written::Volume(Arc::new(volume.clone())))
    }

    fn change_claim(
        &self,
        target: &bindery_core::ClaimTarget,
        change: impl FnOnce(&mut Claim),
    ) -> Result<Written, WriteError> {
        let mut inner = self.inner();
        let Some(claim) = inner.claims.get_mut(&target.key) else {
            return Err(WriteError::NotFound(target.key.to_string()));
        };
        if (&claim.uid, &claim.version) != (&target.uid, &target.version) {
            return Err(WriteError::Conflict(format!("{} is {}", target.key, claim.version)));
        }
        change(claim);
        claim.version = self.next_version();
        Ok(Written::Claim(Arc::new(claim.clone())))
    }

    fn apply(&self, write: &Write<()>) -> Result<Written, WriteError> {
        match write {
            Write::ReserveVolume { volume, claim, mark } => self.change_volume(volume, |volume| {
                volume.annotations.bound_by_controller |= mark;
                volume.claim_ref = Some(ClaimRef {
                    namespace: claim.key.namespace.clone(),
                    name: claim.key.name.clone(),
                    uid: Some(claim.uid.clone()),
                });
            }),
            Write::SetVolumePhase { volume, phase, .. } => {
                self.change_volume(volume, |volume| volume.phase = *phase)
            }
            Write::BindClaim { claim, volume_name, mark } => self.change_claim(claim, |claim| {
                claim.annotations.bind_completed = true;
                claim.annotations.bound_by_controller |= mark;
                claim.volume_name = volume_name.clone().or(claim.volume_name.take());
            }),
            Write::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class } => self
                .change_claim(claim, |claim| {
                    let status = &mut claim.status;
                    status.phase = *phase;
                    edit(&mut status.access_modes, access_modes.clone());
                    status.capacity = match capacity {
                        CapacityChange::Keep => status.capacity,
                        CapacityChange::Remove => None,
                        CapacityChange::Storage(amount) | CapacityChange::Whole(amount) => Some(*amount),
                    };
                    status.has_capacity = status.capacity.is_some();
                    edit(
                        &mut status.attributes_class,
                        match attributes_class {
                            Edit::Keep => Edit::Keep,
                            Edit::Set(class) => Edit::Set(Some(class.clone())),
                            Edit::Remove => Edit::Remove,
                        },
                    );
                }),
            Write::DeleteVolume { volume } => {
                self.change_volume(volume, |_| {})?;
                self.inner().volumes.remove(&volume.name);
                Ok(Written::Deletion)
            }
            other => panic!("no test makes this write: {other:?}"),
        }
    }
}

fn edit<T: Default>(field: &mut T, edit: Edit<T>) {
    match edit {
        Edit::Keep => {}
        Edit::Set(value) => *field = value,
        Edit::Remove => *field = T::default(),
    }
}

impl Port for Double {
    type Template = ();

    async fn read_volume(&self, name: &Text, purpose: Purpose) -> Lookup<Arc<Volume>> {
        self.read(name.to_string(), purpose, |inner| inner.volumes.get(name).cloned())
    }

    async fn read_claim(&self, key: &ClaimKey, purpose: Purpose) -> Lookup<Arc<Claim>> {
        self.read(key.to_string(), purpose, |inner| inner.claims.get(key).cloned())
    }

    async fn write(&self, write: &Write<()>) -> Result<Written, WriteError> {
        let _permit = self.gate.acquire().await.expect("the gate is never closed");
        let failure = {
            let mut inner = self.inner();
            let at = inner.writes.len();
            inner.writes.push(write.clone());
            inner.failures.iter().position(|(nth, _)| *nth == at).map(|found| inner.failures.remove(found).1)
        };
        failure.map_or_else(|| self.apply(write), Err)
    }

    fn record(&self, note: &Note) {
        self.inner().notes.push(note.clone());
    }

    fn now(&self) -> Timestamp {
        1_000
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
    let binder = unsynced(double, engine);
    Kind::ALL.into_iter().for_each(|kind| binder.intake().synced(kind));
    binder
}

/// A binder on the cluster before its lists are complete.
pub(crate) fn unsynced(double: &Double, engine: impl Engine + 'static) -> Arc<Binder<Double>> {
    let binder = Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: double.clone(),
        engine: Arc::new(engine),
        facts: Facts::default(),
        settings: Settings::default(),
        journal: None,
    });
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

/// A free volume of 1 GiB.
pub(crate) fn volume(name: &str) -> Volume {
    Volume {
        name: name.into(),
        uid: format!("uid-{name}").as_str().into(),
        version: "1".into(),
        deleting: false,
        labels: BTreeMap::new(),
        annotations: VolumeAnnotations::default(),
        finalizers: Vec::new(),
        capacity: Some(Quantity::bytes(1 << 30)),
        access_modes: vec![AccessMode::ReadWriteOnce],
        class: "".into(),
        mode: VolumeMode::Filesystem,
        attributes_class: None,
        claim_ref: None,
        policy: ReclaimPolicy::Retain,
        node_affinity: false,
        source: "hostPath".into(),
        phase: VolumePhase::Available,
    }
}

/// A claim for 1 GiB.
pub(crate) fn claim(name: &str) -> Claim {
    Claim {
        key: ClaimKey::new("ns", name),
        uid: format!("uid-{name}").as_str().into(),
        version: "1".into(),
        deleting: false,
        annotations: ClaimAnnotations::default(),
        request: Quantity::bytes(1 << 30),
        access_modes: vec![AccessMode::ReadWriteOnce],
        class: None,
        mode: VolumeMode::Filesystem,
        attributes_class: None,
        selector: None,
        volume_name: None,
        data_source: false,
        status: ClaimStatus {
            phase: ClaimPhase::Pending,
            access_modes: Vec::new(),
            has_capacity: false,
            capacity: None,
            attributes_class: None,
        },
    }
}
