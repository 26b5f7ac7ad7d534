//! Traces of kernels and of QEMU, decoded as they stream.
