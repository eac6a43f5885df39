//! Hosts decision engines: load, check, limit, run and swap WebAssembly components.
