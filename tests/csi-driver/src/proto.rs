//! The code that the build generates from `proto/`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::str_to_string,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated"
)]

/// The Container Storage Interface.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// Kubelet's registration of plugins.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
