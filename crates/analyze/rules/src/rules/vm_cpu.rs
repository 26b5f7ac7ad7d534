//! CPU time that a running VM does not get, or that one of its threads uses up, by its counters.

use super::cpu_set::cpu_set;
use super::run_queue_wait::{CPUSET, OWN_AFFINITY, OWN_CPUS, of_thread, why_run_queue_wait};
use crate::evidence::MIN_SHARE;
use crate::rule::{about_vm, instruction, live_change, measurement, qmp_line, virsh};
use crate::{Evidence, Finding, Rule};
use vmtax_findings::VmRates;
use vmtax_model::number::percent;
use vmtax_model::{
    ChangeCost, CpuQuota, CpuWeight, LiveChange, LiveMetric, LiveSetting, Remedy, Role, Setting,
    SettingPlace, SettingValue, shell_line,
};

/// esxtop's guides name it as the limit of %RDY. Below it a VM's own threads may well wait for each other.
pub(super) const MIN_READY: f64 = 0.1;
/// QEMU's run state after a device reported the guest's panic.
pub(super) const PANICKED: &str = "guest-panicked";
/// QEMU's run state after KVM could not go on running the guest.
pub(super) const INTERNAL_ERROR: &str = "internal-error";
/// A thread that serves all requests of its devices is the bottleneck from this part of a CPU on.
pub(super) const BUSY_THREAD: f64 = 0.8;

pub(super) const VM_STOPPED: Rule = Rule {
    id: "vm-stopped",
    finds: "a VM whose vCPUs are stopped, with the reason that its monitor gives",
    remedies: &[
        instruction("Resume the guest, unless it is paused on purpose", "RESUME"),
        instruction(
            "After an I/O error give the storage what it lacks first: space, its network",
            "",
        ),
    ],
    source: "QEMU QMP Reference Manual, RunState",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            // These have their own rules.
            let has_own = |why: &&str| [PANICKED, INTERNAL_ERROR].contains(why);
            let why = vm.stopped().filter(|why| !has_own(why))?;
            let text = format!(
                "The guest does not run: its state is \"{}\".",
                why.escape_default()
            );
            Some(Finding {
                values: vec![("RESUME", resume(vm))],
                ..Finding::with_gain(text, 1.0)
            })
        })
    },
};

pub(super) const VM_THROTTLED: Rule = Rule {
    id: "vm-throttled",
    finds: "a twentieth of the vCPUs' time and more in which a CPU quota of the VM's control group was used up",
    remedies: &[
        Remedy {
            place: SettingPlace::Cgroup,
            setting: "cpu.max",
            value: "max",
            action: "Raise or remove the quota of the VM's group",
            line: "echo UNLIMITED | sudo tee QUOTA_FILE # libvirt: virsh schedinfo VM --live vcpu_quota=-1",
            cost: Some(ChangeCost::Live),
            read_back: "QUOTA_FILE",
            undo: "echo QUOTA | sudo tee QUOTA_FILE",
        },
        // Only of a group with other processes, which have less CPU time then.
        instruction(
            "Or start the VM in a group of its own without a quota above it",
            "sudo systemd-run --scope --slice=machine.slice qemu-system-x86_64",
        ),
    ],
    source: "Linux kernel documentation, CFS Bandwidth Control: throttled_time",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let fraction = vm.throttled.filter(|fraction| *fraction >= MIN_SHARE)?;
            let text = format!(
                "A CPU quota{} throttles the VM {} of its vCPUs' time (%THR; %MLMTD in esxtop).",
                shared_quota(vm),
                percent(fraction)
            );
            Some(Finding {
                values: quota_values(vm),
                unfit: own_quota(vm).map(|_| SettingPlace::Instruction),
                change: without_quota(vm),
                ..Finding::with_gain(text, fraction)
            })
        })
    },
};

