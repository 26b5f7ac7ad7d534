//! The far side: runs workloads on request, natively or as a guest's first process.
