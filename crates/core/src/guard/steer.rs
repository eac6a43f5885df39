//! S1 to S4: the writes of mode steer, where upstream's binder stays on.
//!
//! A reservation and a release rest on live reads of the volume and then of the claim. The order counts: see
//! [`SteerWrite`].

use std::sync::Arc;

use super::bind::names;
use super::effects::Effects;
use super::step::{StepCheck, key_of};
use super::{Breach, Case, Objection, Refusal, View};
use crate::{
    BindingMode, Choice, Claim, ClaimKey, ClaimPhase, ClaimTarget, Class, Decision, Key, Lookup, Outcome,
    Request, Reservation, SteerWrite, Subject, Text, Volume, VolumeTarget,
};

/// What the guard looks up for itself in mode steer.
pub trait SteerView: View {
    /// The volumes whose claimRef has the namespace and name of a claim, as the overlay has them.
    fn volumes_naming(&self, claim: &ClaimKey) -> Vec<Arc<Volume>>;
    /// Whether the managedFields of a volume that was read live for this write say that Bindery alone wrote
    /// the name in its claimRef.
    fn has_reserved(&self, volume: &str) -> bool;
}

/// Checks a write of mode steer.
///
/// # Errors
///
/// The write is not made: see [`Objection`]. A reservation is refused only for what the volume is, or what
/// the policies say about it; then another volume is to be chosen.
pub fn check(write: &SteerWrite, view: &dyn SteerView) -> Result<(), Objection> {
    let check = SteerCheck { view };
    if !view.synced() {
        let object = match write {
            SteerWrite::Choose { claim, .. } | SteerWrite::Touch { claim } => Key::Claim(claim.key.clone()),
            SteerWrite::Fence { volume, .. }
            | SteerWrite::Reserve { volume, .. }
            | SteerWrite::Release { volume }
            | SteerWrite::Label { volume, .. }
            | SteerWrite::Unlabel { volume, .. }
            | SteerWrite::Forget { volume } => Key::Volume(volume.name.clone()),
        };
        return refuse(Breach::NotSynced, object, "the initial lists are not complete");
    }
    match write {
        SteerWrite::Choose { claim, choice } => check.choose(claim, choice),
        SteerWrite::Fence { volume, claim } => check.fence(volume, claim),
        SteerWrite::Reserve { volume, reservation } => check.reserve(volume, reservation),
        SteerWrite::Touch { claim } => check.touch(claim),
        SteerWrite::Release { volume } => check.release(volume),
        SteerWrite::Label { volume, reservation } => check.label(volume, reservation),
        SteerWrite::Unlabel { volume, claim } => check.unlabel(volume, claim),
        SteerWrite::Forget { volume } => check.forget(volume),
    }
}

struct SteerCheck<'a> {
    view: &'a dyn SteerView,
}

impl<'a> SteerCheck<'a> {
    /// The choice of a claim changes only from none to a volume, from a volume that it cannot have to its
    /// withdrawal, and from there to a volume when no reservation of the former one can succeed any more.
    fn choose(&self, target: &ClaimTarget, choice: &Choice) -> Result<(), Objection> {
        let claim = self.waiting_claim(target)?;
        match claim.choice.as_deref() {
            None if !choice.withdrawn => Ok(()),
            Some(Choice { volume, uid, withdrawn: false })
                if choice.withdrawn && *volume == choice.volume && *uid == choice.uid =>
            {
                self.is_lost(&claim, choice)
            }
            Some(before) if before.withdrawn && !choice.withdrawn => self.is_fenced(target, before),
            before => {
                let sentence = format!("its choice would become {choice:?}, and is {before:?}");
                refuse(Breach::SteerWrong, Key::Claim(target.key.clone()), sentence)
            }
        }
    }

    /// Whether a claim cannot have the volume of its choice, as a live read shows. A cache would not do: two
    /// replicas whose caches lag would withdraw each other's choices for as long as both lead.
    fn is_lost(&self, claim: &Claim, choice: &Choice) -> Result<(), Objection> {
        let Some(volume) = self.live_volume(&choice.volume)?.filter(|volume| volume.uid == choice.uid) else {
            return Ok(());
        };
        let may_have = if is_named_by(volume, claim) { Ok(()) } else { self.may_have(claim, volume) };
        match may_have {
            Ok(()) => stale_claim(&claim.key, "it may have the volume of its choice, as a live read shows"),
            Err(Objection::Refused(_)) => Ok(()),
            Err(objection) => Err(objection),
        }
    }

