//! Requests that wait for a host CPU: because others run there, or because it sleeps. And a KVM that polls for halted vCPUs, in vain.

use super::run_queue_wait::AFFINITY;
use crate::evidence::{part, title};
use crate::rule::about_exits;
use crate::{Evidence, Finding, Rule};
use vmtax_findings::{LayerColumn, State};
use vmtax_model::{Accelerator, ChangeCost, LiveChange, LiveMetric, Remedy, Setting, SettingPlace};

pub(super) const QEMU_RUN_QUEUE_WAIT: Rule = Rule {
    id: "qemu-run-queue-wait",
    finds: "a twentieth of a request and more in which one of QEMU's threads waits for a host CPU",
    remedies: &[AFFINITY],
    source: "Linux manual pages, taskset(1)",
    evaluate: |evidence| {
        let finding = |column| {
            let wait = part(column, |row| row.state == State::Runnable)?;
            let text = format!(
                "{:.0} % of the traced time on {} is run-queue wait (host): one of QEMU's threads waits for a host CPU.",
                wait * 100.0,
                title(column)
            );
            Some(Finding {
                values: evidence.facts.map_or_else(Vec::new, |facts| {
                    vec![("PID", facts.pid.to_string()), ("VM", facts.argument())]
                }),
                ..Finding::with_gain(text, wait)
            })
        };
        let column = evidence.main_column();
        column.and_then(finding).into_iter().collect()
    },
};

pub(super) const IDLE_WAKE_UP: Rule = Rule {
    id: "idle-wake-up",
    finds: "a twentieth of a request and more in which an idle CPU, of host or guest, wakes up",
    remedies: &[
        Remedy {
            place: SettingPlace::HostSysfs,
            setting: "cpuidle/state*/disable",
            value: "1",
            action: "Where latency matters more than power, disable host C-states with an exit latency of 10 µs and more",
            line: "sudo cpupower idle-set -D 10",
            cost: Some(ChangeCost::HostSetting),
            read_back: "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
            undo: "sudo cpupower idle-set -E",
        },
        Remedy {
            place: SettingPlace::GuestCommandLine,
            setting: "kernel-args",
            value: "idle=poll",
            action: "Poll instead of halting in the guest (idle=poll), if each vCPU has a host CPU to itself",
            line: "idle=poll",
            cost: Some(ChangeCost::GuestReboot),
            read_back: "/proc/cmdline in the guest",
            undo: "take idle=poll from the guest kernel's command line",
        },
    ],
    source: "Linux kernel documentation, CPU Idle Time Management",
    evaluate: |evidence| {
        let finding = |column: &LayerColumn| {
            let wait = part(column, |row| {
                matches!(row.state, State::CpuWakeUp | State::GuestCpuWakeUp)
            })?;
            let in_guest = part(column, |row| row.state == State::GuestCpuWakeUp);
            let in_guest = in_guest.map_or(String::new(), |guest| {
                format!(
                    ": {:.0} % on the host, {:.0} % in the guest",
                    (wait - guest) * 100.0,
                    guest * 100.0
                )
            });
            Some(Finding {
                text: format!(
                    "{:.0} % of the traced time on {} is spent leaving CPU idle states (C-state exit latency){in_guest}.",
                    wait * 100.0,
                    title(column)
                ),
                gain: wait,
                unfit: (!may_poll(evidence, column)).then_some(SettingPlace::GuestCommandLine),
                ..Finding::default()
            })
        };
        let column = evidence.main_column();
        column.and_then(finding).into_iter().collect()
    },
};

/// Returns true if a guest's kernel may poll while idle: each vCPU then takes a whole host CPU, and QEMU's other
/// threads need one.
fn may_poll(evidence: &Evidence<'_>, column: &LayerColumn) -> bool {
    let (Some(plan), Some(host)) = (evidence.plan, evidence.host) else {
        return false;
    };
    let is_kvm = column.machine.accelerator() == Some(Accelerator::Kvm);
    is_kvm && column.machine.has_kernel() && host.cpu.online > plan.guest.cpus.saturating_add(1)
}

/// The part of the vCPUs' time that polling in vain may take.
const MAX_SHARE: f64 = 0.05;

pub(super) const HALT_POLLING: Rule = Rule {
    id: "halt-polling",
    finds: "a twentieth of the vCPUs' time and more polled in vain by KVM, and more than with success",
    remedies: &[
        Setting::named("host.halt-poll-ns").remedy("0", "Poll less on the host"),
        Remedy {
            place: SettingPlace::GuestSysfs,
            setting: "/sys/devices/system/cpu/cpuidle/current_governor",
            value: "menu",
            action: "And leave polling in the guest off",
            line: "echo menu > /sys/devices/system/cpu/cpuidle/current_governor",
            cost: Some(ChangeCost::Live),
            read_back: "/sys/devices/system/cpu/cpuidle/current_governor",
            undo: "echo haltpoll > /sys/devices/system/cpu/cpuidle/current_governor",
        },
    ],
    source: "Linux kernel documentation, The KVM halt polling system",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let vain = exits.counter("halt_poll_fail_ns");
            let useful = exits.counter("halt_poll_success_ns");
            let share = exits.part(vain);
            let text = format!(
                "KVM polled {:.1} ms in vain for halted vCPUs ({:.0} % of their time), {:.1} ms with success.",
                vain / 1e6,
                share * 100.0,
                useful / 1e6
            );
            let off = Setting::named("host.halt-poll-ns").live("0");
            (share >= MAX_SHARE && vain > useful).then(|| Finding {
                change: Some(LiveChange {
                    action: "Disable KVM's halt polling".to_owned(),
                    cost: ChangeCost::HostSetting,
                    metric: Some(LiveMetric::Requests),
                    disk: None,
                    settings: off.into_iter().collect(),
                }),
                ..Finding::with_gain(text, share)
            })
        })
    },
};

