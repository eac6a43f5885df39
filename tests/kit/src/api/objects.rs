//! The objects of an API server in memory, and what it remembers of requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Note, Purpose, Write, WriteError, Written};
use bindery_core::steer::SteerWrite;
use bindery_core::{
    Claim, ClaimKey, ClaimRef, FINALIZER_EXTERNAL, Lookup, Text, Version, Volume, VolumePhase,
};
use bindery_store::{Delivery, ObjectKey};
use tokio::time::Instant;

use super::apply::{self, Change};

/// The finalizer of the controller that protects volumes in use.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// How long that controller takes to release a volume.
const PROTECTION_LASTS: Duration = Duration::from_secs(1);

/// What becomes of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out.
    Refused(WriteError),
    /// It is carried out, and its answer is lost.
    AnswerLost,
}

/// Faults of the writes that come next.
#[derive(Debug, Default)]
pub struct Faults(VecDeque<Option<Fault>>);

impl Faults {
    /// The `nth` write from now on (from 1) meets a fault.
    pub fn insert(&mut self, nth: usize, fault: Fault) {
        let count = self.0.len().max(nth);
        self.0.resize(count, None);
        self.0[nth - 1] = Some(fault);
    }

    /// After all faults so far and `spared` more writes, a write meets a fault.
    pub fn append(&mut self, spared: usize, fault: Fault) {
        self.insert(self.0.len() + spared + 1, fault);
    }

    /// No write meets a fault any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The objects of an API server in memory, and what it remembers of requests.
pub struct Objects<X> {
    /// Volumes by name.
    pub volumes: BTreeMap<Text, Arc<Volume>>,
    /// Claims by key.
    pub claims: BTreeMap<ClaimKey, Arc<Claim>>,
    /// What the test keeps beside them.
    pub extra: X,
    /// Each state that [`put_volume`](Self::put_volume) made, in order.
    pub past_volumes: Vec<Arc<Volume>>,
    /// Each state that [`put_claim`](Self::put_claim) made, in order.
    pub past_claims: Vec<Arc<Claim>>,
    /// When each state of a volume's name ended, in order; `None` is the absence of the volume.
    pub ended: Vec<(Instant, Text, Option<Arc<Volume>>)>,
    /// Faults of the writes that come next.
    pub faults: Faults,
    /// Every write that was asked for, and its result.
    pub writes: Vec<(Write<Volume>, Result<(), WriteError>)>,
    /// Every write of mode steer that was asked for, and its result.
    pub steered: Vec<(SteerWrite, Result<(), WriteError>)>,
    /// The volumes whose claimRef mode steer has written, as managedFields would say.
    pub reserved: BTreeSet<Text>,
    /// Checks each write before it is carried out.
    pub inspect: fn(&mut Self, &Write<Volume>, &Change),
    /// How long a volume stays protected after its deletion was accepted.
    pub protection_lasts: Duration,
    pub(super) failing_reads: usize,
    pub(super) reads: Vec<(String, Purpose)>,
    pub(super) volume_reads: usize,
    pub(super) notes: Vec<Note>,
    pub(super) story: Vec<&'static str>,
    version: u64,
    events: Vec<Delivery>,
}

impl<X> Objects<X> {
    pub(super) fn new(extra: X) -> Self {
        Self {
            volumes: BTreeMap::new(),
            claims: BTreeMap::new(),
            extra,
            past_volumes: Vec::new(),
            past_claims: Vec::new(),
            ended: Vec::new(),
            faults: Faults::default(),
            writes: Vec::new(),
            steered: Vec::new(),
            reserved: BTreeSet::new(),
            inspect: |_, _, _| {},
            protection_lasts: PROTECTION_LASTS,
            failing_reads: 0,
            reads: Vec::new(),
            volume_reads: 0,
            notes: Vec::new(),
            story: Vec::new(),
            version: 99,
            events: Vec::new(),
        }
    }

    /// Stores a new state of a volume. A deleted volume without finalizers is gone.
    pub fn put_volume(&mut self, mut volume: Volume) -> Arc<Volume> {
        volume.version = self.next_version();
        let named = |volume: &Volume| volume.claim_ref.as_ref().map(ClaimRef::claim_key);
        if self.volumes.get(&volume.name).is_none_or(|before| named(before) != named(&volume)) {
            self.reserved.remove(&volume.name);
        }
        let volume = Arc::new(volume);
        self.past_volumes.push(Arc::clone(&volume));
        let is_gone = volume.deleting && volume.finalizers.is_empty();
        let before = if is_gone {
            self.volumes.remove(&volume.name)
        } else {
            self.volumes.insert(volume.name.clone(), Arc::clone(&volume))
        };
        self.ended.push((Instant::now(), volume.name.clone(), before));
        self.events.push(if is_gone {
            Delivery::Gone(ObjectKey::Volume(volume.name.clone()))
        } else {
            Delivery::applied(Arc::clone(&volume))
        });
        if self.protection_lasts.is_zero() {
            self.unprotect(&volume.name);
        }
        volume
    }