    /// Whether no reservation of a withdrawn choice can succeed any more: the volume has changed since.
    fn is_fenced(&self, claim: &ClaimTarget, choice: &Choice) -> Result<(), Objection> {
        match self.live_volume(&choice.volume)? {
            Some(volume)
                if volume.uid == choice.uid
                    && volume.claim_ref.is_none()
                    && volume.annotations.fence != Some(fence(claim)) =>
            {
                stale_claim(&claim.key, "the volume of its withdrawn choice is not fenced")
            }
            Some(_) | None => Ok(()),
        }
    }

    fn fence(&self, volume: &VolumeTarget, claim: &ClaimTarget) -> Result<(), Objection> {
        let found = self.waiting_claim(claim)?;
        let is_withdrawn = found.choice.as_deref().is_some_and(|choice| {
            choice.withdrawn && choice.volume == volume.name && choice.uid == volume.uid
        });
        if is_withdrawn && self.volume(volume)?.claim_ref.is_none() {
            return Ok(());
        }
        let sentence = format!("claim {} has withdrawn no choice of it, or it is not free", claim.key);
        refuse(Breach::SteerWrong, Key::Volume(volume.name.clone()), sentence)
    }

    /// S3. The volume is read before the claim: if the choice was withdrawn in between, its fence is still to
    /// come, and this write fails by its version.
    fn reserve(&self, target: &VolumeTarget, reservation: &Reservation) -> Result<(), Objection> {
        let volume = self.live_target(target)?;
        let key = &reservation.claim;
        let Some(claim) = self.live_claim(key)? else { return stale_claim(key, "it is gone") };
        let is_chosen =
            |choice: &Choice| !choice.withdrawn && choice.volume == target.name && choice.uid == target.uid;
        if claim.uid != reservation.uid || !waits(claim) {
            return stale_claim(key, "it does not wait any more");
        }
        if !claim.choice.as_deref().is_some_and(is_chosen) {
            return stale_claim(key, "it has another choice");
        }
        let names_it = |volume: &Arc<Volume>| volume.uid != target.uid && is_named_by(volume, claim);
        if self.view.volumes_naming(key).iter().any(names_it) {
            return stale_claim(key, "another volume names it");
        }
        self.may_have(claim, volume)
    }

    /// Whether the claim may have the volume: it is free, and upstream and every policy allow it (G3, G10).
    /// `bindery steer release` gives a claim the volume whatever policies say. The annotation of Bindery's
    /// own reservation does not: it stays on a volume whose claimRef somebody clears.
    fn may_have(&self, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        let is_given = volume.annotations.reserved_for.as_deref() == Some(&Reservation::released_to(claim));
        self.ask(claim, volume, |step| {
            step.does_not_wait(claim, volume)?;
            step.suits(claim, volume)?;
            if is_given { Ok(()) } else { step.allowed(claim, volume) }
        })
    }

