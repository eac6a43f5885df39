//! Deleting a released volume and its asset (`deleteVolumeOperation`).

use std::sync::Arc;

use bindery_core::{
    Action, Edit, EventKind, FINALIZER_IN_TREE, Failure, FinalizerEdit, Follows, Lookup, Message, Outcome,
    PluginOperation, Point, Progress, Returned, Source, Text, Volume,
};

use super::{error, misplaced};
use crate::bind::fail_volume;
use crate::call::{Call, Halt};
use crate::reclaim::{Deleter, find_deleter, is_unclaimed};

/// The next step. The operation reclaims the volume that the sync passed; the volume read live serves the
/// checks and the finalizer.
pub(crate) fn step(call: &mut Call<'_>, progress: &Progress<Volume>) -> Result<Outcome, Halt> {
    let volume = &progress.object;
    match progress.point {
        Point::Start => start(call, volume),
        Point::Deleted => match &progress.returned {
            Returned::InUse(error) => {
                call.tell_volume(volume, EventKind::VolumeInUse(error.clone()));
                Err(Failure::Plugin(error.clone()).into())
            }
            Returned::Success => remove_finalizer(call, volume),
            Returned::AlreadyExists | Returned::Failed(_) => {
                let error = error(&progress.returned).unwrap_or_default();
                Err(not_deleted(call, volume, Message::DeleteFailed(error.clone()), error))
            }
        },
        Point::FinalizerRemoved => match (error(&progress.returned), &progress.fresh) {
            (None, Some(fresh)) => Ok(delete(call, fresh)),
            (None, None) => Err(misplaced()),
            (Some(error), _) => {
                let error =
                    Text::from(format!("persistent volume controller can't update finalizer: {error}"));
                Err(not_deleted(call, volume, Message::DeleteFailed(error.clone()), error))
            }
        },
        Point::Annotated
        | Point::Provisioned
        | Point::Created { .. }
        | Point::CleanedUp { .. }
        | Point::Recycled => Err(misplaced()),
    }
}

fn start(call: &mut Call<'_>, volume: &Volume) -> Result<Outcome, Halt> {
    let plugin = match find_deleter(call, volume)? {
        Deleter::Plugin(plugin) => plugin,
        Deleter::External => return Ok(Outcome::Done),
        Deleter::Missing(message) => {
            // No backoff: only another plugin or another volume changes this.
            fail(call, volume, message);
            return Ok(Outcome::Done);
        }
    };
    let Some(fresh) = read_live(call, volume)? else { return Ok(Outcome::Done) };
    if !is_unclaimed(call, &fresh)? {
        return Ok(Outcome::Done);
    }
    if let Err(error) = call.cluster.plugin_ready(plugin.clone(), PluginOperation::Delete)? {
        let message = Message::DeleterNotReady { volume: volume.name.clone(), error: error.clone() };
        return Err(not_deleted(call, volume, message, error));
    }
    call.act(Action::CallPlugin { plugin, operation: PluginOperation::Delete });
    Ok(Outcome::Continue(Point::Deleted))
}

/// The volume as the API server has it. `None` ends the operation: the volume is gone, or a later sync tries
/// again.
pub(super) fn read_live(call: &mut Call<'_>, volume: &Volume) -> Result<Option<Arc<Volume>>, Halt> {
    match call.cluster.volume(Source::Live, volume.name.clone())? {
        Lookup::Failed(_) => {
            call.again_after_resync();
            Ok(None)
        }
        lookup => call.settle(lookup, "volume", &volume.name),
    }
}

/// The volume becomes Failed with that message, and the operation fails and backs off. It fails with the
/// plugin's error, or with that of the write where the phase cannot be written.
fn not_deleted(call: &mut Call<'_>, volume: &Volume, message: Message, error: Text) -> Halt {
    fail(call, volume, message);
    Failure::Plugin(error).into()
}

fn fail(call: &mut Call<'_>, volume: &Volume, message: Message) {
    let event = EventKind::VolumeFailedDelete(message.clone());
    fail_volume(call, volume, Follows::Success, message, event);
}

/// The asset is gone, so the finalizer is removed (`removeDeletionProtectionFinalizer`).
fn remove_finalizer(call: &mut Call<'_>, volume: &Volume) -> Result<Outcome, Halt> {
    let fresh = match call.cluster.volume(Source::Live, volume.name.clone())? {
        Lookup::Found(fresh) => fresh,
        Lookup::Absent => {
            let error = Text::from(format!("persistentvolumes {:?} not found", volume.name));
            return Err(not_deleted(call, volume, Message::DeleteFailed(error.clone()), error));
        }
        Lookup::Failed(error) => {
            return Err(not_deleted(call, volume, Message::DeleteFailed(error.clone()), error));
        }
        lookup @ Lookup::Unreadable(_) => {
            call.settle(lookup, "volume", &volume.name)?;
            return Ok(Outcome::Done);
        }
    };
    if !fresh.has_finalizer(FINALIZER_IN_TREE) {
        return Ok(delete(call, &fresh));
    }
    call.act(Action::AnnotateVolume {
        volume: fresh.target(),
        migrated_to: Edit::Keep,
        in_tree_finalizer: FinalizerEdit::Remove,
        external_finalizer: FinalizerEdit::Keep,
    });
    Ok(Outcome::Continue(Point::FinalizerRemoved))
}

/// Deletes the volume. Where that fails, a later sync repeats the whole operation, so a plugin may be called
/// for an asset that it has already deleted.
fn delete(call: &mut Call<'_>, volume: &Volume) -> Outcome {
    call.tolerate(Action::DeleteVolume { volume: volume.target() });
    call.again_after_resync();
    Outcome::Done
}
