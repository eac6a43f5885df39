//! An in-process Kubernetes API for the kinds that Bindery touches, with faults, on a virtual clock.