    /// Stores a new state of a claim.
    pub fn put_claim(&mut self, mut claim: Claim) -> Arc<Claim> {
        claim.version = self.next_version();
        let claim = Arc::new(claim);
        self.past_claims.push(Arc::clone(&claim));
        self.claims.insert(claim.key.clone(), Arc::clone(&claim));
        self.events.push(Delivery::applied(Arc::clone(&claim)));
        claim
    }

    /// Removes a claim at once, without regard to finalizers.
    pub fn remove_claim(&mut self, key: &ClaimKey) {
        if self.claims.remove(key).is_some() {
            self.events.push(Delivery::Gone(ObjectKey::Claim(key.clone())));
        }
    }

    /// Reports a change of an object that the test keeps in [`extra`](Self::extra).
    pub fn report(&mut self, change: Delivery) {
        self.events.push(change);
    }

    /// Marks a volume for deletion. It is gone with its last finalizer.
    pub fn delete_volume(&mut self, name: &Text) {
        if let Some(volume) = self.volumes.get(name).filter(|volume| !volume.deleting) {
            let deleting = Volume { deleting: true, ..Volume::clone(volume) };
            self.put_volume(deleting);
        }
    }

    /// Removes the finalizers of the protection controller and of external provisioners from a volume that is
    /// being deleted and is not Bound.
    pub(super) fn unprotect(&mut self, name: &Text) {
        let is_theirs = |finalizer: &Text| [VOLUME_PROTECTION, FINALIZER_EXTERNAL].contains(&&**finalizer);
        let Some(volume) = self.volumes.get(name) else { return };
        let is_protected = volume.finalizers.iter().any(is_theirs);
        if volume.deleting && is_protected && volume.phase != VolumePhase::Bound {
            let mut bare = Volume::clone(volume);
            bare.finalizers.retain(|finalizer| !is_theirs(finalizer));
            self.put_volume(bare);
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn read<T>(
        &mut self,
        object: String,
        purpose: Purpose,
        find: impl FnOnce(&Self) -> Option<Arc<T>>,
    ) -> Lookup<Arc<T>> {
        self.reads.push((object, purpose));
        if self.failing_reads > 0 {
            self.failing_reads -= 1;
            return Lookup::Failed("no answer".into());
        }
        find(self).map_or(Lookup::Absent, Lookup::Found)
    }

    /// Carries out a write of the binder, unless a fault or the API's rules refuse it.
    pub(super) fn write(&mut self, write: &Write<Volume>) -> Result<Written, WriteError> {
        let fault = self.faults.0.pop_front().flatten();
        let result = match fault {
            Some(Fault::Refused(error)) => Err(error),
            Some(Fault::AnswerLost) => {
                self.carry_out(write).and_then(|_| Err(WriteError::Failed("the connection broke".to_owned())))
            }
            None => self.carry_out(write),
        };
        self.writes.push((write.clone(), result.as_ref().map(|_| ()).map_err(Clone::clone)));
        result
    }

    /// Carries out a write of mode steer, unless a fault or the API's rules refuse it.
    pub(super) fn steer(&mut self, write: &SteerWrite) -> Result<Written, WriteError> {
        let carry_out = |objects: &mut Self| {
            let written = match apply::steering(objects, write)? {
                Change::Volume { after, .. } => Written::Volume(objects.put_volume(after)),
                Change::Claim { after, .. } => Written::Claim(objects.put_claim(after)),
                Change::Deletion { .. } => Written::Deletion,
            };
            if let SteerWrite::Reserve { volume, .. } = write {
                objects.reserved.insert(volume.name.clone());
            }
            Ok(written)
        };
        let result = match self.faults.0.pop_front().flatten() {
            Some(Fault::Refused(error)) => Err(error),
            Some(Fault::AnswerLost) => {
                carry_out(self).and_then(|_| Err(WriteError::Failed("the connection broke".to_owned())))
            }
            None => carry_out(self),
        };
        self.steered.push((write.clone(), result.as_ref().map(|_| ()).map_err(Clone::clone)));
        result
    }

    fn carry_out(&mut self, write: &Write<Volume>) -> Result<Written, WriteError> {
        let change = apply::change(self, write)?;
        (self.inspect)(self, write, &change);
        Ok(match change {
            Change::Volume { after, .. } => Written::Volume(self.put_volume(after)),
            Change::Claim { after, .. } => Written::Claim(self.put_claim(after)),
            Change::Deletion { before } => {
                self.delete_volume(&before.name);
                Written::Deletion
            }
        })
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }
}
