//! The settings of wasmtime, with their reasons.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OperatorCost, OptLevel, PoolingAllocationConfig,
    Strategy,
};

use crate::Limits;

/// Names how fuel is counted. Fuel of two decisions can be compared only under the same schedule: another
/// major version of wasmtime, other operator costs, or no copy-on-write change the fuel of the same decision.
pub const FUEL_SCHEDULE: &str = "wasmtime 48, operator costs 1, copy-on-write";

/// Native stack of an engine. Rust engines keep their frames in linear memory, so this is ample.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// What one instance of a component may have.
pub(crate) struct InstanceLimits {
    /// Core instances.
    core_instances: u32,
    /// Tables.
    tables: u32,
    /// Elements of each table.
    table_elements: usize,
    /// Bytes of linear memory.
    memory_bytes: usize,
    /// Whether its modules may compute constants.
    extended_const: bool,
}

/// The limits of an engine: the module itself and what `wit-component` puts around it.
pub(crate) const ENGINE: InstanceLimits = InstanceLimits {
    core_instances: 4,
    tables: 4,
    table_elements: Limits::TABLE_ELEMENTS_MAX,
    memory_bytes: Limits::MEMORY_BYTES_MAX,
    extended_const: false,
};
/// Of a policy, which may contain an interpreter: a component of componentize-py has 38 core
/// instances and begins with 12.4 MiB; one of componentize-js has a table of 7,688 elements.
pub(crate) const POLICY: InstanceLimits = InstanceLimits {
    core_instances: 64,
    tables: 64,
    table_elements: Limits::POLICY_TABLE_ELEMENTS_MAX,
    memory_bytes: Limits::POLICY_MEMORY_BYTES_MAX,
    // componentize-py links Python's libraries by computed offsets.
    extended_const: true,
};

/// Costs of slow operators. With these no unit takes longer than 1.2 ns. At one unit each, a loop of
/// `memory.grow` or `memory.fill` would run for seconds on a small budget.
fn operator_costs() -> OperatorCost {
    const BULK: u8 = 255;
    const SLOW: u8 = 8;
    let mut costs = OperatorCost::new();
    for cost in [
        &mut costs.MemoryGrow,
        &mut costs.MemoryFill,
        &mut costs.MemoryCopy,
        &mut costs.MemoryInit,
        &mut costs.TableGrow,
        &mut costs.TableFill,
        &mut costs.TableCopy,
        &mut costs.TableInit,
        &mut costs.variable.memory_grow_per_page,
    ] {
        *cost = BULK;
    }
    for cost in [
        &mut costs.I32DivS,
        &mut costs.I32DivU,
        &mut costs.I32RemS,
        &mut costs.I32RemU,
        &mut costs.I64DivS,
        &mut costs.I64DivU,
        &mut costs.I64RemS,
        &mut costs.I64RemU,
        &mut costs.F32Div,
        &mut costs.F64Div,
        &mut costs.F32Sqrt,
        &mut costs.F64Sqrt,
    ] {
        *cost = SLOW;
    }
    costs
}

/// A pool for this number of instances. With a pool, instantiating only resets an instance.
fn pool(instances: u32, instance: &InstanceLimits) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances * instance.core_instances)
        .max_core_instances_per_component(instance.core_instances)
        .total_memories(instances)
        .max_memories_per_component(1)
        .max_memory_size(instance.memory_bytes)
        .total_tables(instances * instance.tables)
        .max_tables_per_component(instance.tables)
        .max_tables_per_module(instance.tables)
        .table_elements(instance.table_elements)
        // Dirty pages are zeroed by copying instead of being returned to the kernel, which would fault them
        // in again for the next decision. Linux 6.7 and later tell which pages are dirty; on older kernels
        // all of these are zeroed.
        .linear_memory_keep_resident(512 << 10)
        .table_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// The settings of a host with room for this number of instances.
pub(crate) fn config(instances: u32, instance: &InstanceLimits) -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(instances, instance)))
        .memory_init_cow(true)
        // Address space for 64 instances is 1.1 GiB rather than 258; the price is a bounds check, 1%.
        .memory_reservation(instance.memory_bytes as u64)
        .memory_guard_size(64 << 10)
        .memory_may_move(false)
        .max_wasm_stack(STACK_BYTES)
        .consume_fuel(true)
        .operator_cost(operator_costs())
        .epoch_interruption(true)
        // The bits of a NaN are the only result that WebAssembly leaves open.
        .cranelift_nan_canonicalization(true)
        // A decision is synchronous; support for more costs 9% of each.
        .concurrency_support(false)
        // Features that the contract does not need are off: each has had security advisories.
        .wasm_simd(false)
        .wasm_relaxed_simd(false)
        .wasm_threads(false)
        .shared_memory(false)
        .wasm_tail_call(false)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_wide_arithmetic(false)
        .wasm_custom_page_sizes(false)
        .wasm_extended_const(instance.extended_const);
    config
}

/// SHA-256 over every setting, the version of wasmtime and the target machine: the key of the cache. Wasmtime
/// itself accepts an artefact that was made with another NaN setting.
pub(crate) fn fingerprint(config: &Config, engine: &Engine) -> [u8; 32] {
    let mut hasher = Hashing(Sha256::new());
    // One setting per line, sorted, because maps print in another order in every process.
    let settings = format!("{config:#?}");
    let mut settings: Vec<&str> = settings.lines().collect();
    settings.sort_unstable();
    hasher.write(settings.join("\n").as_bytes());
    hasher.write(FUEL_SCHEDULE.as_bytes());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.finalize().into()
}

/// A hasher that feeds SHA-256.
struct Hashing(Sha256);

impl Hasher for Hashing {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Unused: the digest is taken from the inner hasher.
    fn finish(&self) -> u64 {
        0
    }
}
