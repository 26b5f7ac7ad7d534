//! The CPUs: what they are, and what disturbs a measurement on them.

use crate::CheckResult;
use crate::raw;
use crate::system_files::{self, CpuTime, read};
use std::collections::BTreeSet;
use std::path::Path;
use vmtax_model::{Check, CpuFacts, HostProblem};

const CPUS: &str = "/sys/devices/system/cpu";
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";
/// Stolen time above which figures wander with the neighbors' load.
const MAX_STEAL: f64 = 0.01;

/// Reads what the kernel shows of the CPUs.
pub fn collect() -> CpuFacts {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    CpuFacts {
        model: system_files::cpuinfo(&info, "model name")
            .unwrap_or("unknown")
            .to_owned(),
        microcode: system_files::cpuinfo(&info, "microcode").map(str::to_owned),
        online: online(),
        threads_per_core: listed("cpu0/topology/thread_siblings_list").max(1),
        virtualisation: virtualisation_flag(&info).map(str::to_owned),
        hypervisor: system_files::has_flag(&info, "hypervisor")
            .then(|| hypervisor(&raw::hypervisor_signature(), &product())),
        invariant_tsc: has_invariant_tsc(&info),
        clocksource: read(format!("{CLOCK}/current_clocksource"))
            .unwrap_or_else(|| "unknown".into()),
        governor: governor(),
        steal: CpuTime::now().stolen_since(&CpuTime::default()),
    }
}

/// Returns the number of CPUs that are online, at least 1.
pub fn online() -> u32 {
    listed("online").max(1)
}

/// Returns the number of CPUs in a list below [`CPUS`]; 0 if the kernel does not show it.
fn listed(path: &str) -> u32 {
    read(Path::new(CPUS).join(path)).map_or(0, |list| system_files::list_length(&list))
}

fn virtualisation_flag(cpuinfo: &str) -> Option<&'static str> {
    ["vmx", "svm"]
        .into_iter()
        .find(|flag| system_files::has_flag(cpuinfo, flag))
}

/// Both are needed: a constant rate, and no stop in sleep states.
fn has_invariant_tsc(cpuinfo: &str) -> bool {
    ["constant_tsc", "nonstop_tsc"]
        .iter()
        .all(|flag| system_files::has_flag(cpuinfo, flag))
}

/// Returns the firmware's name of this machine, `Amazon EC2 m7a.large`; empty if it has none.
fn product() -> String {
    let parts =
        ["sys_vendor", "product_name"].map(|name| read(format!("/sys/class/dmi/id/{name}")));
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A name for the hypervisor, from its signature in CPUID and the firmware's product.
fn hypervisor(signature: &[u8; 12], product: &str) -> String {
    let name = match signature {
        b"KVMKVMKVM\0\0\0" => "KVM",
        b"TCGTCGTCGTCG" => "QEMU TCG",
        b"VMwareVMware" => "VMware",
        b"Microsoft Hv" => "Hyper-V",
        b"XenVMMXenVMM" => "Xen",
        b"VBoxVBoxVBox" => "VirtualBox",
        b"bhyve bhyve " => "bhyve",
        other => std::str::from_utf8(other)
            .ok()
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()))
            .unwrap_or("unknown"),
    };
    if product.is_empty() {
        name.to_owned()
    } else {
        format!("{name} ({product})")
    }
}

