//! An engine that proposes whatever the contract has words for.
//!
//! Each of its proposals is one action on objects of the world, as the store shows them. The guard has to
//! refuse every proposal that breaks a law. Classes, nodes and provisioning are not in the model, and so
//! neither are the actions about them.

use bindery_core::{
    Action, Answer, CapacityChange, Claim, ClaimPhase, Clear, Cluster, Decision, Edit, Engine, EngineFault,
    FinalizerEdit, Lookup, Message, Operation, OperationKind, Outcome, PluginOperation, Point, Progress,
    Question, Request, Source, Stop, Subject, Volume, VolumePhase,
};

use crate::objects::Id;
use crate::replay::PLUGIN;

/// A proposal.
#[derive(Clone, Copy, Debug)]
enum Proposal {
    Reserve(Id, Id),
    Phase(Id, VolumePhase),
    Bind(Id, Id),
    Status(Id, ClaimPhase),
    Unbind(Id),
    RemoveFinalizer(Id),
    Delete(Id),
    Reclaim(OperationKind),
}

/// The engine that makes one proposal, by its number.
pub(crate) struct Adversary(Proposal);

impl Adversary {
    /// One engine for each proposal.
    pub(crate) fn all() -> Vec<Self> {
        let mut proposals =
            vec![Proposal::Reclaim(OperationKind::Delete), Proposal::Reclaim(OperationKind::Recycle)];
        for volume in Id::all().filter(|id| id.is_volume()) {
            for claim in Id::claims() {
                proposals.extend([Proposal::Reserve(volume, claim), Proposal::Bind(claim, volume)]);
            }
            proposals.extend(VolumePhase::ALL.map(|phase| Proposal::Phase(volume, phase)));
            proposals.extend([Proposal::Unbind(volume), Proposal::RemoveFinalizer(volume)]);
            proposals.push(Proposal::Delete(volume));
        }
        for claim in Id::claims() {
            proposals.extend(ClaimPhase::ALL.map(|phase| Proposal::Status(claim, phase)));
        }
        proposals.into_iter().map(Self).collect()
    }

    /// The action; `None` if one of its objects does not exist.
    fn action(&self, cluster: &mut dyn Cluster) -> Result<Option<Action>, Stop> {
        Ok(match self.0 {
            Proposal::Reserve(of, by) => {
                pair(cluster, of, by)?.map(|(volume, claim)| Action::ReserveVolume {
                    volume: volume.target(),
                    claim: claim.target(),
                    mark: volume.claim_ref.is_none(),
                })
            }
            Proposal::Bind(by, of) => pair(cluster, of, by)?.map(|(volume, claim)| {
                let is_unset = claim.volume_name.is_none();
                let (volume, claim) = (volume.target(), claim.target());
                Action::BindClaim { claim, volume, set_volume_name: is_unset, mark: is_unset }
            }),
            Proposal::Phase(of, phase) => volume(cluster, of)?.map(|volume| {
                let is_failed = phase == VolumePhase::Failed;
                let message = if is_failed { Message::NoRecycler } else { Message::Empty };
                Action::SetVolumePhase { volume: volume.target(), phase, message }
            }),
            Proposal::Unbind(of) => volume(cluster, of)?.map(|volume| {
                let is_marked = volume.annotations.bound_by_controller;
                let clear = if is_marked { Clear::Whole } else { Clear::Uid };
                Action::UnbindVolume { volume: volume.target(), clear }
            }),
            Proposal::RemoveFinalizer(of) => volume(cluster, of)?.map(|volume| Action::AnnotateVolume {
                volume: volume.target(),
                migrated_to: Edit::Keep,
                in_tree_finalizer: FinalizerEdit::Remove,
                external_finalizer: FinalizerEdit::Keep,
            }),
            Proposal::Delete(of) => {
                volume(cluster, of)?.map(|volume| Action::DeleteVolume { volume: volume.target() })
            }
            Proposal::Status(of, phase) => {
                let Some(claim) = claim(cluster, of)? else { return Ok(None) };
                Some(status(cluster, &claim, phase)?)
            }
            Proposal::Reclaim(_) => None,
        })
    }

    /// An operation goes straight to the plugin, and then deletes the volume.
    fn step(&self, progress: &Progress<Volume>) -> Decision {
        let (call, point) = match progress.operation.kind {
            OperationKind::Recycle => (PluginOperation::Recycle, Point::Recycled),
            _ => (PluginOperation::Delete, Point::Deleted),
        };
        if progress.point == Point::Start {
            let call = Action::CallPlugin { plugin: PLUGIN.into(), operation: call };
            return Decision::new(vec![call.into()], Outcome::Continue(point));
        }
        let delete = Action::DeleteVolume { volume: progress.object.target() };
        Decision::new(vec![delete.into()], Outcome::Done)
    }
}

impl Engine for Adversary {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        let action = match (&request.subject, self.0) {
            (Subject::SyncVolumeOperation(progress), _) => {
                let name = progress.object.name.clone();
                // The guard wants a plugin called for a volume that was read live.
                cluster.ask(Question::PluginForVolume(name.clone()))?;
                cluster.ask(Question::Volume(Source::Live, name))?;
                return Ok(self.step(progress));
            }
            (Subject::SyncVolume(volume), Proposal::Reclaim(kind)) => {
                let (plugin, uid) = ("".into(), volume.uid.clone());
                Some(Action::StartOperation(Operation { kind, plugin, uid }))
            }
            _ => self.action(cluster)?,
        };
        Ok(action.map_or_else(Decision::done, |action| Decision::new(vec![action.into()], Outcome::Done)))
    }

    fn digest(&self) -> &'static str {
        "adversary"
    }
}

/// The status that a claim of that phase has: its volume's if it is Bound.
fn status(cluster: &mut dyn Cluster, claim: &Claim, phase: ClaimPhase) -> Result<Action, Stop> {
    let named = claim.volume_name.as_deref().map(Id::named);
    let bound_to = match named.filter(|_| phase == ClaimPhase::Bound) {
        Some(id) => volume(cluster, id)?,
        None => None,
    };
    let capacity = bound_to.as_ref().and_then(|volume| volume.capacity);
    let is_bound = claim.status.phase == ClaimPhase::Bound;
    Ok(Action::SetClaimStatus {
        claim: claim.target(),
        phase,
        access_modes: bound_to.map_or(Edit::Remove, |volume| Edit::Set(volume.access_modes)),
        capacity: match capacity {
            Some(_) if is_bound => CapacityChange::Keep,
            Some(capacity) => CapacityChange::Whole(capacity),
            None => CapacityChange::Remove,
        },
        attributes_class: Edit::Remove,
    })
}

fn pair(cluster: &mut dyn Cluster, of: Id, by: Id) -> Result<Option<(Volume, Claim)>, Stop> {
    Ok(volume(cluster, of)?.zip(claim(cluster, by)?))
}

fn volume(cluster: &mut dyn Cluster, id: Id) -> Result<Option<Volume>, Stop> {
    let answer = cluster.ask(Question::Volume(Source::Overlay, id.name().into()))?;
    Ok(if let Answer::Volume(Lookup::Found(volume)) = answer { Some((*volume).clone()) } else { None })
}

fn claim(cluster: &mut dyn Cluster, id: Id) -> Result<Option<Claim>, Stop> {
    let answer = cluster.ask(Question::Claim(Source::Overlay, id.claim_key()))?;
    Ok(if let Answer::Claim(Lookup::Found(claim)) = answer { Some((*claim).clone()) } else { None })
}
