//! What other actors do while the binder works: users, the scheduler, an external provisioner, the network.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::WriteError;
use bindery_core::{Claim, ClaimFact, ClaimRef, ReclaimPolicy, Text, Uid, Volume, VolumePhase};
use bindery_kit::{Choices, Fault};
use bindery_store::{Delivery, Object};

use crate::law::{Api, State};
use crate::plugin::provisioned;
use crate::world::{self, CLAIMS, DRIVER, MIGRATED, NAMESPACES, TIER, VOLUMES, key, uid_of};

/// One action, after a delay. Returns true if the action is that the binder loses its Lease and gets it back.
pub(crate) async fn act(api: &Api, bytes: &[u8; 4]) -> bool {
    let c = &mut Choices::new(bytes);
    match c.pick(&[0, 0, 1, 40, 3_000, 700_000]) {
        0 => tokio::task::yield_now().await,
        delay => tokio::time::sleep(Duration::from_millis(delay)).await,
    }
    let actions: [fn(&mut State, &mut Choices<'_>); 17] = [
        remove_claim,
        create_claim,
        |state, c| change_claim(state, c, |claim, _| claim.deleting = true),
        |state, c| state.delete_volume(&c.pick(&VOLUMES).into()),
        create_volume,
        // An administrator offers a released volume again.
        |state, c| change_volume(state, c, |volume, _| volume.claim_ref = None),
        reserve_volume,
        name_volume,
        edit_volume,
        |state, c| change_claim(state, c, |claim, c| world::label(c, claim)),
        label_namespace,
        create_class_again,
        provision_externally,
        |state, c| change_claim(state, c, |claim, _| claim.annotations.selected_node = Some("node".into())),
        |state, c| fail(state, c, Fault::Refused(WriteError::Failed("the server is down".to_owned()))),
        |state, c| fail(state, c, Fault::Refused(WriteError::Conflict("the object has changed".to_owned()))),
        |state, c| fail(state, c, Fault::AnswerLost),
    ];
    let Some(action) = actions.get(c.below(actions.len() + 1)) else { return true };
    api.change(|state| action(state, c));
    false
}

fn remove_claim(state: &mut State, c: &mut Choices<'_>) {
    state.remove_claim(&key(c.pick(&CLAIMS)));
}

/// A user creates a claim. Each claim of a name has its own UID.
fn create_claim(state: &mut State, c: &mut Choices<'_>) {
    let name = c.pick(&CLAIMS);
    if state.claims.contains_key(&key(name)) {
        return;
    }
    let generation = u32::try_from(state.past_claims.len()).expect("there are few");
    let mut claim = world::claim(name, &[]);
    claim.uid = uid_of(name, generation + 1);
    world::label(c, &mut claim);
    claim.class = c.pick(&[Some("".into()), None, Some("gold".into()), Some("external".into())]);
    state.put_claim(claim);
}

/// An administrator creates a volume, free or reserved.
fn create_volume(state: &mut State, c: &mut Choices<'_>) {
    let name: Text = c.pick(&VOLUMES).into();
    if state.volumes.contains_key(&name) {
        return;
    }
    let mut volume = world::volume(&name, &[]);
    volume.uid = Uid(format!("uid-{name}-{}", state.past_volumes.len()).into());
    volume.phase = VolumePhase::Pending;
    if c.percent(50) {
        volume.claim_ref = Some(reservation(state, c));
    }
    state.put_volume(volume);
}

fn reserve_volume(state: &mut State, c: &mut Choices<'_>) {
    let reservation = reservation(state, c);
    change_volume(state, c, |volume, _| _ = volume.claim_ref.get_or_insert(reservation));
}

/// A reservation by name, as administrators make it, or with the claim's UID, as the scheduler does.
fn reservation(state: &State, c: &mut Choices<'_>) -> ClaimRef {
    let key = key(c.pick(&CLAIMS));
    let uid = state.claims.get(&key).filter(|_| c.percent(60)).map(|claim| claim.uid.clone());
    ClaimRef { namespace: key.namespace, name: key.name, uid }
}

fn name_volume(state: &mut State, c: &mut Choices<'_>) {
    change_claim(state, c, |claim, c| {
        claim.volume_name.get_or_insert_with(|| c.pick(&VOLUMES).into());
    });
}

fn edit_volume(state: &mut State, c: &mut Choices<'_>) {
    change_volume(state, c, |volume, c| {
        volume.policy = c.pick(&[ReclaimPolicy::Delete, ReclaimPolicy::Retain, ReclaimPolicy::Recycle]);
        volume.labels = [(TIER.into(), c.pick(&["slow", "fast"]).into())].into();
    });
}

fn label_namespace(state: &mut State, c: &mut Choices<'_>) {
    let (name, labels): (Text, _) = (c.pick(&NAMESPACES).into(), world::labels(c));
    state.extra.namespaces.push((name.clone(), Arc::clone(&labels)));
    state.report(Delivery::applied(Object::Namespace(name, labels)));
}

/// An administrator deletes the class of a claim and creates it with another parameter.
fn create_class_again(state: &mut State, c: &mut Choices<'_>) {
    let used = state.claims.get(&key(c.pick(&CLAIMS))).and_then(|claim| claim.class.clone());
    let Some(class) = used.and_then(|name| state.extra.classes.get_mut(&name)) else { return };
    class.parameters.set(ClaimFact::ClassParameter(TIER.into()), world::tier(c));
    let class = class.clone();
    state.extra.class_tiers.push((class.name.clone(), world::tier_of_class(&class)));
    state.report(Delivery::applied(class));
}

/// An external provisioner makes a volume for a claim that was handed to it.
fn provision_externally(state: &mut State, _: &mut Choices<'_>) {
    let is_handed = |claim: &&Arc<Claim>| {
        let by = claim.annotations.storage_provisioner.as_deref();
        matches!(by, Some(by) if by == DRIVER || by == MIGRATED.1) && claim.volume_name.is_none()
    };
    let Some(claim) = state.claims.values().find(is_handed).cloned() else { return };
    let by = claim.annotations.storage_provisioner.as_deref().unwrap_or_default();
    let volume = provisioned(&claim, by);
    if !state.volumes.contains_key(&volume.name) {
        state.put_volume(volume);
    }
}

/// One of the next writes meets a fault.
fn fail(state: &mut State, c: &mut Choices<'_>, fault: Fault) {
    state.faults.append(c.below(4), fault);
}

fn change_claim(state: &mut State, c: &mut Choices<'_>, change: impl FnOnce(&mut Claim, &mut Choices<'_>)) {
    if let Some(claim) = state.claims.get(&key(c.pick(&CLAIMS))) {
        let mut changed = Claim::clone(claim);
        change(&mut changed, c);
        state.put_claim(changed);
    }
}

fn change_volume(state: &mut State, c: &mut Choices<'_>, change: impl FnOnce(&mut Volume, &mut Choices<'_>)) {
    if let Some(volume) = state.volumes.get(c.pick(&VOLUMES)) {
        let mut changed = Volume::clone(volume);
        change(&mut changed, c);
        state.put_volume(changed);
    }
}