/// The governors in use, `performance` or `powersave, performance`; none where the kernel does not set frequencies.
fn governor() -> Option<String> {
    let policies = std::fs::read_dir(format!("{CPUS}/cpufreq")).ok()?;
    let names: BTreeSet<String> = policies
        .flatten()
        .filter_map(|policy| read(policy.path().join("scaling_governor")))
        .collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The lines of `doctor` on CPUs and clocks. `usable` is how many this process may run on.
pub fn checks(cpu: &CpuFacts, usable: u32, clocks_available: &str) -> Vec<Check> {
    vec![
        virtualisation(cpu).about(
            "virtualisation",
            "CPU",
            "KVM needs VT-x (vmx) or AMD-V (svm); without them only TCG, or a KVM without hardware support, runs guests",
        ),
        nested(cpu).about(
            "nested",
            "nested virtualization",
            "on a host that is itself a guest, native figures include one level of virtualization, guest figures two",
        ),
        cores(cpu, usable).about(
            "cores",
            "cores and SMT",
            "on one core, guest, QEMU and host compete; with SMT, figures depend on the load of the sibling thread",
        ),
        frequency(cpu).about(
            "governor",
            "frequency governor",
            "a changing frequency changes every figure, natively and in guests by different amounts",
        ),
        steal(cpu).about(
            "steal",
            "steal time",
            "time that the hypervisor gives to other guests adds noise to every figure",
        ),
        clocksource(cpu, clocks_available).about(
            "clocksource",
            "clock source",
            "a clock reading takes about 20 ns with tsc; with other sources microseconds, or a VM exit",
        ),
        tsc(cpu).about(
            "tsc",
            "time stamp counter",
            "timing, and aligning the clocks of host and guest, need a counter of constant rate that never stops",
        ),
    ]
}

/// Returns the available clock sources, as the kernel lists them.
pub fn clocks_available() -> String {
    read(format!("{CLOCK}/available_clocksource")).unwrap_or_default()
}

fn virtualisation(cpu: &CpuFacts) -> CheckResult {
    match &cpu.virtualisation {
        Some(flag) => CheckResult::ok(format!("{} with {flag}", cpu.model)),
        None => CheckResult::limited(
            format!("{} without vmx and svm", cpu.model),
            without_virtualization(cpu),
        ),
    }
}

/// Who has to switch on what the CPU lacks.
pub fn without_virtualization(cpu: &CpuFacts) -> HostProblem {
    if cpu.hypervisor.is_some() {
        HostProblem::NoNestedVirtualization
    } else {
        HostProblem::VirtualizationOff
    }
}

fn nested(cpu: &CpuFacts) -> CheckResult {
    match &cpu.hypervisor {
        None => CheckResult::ok("bare metal (no hypervisor flag)"),
        Some(name) => CheckResult::limited_for_good(format!("this host is a guest of {name}")),
    }
}

fn cores(cpu: &CpuFacts, usable: u32) -> CheckResult {
    let smt = cpu.threads_per_core > 1;
    let threads = match cpu.threads_per_core {
        0 | 1 => "no SMT".to_owned(),
        threads => format!("SMT with {threads} threads per core"),
    };
    let mut found = format!("{} online, {threads}", cpu.online);
    if usable < cpu.online {
        found += &format!(", {usable} usable by this process");
    }
    if usable < 2 {
        CheckResult::limited(found, HostProblem::OneCpu)
    } else if smt {
        CheckResult::limited(found, HostProblem::SmtOn)
    } else {
        CheckResult::ok(found)
    }
}

fn frequency(cpu: &CpuFacts) -> CheckResult {
    match cpu.governor.as_deref() {
        None => CheckResult::ok("none: this kernel does not set frequencies"),
        Some("performance") => CheckResult::ok("performance"),
        Some(other) => CheckResult::limited(other, HostProblem::CpuGovernor),
    }
}

fn steal(cpu: &CpuFacts) -> CheckResult {
    let found = format!("{:.2} % since boot", cpu.steal * 100.0);
    CheckResult::ok_if(cpu.steal <= MAX_STEAL, found, HostProblem::StolenCpuTime)
}

fn clocksource(cpu: &CpuFacts, available: &str) -> CheckResult {
    let found = cpu.clocksource.clone();
    if found == "tsc" {
        CheckResult::ok(found)
    } else if available.split_ascii_whitespace().any(|name| name == "tsc") {
        CheckResult::limited(found, HostProblem::SlowClockSource)
    } else if cpu.invariant_tsc {
        CheckResult::limited(found, HostProblem::TscNotTrusted)
    } else {
        CheckResult::limited_for_good(found)
    }
}

fn tsc(cpu: &CpuFacts) -> CheckResult {
    if cpu.invariant_tsc {
        CheckResult::ok("invariant (constant_tsc, nonstop_tsc)")
    } else if cpu.hypervisor.is_some() {
        CheckResult::limited("not invariant", HostProblem::TscNotExposed)
    } else {
        CheckResult::limited_for_good("not invariant: clock_gettime is used instead")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::Readiness;

    fn bare_metal() -> CpuFacts {
        CpuFacts {
            model: "Xeon".into(),
            microcode: None,
            online: 8,
            threads_per_core: 1,
            virtualisation: Some("vmx".into()),
            hypervisor: None,
            invariant_tsc: true,
            clocksource: "tsc".into(),
            governor: Some("performance".into()),
            steal: 0.0,
        }
    }

    fn not_ok(cpu: &CpuFacts, usable: u32, clocks: &str) -> Vec<String> {
        let lines = checks(cpu, usable, clocks);
        lines
            .into_iter()
            .filter(|line| line.state != Readiness::Ok)
            .map(|line| line.id)
            .collect()
    }

    #[test]
    fn a_quiet_bare_metal_host_is_all_well() {
        assert_eq!(
            not_ok(&bare_metal(), 8, "tsc hpet acpi_pm"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn each_disturbance_is_named() {
        let change = |change: fn(&mut CpuFacts)| {
            let mut cpu = bare_metal();
            change(&mut cpu);
            not_ok(&cpu, 8, "tsc hpet")
        };
        assert_eq!(change(|c| c.virtualisation = None), ["virtualisation"]);
        assert_eq!(change(|c| c.hypervisor = Some("KVM".into())), ["nested"]);
        assert_eq!(change(|c| c.threads_per_core = 2), ["cores"]);
        assert_eq!(
            change(|c| c.governor = Some("powersave".into())),
            ["governor"]
        );
        assert_eq!(change(|c| c.governor = None), Vec::<String>::new());
        assert_eq!(change(|c| c.steal = 0.02), ["steal"]);
        assert_eq!(change(|c| c.clocksource = "hpet".into()), ["clocksource"]);
        assert_eq!(change(|c| c.invariant_tsc = false), ["tsc"]);
        assert_eq!(not_ok(&bare_metal(), 1, ""), ["cores"]);
    }

    #[test]
    fn the_problem_of_a_clock_is_what_keeps_it_from_the_tsc() {
        let cpu = CpuFacts {
            clocksource: "hpet".into(),
            ..bare_metal()
        };
        assert_eq!(
            clocksource(&cpu, "tsc hpet").problem,
            Some(HostProblem::SlowClockSource)
        );
        assert_eq!(
            clocksource(&cpu, "hpet").problem,
            Some(HostProblem::TscNotTrusted)
        );
        assert_eq!(
            clocksource(
                &CpuFacts {
                    invariant_tsc: false,
                    ..cpu
                },
                "hpet"
            )
            .problem,
            None
        );
    }

    #[test]
    fn flags_are_read() {
        assert_eq!(virtualisation_flag("flags\t: fpu vmx tsc\n"), Some("vmx"));
        assert_eq!(virtualisation_flag("flags\t: fpu svm\n"), Some("svm"));
        assert_eq!(
            virtualisation_flag("flags\t: fpu vmmcall\nbugs\t: vmx\n"),
            None
        );
        assert!(has_invariant_tsc("flags\t: constant_tsc nonstop_tsc\n"));
        assert!(
            !has_invariant_tsc("flags\t: constant_tsc\n")
                && !has_invariant_tsc("flags\t: nonstop_tsc\n")
        );
    }

    #[test]
    fn hypervisors_have_names() {
        assert_eq!(
            hypervisor(b"KVMKVMKVM\0\0\0", "Amazon EC2 m7a"),
            "KVM (Amazon EC2 m7a)"
        );
        assert_eq!(hypervisor(b"Microsoft Hv", ""), "Hyper-V");
        assert_eq!(hypervisor(b"ACRNACRNACRN", ""), "ACRNACRNACRN");
        assert_eq!(hypervisor(&[7; 12], ""), "unknown");
    }

    #[test]
    fn this_machine_has_cpus() {
        let cpu = collect();
        assert!(cpu.online >= 1 && cpu.threads_per_core >= 1 && (0.0..=1.0).contains(&cpu.steal));
        assert_eq!(checks(&cpu, cpu.online, &clocks_available()).len(), 7);
    }
}
