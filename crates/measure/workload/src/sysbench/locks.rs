//! The C library's mutexes: what sysbench's `threads` and `mutex` tests measure, so nothing else will do.

use std::cell::UnsafeCell;

#[repr(C)]
struct Padded<const PAD: usize> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    pad: [u8; PAD],
}

/// An array of mutexes with `PAD` bytes between them: which of them share a cache line is part of the test.
pub(crate) struct Locks<const PAD: usize>(Box<[Padded<PAD>]>);

// SAFETY: a pthread mutex is made to be used from several threads; its memory stays where it is, in the box.
unsafe impl<const PAD: usize> Sync for Locks<PAD> {}
// SAFETY: no mutex is held while the array is moved: locking borrows the array.
unsafe impl<const PAD: usize> Send for Locks<PAD> {}

impl<const PAD: usize> Locks<PAD> {
    /// `count` mutexes of the default kind.
    pub fn new(count: usize) -> Self {
        let fresh = || Padded {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            pad: [0; PAD],
        };
        Locks((0..count).map(|_| fresh()).collect())
    }

    /// Runs `inside` while holding mutex `index`.
    #[inline(always)]
    pub fn hold(&self, index: usize, inside: impl FnOnce()) {
        let mutex = self.0[index].mutex.get();
        // SAFETY: an initialised mutex at its final address; it is unlocked below by the thread that locked it.
        unsafe { libc::pthread_mutex_lock(mutex) };
        inside();
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_unlock(mutex) };
    }
}
