//! Rules about problems of a host that `doctor` finds.

use crate::rule::instruction;
use crate::{Evidence, Finding, Rule};
use vmtax_model::{ChangeCost, HostProblem, Remedy, Setting, SettingPlace};

/// A rule about one problem that a check of the host names.
macro_rules! host {
    ($problem:ident, $finds:literal, $source:expr, [$($remedy:expr),*]) => {
        Rule {
            id: HostProblem::$problem.into_str(),
            finds: $finds,
            remedies: &[$($remedy),*],
            source: $source,
            evaluate: |evidence| problem(evidence, HostProblem::$problem),
        }
    };
}

/// Returns the findings of the host's checks about a problem.
pub(super) fn problem(evidence: &Evidence<'_>, problem: HostProblem) -> Vec<Finding> {
    let checks = evidence
        .checks
        .iter()
        .filter(|check| check.problem == Some(problem));
    checks
        .map(|check| Finding::new(format!("{}: {}.", check.subject, check.found)))
        .collect()
}

const DISTRIBUTION_KERNEL: Remedy<&str> = instruction(
    "Boot a distribution's kernel",
    "sudo apt-get install linux-image-amd64 # Ubuntu: linux-image-generic; Fedora: sudo dnf install kernel; Arch: sudo pacman -S linux",
);
/// Remedy that gives a user a control group with a memory limit.
pub(super) const OWN_CGROUP: Remedy<&str> = instruction(
    "Run vmtax as root, or with cgroup v2 in a delegated control group",
    "systemd-run --user --scope -p Delegate=yes vmtax run",
);
const KVM_DOCS: &str = "Linux kernel documentation, Nested VMX";
const TRACE_DOCS: &str = "Linux kernel documentation, ftrace - Function Tracer";
const LOCKDOWN_DOCS: &str = "kernel_lockdown(7)";
const CGROUP_DOCS: &str = "Linux kernel documentation, Control Group v2";
const TSC_DOCS: &str =
    "Linux kernel documentation, Timekeeping Virtualization for X86-Based Architectures";
const PAGES_DOCS: &str = "Linux kernel documentation, Transparent Hugepage Support";
const PERF_DOCS: &str = "Linux kernel documentation, Perf events and tool security";

