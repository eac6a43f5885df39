//! Metrics of the folder of compiled components.

use std::fmt::Error;

use bindery_host::cache_bytes_in_use;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::engine::CacheArgument;

/// Metrics of the folder; without one they have no sample.
#[derive(Debug)]
pub(super) struct Cache(pub(super) CacheArgument);

impl Collector for Cache {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let folder = self.0.engine_cache.as_deref();
        let gauges = [
            (
                "cache_in_use_bytes",
                "Bytes of the compiled components in use, which are never removed",
                folder.and_then(|folder| cache_bytes_in_use(folder).ok()),
            ),
            (
                "cache_limit_bytes",
                "Most bytes of all compiled components that are kept",
                folder.map(|_| self.0.compiled_max()),
            ),
        ];
        for (name, help, value) in gauges {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            if let Some(value) = value {
                ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(descriptor)?;
            }
        }
        Ok(())
    }
}