    /// Asks the rules of own mode about a volume without claimRef.
    fn ask(
        &self,
        claim: &Claim,
        volume: &Volume,
        rule: impl FnOnce(&StepCheck<'_>) -> Result<(), Objection>,
    ) -> Result<(), Objection> {
        if let Some(claim_ref) = &volume.claim_ref {
            let sentence = format!("spec.claimRef names claim {}", key_of(claim_ref));
            return refuse(Breach::ReservationWrong, Key::Volume(volume.name.clone()), sentence);
        }
        let request = Request { now: 0, subject: Subject::SyncClaim(Arc::new(claim.clone())) };
        let decision = Decision {
            wait_ms: 0,
            steps: Vec::new(),
            outcome: Outcome::Done,
            tallies: Vec::new(),
            findings: Vec::new(),
            requeue_after_ms: None,
        };
        let case = Case { request: &request, exchanges: &[], decision: &decision, view: self.view };
        rule(&StepCheck { case: &case, effects: &Effects::default(), step: None })
    }

    /// S4. The scheduler and upstream's binder check a labelled volume again before they take it, so a cached
    /// claim suffices. The volume has the version that was judged.
    fn label(&self, target: &VolumeTarget, reservation: &Reservation) -> Result<(), Objection> {
        let volume = self.volume(target)?;
        let key = &reservation.claim;
        let claim = match self.view.claim(key) {
            Lookup::Found(claim) if claim.uid == reservation.uid && waits(&claim) => claim,
            _ => return stale_claim(key, "it does not wait any more"),
        };
        if !self.waits_for_consumer(&claim) {
            let sentence = "its class does not wait for a consumer";
            return refuse(Breach::LabelWrong, Key::Claim(key.clone()), sentence);
        }
        self.ask(&claim, &volume, |step| {
            step.suits(&claim, &volume)?;
            step.allowed(&claim, &volume)
        })
    }

    fn waits_for_consumer(&self, claim: &Claim) -> bool {
        let class = self.view.class(claim.class.as_deref().unwrap_or_default());
        let waits = |class: &Class| class.binding_mode == Some(BindingMode::WaitForFirstConsumer);
        matches!(class, Lookup::Found(class) if waits(&class))
    }

    /// Without its label a volume is only chosen less often, so a label needs no reason to go. One without a
    /// value is a person's.
    fn unlabel(&self, target: &VolumeTarget, claim: &ClaimKey) -> Result<(), Objection> {
        let label = format!("{}.{}.steer.bindery.dev/claim", claim.name, claim.namespace);
        if self.volume(target)?.labels.get(&*label).is_some_and(|value| !value.is_empty()) {
            return Ok(());
        }
        let sentence = format!("it has no label of Bindery's that steers claim {claim}");
        refuse(Breach::LabelWrong, Key::Volume(target.name.clone()), sentence)
    }

    fn touch(&self, target: &ClaimTarget) -> Result<(), Objection> {
        let claim = self.waiting_claim(target)?;
        let is_for_it =
            |volume: &Arc<Volume>| volume.reservation().is_some_and(|reserved| reserved.uid == claim.uid);
        if self.view.volumes_naming(&target.key).iter().any(is_for_it) {
            return Ok(());
        }
        let sentence = "no volume is reserved for it";
        refuse(Breach::SteerWrong, Key::Claim(target.key.clone()), sentence)
    }

    /// S2. Upstream may be binding the volume in this moment; then the write fails by its version.
    fn release(&self, target: &VolumeTarget) -> Result<(), Objection> {
        let volume = self.live_target(target)?;
        let foreign =
            |sentence| refuse(Breach::ReservationForeign, Key::Volume(target.name.clone()), sentence);
        let Some(reservation) = volume.reservation() else {
            return foreign("spec.claimRef has a uid, or another claim than the annotation of Bindery");
        };
        if !self.view.has_reserved(&target.name) {
            return foreign("metadata.managedFields do not say that Bindery wrote spec.claimRef");
        }
        match self.live_claim(&reservation.claim)? {
            Some(claim) if needs(claim, volume, reservation) => {
                stale_volume(&target.name, "its claim needs the reservation, as a live read shows")
            }
            Some(_) | None => Ok(()),
        }
    }

    fn forget(&self, target: &VolumeTarget) -> Result<(), Objection> {
        let volume = self.volume(target)?;
        let is_bound = volume.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.is_some());
        if is_bound && volume.annotations.reserved_for.is_some() {
            return Ok(());
        }
        let sentence = "upstream has carried no reservation out";
        refuse(Breach::SteerWrong, Key::Volume(target.name.clone()), sentence)
    }

    /// A steered claim that waits for its volume, in the version that the write names.
    fn waiting_claim(&self, target: &ClaimTarget) -> Result<Arc<Claim>, Objection> {
        match self.view.claim(&target.key) {
            Lookup::Found(claim) if claim.target() != *target => {
                stale_claim(&target.key, "it has another version")
            }
            Lookup::Found(claim) if waits(&claim) => Ok(claim),
            Lookup::Found(_) => {
                let sentence = "it is not steered, or does not wait for a volume";
                refuse(Breach::SteerWrong, Key::Claim(target.key.clone()), sentence)
            }
            Lookup::Unreadable(error) => {
                refuse(Breach::Unreadable, Key::Claim(target.key.clone()), error.to_string())
            }
            Lookup::Absent | Lookup::Failed(_) => stale_claim(&target.key, "it is gone"),
        }
    }

