//! Metrics of the folder of compiled components.

use std::fmt::Error;

use bindery_host::cache_bytes_in_use;
use prometheus_client::encoding::DescriptorEncoder;

use super::gauge_if;
use crate::engine::CacheArgument;

/// Metrics of the folder; without one they have no sample.
pub(super) fn encode(cache: &CacheArgument, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let folder = cache.engine_cache.as_deref();
    let help = "Bytes of the compiled components in use, which are never removed";
    let in_use = folder.and_then(|folder| cache_bytes_in_use(folder).ok());
    gauge_if(encoder, "cache_in_use_bytes", help, in_use)?;
    let help = "Most bytes of all compiled components that are kept";
    let limit = folder.map(|_| cache.compiled_max());
    gauge_if(encoder, "cache_limit_bytes", help, limit)
}
