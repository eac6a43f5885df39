//! Scrubbing a released volume and offering it again (`recycleVolumeOperation`).
//!
//! It never fails, so it never backs off: upstream tries again at every sync.

use bindery_core::{
    Action, EventKind, Follows, Message, Outcome, PluginMatch, PluginOperation, Point, Progress, Source,
    Text, Volume,
};

use super::delete::read_live;
use super::{error, misplaced};
use crate::bind::{fail_volume, unbind};
use crate::call::{Call, Halt};
use crate::reclaim::is_unclaimed;

/// The next step.
pub(crate) fn step(call: &mut Call<'_>, progress: &Progress<Volume>) -> Result<Outcome, Halt> {
    match progress.point {
        Point::Start => start(call, &progress.object),
        Point::Recycled => {
            let Some(fresh) = &progress.fresh else { return Err(misplaced()) };
            match error(&progress.returned) {
                Some(error) => fail(call, fresh, Message::RecycleFailed(error)),
                None => offer_again(call, fresh),
            }
            Ok(Outcome::Done)
        }
        Point::Annotated
        | Point::Provisioned
        | Point::Created { .. }
        | Point::CleanedUp { .. }
        | Point::Deleted
        | Point::FinalizerRemoved => Err(misplaced()),
    }
}

fn start(call: &mut Call<'_>, volume: &Volume) -> Result<Outcome, Halt> {
    let Some(fresh) = read_live(call, volume)? else { return Ok(Outcome::Done) };
    if !is_unclaimed(call, &fresh)? || is_used(call, &fresh)? {
        return Ok(Outcome::Done);
    }
    let plugin = match call.cluster.plugin_for_volume(fresh.name.clone())? {
        PluginMatch::One(plugin) if plugin.recycles => plugin.name,
        PluginMatch::One(_) | PluginMatch::None | PluginMatch::Several(_) => {
            fail(call, &fresh, Message::NoRecycler);
            return Ok(Outcome::Done);
        }
    };
    if let Err(error) = call.cluster.plugin_ready(plugin.clone(), PluginOperation::Recycle)? {
        fail(call, &fresh, Message::RecycleFailed(error));
        return Ok(Outcome::Done);
    }
    call.act(Action::CallPlugin { plugin, operation: PluginOperation::Recycle });
    Ok(Outcome::Continue(Point::Recycled))
}

/// Whether pods still use the released volume; an event then names them. A failed read counts as used.
fn is_used(call: &mut Call<'_>, volume: &Volume) -> Result<bool, Halt> {
    let Some(claim_ref) = &volume.claim_ref else { return Ok(false) };
    let key = claim_ref.claim_key();
    let Ok(pods) = call.cluster.pods(key.clone())? else {
        call.again_after_resync();
        return Ok(true);
    };
    let mut names: Vec<Text> = pods
        .iter()
        .filter(|pod| !pod.terminated)
        .map(|pod| format!("{}/{}", key.namespace, pod.name).into())
        .collect();
    names.sort_unstable();
    names.dedup();
    // A cached claim of that name is a newer one with another volume, and the pods use that.
    if call.claim(Source::Overlay, &key)?.is_some() || names.is_empty() {
        return Ok(false);
    }
    call.tell_volume(volume, EventKind::RecycleWaitsForPods(names));
    Ok(true)
}

/// Makes the volume Failed. Upstream only logs a failed write of the phase, and then emits no event either.
fn fail(call: &mut Call<'_>, volume: &Volume, message: Message) {
    let event = EventKind::VolumeFailedRecycle(message.clone());
    fail_volume(call, volume, Follows::Tolerated, message, event);
    call.again_after_resync();
}

fn offer_again(call: &mut Call<'_>, volume: &Volume) {
    call.tell_volume(volume, EventKind::VolumeRecycled);
    // Upstream only logs a failure: the volume is recycled again.
    unbind(call, volume, Follows::Tolerated);
    call.again_after_resync();
}
