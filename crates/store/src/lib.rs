//! The store: watch cache, overlay of own writes, reservations and the volume index that engines ask.
