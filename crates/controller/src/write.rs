//! Writes: the actions of a decision that are one request each.

use bindery_core::steer::SteerWrite;
use bindery_core::{
    Action, ClaimTarget, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, FinalizerEdit, ReclaimPolicy, Text, Version,
    Volume, VolumeTarget,
};
use bindery_store::Kind;

/// One write request: an action of a decision, and the further data of its request.
///
/// Every target carries the UID and the version that the API server must find: the version that was read, or
/// the one that an earlier write of the same decision returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<T> {
    /// The action.
    pub action: Action,
    /// The volume that a plugin has provisioned, for [`Action::CreateVolume`].
    pub template: Option<T>,
    /// The new finalizers, for an [`Action::AnnotateVolume`] that changes them: a patch can only replace a
    /// whole list.
    pub finalizers: Option<Vec<Text>>,
    /// Further annotations of the volume, which reclaimers need; `None` removes one.
    pub annotations: Vec<(&'static str, Option<Text>)>,
    /// The volume's own reclaim policy, for an [`Action::UnbindVolume`] after a reclaimer has changed it.
    pub reclaim_policy: Option<ReclaimPolicy>,
}

/// The object that an action writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A volume.
    Volume(&'a VolumeTarget),
    /// A claim.
    Claim(&'a ClaimTarget),
    /// A volume that does not exist yet, by name.
    NewVolume(&'a Text),
    /// None: the action is not a write.
    None,
}

impl<T> From<Action> for Write<T> {
    fn from(action: Action) -> Self {
        Self { action, template: None, finalizers: None, annotations: Vec::new(), reclaim_policy: None }
    }
}

impl<T> Write<T> {
    /// The action in words, for logs and errors.
    pub fn name(&self) -> &'static str {
        match &self.action {
            Action::ReserveVolume { .. } => "reserve volume",
            Action::SetVolumePhase { .. } => "set volume phase",
            Action::BindClaim { .. } => "bind claim",
            Action::SetClaimStatus { .. } => "set claim status",
            Action::SetClaimClass { .. } => "set claim class",
            Action::AnnotateClaim { .. } => "annotate claim",
            Action::RemoveSelectedNode { .. } => "remove selected node of claim",
            Action::AnnotateVolume { .. } => "annotate volume",
            Action::SetReclaimPolicy { .. } => "set reclaim policy",
            Action::UnbindVolume { .. } => "unbind volume",
            Action::CreateVolume { .. } => "create volume",
            Action::DeleteVolume { .. } => "delete volume",
            Action::Emit(_)
            | Action::EnqueueClaim(_)
            | Action::StartOperation(_)
            | Action::CallPlugin { .. } => "no write",
        }
    }

    /// The object that is written.
    pub fn target(&self) -> Target<'_> {
        match &self.action {
            Action::ReserveVolume { volume, .. }
            | Action::SetVolumePhase { volume, .. }
            | Action::AnnotateVolume { volume, .. }
            | Action::SetReclaimPolicy { volume, .. }
            | Action::UnbindVolume { volume, .. }
            | Action::DeleteVolume { volume } => Target::Volume(volume),
            Action::CreateVolume { name, .. } => Target::NewVolume(name),
            Action::BindClaim { claim, .. }
            | Action::SetClaimStatus { claim, .. }
            | Action::SetClaimClass { claim, .. }
            | Action::AnnotateClaim { claim, .. }
            | Action::RemoveSelectedNode { claim } => Target::Claim(claim),
            Action::Emit(_)
            | Action::EnqueueClaim(_)
            | Action::StartOperation(_)
            | Action::CallPlugin { .. } => Target::None,
        }
    }
}

impl<'a> From<&'a SteerWrite> for Target<'a> {
    fn from(write: &'a SteerWrite) -> Self {
        match write {
            SteerWrite::Choose { claim, .. } | SteerWrite::Touch { claim } => Self::Claim(claim),
            SteerWrite::Fence { volume, .. }
            | SteerWrite::Reserve { volume, .. }
            | SteerWrite::Release { volume }
            | SteerWrite::Label { volume, .. }
            | SteerWrite::Unlabel { volume, .. }
            | SteerWrite::Forget { volume } => Self::Volume(volume),
        }
    }
}

impl Target<'_> {
    /// Name of a volume, or `namespace/name` of a claim.
    pub fn name(self) -> String {
        match self {
            Self::Volume(volume) => volume.name.to_string(),
            Self::Claim(claim) => claim.key.to_string(),
            Self::NewVolume(name) => name.to_string(),
            Self::None => String::new(),
        }
    }

    pub(crate) fn kind(self) -> Kind {
        if matches!(self, Self::Claim(_)) { Kind::Claim } else { Kind::Volume }
    }

    /// UID of an object that exists.
    pub(crate) fn uid(self) -> Option<String> {
        match self {
            Self::Volume(volume) => Some(volume.uid.to_string()),
            Self::Claim(claim) => Some(claim.uid.to_string()),
            Self::NewVolume(_) | Self::None => None,
        }
    }

    /// The version that the API server must find; `None` for a creation.
    pub(crate) fn version(self) -> Option<Version> {
        match self {
            Self::Volume(volume) => Some(volume.version.clone()),
            Self::Claim(claim) => Some(claim.version.clone()),
            Self::NewVolume(_) | Self::None => None,
        }
    }
}

/// The targets of an action that carry a version into its request: at most a volume and a claim.
pub(crate) fn targets_mut(action: &mut Action) -> (Option<&mut VolumeTarget>, Option<&mut ClaimTarget>) {
    match action {
        Action::ReserveVolume { volume, claim, .. } => (Some(volume), Some(claim)),
        Action::SetVolumePhase { volume, .. }
        | Action::AnnotateVolume { volume, .. }
        | Action::SetReclaimPolicy { volume, .. }
        | Action::UnbindVolume { volume, .. }
        | Action::DeleteVolume { volume } => (Some(volume), None),
        Action::BindClaim { claim, .. }
        | Action::SetClaimStatus { claim, .. }
        | Action::SetClaimClass { claim, .. }
        | Action::AnnotateClaim { claim, .. }
        | Action::RemoveSelectedNode { claim }
        | Action::CreateVolume { claim, .. } => (None, Some(claim)),
        Action::Emit(_) | Action::EnqueueClaim(_) | Action::StartOperation(_) | Action::CallPlugin { .. } => {
            (None, None)
        }
    }
}

/// The finalizers of a volume after an [`Action::AnnotateVolume`]; `None` if they do not change. Finalizers
/// that the action does not name stay, in their order.
pub(crate) fn edited_finalizers(
    volume: &Volume,
    in_tree: FinalizerEdit,
    external: FinalizerEdit,
) -> Option<Vec<Text>> {
    let mut finalizers = volume.finalizers.clone();
    for (name, edit) in [(FINALIZER_IN_TREE, in_tree), (FINALIZER_EXTERNAL, external)] {
        match edit {
            FinalizerEdit::Keep => {}
            FinalizerEdit::Remove => finalizers.retain(|finalizer| &**finalizer != name),
            FinalizerEdit::Add if volume.has_finalizer(name) => {}
            FinalizerEdit::Add => finalizers.push(name.into()),
        }
    }
    (finalizers != volume.finalizers).then_some(finalizers)
}
