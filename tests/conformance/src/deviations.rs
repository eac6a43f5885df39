//! Where Bindery deliberately does better than upstream: the one list of them.
//!
//! Each entry says what in the world of a case makes the result differ, how it differs, and why. A case
//! that an entry applies to must differ in exactly that way, any other must agree.

use crate::case::Case;

/// One deliberate difference.
pub struct Deviation {
    /// Short name, printed with the case.
    pub name: &'static str,
    /// Why, with upstream's issue where there is one.
    pub reason: &'static str,
    /// Whether it applies to the world of the case.
    pub applies: fn(&Case) -> bool,
    /// What the end of the case is with it.
    pub expect: fn(&mut Case),
}

/// Every deliberate difference.
pub const DEVIATIONS: &[Deviation] = &[Deviation {
    name: "clean-asset-is-no-orphan",
    reason: "upstream looks for the finalizer of a volume that was never created, takes its absence for a \
             failed delete, and reports an orphan although the asset is gone \
             (pv_controller.go, provisionClaimOperation: deleteVolumeOperation after five failed creates)",
    applies: asset_is_deleted_after_failed_creates,
    expect: |case| {
        if let Some(events) = &mut case.events {
            events.retain(|event| event != "Warning ProvisioningCleanupFailed");
        }
    },
}];

/// Tries of a create before the asset is given up (`createProvisionedPVRetryCount`).
const CREATES_MAX: usize = 5;

fn asset_is_deleted_after_failed_creates(case: &Case) -> bool {
    let Some(plugin) = &case.plugin else { return false };
    let failed_creates =
        case.api_errors.iter().filter(|e| e.verb == "create" && e.resource == "persistentvolumes");
    let messages: Vec<_> = failed_creates.take(CREATES_MAX).collect();
    let all_failed = messages.len() == CREATES_MAX;
    let deletes = plugin.delete.as_ref().is_some_and(|outcomes| outcomes.iter().any(Option::is_none));
    plugin.provision.is_some() && all_failed && deletes
}