pub(super) const VM_RUN_QUEUE_WAIT: Rule = Rule {
    id: "vm-run-queue-wait",
    finds: "vCPU threads that wait for a host CPU for a tenth of the time and more, by their counters",
    remedies: &[
        OWN_CPUS,
        OWN_AFFINITY,
        measurement(
            "See which threads of the VM wait, and for how long",
            "vmtax profile --vm VM",
        ),
    ],
    source: CPUSET,
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let fraction = vcpu_wait(vm)?;
            let contention = evidence.contention;
            let text = format!(
                "The vCPUs wait for a host CPU {} of the time (%RDY; steal in the guest){}.",
                percent(fraction),
                contention.map_or(String::new(), |found| why_run_queue_wait(Some(found)))
            );
            let finding = Finding {
                change: on_all_cpus(vm).or_else(|| on_own_cores(vm)),
                ..Finding::of_vm(vm, text, fraction)
            };
            Some(pinned(finding, evidence, vm))
        })
    },
};

pub(super) const VM_SERVING_WAIT: Rule = Rule {
    id: "vm-serving-run-queue-wait",
    finds: "a main loop, an iothread or a vhost worker that waits for a host CPU for a tenth of the time and more, and longer than it runs: its devices wait with it",
    remedies: &[
        Remedy {
            action: "Pin the thread to a host CPU that no other task uses",
            ..OWN_AFFINITY
        },
        measurement(
            "See which threads of the VM wait, and for how long",
            "vmtax profile --vm VM",
        ),
    ],
    source: CPUSET,
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let serves = |role: &Role| matches!(role, Role::Main | Role::Iothread(_) | Role::Vhost);
            let waiting = vm
                .threads
                .iter()
                .filter(|thread| serves(&thread.role) && thread.ready > thread.run);
            let most = waiting.max_by(|a, b| a.ready.total_cmp(&b.ready))?;
            let gain = run_queue_wait(most.ready, vm.throttled, MIN_READY)?;
            let text = format!(
                "The {} (TID {}) waits for a host CPU {} of the time, and runs {}: its devices wait with it.",
                most.role.label(),
                most.tid,
                percent(gain),
                percent(most.run)
            );
            let finding = Finding::with_gain(text, gain);
            Some(of_thread(finding, evidence, most.tid, Some(&most.role)))
        })
    },
};

pub(super) const VM_LOW_WEIGHT: Rule = Rule {
    id: "vm-low-weight",
    finds: "vCPU threads that wait for a host CPU for a tenth of the time and more, in a control group whose CPU weight is below the kernel's default",
    remedies: &[
        Remedy {
            place: SettingPlace::Cgroup,
            setting: "cpu.weight",
            value: "DEFAULT",
            action: "Give the VM's group the same weight as others; they get less CPU time then",
            line: "echo DEFAULT | sudo tee WEIGHT_FILE",
            cost: Some(ChangeCost::HostSetting),
            read_back: "WEIGHT_FILE",
            undo: "echo WEIGHT | sudo tee WEIGHT_FILE",
        },
        // Only of a group with other processes.
        instruction(
            "Or start the VM in a group of its own beside that one",
            "sudo systemd-run --scope --slice=machine.slice qemu-system-x86_64",
        ),
    ],
    source: "Linux kernel documentation, Control Group v2: cpu.weight",
    evaluate: |evidence| {
        let Some((vm, fraction)) = evidence.vm.and_then(|vm| Some((vm, vcpu_wait(vm)?))) else {
            return Vec::new();
        };
        let found = |low: &CpuWeight| {
            let file = low.file.display();
            let (group, unfit) = match low.is_shared {
                true => (
                    format!("A control group of the VM and other processes ({file})"),
                    SettingPlace::Cgroup,
                ),
                false => (
                    "The VM's control group".to_owned(),
                    SettingPlace::Instruction,
                ),
            };
            let text = format!(
                "{group} has a CPU weight of {}, the default is {}; its vCPUs wait for a host CPU {} of the time.",
                low.weight,
                low.default,
                percent(fraction)
            );
            let action = format!("Give {file} the default CPU weight");
            let setting = LiveSetting::HostFile {
                path: low.file.clone(),
            };
            // Of how much the weight is the cause is not known.
            Finding {
                values: vec![
                    ("DEFAULT", low.default.to_string()),
                    ("WEIGHT_FILE", shell_line(&[file.to_string()])),
                    ("WEIGHT", low.weight.to_string()),
                ],
                unfit: Some(unfit),
                change: Some(LiveChange {
                    cost: ChangeCost::HostSetting,
                    metric: Some(LiveMetric::Run),
                    ..live_change(action, setting, low.default.to_string())
                }),
                ..Finding::new(text)
            }
        };
        vm.settings.low_weights.iter().map(found).collect()
    },
};

