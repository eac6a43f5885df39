//! What others do while the binder works: users, the scheduler, an external provisioner, and the network.

use std::time::Duration;

use bindery_controller::WriteError;
use bindery_core::{Claim, ClaimRef, ReclaimPolicy, Text, Uid, Volume};

use crate::genes::Choices;
use crate::plugin::provisioned;
use crate::server::{Fault, Inner, Server};
use crate::world::{self, CLAIMS, DRIVER, MIGRATED, VOLUMES, key, uid_of};

/// One deed, after a while. Answers whether it is that the binder loses its Lease and gets it back.
pub(crate) async fn act(server: &Server, bytes: &[u8; 4]) -> bool {
    let c = &mut Choices::new(bytes);
    match c.pick(&[0, 0, 1, 40, 3_000, 700_000]) {
        0 => tokio::task::yield_now().await,
        delay => tokio::time::sleep(Duration::from_millis(delay)).await,
    }
    let deeds: [fn(&mut Inner, &mut Choices<'_>); 14] = [
        claim_goes,
        claim_comes,
        claim_leaves,
        volume_goes,
        volume_comes,
        claim_ref_is_cleared,
        claim_ref_is_set,
        volume_name_is_set,
        volume_is_edited,
        external_provisioner_works,
        node_is_selected,
        write_fails,
        write_conflicts,
        answer_is_lost,
    ];
    let Some(deed) = deeds.get(c.below(deeds.len() + 1)) else { return true };
    deed(&mut server.inner(), c);
    false
}

fn claim_goes(server: &mut Inner, c: &mut Choices<'_>) {
    server.remove_claim(&key(c.pick(&CLAIMS)));
}

/// A claim as users create it; of a name that was there before it has another UID.
fn claim_comes(server: &mut Inner, c: &mut Choices<'_>) {
    let name = c.pick(&CLAIMS);
    if server.claims.contains_key(&key(name)) {
        return;
    }
    let generation = u32::try_from(server.past_claims.len()).expect("there are few");
    let mut claim = world::claim(name, &[]);
    claim.uid = uid_of(name, generation + 1);
    claim.class = c.pick(&[Some("".into()), None, Some("gold".into()), Some("external".into())]);
    server.put_claim(claim);
}

fn claim_leaves(server: &mut Inner, c: &mut Choices<'_>) {
    change_claim(server, c, |claim, _| claim.deleting = true);
}

fn volume_goes(server: &mut Inner, c: &mut Choices<'_>) {
    server.delete_volume(&c.pick(&VOLUMES).into());
}

/// A volume as administrators create it, free or reserved by name.
fn volume_comes(server: &mut Inner, c: &mut Choices<'_>) {
    let name: Text = c.pick(&VOLUMES).into();
    if server.volumes.contains_key(&name) {
        return;
    }
    let mut volume = world::volume(&name, &[]);
    volume.uid = Uid(format!("uid-{name}-{}", server.past_volumes.len()).into());
    volume.phase = bindery_core::VolumePhase::Pending;
    if c.percent(50) {
        volume.claim_ref = Some(reservation(server, c));
    }
    server.put_volume(volume);
}

/// How an administrator lets a released volume be used again.
fn claim_ref_is_cleared(server: &mut Inner, c: &mut Choices<'_>) {
    change_volume(server, c, |volume, _| volume.claim_ref = None);
}

fn claim_ref_is_set(server: &mut Inner, c: &mut Choices<'_>) {
    let reservation = reservation(server, c);
    change_volume(server, c, |volume, _| _ = volume.claim_ref.get_or_insert(reservation));
}

/// A reservation by name, as administrators make it, or of the claim that is there, as the scheduler does.
fn reservation(server: &Inner, c: &mut Choices<'_>) -> ClaimRef {
    let key = key(c.pick(&CLAIMS));
    let uid = server.claims.get(&key).filter(|_| c.percent(60)).map(|claim| claim.uid.clone());
    ClaimRef { namespace: key.namespace, name: key.name, uid }
}

fn volume_name_is_set(server: &mut Inner, c: &mut Choices<'_>) {
    change_claim(server, c, |claim, c| {
        claim.volume_name.get_or_insert_with(|| c.pick(&VOLUMES).into());
    });
}

fn volume_is_edited(server: &mut Inner, c: &mut Choices<'_>) {
    change_volume(server, c, |volume, c| {
        volume.policy = c.pick(&[ReclaimPolicy::Delete, ReclaimPolicy::Retain, ReclaimPolicy::Recycle]);
        volume.labels = [("tier".into(), "slow".into())].into();
    });
}

/// Makes a volume for a claim that was handed to it.
fn external_provisioner_works(server: &mut Inner, _: &mut Choices<'_>) {
    let handed = |claim: &&std::sync::Arc<Claim>| {
        let by = claim.annotations.storage_provisioner.as_deref();
        matches!(by, Some(by) if by == DRIVER || by == MIGRATED.1) && claim.volume_name.is_none()
    };
    let Some(claim) = server.claims.values().find(handed).cloned() else { return };
    let by = claim.annotations.storage_provisioner.as_deref().unwrap_or_default();
    let volume = provisioned(&claim, by);
    if !server.volumes.contains_key(&volume.name) {
        server.put_volume(volume);
    }
}

fn node_is_selected(server: &mut Inner, c: &mut Choices<'_>) {
    change_claim(server, c, |claim, _| claim.annotations.selected_node = Some("node".into()));
}

fn write_fails(server: &mut Inner, c: &mut Choices<'_>) {
    fault(server, c, Fault::Refused(WriteError::Failed("the server is down".to_owned())));
}

fn write_conflicts(server: &mut Inner, c: &mut Choices<'_>) {
    fault(server, c, Fault::Refused(WriteError::Conflict("somebody else was faster".to_owned())));
}

fn answer_is_lost(server: &mut Inner, c: &mut Choices<'_>) {
    fault(server, c, Fault::AnswerLost);
}

/// One of the writes that come next meets the fault.
fn fault(server: &mut Inner, c: &mut Choices<'_>, fault: Fault) {
    server.faults.extend((0..c.below(4)).map(|_| None));
    server.faults.push_back(Some(fault));
}

fn change_claim(server: &mut Inner, c: &mut Choices<'_>, change: impl FnOnce(&mut Claim, &mut Choices<'_>)) {
    if let Some(claim) = server.claims.get(&key(c.pick(&CLAIMS))) {
        let mut changed = Claim::clone(claim);
        change(&mut changed, c);
        server.put_claim(changed);
    }
}

fn change_volume(
    server: &mut Inner,
    c: &mut Choices<'_>,
    change: impl FnOnce(&mut Volume, &mut Choices<'_>),
) {
    if let Some(volume) = server.volumes.get(c.pick(&VOLUMES)) {
        let mut changed = Volume::clone(volume);
        change(&mut changed, c);
        server.put_volume(changed);
    }
}