/// Every rule about a host.
pub(super) const HOST: &[Rule] = &[
    host!(
        VirtualizationOff,
        "a CPU that offers neither VT-x nor AMD-V, on bare metal",
        KVM_DOCS,
        [instruction(
            "Switch on VT-x or AMD-V (SVM) in the firmware setup",
            "sudo systemctl reboot --firmware-setup"
        )]
    ),
    host!(
        NoNestedVirtualization,
        "a host that is a guest without nested virtualization",
        KVM_DOCS,
        [instruction(
            "Enable nested virtualization on the hypervisor below this VM, and reboot it; then start this VM with `-cpu host`",
            "echo 'options kvm_intel nested=1' | sudo tee /etc/modprobe.d/kvm-nested.conf # AMD: kvm_amd"
        )]
    ),
    host!(
        OneCpu,
        "one CPU for guest, QEMU and host together",
        "",
        [instruction(
            "Give this machine, or this process, a second CPU",
            "taskset -c 0,1 vmtax"
        )]
    ),
    host!(
        SmtOn,
        "SMT: a figure depends on what the sibling thread does",
        "",
        [Setting::named("host.smt").remedy("off", "Switch SMT off for the measurement")]
    ),
    host!(
        StolenCpuTime,
        "a hundredth of the CPU time since boot and more given to other guests",
        "",
        [instruction(
            "Measure when the neighbors are quiet, with more rounds (`--rounds`), or on a dedicated host",
            ""
        )]
    ),
    host!(
        SlowClockSource,
        "a clock source other than tsc, which the kernel offers",
        TSC_DOCS,
        [Setting::named("host.clocksource").remedy("tsc", "Use the TSC")]
    ),
    host!(
        TscNotTrusted,
        "an invariant TSC that the kernel does not offer as a clock source",
        TSC_DOCS,
        [
            instruction("See why", "sudo dmesg | grep -i tsc"),
            Remedy {
                place: SettingPlace::HostCommandLine,
                setting: "tsc",
                value: "reliable",
                action: "If it is sound, trust it",
                line: "tsc=reliable",
                cost: Some(ChangeCost::HostReboot),
                read_back: "/sys/devices/system/clocksource/clocksource0/available_clocksource",
                undo: "take tsc=reliable from the kernel's command line",
            }
        ]
    ),
    host!(
        TscNotExposed,
        "a host that is a guest without an invariant TSC",
        TSC_DOCS,
        [instruction(
            "Expose it on the hypervisor below this VM",
            "-cpu host,+invtsc # QEMU"
        )]
    ),
    host!(
        KvmBroken,
        "a /dev/kvm that opens and runs nothing properly",
        "",
        [instruction(
            "See what the kernel says, then load KVM's module again",
            "sudo dmesg | grep -i kvm; sudo modprobe -r kvm_intel kvm_amd kvm"
        )]
    ),
    host!(
        KvmNotPermitted,
        "a /dev/kvm that this user may not open",
        "",
        [instruction(
            "Join its group, then log in again",
            "sudo usermod -aG kvm $USER"
        )]
    ),
    // Only a group of its own can be joined: joining root's would give far more than KVM.
    host!(
        KvmGroupMissing,
        "a /dev/kvm of root's own group",
        "",
        [instruction(
            "Give it a group of its own and join that, then log in again",
            "sudo chgrp kvm /dev/kvm && sudo chmod 660 /dev/kvm && sudo usermod -aG kvm $USER"
        )]
    ),
    host!(
        KvmIntelNotLoaded,
        "no /dev/kvm on a CPU with VT-x",
        "",
        [instruction("Load KVM's module", "sudo modprobe kvm_intel")]
    ),
    host!(
        KvmAmdNotLoaded,
        "no /dev/kvm on a CPU with AMD-V",
        "",
        [instruction("Load KVM's module", "sudo modprobe kvm_amd")]
    ),
    host!(
        LittleMemory,
        "less than 2 GiB of memory available",
        "",
        [instruction(
            "End other programs, or give guests less; this shows who has it",
            "ps aux --sort=-rss | head"
        )]
    ),
    host!(
        TransparentHugePagesOff,
        "transparent huge pages that QEMU cannot ask for",
        PAGES_DOCS,
        [Setting::named("host.thp").remedy(
            "madvise",
            "Set transparent huge pages to madvise, which QEMU uses"
        )]
    ),
    host!(
        NoHugePages,
        "a kernel without transparent huge pages, and none reserved",
        PAGES_DOCS,
        [Setting::named("host.huge-pages").remedy("512", "Reserve some")]
    ),
    host!(
        QemuIncomplete,
        "a QEMU without a part that guests or comparisons need",
        "",
        [instruction(
            "Install the distribution's, which has them all",
            "sudo apt-get install qemu-system-x86 # Fedora: sudo dnf install qemu-system-x86; Arch: sudo pacman -S qemu-base"
        )]
    ),
    host!(
        NoGuestKernel,
        "no kernel that a guest can boot",
        "",
        [instruction("Fetch one", "vmtax get kernel")]
    ),
    host!(
        KernelFeatureMissing,
        "a kernel built without tracefs, uprobes or perf_event",
        "",
        [DISTRIBUTION_KERNEL]
    ),
    host!(
        TracingNeedsRoot,
        "a tracefs that is not mounted, or a tracefs or uprobes closed to this user",
        TRACE_DOCS,
        [instruction("Run vmtax as root", "sudo vmtax")]
    ),
    host!(
        KernelLockedDown,
        "a kernel whose lockdown closes tracing to everybody",
        LOCKDOWN_DOCS,
        [instruction(
            "Boot without it, where that is allowed",
            "lockdown=integrity # kernel command line"
        )]
    ),
    host!(
        PerfEventParanoid,
        "perf_event restricted for this user",
        PERF_DOCS,
        [Setting::named("host.perf-event-paranoid").remedy(
            "1",
            "Allow this user's own processes, kernel code among them"
        )]
    ),
    host!(
        NoVirtualPmu,
        "no hardware counters",
        "",
        [instruction(
            "Give this machine a virtual PMU in its host",
            "-cpu host,pmu=on # QEMU"
        )]
    ),
    host!(
        NoCgroup,
        "no control group hierarchy",
        CGROUP_DOCS,
        [instruction(
            "Mount it",
            "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup"
        )]
    ),
    host!(
        NoMemoryController,
        "control groups without the memory controller",
        CGROUP_DOCS,
        [Remedy {
            place: SettingPlace::HostCommandLine,
            setting: "cgroup_enable",
            value: "memory",
            action: "Enable it: add it to GRUB_CMDLINE_LINUX in /etc/default/grub, then `sudo update-grub`, and reboot",
            line: "cgroup_enable=memory",
            cost: Some(ChangeCost::HostReboot),
            read_back: "/sys/fs/cgroup/cgroup.controllers",
            undo: "take cgroup_enable=memory from GRUB_CMDLINE_LINUX",
        }]
    ),
    host!(
        NoCgroupRights,
        "control groups in which this user may make none",
        CGROUP_DOCS,
        [OWN_CGROUP]
    ),
    host!(
        NoMkfs,
        "no mkfs.ext4",
        "",
        [instruction(
            "Install it",
            "sudo apt-get install e2fsprogs # Fedora: sudo dnf install e2fsprogs; Arch: sudo pacman -S e2fsprogs"
        )]
    ),
    host!(
        NoVirtiofsd,
        "no virtiofsd",
        "",
        [instruction(
            "Install it",
            "sudo apt-get install virtiofsd # Debian 12: qemu-system-common has it; Fedora: sudo dnf install virtiofsd; Arch: sudo pacman -S virtiofsd"
        )]
    ),
    host!(
        NoNfsServer,
        "no NFS-Ganesha",
        "",
        [instruction(
            "Install it",
            "sudo apt-get install nfs-ganesha nfs-ganesha-vfs # Fedora: sudo dnf install nfs-ganesha nfs-ganesha-vfs; Arch: nfs-ganesha of the AUR"
        )]
    ),
];

