//! Guest kernels: found, fetched, checked, packed with their modules into an initramfs.
