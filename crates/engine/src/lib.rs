//! The default decision engine: upstream's PersistentVolume controller as pure functions.
