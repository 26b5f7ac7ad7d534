//! Every rule. A new one is a file here, or an item in the file of its family, and a line in [`RULES`]; of rules whose
//! findings give back the same, the first here comes first. The rules about a host and about warnings are tables.

mod accelerator;
mod apic;
mod clock_source;
mod configured;
mod configured_guest;
mod console;
mod coroutines;
mod cpu_set;
mod cpu_wait;
mod device_users;
mod guest_code;
mod host;
mod host_load;
mod interrupts;
mod io_limits;
mod iothread;
mod overhead;
mod page_faults;
mod raised_limit;
mod reported;
mod requests;
mod rotational;
mod run_queue_wait;
mod settings_to_check;
mod share;
mod timers;
mod vcpu_wait;
mod vm_cpu;
mod vm_disk_settings;
mod vm_guest;
mod vm_hang;
mod vm_host_disk;
mod vm_io;
mod vm_memory;
mod vm_network;
mod vm_serving;
mod vm_stalled;
mod vm_virtiofsd;
mod warning;

pub use interrupts::MAX_TICK_HZ;
pub use raised_limit::raised_limit;
pub use run_queue_wait::why_run_queue_wait;
pub use vm_guest::clock_read_rule;

use crate::{Evidence, Rule};

/// Returns all rules.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let of_texts = PASTED.iter().flat_map(|(_, rules)| rules.iter());
    costs().chain(settings_to_check()).chain(of_texts)
}

/// The rules whose finding is measured.
pub(crate) fn costs() -> impl Iterator<Item = &'static Rule> {
    HANGS
        .iter()
        .chain(RULES)
        .copied()
        .chain(host::HOST)
        .chain(warning::WARNINGS)
}

/// The rules about settings of which no measurement says what they cost.
pub(crate) fn settings_to_check() -> impl Iterator<Item = &'static Rule> {
    let others = SETTINGS_OF_VM.iter().copied();
    settings_to_check::SETTINGS.iter().chain(others)
}

/// Rules about settings of the host that concern all its VMs alike.
pub(crate) fn settings_of_host_to_check() -> impl Iterator<Item = &'static Rule> {
    settings_to_check::OF_ALL_VMS.iter().copied()
}

/// The rule about a host without an idle CPU, and those about each of the VMs that wait there.
pub(crate) const HOST_CPUS_BUSY: &str = host_load::HOST_CPUS_BUSY.id;
pub(crate) const RUN_QUEUE_WAITS: [&str; 2] =
    [vm_cpu::VM_RUN_QUEUE_WAIT.id, vm_cpu::VM_SERVING_WAIT.id];

/// Rules about settings of a VM, or of what serves it.
const SETTINGS_OF_VM: [&Rule; 6] = [
    &page_faults::SETTING_NESTED_PAGING,
    &apic::SETTING_APICV,
    &apic::WINDOWS_AVIC,
    &rotational::SETTING_ROTATIONAL,
    &device_users::SETTING_SHARED_DEVICE,
    &requests::EMPTY_QUEUE,
];

/// Those about settings of a running VM that its command line shows as a text would.
pub(crate) fn configured_settings() -> impl Iterator<Item = &'static Rule> {
    configured_guest::OF_RUNNING_VM.iter()
}

