//! An engine that proposes whatever the contract has words for.
//!
//! Each of its proposals is one action, in the sync of an object that the action names. The guard has to
//! refuse every proposal that breaks a law. A single action reaches every rule that the worlds can reach, so
//! no decision has two.
//!
//! Left out is what no world of the model can carry out: classes, nodes and provisioning are not in it, so
//! neither are `RemoveSelectedNode`, `CreateVolume` and operations on claims. `Emit` and `EnqueueClaim` write
//! nothing.

use bindery_core::{
    AccessMode, Action, Answer, CapacityChange, Claim, ClaimPhase, Clear, Cluster, Decision, Edit, Engine,
    EngineFault, FinalizerEdit, Lookup, Message, Operation, OperationKind, Outcome, PluginOperation, Point,
    Progress, Question, ReclaimPolicy, Request, Source, Stop, Subject, Volume, VolumePhase,
};
use bindery_kit::gib;

use crate::objects::Id;
use crate::replay::PLUGIN;

/// The engine that makes one proposal about each volume, and one about each claim.
pub(crate) struct Adversary(Option<OfVolume>, Option<OfClaim>);

/// A proposal about a volume.
#[derive(Clone, Copy)]
enum OfVolume {
    Phase(VolumePhase),
    /// Released, after a live read of its claim.
    Release,
    Unbind(Clear),
    Finalizers {
        in_tree: FinalizerEdit,
        external: FinalizerEdit,
    },
    Migrate,
    Policy(ReclaimPolicy),
    Delete,
    Reclaim(OperationKind),
}

/// A proposal about a claim.
#[derive(Clone, Copy)]
enum OfClaim {
    Reserve { volume: Id, mark: bool },
    Bind { volume: Id, set_volume_name: bool, mark: bool },
    Status(ClaimPhase, CapacityChange),
    Class,
    Provision,
    Migrate,
}

impl Adversary {
    /// Engines that make every proposal.
    pub(crate) fn all() -> Vec<Self> {
        let (mut volumes, mut claims) = (OfVolume::all().into_iter(), OfClaim::all().into_iter());
        let next = || Some((volumes.next(), claims.next())).filter(|it| it.0.is_some() || it.1.is_some());
        std::iter::from_fn(next).map(|(of_volume, of_claim)| Self(of_volume, of_claim)).collect()
    }
}

impl Engine for Adversary {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        let action = match (&request.subject, self.0, self.1) {
            (Subject::SyncVolumeOperation(progress), ..) => return Ok(operate(progress, cluster)?),
            (Subject::SyncVolume(volume), Some(proposal), _) => Some(proposal.action(volume, cluster)?),
            (Subject::SyncClaim(claim), _, Some(proposal)) => proposal.action(claim, cluster)?,
            _ => None,
        };
        Ok(action.map_or_else(Decision::done, |action| Decision::new(vec![action.into()], Outcome::Done)))
    }

    fn digest(&self) -> &'static str {
        "adversary"
    }
}

impl OfVolume {
    fn all() -> Vec<Self> {
        let mut all = VolumePhase::ALL.map(Self::Phase).to_vec();
        all.extend([Self::Release, Self::Unbind(Clear::Whole), Self::Unbind(Clear::Uid)]);
        let (add, keep, remove) = (FinalizerEdit::Add, FinalizerEdit::Keep, FinalizerEdit::Remove);
        let finalizers = [(add, keep), (remove, keep), (keep, add)];
        all.extend(finalizers.map(|(in_tree, external)| Self::Finalizers { in_tree, external }));
        all.extend([ReclaimPolicy::Retain, ReclaimPolicy::Delete, ReclaimPolicy::Recycle].map(Self::Policy));
        all.extend([OperationKind::Delete, OperationKind::Recycle].map(Self::Reclaim));
        all.extend([Self::Migrate, Self::Delete]);
        all
    }