pub(super) const CPU_GOVERNOR: Rule = Rule {
    id: "cpu-governor",
    finds: "a CPU frequency that follows the load: figures of different runs are then of different frequencies",
    remedies: &[Setting::named("host.governor")
        .remedy("performance", "Set it to performance before comparing runs")],
    source: "Linux kernel documentation, CPU Performance Scaling",
    evaluate: |evidence| {
        let asked =
            evidence.overhead.is_some() || !problem(evidence, HostProblem::CpuGovernor).is_empty();
        let host = evidence.host.filter(|_| asked);
        let governor = host.and_then(|host| host.cpu.governor.as_deref());
        let finding = |governor: &str| Finding {
            values: vec![("BEFORE", governor.escape_default().to_string())],
            ..Finding::new(format!(
                "The host CPUs' frequency followed the load (governor '{}').",
                governor.escape_default()
            ))
        };
        let varies = governor.filter(|governor| *governor != "performance");
        varies.map(finding).into_iter().collect()
    },
};

#[cfg(test)]
mod tests {
    use crate::test_evidence::{Overheads, advice, host};
    use crate::{Evidence, evaluate};
    use std::slice::from_ref;
    use vmtax_model::{Check, HostProblem, Machine, Readiness};

    #[test]
    fn the_rule_of_a_problem_fires_and_no_other() {
        let mut host = host();
        host.cpu.governor = Some("powersave".to_owned());
        for problem in HostProblem::ALL {
            let check = Check {
                id: "id".into(),
                subject: "Subject".into(),
                state: Readiness::Limited,
                found: "figure".into(),
                why: String::new(),
                problem: Some(*problem),
                remedies: Vec::new(),
            };
            let host = Some(&host);
            let advice = evaluate(&Evidence {
                host,
                checks: from_ref(&check),
                ..Evidence::default()
            });
            assert_eq!(
                advice.iter().map(|a| &*a.rule).collect::<Vec<_>>(),
                [problem.into_str()]
            );
            assert!(!advice[0].remedies.is_empty(), "{advice:?}");
            let fine = Check {
                problem: None,
                ..check
            };
            assert_eq!(
                evaluate(&Evidence {
                    host,
                    checks: &[fine],
                    ..Evidence::default()
                }),
                []
            );
        }
    }

    fn advice_for(governor: Option<&str>) -> Vec<vmtax_findings::Advice> {
        let mut overheads = Overheads::new(Machine::KVM, &[]);
        overheads.host.cpu.governor = governor.map(str::to_owned);
        advice("cpu-governor", &overheads.evidence())
    }

    #[test]
    fn a_governor_that_follows_the_load_is_undone_to_what_it_was() {
        let found = advice_for(Some("powersave"));
        assert!(
            found[0].finding.contains("(governor 'powersave')"),
            "{found:?}"
        );
        assert_eq!(
            found[0].remedies[0].undo,
            "sudo cpupower frequency-set -g powersave"
        );
    }

    #[test]
    fn a_fixed_frequency_is_no_finding() {
        assert_eq!(advice_for(Some("performance")), []);
        assert_eq!(advice_for(None), []);
    }
}
