//! How the module of a cluster object is fetched from a registry.

use bindery_core::Text;
use serde::Deserialize;

/// The most bytes of certificate authorities in a cluster object, whose status keeps earlier specs.
#[cfg(feature = "schema")]
const CA_MAX: u32 = 16_384;

/// How a module of a registry is fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pull {
    /// A Secret of type `kubernetes.io/dockerconfigjson` in Bindery's namespace: one of those that the
    /// chart's value `policies.registry.pullSecrets` lists. Its credentials are sent to the hosts that it
    /// names, and to no others. By default those of the chart's values are used.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 253)))]
    pub secret: Option<Text>,
    /// Certificate authorities of the registry, in PEM, in place of those of the chart's values. With them,
    /// credentials are only sent if `secret` names some.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = CA_MAX)))]
    pub ca: Option<Text>,
}

impl Pull {
    /// Checks that only a module of a registry has it.
    pub(crate) fn check(&self, module: &str) -> Result<(), String> {
        if *self == Self::default() || module.starts_with("oci://") {
            return Ok(());
        }
        Err(format!(
            "spec.pull is given, and spec.module is {module:?}; give it only for a module of a registry, \
             oci://HOST/REPOSITORY@sha256:HEX"
        ))
    }
}
