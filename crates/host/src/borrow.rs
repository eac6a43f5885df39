//! The cluster of the call in progress, inside a store.
#![allow(unsafe_code, reason = "wasmtime's stores hold no borrows; the one erased lifetime is here")]

use std::mem;
use std::ptr::NonNull;

use bindery_core::{Answer, Cluster, Question, Stop};

/// A cluster whose lifetime has been erased, because the data of a wasmtime store has to be `'static`.
pub(crate) struct Borrowed(NonNull<dyn Cluster>);

impl Borrowed {
    /// Erases the lifetime of `cluster`.
    ///
    /// # Safety
    ///
    /// The value must not be asked after the borrow of `cluster` has ended.
    pub(crate) unsafe fn new(cluster: &mut (dyn Cluster + '_)) -> Self {
        let cluster = NonNull::from(cluster);
        // SAFETY: only the lifetime changes; the caller guarantees it.
        Self(unsafe { mem::transmute::<NonNull<dyn Cluster + '_>, NonNull<dyn Cluster>>(cluster) })
    }
}

impl Cluster for Borrowed {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        // SAFETY: the borrow is alive, by the contract of `new`, and exclusive, because `new` took it.
        unsafe { self.0.as_mut() }.ask(question)
    }
}
