//! Step 0 of every sync: the CSI migration annotation and the deletion finalizers.

use std::sync::Arc;

use bindery_core::{
    Action, Claim, Edit, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, FinalizerEdit, IN_TREE_PREFIX, Migration,
    ReclaimPolicy, Stop, Text, Volume,
};

use crate::call::Call;

/// Updates the migration annotation of a claim (`updateClaimMigrationAnnotations`); returns the claim as it
/// then is.
pub(crate) fn claim(call: &mut Call<'_>, claim: &Arc<Claim>) -> Result<Arc<Claim>, Stop> {
    let mut claim = Arc::clone(claim);
    let migrated_to = claim_edit(call, &claim)?;
    if migrated_to != Edit::Keep {
        call.act(Action::AnnotateClaim {
            claim: claim.target(),
            provisioner: None,
            migrated_to: migrated_to.clone(),
        });
        apply(&migrated_to, &mut Arc::make_mut(&mut claim).annotations.migrated_to);
    }
    Ok(claim)
}

/// The change of the migration annotation of a claim.
pub(crate) fn claim_edit(call: &mut Call<'_>, claim: &Claim) -> Result<Edit<Text>, Stop> {
    let annotations = &claim.annotations;
    let provisioner =
        annotations.storage_provisioner.as_ref().or(annotations.beta_storage_provisioner.as_ref());
    match provisioner {
        // No provisioner has the claim yet: the annotation stays.
        None => Ok(Edit::Keep),
        Some(provisioner) => {
            let migration = call.cluster.migration(provisioner.clone())?;
            Ok(edit(&migration, annotations.migrated_to.as_ref()))
        }
    }
}

/// Updates the migration annotation and the deletion finalizers of a volume in one write
/// (`updateVolumeMigrationAnnotationsAndFinalizers`); returns the volume as it then is.
pub(crate) fn volume(call: &mut Call<'_>, volume: &Arc<Volume>) -> Result<Arc<Volume>, Stop> {
    let mut volume = Arc::clone(volume);
    // A static volume has neither.
    let Some(plugin) = &volume.annotations.provisioned_by else { return Ok(volume) };
    let migration = call.cluster.migration(plugin.clone())?;
    let migrated_to = edit(&migration, volume.annotations.migrated_to.as_ref());
    let (in_tree_finalizer, external_finalizer) = finalizers(&volume, plugin, &migration);
    if migrated_to == Edit::Keep
        && in_tree_finalizer == FinalizerEdit::Keep
        && external_finalizer == FinalizerEdit::Keep
    {
        return Ok(volume);
    }
    call.act(Action::AnnotateVolume {
        volume: volume.target(),
        migrated_to: migrated_to.clone(),
        in_tree_finalizer,
        external_finalizer,
    });
    // The rest of a sync reads the annotation, never the finalizers.
    apply(&migrated_to, &mut Arc::make_mut(&mut volume).annotations.migrated_to);
    Ok(volume)
}

fn edit(migration: &Migration, current: Option<&Text>) -> Edit<Text> {
    let current = current.map_or("", |driver| driver);
    match migration {
        Migration::On(driver) if **driver == *current => Edit::Keep,
        Migration::On(driver) => Edit::Set(driver.clone()),
        Migration::Untranslatable => Edit::Keep,
        Migration::Off if current.is_empty() => Edit::Keep,
        // The migration was rolled back.
        Migration::Off => Edit::Remove,
    }
}

fn apply(edit: &Edit<Text>, value: &mut Option<Text>) {
    match edit {
        Edit::Keep => {}
        Edit::Set(new) => *value = Some(new.clone()),
        Edit::Remove => *value = None,
    }
}

/// The changes of the in-tree and of the external finalizer (KEP-2644).
fn finalizers(volume: &Volume, plugin: &str, migration: &Migration) -> (FinalizerEdit, FinalizerEdit) {
    let in_tree = volume.has_finalizer(FINALIZER_IN_TREE);
    match migration {
        // The external provisioner takes over and brings its own finalizer.
        Migration::On(_) | Migration::Untranslatable => (remove_if(in_tree), FinalizerEdit::Keep),
        Migration::Off if !plugin.starts_with(IN_TREE_PREFIX) => (FinalizerEdit::Keep, FinalizerEdit::Keep),
        Migration::Off => {
            let in_tree = match volume.policy {
                ReclaimPolicy::Delete if in_tree => FinalizerEdit::Keep,
                ReclaimPolicy::Delete => FinalizerEdit::Add,
                ReclaimPolicy::Retain | ReclaimPolicy::Recycle => remove_if(in_tree),
                ReclaimPolicy::Unknown => FinalizerEdit::Keep,
            };
            (in_tree, remove_if(volume.has_finalizer(FINALIZER_EXTERNAL)))
        }
    }
}

fn remove_if(present: bool) -> FinalizerEdit {
    if present { FinalizerEdit::Remove } else { FinalizerEdit::Keep }
}
