//! Memory that a thread takes for one input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// No input may take more, bytes.
pub const LIMIT: usize = 1 << 30;
/// More is refused, so that a fault does not take the host's memory along.
const REFUSED: usize = 8 << 30;

thread_local! {
    // Without a destructor and without memory of their own, so that an allocator may use them.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Begins anew: what this thread holds counts as nothing.
pub fn begin() {
    HELD.set(0);
    PEAK.set(0);
}

/// The most that this thread held at once since [`begin`], bytes.
pub fn peak() -> usize {
    PEAK.get()
}

/// The system's allocator, counting by thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn taken(bytes: usize) -> bool {
    // A thread that ends has no counters any more.
    let held = HELD.try_with(|held| {
        held.set(held.get().saturating_add(bytes));
        held.get()
    });
    let Ok(held) = held else { return true };
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held)));
    held <= REFUSED
}

fn given_back(bytes: usize) {
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(bytes)));
}

// SAFETY: each call goes to the system's allocator with the same arguments; beside that, numbers are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !taken(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !taken(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise. Not by `alloc`: zeros that nobody touches take no memory.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given_back(layout.size());
        if !taken(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}
