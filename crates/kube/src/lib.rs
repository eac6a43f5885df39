//! The Kubernetes shell: lean decoding, watches into the store, actions into API writes, events.