pub(super) const PROFILE_THREAD: Remedy<&str> = measurement(
    "See in which functions it spends the time",
    "vmtax profile --vm VM",
);

pub(super) const VM_BUSY_THREAD: Rule = Rule {
    id: "vm-busy-thread",
    finds: "a main loop or an iothread that is on a CPU four fifths of the time and more, so that its devices wait for it",
    remedies: &[
        Setting::named("iothread").remedy("on", "Give each disk an iothread of its own"),
        PROFILE_THREAD,
    ],
    source: "QEMU documentation, Using Multiple IOThreads",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let serves = |role: &Role| matches!(role, Role::Main | Role::Iothread(_));
            let mut threads = vm.threads.iter();
            let busy = threads.find(|thread| serves(&thread.role) && thread.run >= BUSY_THREAD)?;
            let text = format!(
                "The {} (TID {}) is on a CPU {} of the time: the devices that it serves wait for it.",
                busy.role.label(),
                busy.tid,
                percent(busy.run)
            );
            // How much of it waits is not known from counters.
            Some(Finding::of_vm(vm, text, 0.0))
        })
    },
};

/// The part of the time that the vCPUs wait for a host CPU, where that is worth a finding.
pub(super) fn vcpu_wait(vm: &VmRates) -> Option<f64> {
    run_queue_wait(vm.ready?, vm.throttled, MIN_READY)
}

/// Run-queue wait of `least` and more that is no throttling: kernels before 6.18 count that in it, and it has its own rule.
pub(super) fn run_queue_wait(ready: f64, throttled: Option<f64>, least: f64) -> Option<f64> {
    Some(ready).filter(|ready| *ready >= least && *ready > 2.0 * throttled.unwrap_or(0.0))
}

/// No CPU quota in any of the VM's groups, which `vmtax tune` can try.
fn without_quota(vm: &VmRates) -> Option<LiveChange> {
    let quotas = &vm.settings.quotas;
    let unlimited = quotas.iter().map(|quota| SettingValue {
        setting: LiveSetting::HostFile {
            path: quota.file.clone(),
        },
        value: quota.unlimited.clone(),
    });
    let change = live(
        "Remove the CPU quota of the VM's control group",
        unlimited.collect(),
    )?;
    Some(match quotas.iter().find(|quota| quota.is_shared) {
        Some(shared) => LiveChange {
            action: format!(
                "Remove the CPU quota of {}, a group of other processes, too",
                shared.file.display()
            ),
            cost: ChangeCost::HostSetting,
            ..change
        },
        None => change,
    })
}

/// All of the host's CPUs for threads that are pinned to fewer, which `vmtax tune` can try.
fn on_all_cpus(vm: &VmRates) -> Option<LiveChange> {
    let unpinned = vm.settings.pinned.iter().map(|thread| SettingValue {
        setting: LiveSetting::Affinity { tid: thread.tid },
        value: vm.settings.host_cpus.clone(),
    });
    live(
        "Set the CPU affinity of the VM's threads to all CPUs of the host",
        unpinned.collect(),
    )
}

/// Host CPUs for the vCPU threads, a core for each, which `vmtax tune` can try: others may use them, too.
fn on_own_cores(vm: &VmRates) -> Option<LiveChange> {
    let vcpus = vm.threads.iter();
    let vcpus = vcpus.filter(|thread| matches!(thread.role, Role::Vcpu(_)));
    let tids: Vec<i32> = vcpus.map(|thread| thread.tid).collect();
    let set = cpu_set(tids.len(), &vm.settings.host_cores)?;
    let on_set = tids.into_iter().map(|tid| SettingValue {
        setting: LiveSetting::Affinity { tid },
        value: set.cpus.clone(),
    });
    let action = format!(
        "Set the CPU affinity of the vCPU threads to host CPUs {}, {}",
        set.cpus, set.what
    );
    live(&action, on_set.collect())
}

