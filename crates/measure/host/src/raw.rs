//! The few system calls and instructions that no safe wrapper covers. All unsafe code of this crate is here.

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{VcpuFd, VmFd};
use rustix::process::{Pid, Signal, set_parent_process_death_signal, setsid};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A page of guest memory, aligned as KVM wants it.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; 4096]);

/// Signal that ends a KVM_RUN. Ignored by default, so it can do no harm where it is not awaited.
const KICK: Signal = Signal::URG;

/// `_IOW(0xAE, 0x8b, struct kvm_signal_mask)` of linux/kvm.h.
const KVM_SET_SIGNAL_MASK: libc::c_ulong = 0x4004_ae8b;

/// `struct kvm_signal_mask` with the kernel's signal set of 64 bits.
#[repr(C)]
struct KvmSignalMask {
    length: u32,
    signals: [u8; 8],
}

/// Blocks every signal in the calling thread, for as long as the thread lives.
pub fn block_signals() -> io::Result<()> {
    // SAFETY: an all-zero sigset_t is a valid place to fill; both calls only touch this thread's mask.
    let failed = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut())
    };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(failed))
    }
}

/// Lets [`kick`] end KVM_RUN on this vCPU: the kernel unblocks that signal inside KVM_RUN only, which then returns EINTR
/// with the signal still pending. No handler is needed, and a kick before KVM_RUN is not lost.
pub fn let_kicks_end(vcpu: &VcpuFd) -> io::Result<()> {
    let blocked = !(1u64 << (KICK.as_raw() - 1));
    let mask = KvmSignalMask {
        length: 8,
        signals: blocked.to_ne_bytes(),
    };
    // SAFETY: the descriptor is a vCPU, and the kernel reads `length` bytes of signals behind the length, no more.
    let result = unsafe { libc::ioctl(vcpu.as_raw_fd(), KVM_SET_SIGNAL_MASK, &mask) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Ends KVM_RUN in a thread of this process that has [`block_signals`] behind it.
pub fn kick(thread: Pid) {
    // SAFETY: tgkill takes numbers only; the signal is blocked in the target and ignored by default elsewhere.
    unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            libc::getpid(),
            thread.as_raw_pid(),
            KICK.as_raw(),
        )
    };
}

/// Has a program end with the thread that starts it, also by SIGKILL of this process.
pub fn end_with_this_thread(command: &mut Command) {
    // SAFETY: between fork and exec a single system call is made, and nothing allocated or locked.
    unsafe {
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into))
    };
}

/// Starts a program in a session of its own, which has no controlling terminal.
pub fn in_own_session(command: &mut Command) {
    // SAFETY: between fork and exec a single system call is made, and nothing allocated or locked.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(Into::into)) };
}

/// Takes back the pending kick, if there is one, so that the next KVM_RUN starts.
pub fn take_kick() {
    // SAFETY: an initialised set and a zero timeout; no information about the signal is asked for.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, KICK.as_raw());
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        libc::sigtimedwait(&set, std::ptr::null_mut(), &now);
    }
}

/// Gives the machine these pages as its memory from address 0.
///
/// The machine may write to them for as long as it lives: the caller keeps them in place, and does not check them,
/// until the machine is closed.
pub fn set_memory(vm: &VmFd, pages: &mut [Page]) -> Result<(), kvm_ioctls::Error> {
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: size_of_val(pages) as u64,
        userspace_addr: pages.as_mut_ptr() as u64,
    };
    // SAFETY: the region is exactly the exclusively borrowed, page-aligned slice; `MicroVm` owns it longer than the VM.
    unsafe { vm.set_user_memory_region(region) }
}

/// Opens a perf event for this process on any CPU, disabled; closed again when dropped.
///
/// `kind` and `config` are those of `struct perf_event_attr`.
pub fn perf_event(kind: u32, config: u64, exclude_kernel: bool) -> io::Result<OwnedFd> {
    const SIZE: usize = 64; // PERF_ATTR_SIZE_VER0
    const CLOSE_ON_EXEC: libc::c_ulong = 8; // PERF_FLAG_FD_CLOEXEC
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = (1 << 5) | (1 << 6);
    let mut attributes = [0u64; SIZE / 8];
    attributes[0] = u64::from(kind) | ((SIZE as u64) << 32);
    attributes[1] = config;
    attributes[5] = DISABLED
        | if exclude_kernel {
            EXCLUDE_KERNEL_AND_HYPERVISOR
        } else {
            0
        };
    let (this_process, any_cpu, no_group): (i32, i32, i32) = (0, -1, -1);
    // SAFETY: the kernel reads SIZE bytes, as the structure itself says; all unset fields are zero, which is valid.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            this_process,
            any_cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    match i32::try_from(descriptor) {
        // SAFETY: the kernel just made this descriptor for us, and nothing else knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The hypervisor's signature, CPUID leaf 0x40000000; only meaningful when the `hypervisor` flag is set.
#[allow(unused_unsafe)] // `__cpuid` is safe in newer compilers than the oldest we support
pub fn hypervisor_signature() -> [u8; 12] {
    // SAFETY: every x86-64 CPU has CPUID.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0x4000_0000) };
    let mut signature = [0; 12];
    for (part, register) in signature
        .chunks_exact_mut(4)
        .zip([leaf.ebx, leaf.ecx, leaf.edx])
    {
        part.copy_from_slice(&register.to_le_bytes());
    }
    signature
}
