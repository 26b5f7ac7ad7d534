//! The smallest machine that tells one KVM from another: a few hundred bytes of page tables and an endless loop, in
//! 64-bit mode, as kernel (CPL 0) or as user (CPL 3).

use crate::raw::{self, Page};
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Display;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The ring the loop runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// Kernel mode, CPL 0.
    Kernel,
    /// User mode, CPL 3.
    User,
}

/// An endless loop that counts rcx down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loop {
    /// `l: dec rcx; jnz l`
    Count,
    /// `l: add rax,[rsi]; mov [rdi],rax; ror rax,7; dec rcx; jnz l`
    LoadStore,
    /// `l: pxor xmm0,xmm0; movd xmm1,eax; paddd xmm0,xmm1; dec rcx; jnz l`
    Sse2,
}

impl Loop {
    fn code(self) -> &'static [u8] {
        match self {
            Loop::Count => &[0x48, 0xff, 0xc9, 0x75, 0xfb],
            Loop::LoadStore => &[
                0x48, 0x03, 0x06, 0x48, 0x89, 0x07, 0x48, 0xc1, 0xc8, 0x07, 0x48, 0xff, 0xc9, 0x75,
                0xf1,
            ],
            Loop::Sse2 => &[
                0x66, 0x0f, 0xef, 0xc0, 0x66, 0x0f, 0x6e, 0xc8, 0x66, 0x0f, 0xfe, 0xc1, 0x48, 0xff,
                0xc9, 0x75, 0xef,
            ],
        }
    }
}

/// Time that a loop runs before its rate is taken.
const QUANTUM: Duration = Duration::from_millis(30);
/// CPU time below which a rate says nothing (a loaded host); then further quanta are added.
const MIN_CPU_TIME: Duration = Duration::from_millis(3);
const MAX_QUANTA: u32 = 3;
/// The time that a machine may take to its first iteration: where the host is emulated itself, longer than a quantum.
const MAX_START: Duration = Duration::from_secs(2);

// Where things are in the guest's memory. Data, if any, is at 0.
const PAGES: usize = 32;
const PML4: u64 = 0x2000;
const PDPT: u64 = 0x3000;
const PAGE_DIRECTORY: u64 = 0x4000;
const GDT: u64 = 0x5000;
const TSS: u64 = 0x6000;
const CODE: u64 = 0x10000;
const STACK_TOP: u64 = 0x1f000;

struct MicroVm {
    // Dropped in this order: the pages must outlive the machine.
    vcpu: VcpuFd,
    _vm: VmFd,
    _pages: Vec<Page>,
}

/// Iterations per second of CPU time of a counting loop on this CPU, without a machine. Takes 10 ms.
pub fn native_rate() -> f64 {
    const PIECE: u64 = 1 << 16;
    let (begin, mut iterations) = (thread_cpu_time(), 0_u64);
    loop {
        for count in 0..PIECE {
            std::hint::black_box(count);
        }
        iterations += PIECE;
        let took = thread_cpu_time().saturating_sub(begin);
        if took >= Duration::from_millis(10) {
            return iterations as f64 / took.as_secs_f64();
        }
    }
}

/// Runs a loop on a machine of its own and returns iterations per second of CPU time, or how it failed.
///
/// The calling thread must have blocked its signals ([`raw::block_signals`]). Takes 60 to 120 ms.
pub fn rate(kvm: &Kvm, ring: Ring, kind: Loop) -> Result<f64, String> {
    let mut machine = MicroVm::new(kvm, ring, kind)?;
    let started = Instant::now();
    let mut before = machine.iterations()?;
    while before == 0 && started.elapsed() < MAX_START {
        machine.run_for(QUANTUM)?;
        before = machine.iterations()?;
    }
    let mut cpu = Duration::ZERO;
    for _ in 0..MAX_QUANTA {
        cpu += machine.run_for(QUANTUM)?;
        if cpu >= MIN_CPU_TIME {
            break;
        }
    }
    let iterations = machine.iterations()? - before;
    Ok(iterations as f64 / cpu.as_secs_f64().max(1e-6))
}

impl MicroVm {
    fn new(kvm: &Kvm, ring: Ring, kind: Loop) -> Result<Self, String> {
        let mut pages = vec![Page([0; 4096]); PAGES];
        fill(&mut pages, kind);
        let vm = kvm.create_vm().map_err(failed("KVM_CREATE_VM"))?;
        // CPUs of Intel need a place for this; below 4 GiB, away from our memory.
        vm.set_tss_address(0xfffb_d000)
            .map_err(failed("KVM_SET_TSS_ADDR"))?;
        raw::set_memory(&vm, &mut pages).map_err(failed("KVM_SET_USER_MEMORY_REGION"))?;
        let vcpu = vm.create_vcpu(0).map_err(failed("KVM_CREATE_VCPU"))?;
        let cpuid = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(failed("KVM_GET_SUPPORTED_CPUID"))?;
        vcpu.set_cpuid2(&cpuid).map_err(failed("KVM_SET_CPUID2"))?;
        raw::let_kicks_end(&vcpu).map_err(failed("KVM_SET_SIGNAL_MASK"))?;
        set_long_mode(&vcpu, ring)?;
        Ok(Self {
            vcpu,
            _vm: vm,
            _pages: pages,
        })
    }