/// A change of the VM's CPU time; none without a setting.
fn live(action: &str, settings: Vec<SettingValue>) -> Option<LiveChange> {
    let change = LiveChange {
        action: action.to_owned(),
        cost: ChangeCost::Live,
        metric: Some(LiveMetric::Run),
        disk: None,
        settings,
    };
    Some(change).filter(|change| !change.settings.is_empty())
}

/// The command that resumes a VM, its manager's.
pub(super) fn resume(vm: &VmRates) -> String {
    match vm.manager {
        // A number would be libvirt's own of another domain.
        Some(manager) if manager.is_libvirt() => virsh(vm, &["resume", "DOMAIN"]),
        Some(_) => "qm resume VMID".to_owned(),
        None => qmp_line(vm, "{\"execute\":\"cont\"}"),
    }
}

/// A finding whose remedies are for the vCPU thread that waits most.
fn pinned(finding: Finding, evidence: &Evidence<'_>, vm: &VmRates) -> Finding {
    let vcpus = vm
        .threads
        .iter()
        .filter(|thread| matches!(thread.role, Role::Vcpu(_)));
    match vcpus.max_by(|a, b| a.ready.total_cmp(&b.ready)) {
        Some(most) => of_thread(finding, evidence, most.tid, Some(&most.role)),
        None => finding,
    }
}

/// The quota of a group that is the VM's own.
fn own_quota(vm: &VmRates) -> Option<&CpuQuota> {
    vm.settings.quotas.iter().find(|quota| !quota.is_shared)
}

/// " of FILE, a group of other processes, too" where no quota is of a group that is the VM's own.
fn shared_quota(vm: &VmRates) -> String {
    let first = vm.settings.quotas.first();
    let shared = first.filter(|_| own_quota(vm).is_none());
    shared.map_or(String::new(), |quota| {
        format!(" ({}, of other processes, too)", quota.file.display())
    })
}

fn quota_values(vm: &VmRates) -> Vec<(&'static str, String)> {
    let own = own_quota(vm).into_iter().flat_map(|quota| {
        let file = shell_line(&[quota.file.to_string_lossy().into_owned()]);
        [
            ("QUOTA_FILE", file),
            ("QUOTA", quota.quota.clone()),
            ("UNLIMITED", quota.unlimited.clone()),
        ]
    });
    own.chain([("VM", vm.argument())]).collect()
}

#[cfg(test)]
mod tests {
    use crate::Evidence;
    use crate::test_evidence::{advice, says};
    use vmtax_findings::{ThreadRates, VmRates};
    use vmtax_model::{
        CpuQuota, CpuWeight, HostCore, Manager, PinnedThread, Role, RunState, SettingPlace,
        VmSettings,
    };

    #[test]
    fn a_stopped_guest_is_found_with_its_reason() {
        let findings_for = |state| {
            says(
                "vm-stopped",
                &VmRates {
                    state,
                    ..VmRates::default()
                },
            )
        };
        let stopped = Some(RunState::Stopped("io-error".to_owned()));
        assert_eq!(
            findings_for(stopped),
            ["The guest does not run: its state is \"io-error\"."]
        );
        assert_eq!(
            (findings_for(Some(RunState::Running)), findings_for(None)),
            (vec![], vec![])
        );
        let manager = Some(Manager::Libvirt);
        let vm = VmRates {
            state: Some(RunState::Stopped("paused".to_owned())),
            manager,
            name: Some("a b".to_owned()),
            ..VmRates::default()
        };
        let advice = advice(
            "vm-stopped",
            &Evidence {
                vm: Some(&vm),
                ..Evidence::default()
            },
        );
        assert_eq!(advice[0].remedies[0].line, "virsh resume 'a b'");
    }

