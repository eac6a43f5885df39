//! The default engine as a WebAssembly component: WIT types to core types and nothing else.
