//! The vCPU: its first state, and the loop that runs it.

use crate::Result;
use crate::boot::START_INFO;
use crate::mmio::Bus;
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

/// Features, by leaf, subleaf and register (EAX to EDX), that a kernel in user mode cannot use: QEMU's
/// `-arch-capabilities,-smap,-smep,-umip,-pcid,-invpcid,-x2apic,-tsc-deadline,-xsaves,-pku,-la57`.
const HIDDEN: [(u32, u32, usize, u32); 5] = [
    (1, 0, 2, 1 << 17 | 1 << 21 | 1 << 24),
    (7, 0, 1, 1 << 7 | 1 << 10 | 1 << 20),
    (7, 0, 2, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 16),
    (7, 0, 3, 1 << 29),
    (0xd, 1, 0, 1 << 3),
];
/// Leaves whose EDX is the vCPU's number.
const TOPOLOGY: [u32; 2] = [0xb, 0x1f];
const PROTECTED_MODE: u64 = 1;

/// Creates the vCPU in 32-bit mode without paging, about to enter the kernel.
pub fn create(kvm: &Kvm, vm: &VmFd, entry: u64) -> Result<VcpuFd> {
    let vcpu = vm.create_vcpu(0)?;
    let mut cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    for leaf in cpuid.as_mut_slice() {
        for (function, index, register, bits) in HIDDEN {
            if (leaf.function, leaf.index) == (function, index) {
                let all = [&mut leaf.eax, &mut leaf.ebx, &mut leaf.ecx, &mut leaf.edx];
                if let Some(value) = all.into_iter().nth(register) {
                    *value &= !bits;
                }
            }
        }
        if leaf.function == 1 {
            leaf.ebx &= 0x00ff_ffff;
        }
        if TOPOLOGY.contains(&leaf.function) {
            leaf.edx = 0;
        }
    }
    vcpu.set_cpuid2(&cpuid)?;
    let segment = |selector, type_| kvm_segment {
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        db: 1,
        s: 1,
        g: 1,
        ..kvm_segment::default()
    };
    let mut registers = vcpu.get_sregs()?;
    registers.cs = segment(0x8, 0xb);
    let data = segment(0x10, 3);
    (registers.ds, registers.es, registers.ss) = (data, data, data);
    (registers.fs, registers.gs) = (data, data);
    registers.tr = kvm_segment {
        limit: 0x67,
        type_: 0xb,
        present: 1,
        ..kvm_segment::default()
    };
    (registers.cr0, registers.cr4, registers.efer) = (PROTECTED_MODE, 0, 0);
    vcpu.set_sregs(&registers)?;
    vcpu.set_regs(&kvm_regs {
        rip: entry,
        rbx: START_INFO,
        rflags: 2,
        ..kvm_regs::default()
    })?;
    Ok(vcpu)
}

/// Runs the guest until it resets its machine.
pub fn run(mut vcpu: VcpuFd, mut bus: Bus) -> Result<()> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(port, data)) => {
                if bus.port_write(port, data) {
                    return Ok(());
                }
            }
            Ok(VcpuExit::IoIn(port, data)) => bus.port_read(port, data),
            Ok(VcpuExit::MmioRead(address, data)) => bus.read(address, data),
            Ok(VcpuExit::MmioWrite(address, data)) => bus.write(address, data)?,
            Ok(VcpuExit::Shutdown) => return Err("the guest's CPU shut down".into()),
            Ok(VcpuExit::InternalError) => return Err("KVM could not run the guest".into()),
            Ok(VcpuExit::FailEntry(reason, _)) => {
                return Err(format!("KVM could not enter the guest: {reason:#x}").into());
            }
            Ok(_) => {}
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