    #[test]
    fn a_thread_that_serves_devices_and_waits_longer_than_it_runs_is_found() {
        let findings_for = |role, run, ready, throttled| {
            let threads = vec![ThreadRates {
                tid: 7,
                role,
                run,
                ready,
                turns_per_s: 0.0,
                throttled: None,
            }];
            says(
                "vm-serving-run-queue-wait",
                &VmRates {
                    threads,
                    throttled,
                    ..VmRates::default()
                },
            )
        };
        assert_eq!(
            findings_for(Role::Vhost, 0.01, 0.43, None),
            [
                "The vhost worker (TID 7) waits for a host CPU 43 % of the time, and runs 1.0 %: its devices wait with it."
            ]
        );
        assert_eq!(
            findings_for(Role::Iothread("io0".to_owned()), 0.2, 0.3, Some(0.0)).len(),
            1
        );
        let silent = [
            findings_for(Role::Main, 0.6, 0.3, None),
            findings_for(Role::Main, 0.01, 0.05, None),
            findings_for(Role::Main, 0.1, 0.3, Some(0.3)),
            findings_for(Role::Vcpu(0), 0.1, 0.9, None),
        ];
        assert_eq!(silent, [const { Vec::<String>::new() }; 4]);
    }

    #[test]
    fn a_low_weight_is_found_where_vcpus_wait() {
        let vm_with_ready = |ready| {
            let file = "/sys/fs/cgroup/vm/cpu.weight".into();
            let low_weights = vec![CpuWeight {
                file,
                weight: 10,
                default: 100,
                is_shared: false,
            }];
            let settings = VmSettings {
                low_weights,
                ..VmSettings::default()
            };
            VmRates {
                ready: Some(ready),
                settings,
                ..VmRates::default()
            }
        };
        assert_eq!(
            says("vm-low-weight", &vm_with_ready(0.4)),
            [
                "The VM's control group has a CPU weight of 10, the default is 100; its vCPUs wait for a host CPU 40 % of the time."
            ]
        );
        assert!(says("vm-low-weight", &vm_with_ready(0.04)).is_empty());
        let found = advice(
            "vm-low-weight",
            &Evidence {
                vm: Some(&vm_with_ready(0.4)),
                ..Evidence::default()
            },
        );
        assert!(
            found[0].remedies[0]
                .line
                .starts_with("echo 100 | sudo tee /sys/fs/cgroup/vm/cpu.weight")
        );
        assert_eq!(
            found[0].remedies[0].undo,
            "echo 10 | sudo tee /sys/fs/cgroup/vm/cpu.weight"
        );
    }

    #[test]
    fn throttling_is_found_from_a_twentieth_on_with_the_group() {
        let vm = |throttled| {
            let (file, quota, unlimited) = (
                "/sys/fs/cgroup/vm/vcpu0/cpu.max".into(),
                "20000 100000",
                "max 100000",
            );
            let quota = CpuQuota {
                file,
                quota: quota.to_owned(),
                unlimited: unlimited.to_owned(),
                is_shared: false,
            };
            let settings = VmSettings {
                quotas: vec![quota],
                ..VmSettings::default()
            };
            let (cgroup, manager) = (Some("/vm/emulator".to_owned()), Some(Manager::Libvirt));
            VmRates {
                throttled,
                cgroup,
                manager,
                settings,
                pid: 5,
                ..VmRates::default()
            }
        };
        assert_eq!(
            says("vm-throttled", &vm(Some(0.37))),
            ["A CPU quota throttles the VM 37 % of its vCPUs' time (%THR; %MLMTD in esxtop)."]
        );
        assert_eq!(
            (
                says("vm-throttled", &vm(Some(0.04))),
                says("vm-throttled", &vm(None))
            ),
            (vec![], vec![])
        );
        let mut vm = vm(Some(0.37));
        let remedies = |vm: &VmRates| {
            advice(
                "vm-throttled",
                &Evidence {
                    vm: Some(vm),
                    ..Evidence::default()
                },
            )[0]
            .clone()
            .remedies
        };
        let (own, file) = (remedies(&vm), "/sys/fs/cgroup/vm/vcpu0/cpu.max");
        let line = format!(
            "echo max 100000 | sudo tee {file} # libvirt: virsh schedinfo 5 --live vcpu_quota=-1"
        );
        assert_eq!(
            (own.len(), &own[0].line, &*own[0].undo),
            (1, &line, &*format!("echo 20000 100000 | sudo tee {file}"))
        );
        vm.manager = None;
        assert_eq!(
            remedies(&vm)[0].line,
            format!("echo max 100000 | sudo tee {file}"),
            "virsh does not know it"
        );
        vm.settings.quotas[0].is_shared = true;
        let shared = remedies(&vm);
        assert_eq!(
            (shared.len(), &*shared[0].action),
            (
                1,
                "Start the VM in a group of its own without a quota above it"
            )
        );
        assert!(says("vm-throttled", &vm)[0].starts_with(&format!(
            "A CPU quota ({file}, of other processes, too) throttles"
        )));
        vm.settings.quotas.clear();
        assert!(
            remedies(&vm)
                .iter()
                .all(|remedy| remedy.place != SettingPlace::Cgroup),
            "no quota is left"
        );
    }