    /// The number of times that it has gone round its loop.
    fn iterations(&self) -> Result<u64, String> {
        let regs = self.vcpu.get_regs().map_err(failed("KVM_GET_REGS"))?;
        Ok(u64::MAX - regs.rcx)
    }

    /// Lets the machine run and returns the CPU time it took. Ending by itself is a failure: the loop is endless.
    fn run_for(&mut self, time: Duration) -> Result<Duration, String> {
        let thread = rustix::thread::gettid();
        let (done, is_done) = mpsc::channel::<()>();
        // Joined below, while this thread is certainly there to be kicked.
        let kicker = std::thread::Builder::new()
            .name("kvm-probe-timer".into())
            .spawn(move || {
                if is_done.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
                    raw::kick(thread);
                }
            })
            .map_err(|e| format!("starting a thread: {e}"))?;
        let before = thread_cpu_time();
        let exit = self.vcpu.run().map(|exit| format!("{exit:?}"));
        let cpu = thread_cpu_time().saturating_sub(before);
        drop(done);
        // A panic in the kicker would only mean that no kick was sent.
        let _ = kicker.join();
        raw::take_kick();
        match exit {
            Err(error) if error.errno() == libc::EINTR => Ok(cpu),
            Err(error) => Err(format!("KVM_RUN: {error}")),
            Ok(exit) => Err(format!("KVM_RUN ended with {exit}")),
        }
    }
}

/// Says which call of KVM's failed.
fn failed<E: Display>(call: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{call}: {error}")
}

/// CPU time, not time of day: on a loaded host a rate over the latter would be anything.
fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Page tables (identity, one 2 MiB page, for user and kernel), the GDT, and the code.
fn fill(pages: &mut [Page], kind: Loop) {
    let mut put = |address: u64, bytes: &[u8]| {
        let (page, offset) = (address as usize / 4096, address as usize % 4096);
        pages[page].0[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    const PRESENT_WRITABLE_USER: u64 = 7;
    const LARGE: u64 = 1 << 7;
    let tables = [
        (PML4, PDPT),
        (PDPT, PAGE_DIRECTORY),
        (PAGE_DIRECTORY, LARGE),
    ];
    for (table, entry) in tables {
        put(table, &(entry | PRESENT_WRITABLE_USER).to_le_bytes());
    }
    // Null, kernel code, kernel data, user data, user code: for a KVM that reads them instead of the registers' copies.
    let descriptors: [u64; 5] = [
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0x00cf_f300_0000_ffff,
        0x00af_fb00_0000_ffff,
    ];
    for (address, descriptor) in (GDT..).step_by(8).zip(descriptors) {
        put(address, &descriptor.to_le_bytes());
    }
    put(CODE, kind.code());
}

/// Sets 64-bit mode straight away, in the given ring, about to run the loop with rcx at its highest.
fn set_long_mode(vcpu: &VcpuFd, ring: Ring) -> Result<(), String> {
    let (dpl, code_selector, data_selector) = match ring {
        Ring::Kernel => (0, 0x08, 0x10),
        Ring::User => (3, 0x23, 0x1b),
    };
    let data = kvm_segment {
        limit: 0xffff_ffff,
        selector: data_selector,
        type_: 3,
        present: 1,
        dpl,
        db: 1,
        s: 1,
        g: 1,
        ..Default::default()
    };
    let mut sregs = vcpu.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
    sregs.cs = kvm_segment {
        selector: code_selector,
        type_: 11,
        l: 1,
        db: 0,
        ..data
    };
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.tr = kvm_segment {
        base: TSS,
        limit: 0x67,
        type_: 11,
        present: 1,
        ..Default::default()
    };
    (sregs.gdt.base, sregs.gdt.limit) = (GDT, 5 * 8 - 1);
    (sregs.idt.base, sregs.idt.limit) = (0, 0);
    sregs.cr3 = PML4;
    sregs.cr4 = (1 << 5) | (1 << 9) | (1 << 10); // PAE, OSFXSR, OSXMMEXCPT
    sregs.cr0 = 0x8000_0033; // PG, NE, ET, MP, PE
    sregs.efer = (1 << 8) | (1 << 10); // LME, LMA
    vcpu.set_sregs(&sregs).map_err(failed("KVM_SET_SREGS"))?;
    let regs = kvm_regs {
        rip: CODE,
        rflags: 2,
        rcx: u64::MAX,
        rsp: STACK_TOP,
        ..Default::default()
    };
    vcpu.set_regs(&regs).map_err(failed("KVM_SET_REGS"))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::time::Instant;
    use vmtax_model::testing::skipped;

    /// A kick that stayed pending would end the next run at once.
    #[test]
    fn each_quantum_lasts_as_long_as_asked() {
        let Ok(kvm) = Kvm::new() else {
            return skipped("there is no KVM");
        };
        let runs = std::thread::spawn(move || {
            raw::block_signals().unwrap();
            let mut machine = MicroVm::new(&kvm, Ring::User, Loop::Count).unwrap();
            [20, 20, 20].map(|milliseconds| {
                let start = Instant::now();
                machine
                    .run_for(Duration::from_millis(milliseconds))
                    .unwrap();
                start.elapsed()
            })
        });
        for took in runs.join().unwrap() {
            assert!(took >= Duration::from_millis(20), "{took:?}");
        }
    }
}
