//! Where workloads run: native, KVM and TCG behind one interface.