/// Returns true if there is a text of a kind.
type HasText = fn(&Evidence<'_>) -> bool;

/// The rules about texts that somebody pasted, by the kind of text.
const PASTED: [(HasText, &[Rule]); 4] = [
    (|evidence| !evidence.fio.is_empty(), reported::FIO),
    (|evidence| !evidence.exit_report.is_empty(), reported::EXITS),
    (
        |evidence| evidence.configuration.is_some(),
        configured::CONFIGURED,
    ),
    (
        |evidence| evidence.configuration.is_some(),
        configured_guest::CONFIGURED_GUEST,
    ),
];

/// Rules about measurements that texts show, too.
const MEASURED_OR_PASTED: [(HasText, &Rule); 1] = [(
    |evidence| !evidence.exit_report.is_empty(),
    &page_faults::SHADOW_PAGING,
)];

/// The rules about the pasted texts that are there.
pub(crate) fn about_texts(evidence: &Evidence<'_>) -> impl Iterator<Item = &'static Rule> {
    let there = PASTED.iter().filter(|(has_text, _)| has_text(evidence));
    let shared = MEASURED_OR_PASTED
        .iter()
        .filter(|(has_text, _)| has_text(evidence));
    there
        .flat_map(|(_, rules)| rules.iter())
        .chain(shared.map(|(_, rule)| *rule))
}

/// The rules about VMs that do not run: what else is found there explains nothing.
const HANGS: [&Rule; 7] = [
    &vm_hang::VM_PROCESS_STOPPED,
    &vm_hang::VM_PROCESS_TRACED,
    &vm_hang::VM_BLOCKED_THREAD,
    &vm_hang::VM_NO_PROGRESS,
    &vm_hang::VM_GUEST_PANICKED,
    &vm_hang::VM_INTERNAL_ERROR,
    &vm_hang::VM_GUEST_FAILED,
];

/// The other rules about measurements.
const RULES: &[&Rule] = &[
    &accelerator::TCG_DESPITE_KVM,
    &accelerator::KVM_EMULATES_KERNELS,
    &accelerator::KVM_NOT_AVAILABLE,
    &overhead::LARGEST_OVERHEAD,
    &overhead::WAITING_READS,
    &overhead::OTHER_GUEST_KERNEL,
    &overhead::WIDE_INTERVALS,
    &host::CPU_GOVERNOR,
    &requests::FASTER_VARIANT,
    &cpu_wait::QEMU_RUN_QUEUE_WAIT,
    &cpu_wait::IDLE_WAKE_UP,
    &iothread::MAIN_LOOP_LOCK,
    &iothread::IOTHREAD_LOCK,
    &iothread::MAIN_LOOP_KICK,
    &requests::TRACING_OVERHEAD,
    &share::FASTER_SHARE,
    &share::NO_FASTER_SHARE,
    &share::SHARE_FAILED,
    &share::TOO_FEW_SHARE_ROUNDS,
    &vcpu_wait::VCPU_RUN_QUEUE_WAIT,
    &vcpu_wait::COMMAND_STEAL,
    &vcpu_wait::VCPU_BIG_LOCK,
    &console::UART_POLLING,
    &console::SERIAL_OUTPUT,
    &console::VGA_CURSOR,
    &interrupts::FAST_TICK,
    &clock_source::PM_TIMER_CLOCK,
    &clock_source::HPET_CLOCK,
    &clock_source::REFERENCE_COUNTER,
    &timers::RTC_TIMER,
    &timers::HPET_TIMER,
    &interrupts::EOI,
    &apic::INTERRUPT_COMMANDS,
    &apic::TASK_PRIORITY,
    &page_faults::SHADOW_PAGING,
    &page_faults::SPLIT_HUGE_PAGES,
    &page_faults::NUMA_FAULTS,
    &iothread::NOTIFY_WITHOUT_IOEVENTFD,
    &cpu_wait::HALT_POLLING,
    &guest_code::DIVISION,
    &guest_code::LOCK_SAVES_INTERRUPTS,
    &guest_code::SMALL_COPIES,
    &vm_cpu::VM_STOPPED,
    &vm_cpu::VM_THROTTLED,
    &vm_cpu::VM_RUN_QUEUE_WAIT,
    &host_load::HOST_CPUS_BUSY,
    &vm_cpu::VM_SERVING_WAIT,
    &vm_cpu::VM_LOW_WEIGHT,
    &vm_virtiofsd::VM_VIRTIOFSD_STOPPED,
    &vm_virtiofsd::VM_VIRTIOFSD_THROTTLED,
    &vm_virtiofsd::VM_VIRTIOFSD_WAIT,
    &vm_disk_settings::VM_IO_LIMIT,
    &vm_disk_settings::VM_WRITE_THROUGH,
    &vm_disk_settings::VM_QCOW2_CACHE,
    &vm_guest::VM_GUEST_CLOCK,
    &vm_guest::VM_GUEST_SCHEDULER,
    &vm_guest::VM_GUEST_READ_AHEAD,
    &vm_host_disk::VM_HOST_SCHEDULER,
    &vm_serving::VM_SHARED_IOTHREAD,
    &vm_serving::VM_IOTHREAD_SLEEPS,
    &vm_serving::VM_MONITOR_FLOOD,
    &vm_serving::VM_9P_FIDS,
    &coroutines::VM_COROUTINES,
    &vm_memory::VM_SWAPPED,
    &vm_memory::VM_MEMORY_PRESSURE,
    &vm_io::VM_DROPS,
    &vm_network::VM_SLIRP,
    &vm_network::VM_SMALL_SEGMENTS,
    &vm_network::VM_TAP_IN_MAIN_LOOP,
    &vm_stalled::VM_STALLED_REQUESTS,
    &vm_io::VM_SLOW_DEVICE,
    &vm_io::VM_SLOW_REQUESTS,
    &vm_io::VM_QUEUED_REQUESTS,
    &vm_cpu::VM_BUSY_THREAD,
    &vm_hang::VM_GUEST_REPORT,
];

/// Returns true for a rule that says of a VM that it does not run.
pub(crate) fn is_about_hang(id: &str) -> bool {
    HANGS.iter().any(|rule| rule.id == id)
}
