//! The component's heap: memory is handed out in order and never taken back.
//!
//! An instance lives for one decision, microseconds, and its memory goes with it. So there is nothing to gain
//! from reuse, and a general allocator costs what matters most here: pages touched in every fresh instance,
//! and size. Memory starts where the linker's data and stack end (`__heap_base`) and grows on demand; the
//! host limits how far.
#![allow(unsafe_code, reason = "an allocator is unsafe by its nature; each block says why it is sound")]

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::{memory_grow, memory_size};
use core::cell::Cell;
use core::ptr;

/// Bytes of a page of WebAssembly memory.
const PAGE: usize = 65_536;

unsafe extern "C" {
    /// Where data and stack end, by the linker.
    static __heap_base: u8;
}

/// Address of the first free byte; 0 before the first allocation.
struct Bump {
    next: Cell<usize>,
}

// SAFETY: this target has one thread (no atomics), so nothing is ever shared.
unsafe impl Sync for Bump {}

#[global_allocator]
static HEAP: Bump = Bump { next: Cell::new(0) };

impl Bump {
    /// Start of a block of this size and alignment, or `None` if memory cannot grow so far.
    fn take(&self, size: usize, align: usize) -> Option<usize> {
        let next = match self.next.get() {
            0 => (&raw const __heap_base).addr(),
            next => next,
        };
        let start = next.checked_next_multiple_of(align)?;
        let end = start.checked_add(size)?;
        let there = memory_size(0) * PAGE;
        if end > there && memory_grow(0, (end - there).div_ceil(PAGE)) == usize::MAX {
            return None;
        }
        self.next.set(end);
        Some(start)
    }
}

// SAFETY: `take` hands out each byte above `__heap_base` at most once, aligned and within memory, and a block
// that grows in place is the last one handed out, so no two blocks overlap.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size(), layout.align()).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`; memory that was never handed out is still zero, as WebAssembly starts it.
        unsafe { self.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size <= layout.size() {
            return block;
        }
        if block.addr() + layout.size() == self.next.get() {
            // The last block grows where it is.
            return self.take(size - layout.size(), 1).map_or(ptr::null_mut(), |_| block);
        }
        let Some(new) = self.take(size, layout.align()) else { return ptr::null_mut() };
        let new = ptr::with_exposed_provenance_mut(new);
        // SAFETY: the old block has `layout.size()` bytes, the new one more, and they do not overlap.
        unsafe { ptr::copy_nonoverlapping(block, new, layout.size()) };
        new
    }
}
