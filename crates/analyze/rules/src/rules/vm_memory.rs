//! A running VM whose memory the host does not keep, by its counters.

use crate::evidence::MIN_SHARE;
use crate::rule::{about_vm, instruction, is_libvirts, qmp_line, virsh};
use crate::{Finding, Rule};
use vmtax_findings::VmRates;
use vmtax_model::number::{bytes, percent, significant};
use vmtax_model::{ChangeCost, Counter, MemoryLimit, Remedy, Setting, SettingPlace, shell_line};

const SWAPPED: &Counter = Counter::named("swapped");
const MAJOR_FAULTS: &Counter = Counter::named("major_faults");
const PRESSURE_SOME: &Counter = Counter::named("memory_pressure_some");
const PRESSURE_FULL: &Counter = Counter::named("memory_pressure_full");
const MEMORY_HIGH: &Counter = Counter::named("memory_high");

/// Page faults that wait for a disk: at this rate they take a twentieth of a CPU's time and more on a fast SSD (0.1 ms each).
const MANY_MAJOR_FAULTS: f64 = 500.0;
/// On a slow disk fewer take all of the time: then the vCPUs are off the CPU for half of it and more.
const BLOCKING_MAJOR_FAULTS: f64 = 200.0;
const MOSTLY_BLOCKED: f64 = 0.5;
/// Fewer may be those of a start.
const SOME_MAJOR_FAULTS: f64 = 10.0;

pub(super) const VM_SWAPPED: Rule = Rule {
    id: "vm-swapped",
    finds: "a VM whose threads fault its memory in from a disk: in swap, or mapped from a file",
    remedies: &[
        instruction(
            "Free memory on the host, or move the VM to another",
            "vmstat 1",
        ),
        Remedy {
            place: SettingPlace::Qmp,
            setting: "balloon",
            value: "SIZE",
            action: "Inflate the guest's balloon: the guest returns memory to the host",
            line: "DEFLATE",
            cost: Some(ChangeCost::Live),
            read_back: "QMP query-balloon",
            undo: "INFLATE",
        },
        Setting::named("host.swappiness").remedy(
            "10",
            "And lower the host's swappiness: the host swaps later",
        ),
    ],
    source: "Linux kernel documentation, Documentation for /proc/sys/vm: swappiness",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let swapped = vm.counters.get(SWAPPED).unwrap_or(0.0) as u64;
            let faults_per_s = vm.counters.get(MAJOR_FAULTS).unwrap_or(0.0);
            let least = match swapped {
                1.. => SOME_MAJOR_FAULTS,
                0 if blocked(vm) >= MOSTLY_BLOCKED => BLOCKING_MAJOR_FAULTS,
                0 => MANY_MAJOR_FAULTS,
            };
            let text = format!(
                "The host reads the VM's memory from disk {} times a second (major faults); {} of it is swapped out.",
                significant(faults_per_s),
                match swapped {
                    0 => "none".to_owned(),
                    swapped => bytes(swapped),
                }
            );
            let pressure = vm.counters.get(PRESSURE_SOME);
            let gain = pressure.unwrap_or_else(|| blocked(vm));
            (faults_per_s >= least).then(|| Finding {
                values: vec![
                    ("DEFLATE", balloon(vm, "SIZE")),
                    ("INFLATE", balloon(vm, &vm.memory.to_string())),
                ],
                ..Finding::with_gain(text, gain)
            })
        })
    },
};

/// The command that sets the guest's memory, in bytes.
fn balloon(vm: &VmRates, bytes: &str) -> String {
    if is_libvirts(vm) {
        return virsh(vm, &["setmem", "DOMAIN", &format!("{bytes}b"), "--live"]);
    }
    let command = format!("{{\"execute\":\"balloon\",\"arguments\":{{\"value\":{bytes}}}}}");
    qmp_line(vm, &command)
}

/// The part of the time that vCPUs neither run nor wait for a CPU: the faults take that at most, the guest's own idle time
/// included.
fn blocked(vm: &VmRates) -> f64 {
    vm.run
        .zip(vm.ready)
        .map_or(0.0, |(run, ready)| (1.0 - run - ready).max(0.0))
}

pub(super) const VM_MEMORY_PRESSURE: Rule = Rule {
    id: "vm-memory-pressure",
    finds: "a twentieth of the time and more in which tasks of the VM's control group wait for memory, or `memory.high` slows them",
    remedies: &[
        Remedy {
            place: SettingPlace::Cgroup,
            setting: "memory.high",
            value: "max",
            action: "Raise the memory limit of the VM's group",
            line: "echo max | sudo tee LIMIT_FILE",
            cost: Some(ChangeCost::Live),
            read_back: "LIMIT_FILE",
            undo: "echo LIMIT | sudo tee LIMIT_FILE",
        },
        instruction(
            "Free memory on the host, or move the VM to another",
            "vmstat 1",
        ),
    ],
    source: "Linux kernel documentation, PSI - Pressure Stall Information",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let some = vm.counters.get(PRESSURE_SOME).unwrap_or(0.0);
            let full = vm.counters.get(PRESSURE_FULL).unwrap_or(0.0);
            let slowed = vm.counters.get(MEMORY_HIGH);
            let slowed = slowed.filter(|slowed| *slowed > 0.0);
            let limit = slowed.map_or(String::new(), |slowed| {
                let times = significant(slowed);
                format!("; memory.high slows it {times} times a second")
            });
            let text = format!(
                "Tasks of the VM's control group wait for memory {} of the time, all of them {}{limit}.",
                percent(some),
                percent(full)
            );
            let limits = vm.settings.memory_limit.iter();
            (some >= MIN_SHARE).then(|| Finding {
                values: limits.flat_map(limit_values).collect(),
                ..Finding::with_gain(text, some)
            })
        })
    },
};