#[cfg(test)]
mod tests {
    use crate::test_evidence::{advice, column, findings, host};
    use crate::{Evidence, Exits};
    use vmtax_findings::State;
    use vmtax_model::samples::{ApicFeatures, KvmFeatures};
    use vmtax_model::{Layer, Machine, Managed, Manager, Plan, VmFacts};

    #[test]
    fn waits_for_host_cpus_are_found_from_a_twentieth_on() {
        let findings_for = |ns| {
            let columns = [column(&[
                (Layer::Qemu, State::Runnable, ns),
                (Layer::Device, State::Running, 100e3 - ns),
            ])];
            findings(
                "qemu-run-queue-wait",
                &Evidence {
                    columns: &columns,
                    ..Evidence::default()
                },
            )
        };
        assert_eq!(
            findings_for(12e3),
            [
                "12 % of the traced time on kvm is run-queue wait (host): one of QEMU's threads waits for a host CPU."
            ]
        );
        assert_eq!(findings_for(4e3), [""; 0]);
    }

    #[test]
    fn the_threads_of_a_domain_are_pinned_by_libvirt() {
        let columns = [column(&[(Layer::Qemu, State::Runnable, 100e3)])];
        let line = |managed: Option<Manager>| {
            let managed = managed.map(|manager| Managed {
                manager,
                id: "1".to_owned(),
            });
            let facts = VmFacts {
                managed,
                name: Some("web01".to_owned()),
                ..VmFacts::unknown(7)
            };
            let evidence = Evidence {
                columns: &columns,
                facts: Some(&facts),
                ..Evidence::default()
            };
            advice("qemu-run-queue-wait", &evidence)[0].remedies[0]
                .line
                .clone()
        };
        assert_eq!(line(None), "sudo taskset -apc CPUS 7");
        assert!(
            line(Some(Manager::Libvirt))
                .contains("# libvirt: virsh vcpupin web01 VCPU CPUS --live")
        );
    }

    #[test]
    fn wake_ups_are_split_between_host_and_guest() {
        let findings_for = |host, guest| {
            let rows = [
                (Layer::Qemu, State::CpuWakeUp, host),
                (Layer::GuestKernel, State::GuestCpuWakeUp, guest),
            ];
            let columns = [column(
                &[&rows[..], &[(Layer::Device, State::Waiting, 80e3)]].concat(),
            )];
            findings(
                "idle-wake-up",
                &Evidence {
                    columns: &columns,
                    ..Evidence::default()
                },
            )
        };
        assert_eq!(
            findings_for(15e3, 5e3),
            [
                "20 % of the traced time on kvm is spent leaving CPU idle states (C-state exit latency): 15 % on the host, 5 % in the guest."
            ]
        );
        assert_eq!(findings_for(1e3, 1e3), [""; 0]);
    }

    /// Under TCG, or without a host CPU beside the vCPUs', polling takes the CPU that the request needs.
    #[test]
    fn polling_is_advised_only_where_a_host_cpu_is_free_for_it() {
        let lines = |machine, online, cpus| {
            let mut columns = [column(&[(Layer::GuestKernel, State::GuestCpuWakeUp, 80e3)])];
            columns[0].machine = machine;
            let mut host = host();
            host.cpu.online = online;
            let mut plan = Plan::new("layers", 6, vec![machine], Vec::new());
            plan.guest.cpus = cpus;
            let evidence = Evidence {
                plan: Some(&plan),
                host: Some(&host),
                columns: &columns,
                ..Evidence::default()
            };
            let advice = advice("idle-wake-up", &evidence);
            advice[0]
                .remedies
                .iter()
                .map(|remedy| remedy.line.clone())
                .collect::<Vec<_>>()
        };
        let host_alone = ["sudo cpupower idle-set -D 10"];
        assert_eq!(
            lines(Machine::KVM, 4, 1),
            ["sudo cpupower idle-set -D 10", "idle=poll"]
        );
        assert_eq!(lines(Machine::KVM, 2, 1), host_alone);
        assert_eq!(lines(Machine::KVM, 4, 3), host_alone);
        assert_eq!(lines(Machine::TCG, 64, 1), host_alone);
        assert_eq!(
            lines(Machine::MICRO_KVM, 64, 1),
            host_alone,
            "it has no kernel"
        );
    }

    #[test]
    fn polling_fires_where_it_is_long_and_in_vain() {
        let findings_for = |vain, useful| {
            let counters = [
                ("halt_poll_fail_ns", vain),
                ("halt_poll_success_ns", useful),
            ];
            let counters = counters.map(|(name, ns)| (name.to_owned(), ns)).into();
            let apic = ApicFeatures::default();
            let exits = Exits {
                seconds: 5.0,
                vcpus: 2,
                mean_ns: 0.0,
                registers: &[],
                tick: None,
                counters: &counters,
                apic,
                kvm: KvmFeatures::default(),
                reasons: &[],
                page_faults: None,
                timers: &[],
            };
            findings(
                "halt-polling",
                &Evidence {
                    exits: Some(&exits),
                    ..Evidence::default()
                },
            )
        };
        let text = "KVM polled 2000.0 ms in vain for halted vCPUs (20 % of their time), 1.0 ms with success.";
        assert_eq!(findings_for(2_000_000_000, 1_000_000), [text]);
        assert_eq!(
            findings_for(2_000_000_000, 3_000_000_000),
            [""; 0],
            "polling that helps"
        );
        assert_eq!(
            findings_for(100_000_000, 0),
            [""; 0],
            "a hundredth of the time"
        );
    }
}