    fn action(self, it: &Volume, cluster: &mut dyn Cluster) -> Result<Action, Stop> {
        let volume = it.target();
        Ok(match self {
            Self::Phase(phase) => {
                let is_failed = phase == VolumePhase::Failed;
                let message = if is_failed { Message::NoRecycler } else { Message::Empty };
                Action::SetVolumePhase { volume, phase, message }
            }
            Self::Release => {
                if let Some(claim_ref) = &it.claim_ref {
                    let of = Id::named(&claim_ref.name);
                    cluster.ask(Question::Claim(Source::Live, of.claim_key()))?;
                }
                Action::SetVolumePhase { volume, phase: VolumePhase::Released, message: Message::Empty }
            }
            Self::Unbind(clear) => Action::UnbindVolume { volume, clear },
            Self::Finalizers { in_tree, external } => Action::AnnotateVolume {
                volume,
                migrated_to: Edit::Keep,
                in_tree_finalizer: in_tree,
                external_finalizer: external,
            },
            Self::Migrate => Action::AnnotateVolume {
                volume,
                migrated_to: Edit::Set("csi.example.com".into()),
                in_tree_finalizer: FinalizerEdit::Keep,
                external_finalizer: FinalizerEdit::Keep,
            },
            Self::Policy(policy) => Action::SetReclaimPolicy { volume, policy },
            Self::Delete => Action::DeleteVolume { volume },
            Self::Reclaim(kind) => {
                Action::StartOperation(Operation { kind, plugin: "".into(), uid: it.uid.clone() })
            }
        })
    }
}

impl OfClaim {
    fn all() -> Vec<Self> {
        let mut all = vec![Self::Class, Self::Provision, Self::Migrate];
        for volume in Id::all().filter(|id| id.is_volume()) {
            for mark in [true, false] {
                all.push(Self::Reserve { volume, mark });
                all.extend([true, false].map(|set_volume_name| Self::Bind { volume, set_volume_name, mark }));
            }
        }
        for capacity in [CapacityChange::Keep, CapacityChange::Remove, CapacityChange::Whole(gib(1))] {
            all.extend(ClaimPhase::ALL.map(|phase| Self::Status(phase, capacity)));
        }
        all
    }

    /// The action; `None` if the volume that it names does not exist.
    fn action(self, it: &Claim, cluster: &mut dyn Cluster) -> Result<Option<Action>, Stop> {
        let claim = it.target();
        Ok(Some(match self {
            Self::Reserve { volume, mark } => {
                let Some(volume) = find(cluster, volume)? else { return Ok(None) };
                Action::ReserveVolume { volume: volume.target(), claim, mark }
            }
            Self::Bind { volume, set_volume_name, mark } => {
                let Some(volume) = find(cluster, volume)? else { return Ok(None) };
                Action::BindClaim { claim, volume: volume.target(), set_volume_name, mark }
            }
            Self::Status(phase, capacity) => {
                // Every volume of the model has this mode.
                let modes = Edit::Set(vec![AccessMode::ReadWriteOnce]);
                let access_modes = if phase == ClaimPhase::Bound { modes } else { Edit::Remove };
                Action::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class: Edit::Keep }
            }
            Self::Class => Action::SetClaimClass { claim, class: "gold".into() },
            Self::Provision => {
                let provisioner = Some(PLUGIN.into());
                Action::AnnotateClaim { claim, provisioner, migrated_to: Edit::Keep }
            }
            Self::Migrate => {
                let migrated_to = Edit::Set("csi.example.com".into());
                Action::AnnotateClaim { claim, provisioner: None, migrated_to }
            }
        }))
    }
}

/// An operation goes straight to the plugin, and then deletes the volume.
fn operate(progress: &Progress<Volume>, cluster: &mut dyn Cluster) -> Result<Decision, Stop> {
    let name = progress.object.name.clone();
    // The guard wants a plugin called for a volume that was read live.
    cluster.ask(Question::Plugin(PLUGIN.into()))?;
    cluster.ask(Question::PluginForVolume(name.clone()))?;
    cluster.ask(Question::Volume(Source::Live, name))?;
    let (operation, point) = match progress.operation.kind {
        OperationKind::Recycle => (PluginOperation::Recycle, Point::Recycled),
        _ => (PluginOperation::Delete, Point::Deleted),
    };
    if progress.point == Point::Start {
        let call = Action::CallPlugin { plugin: PLUGIN.into(), operation };
        return Ok(Decision::new(vec![call.into()], Outcome::Continue(point)));
    }
    let delete = Action::DeleteVolume { volume: progress.object.target() };
    Ok(Decision::new(vec![delete.into()], Outcome::Done))
}

fn find(cluster: &mut dyn Cluster, volume: Id) -> Result<Option<Volume>, Stop> {
    let answer = cluster.ask(Question::Volume(Source::Overlay, volume.name().into()))?;
    Ok(if let Answer::Volume(Lookup::Found(volume)) = answer { Some((*volume).clone()) } else { None })
}