fn limit_values(limit: &MemoryLimit) -> [(&'static str, String); 2] {
    let file = shell_line(&[limit.file.to_string_lossy().into_owned()]);
    [("LIMIT_FILE", file), ("LIMIT", limit.bytes.to_string())]
}

#[cfg(test)]
mod tests {
    use crate::Evidence;
    use crate::test_evidence::{self, advice, findings};
    use vmtax_findings::VmRates;
    use vmtax_model::{Manager, MemoryLimit, RunState, VmSettings};

    fn lines(id: &str, vm: &VmRates) -> Vec<String> {
        let advice = advice(
            id,
            &Evidence {
                vm: Some(vm),
                ..Evidence::default()
            },
        )
        .remove(0);
        advice
            .remedies
            .into_iter()
            .map(|remedy| remedy.line)
            .collect()
    }

    #[test]
    fn a_balloon_is_used_where_there_is_one_and_by_its_manager() {
        let balloon_line = |balloon: Option<f64>, manager| {
            let balloon = balloon.map(|bytes| ("balloon", bytes));
            let counters = [("major_faults", 900.0)].into_iter().chain(balloon);
            let (state, name) = (Some(RunState::Running), Some("web01".to_owned()));
            let lines = lines(
                "vm-swapped",
                &VmRates {
                    counters: counters.collect(),
                    state,
                    manager,
                    name,
                    ..VmRates::default()
                },
            );
            lines
                .into_iter()
                .find(|line| line.contains("setmem") || line.contains("balloon"))
        };
        assert_eq!(balloon_line(None, Some(Manager::Libvirt)), None);
        assert_eq!(
            balloon_line(Some(1.0), Some(Manager::Libvirt)).unwrap(),
            "virsh setmem web01 SIZEb --live"
        );
        assert!(
            balloon_line(Some(1.0), None)
                .unwrap()
                .contains("{\"execute\":\"balloon\",\"arguments\":{\"value\":SIZE}}' | socat"),
            "virsh does not know it"
        );
    }

    #[test]
    fn the_limit_of_the_vms_own_group_is_raised() {
        let remedy_lines = |limit: Option<bool>| {
            let (file, bytes) = ("/sys/fs/cgroup/a/memory.high".into(), 4096);
            let memory_limit = limit.map(|is_shared| MemoryLimit {
                file,
                bytes,
                is_shared,
            });
            let counters = [("memory_pressure_some", 0.2)].into_iter().collect();
            let settings = VmSettings {
                memory_limit,
                ..VmSettings::default()
            };
            lines(
                "vm-memory-pressure",
                &VmRates {
                    counters,
                    settings,
                    ..VmRates::default()
                },
            )
        };
        assert_eq!(
            remedy_lines(Some(false)),
            [
                "echo max | sudo tee /sys/fs/cgroup/a/memory.high",
                "vmstat 1"
            ]
        );
        assert_eq!(
            (remedy_lines(Some(true)), remedy_lines(None)),
            (vec!["vmstat 1".to_owned()], vec!["vmstat 1".to_owned()])
        );
    }

    fn says(id: &str, figures: &[(&'static str, f64)]) -> Vec<String> {
        let vm = VmRates {
            counters: figures.iter().copied().collect(),
            ..VmRates::default()
        };
        test_evidence::says(id, &vm)
    }

    #[test]
    fn few_faults_count_where_memory_is_swapped_out() {
        let findings_for = |faults, swapped: u64| {
            says(
                "vm-swapped",
                &[("major_faults", faults), ("swapped", swapped as f64)],
            )
        };
        assert_eq!(
            findings_for(40.0, 64 << 20),
            [
                "The host reads the VM's memory from disk 40.0 times a second (major faults); 64.0 MiB of it is swapped out."
            ]
        );
        assert_eq!(
            (findings_for(40.0, 0), findings_for(2.0, 64 << 20)),
            (vec![], vec![])
        );
        assert!(findings_for(900.0, 0)[0].contains("none of it"));
        let blocked = |run, faults| {
            let counters = [("major_faults", faults)].into_iter().collect();
            let vm = VmRates {
                run: Some(run),
                ready: Some(0.1),
                counters,
                ..VmRates::default()
            };
            findings(
                "vm-swapped",
                &Evidence {
                    vm: Some(&vm),
                    ..Evidence::default()
                },
            )
            .len()
        };
        assert_eq!(
            (
                blocked(0.1, 250.0),
                blocked(0.1, 190.0),
                blocked(0.6, 250.0)
            ),
            (1, 0, 0),
            "on a slow disk"
        );
    }

    #[test]
    fn pressure_is_found_from_a_twentieth_on() {
        let findings_for = |some, high| {
            says(
                "vm-memory-pressure",
                &[("memory_pressure_some", some), ("memory_high", high)],
            )
        };
        let text =
            "Tasks of the VM's control group wait for memory 20 % of the time, all of them 0.0 %";
        assert_eq!(findings_for(0.2, 0.0), [format!("{text}.")]);
        assert_eq!(
            findings_for(0.2, 3.0),
            [format!("{text}; memory.high slows it 3.00 times a second.")]
        );
        assert_eq!(
            (findings_for(0.04, 3.0), says("vm-memory-pressure", &[])),
            (vec![], vec![])
        );
    }
}
