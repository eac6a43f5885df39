//! The scenarios: what users, schedulers and provisioners do while two replicas run.

use bindery_controller::Mode;
use bindery_invariants::Rule;
use bindery_kit::json::{claim, class, volume};
use bindery_policy::Chain;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::plugin::PLUGIN;
use crate::user::User;

/// Scenarios whose end depends on what comes first.
const RACES: [&str; 1] = ["a claim gets another volume while one is provisioned for it"];

/// A scenario.
pub(crate) struct Scenario {
    /// Its name.
    pub(crate) name: &'static str,
    /// What others than the replicas do. It waits for what it needs.
    pub(crate) act: fn(&User) -> BoxFuture<'_, ()>,
    /// Rules that the user breaks, or a policy that rejects a volume which fits.
    pub(crate) broken_by_user: &'static [Rule],
    /// The mode in which both replicas start. Upstream's binder is on, except in mode own.
    pub(crate) mode: Mode,
    /// The policies of both replicas.
    pub(crate) policies: fn() -> Chain,
}

impl Scenario {
    /// Whether policies are asked, on threads whose answers come in any order.
    pub(crate) fn has_policies(&self) -> bool {
        let chain = (self.policies)();
        !chain.is_empty() || !chain.reclaimers().is_empty()
    }

    /// Whether the end depends on what comes first.
    pub(crate) fn is_race(&self) -> bool {
        RACES.contains(&self.name)
    }

    /// Whether replicas have the real recycler, and its pods run. In other scenarios its first request of
    /// each term would be one more point, and nothing else.
    pub(crate) fn has_recycler(&self) -> bool {
        scrubbing::SCENARIOS.iter().any(|known| known.name == self.name)
    }
}

macro_rules! scenarios {
    ($(
        $name:literal, $broken:expr, $(in $mode:ident,)? $(with $policies:ident,)?
        |$user:ident| $act:block
    )*) => {
        pub(super) const SCENARIOS: &[super::Scenario] = &[$(super::Scenario {
            name: $name,
            act: |$user| Box::pin(async move { $act }),
            broken_by_user: $broken,
            mode: scenarios!(@mode $($mode)?),
            policies: scenarios!(@policies $($policies)?),
        }),*];
    };
    (@mode) => { bindery_controller::Mode::Own };
    (@mode $mode:ident) => { bindery_controller::Mode::$mode };
    (@policies) => { bindery_policy::Chain::default };
    (@policies $policies:ident) => { $policies };
}

mod binding;
mod policies;
mod provisioning;
mod reclaiming;
mod repairing;
mod scrubbing;
mod steering;
mod switching;

/// Every scenario.
pub(crate) fn all() -> Vec<&'static Scenario> {
    let parts = [
        binding::SCENARIOS,
        reclaiming::SCENARIOS,
        scrubbing::SCENARIOS,
        provisioning::SCENARIOS,
        repairing::SCENARIOS,
        switching::SCENARIOS,
        policies::SCENARIOS,
        steering::SCENARIOS,
    ];
    parts.into_iter().flatten().collect()
}

fn plain(name: &str) -> Value {
    volume(name, json!({}))
}

/// A volume that was reserved by a user: by name only.
fn reserved(name: &str, claim: &str) -> Value {
    volume(name, json!({"spec": {"claimRef": {"namespace": "default", "name": claim}}}))
}

fn with_policy(name: &str, policy: &str) -> Value {
    volume(name, json!({"spec": {"persistentVolumeReclaimPolicy": policy}}))
}

/// A volume that was provisioned by a plugin, and that is deleted with its claim.
fn provisioned_by(name: &str, plugin: &str) -> Value {
    let annotations = json!({"pv.kubernetes.io/provisioned-by": plugin});
    volume(
        name,
        json!({
            "metadata": {"annotations": annotations},
            "spec": {"persistentVolumeReclaimPolicy": "Delete"},
        }),
    )
}

fn in_tree(name: &str) -> Value {
    provisioned_by(name, PLUGIN)
}

fn naming(name: &str, volume: &str) -> Value {
    claim(name, json!({"spec": {"volumeName": volume}}))
}

fn in_class(name: &str, class: &str) -> Value {
    claim(name, json!({"spec": {"storageClassName": class}}))
}

fn waiting_class(name: &str, provisioner: &str) -> Value {
    class(name, provisioner, json!({"volumeBindingMode": "WaitForFirstConsumer"}))
}