    #[test]
    fn run_queue_wait_is_found_where_it_is_no_throttling() {
        let findings_for = |ready, throttled| {
            says(
                "vm-run-queue-wait",
                &VmRates {
                    ready,
                    throttled,
                    ..VmRates::default()
                },
            )
        };
        assert_eq!(
            findings_for(Some(0.5), Some(0.0)),
            ["The vCPUs wait for a host CPU 50 % of the time (%RDY; steal in the guest)."]
        );
        assert_eq!(
            (
                findings_for(Some(0.09), None),
                findings_for(None, None),
                findings_for(Some(0.5), Some(0.45))
            ),
            (vec![], vec![], vec![])
        );
    }

    #[test]
    fn vcpus_that_wait_get_cores_of_their_own_unless_threads_are_pinned() {
        let thread = |tid, role| ThreadRates {
            tid,
            role,
            run: 0.5,
            throttled: None,
            ready: 0.5,
            turns_per_s: 0.0,
        };
        let core = |cpu: u32| HostCore {
            cpus: cpu.to_string(),
            node: 0,
            cache: 0,
            is_taken: false,
        };
        let mut vm = VmRates {
            ready: Some(0.5),
            threads: vec![
                thread(8, Role::Vcpu(0)),
                thread(9, Role::Vcpu(1)),
                thread(7, Role::Main),
            ],
            settings: VmSettings {
                host_cores: (0..4).map(core).collect(),
                host_cpus: "0-3".to_owned(),
                ..VmSettings::default()
            },
            ..VmRates::default()
        };
        let change = |vm: &VmRates| {
            let evidence = Evidence {
                vm: Some(vm),
                ..Evidence::default()
            };
            let change = advice("vm-run-queue-wait", &evidence)[0]
                .change
                .clone()
                .unwrap();
            let settings = change.settings.iter();
            let settings = settings.map(|one| (one.setting.label(), one.value.clone()));
            (change.action.clone(), settings.collect::<Vec<_>>())
        };
        let (action, settings) = change(&vm);
        assert_eq!(
            action,
            "Set the CPU affinity of the vCPU threads to host CPUs 2-3, 2 cores that share a cache"
        );
        let of = |tid: u32, cpus: &str| (format!("CPU affinity of TID {tid}"), cpus.to_owned());
        assert_eq!(settings, [of(8, "2-3"), of(9, "2-3")]);
        vm.settings.pinned = vec![PinnedThread {
            tid: 8,
            cpus: "0".to_owned(),
        }];
        assert_eq!(change(&vm).1, [of(8, "0-3")]);
    }

    #[test]
    fn a_busy_main_loop_is_found_and_a_busy_vcpu_is_not() {
        let findings_for = |role, run| {
            let threads = vec![ThreadRates {
                tid: 7,
                role,
                run,
                ready: 0.0,
                turns_per_s: 0.0,
                throttled: None,
            }];
            says(
                "vm-busy-thread",
                &VmRates {
                    threads,
                    ..VmRates::default()
                },
            )
        };
        assert_eq!(
            findings_for(Role::Main, 0.97),
            [
                "The main loop (TID 7) is on a CPU 97 % of the time: the devices that it serves wait for it."
            ]
        );
        assert_eq!(findings_for(Role::Iothread("io0".to_owned()), 0.9).len(), 1);
        assert_eq!(
            (
                findings_for(Role::Main, 0.7),
                findings_for(Role::Vcpu(0), 1.0)
            ),
            (vec![], vec![])
        );
    }
}
