//! What recordings made up for tests have in common.

use vmtax_model::{CpuFacts, HostFacts, KvmClass, KvmFacts, SCHEMA};

pub fn host(class: KvmClass) -> HostFacts {
    HostFacts {
        schema: SCHEMA,
        kernel: "6.1".into(),
        distribution: "test".into(),
        cpu: CpuFacts {
            model: "test".into(),
            online: 2,
            threads_per_core: 1,
            virtualisation: None,
            hypervisor: None,
            invariant_tsc: true,
            clocksource: "tsc".into(),
            governor: None,
            steal: 0.0,
        },
        memory_mib: 1024,
        kvm: KvmFacts { class, evidence: "the probe's own words".into() },
        qemu: vec![],
        kernels: vec![],
        checks: vec![],
    }
}