    /// The volume in the version that the write names.
    fn volume(&self, target: &VolumeTarget) -> Result<Arc<Volume>, Objection> {
        match self.view.volume(&target.name) {
            Lookup::Found(volume) if volume.target() == *target => Ok(volume),
            Lookup::Unreadable(error) => {
                refuse(Breach::Unreadable, Key::Volume(target.name.clone()), error.to_string())
            }
            Lookup::Found(_) | Lookup::Absent | Lookup::Failed(_) => {
                stale_volume(&target.name, "it has another version")
            }
        }
    }

    /// The volume that the write names, read live in the version that the write names.
    fn live_target(&self, target: &VolumeTarget) -> Result<&'a Volume, Objection> {
        match self.live_volume(&target.name)? {
            Some(volume) if volume.target() == *target => Ok(volume),
            Some(_) | None => stale_volume(&target.name, "it has another version, as a live read shows"),
        }
    }

    fn live_volume(&self, name: &Text) -> Result<Option<&'a Volume>, Objection> {
        let object = Key::Volume(name.clone());
        proven(object, self.view.volume_proof(name))
    }

    fn live_claim(&self, key: &ClaimKey) -> Result<Option<&'a Claim>, Objection> {
        let object = Key::Claim(key.clone());
        proven(object, self.view.claim_proof(key))
    }
}

/// An object from a live read; `None` if there is none.
fn proven<T>(object: Key, proof: Option<&Lookup<Arc<T>>>) -> Result<Option<&T>, Objection> {
    match proof {
        None => Err(Objection::Prove(object)),
        Some(Lookup::Found(found)) => Ok(Some(found)),
        Some(Lookup::Absent) => Ok(None),
        Some(Lookup::Unreadable(error)) => refuse(Breach::Unreadable, object, error.to_string()),
        Some(Lookup::Failed(error)) => Err(Objection::Unproven { object, why: error.to_string() }),
    }
}

/// Whether the volume's claimRef names the claim.
fn is_named_by(volume: &Volume, claim: &Claim) -> bool {
    volume.claim_ref.as_ref().is_some_and(|claim_ref| names(claim_ref, claim))
}

/// The value of the annotation that fences a volume for a claim that has withdrawn its choice.
fn fence(claim: &ClaimTarget) -> Text {
    format!("{} {}", claim.uid.0, claim.version.0).into()
}

/// Whether a claim is steered and waits for its volume.
fn waits(claim: &Claim) -> bool {
    claim.steered
        && !claim.deleting
        && claim.volume_name.is_none()
        && !claim.annotations.bind_completed
        && matches!(claim.status.phase, ClaimPhase::Pending | ClaimPhase::Unset)
}

/// Whether a claim needs the volume that Bindery has reserved: it is the claim of that UID, it has chosen the
/// volume or names it, and upstream would give it a volume that is reserved for it (`FindMatchingVolume`).
fn needs(claim: &Claim, volume: &Volume, reservation: &Reservation) -> bool {
    let is_its_own = match (&claim.volume_name, &claim.choice) {
        (Some(name), _) => *name == volume.name,
        (None, Some(choice)) => !choice.withdrawn && choice.volume == volume.name && choice.uid == volume.uid,
        (None, None) => false,
    };
    claim.uid == reservation.uid
        && is_its_own
        && !volume.deleting
        && volume.capacity.unwrap_or_default() >= claim.request
        && volume.mode == claim.mode
        && volume.attributes_class.as_deref().unwrap_or_default()
            == claim.attributes_class.as_deref().unwrap_or_default()
        && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
}

fn refuse<T>(breach: Breach, object: Key, sentence: impl Into<String>) -> Result<T, Objection> {
    Err(Refusal { breach, object, step: None, sentence: sentence.into() }.into())
}

fn stale_claim<T>(key: &ClaimKey, what: &'static str) -> Result<T, Objection> {
    Err(Objection::Stale { object: Key::Claim(key.clone()), what })
}

fn stale_volume<T>(name: &Text, what: &'static str) -> Result<T, Objection> {
    Err(Objection::Stale { object: Key::Volume(name.clone()), what })
}
