//! virtiofsd of a running VM that does not get the CPU: the guest's accesses to the shared tree wait for it.

use super::vm_cpu::run_queue_wait;
use crate::evidence::MIN_SHARE;
use crate::rule::instruction;
use crate::{Evidence, Finding, Rule, VmPart};
use vmtax_findings::DaemonRates;
use vmtax_model::number::percent;
use vmtax_model::{ChangeCost, Remedy, SettingPlace, shell_path};

const SOURCE: &str = "Linux kernel documentation, Control Group v2: CPU";

pub(super) const VM_VIRTIOFSD_STOPPED: Rule = Rule {
    id: "vm-virtiofsd-stopped",
    finds: "a virtiofsd that a signal stopped: the guest's accesses to its tree never end",
    remedies: &[instruction(
        "Continue it (SIGCONT)",
        "sudo kill -CONT DAEMON_PID",
    )],
    source: "Linux manual pages, signal(7): SIGSTOP",
    evaluate: |evidence| {
        each(
            evidence,
            |daemon| daemon.is_stopped.then_some(1.0),
            |_| "is stopped by a signal".to_owned(),
        )
    },
};

pub(super) const VM_VIRTIOFSD_THROTTLED: Rule = Rule {
    id: "vm-virtiofsd-throttled",
    finds: "a twentieth of the time and more in which a CPU quota of virtiofsd's control group was used up",
    remedies: &[
        Remedy {
            place: SettingPlace::Cgroup,
            setting: "cpu.max",
            value: "max",
            action: "Raise or remove the quota of its group",
            line: "echo max | sudo tee DAEMON_GROUP/cpu.max",
            cost: Some(ChangeCost::Live),
            read_back: "DAEMON_GROUP/cpu.max",
            undo: "echo QUOTA 100000 | sudo tee DAEMON_GROUP/cpu.max",
        },
        instruction(
            "Or start it in a group without a quota",
            "sudo systemd-run --scope --slice=machine.slice virtiofsd",
        ),
    ],
    source: SOURCE,
    evaluate: |evidence| {
        let part = |daemon: &DaemonRates| daemon.throttled.filter(|part| *part >= MIN_SHARE);
        each(evidence, part, |part| {
            format!("is throttled by a CPU quota {} of the time", percent(part))
        })
    },
};

pub(super) const VM_VIRTIOFSD_WAIT: Rule = Rule {
    id: "vm-virtiofsd-run-queue-wait",
    finds: "a virtiofsd whose threads wait for a host CPU for a twentieth of the time and more",
    remedies: &[
        instruction(
            "Set its CPU affinity to all CPUs",
            "sudo taskset -a -p -c 0-$(($(nproc --all) - 1)) DAEMON_PID",
        ),
        instruction("See what else runs on its CPU", "top -H"),
    ],
    source: SOURCE,
    evaluate: |evidence| {
        let part = |daemon: &DaemonRates| run_queue_wait(daemon.ready, daemon.throttled, MIN_SHARE);
        each(evidence, part, |part| {
            format!("waits for a host CPU {} of the time", percent(part))
        })
    },
};

/// Returns a finding for each daemon, by the part of the time that it costs.
fn each(
    evidence: &Evidence<'_>,
    part: impl Fn(&DaemonRates) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> Vec<Finding> {
    let finding = |daemon: &DaemonRates| {
        let gain = part(daemon)?;
        let group = daemon.cgroup.as_deref().and_then(shell_path);
        let text = format!(
            "virtiofsd (PID {}), which serves the share \"{}\", {}.",
            daemon.pid,
            daemon.tag.escape_default(),
            text(gain)
        );
        let pid = ("DAEMON_PID", daemon.pid.to_string());
        Some(Finding {
            unfit: group.is_none().then_some(SettingPlace::Cgroup),
            values: [pid]
                .into_iter()
                .chain(group.map(|group| ("DAEMON_GROUP", group)))
                .collect(),
            part: VmPart::Daemon,
            ..Finding::with_gain(text, gain)
        })
    };
    let daemons = evidence.vm.iter().flat_map(|vm| &vm.daemons);
    daemons.filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{advice, findings};
    use vmtax_findings::VmRates;

    fn rules(is_stopped: bool, ready: f64, throttled: Option<f64>) -> Vec<&'static str> {
        let cgroup = Some("/sys/fs/cgroup/fs".to_owned());
        let daemon = DaemonRates {
            pid: 9,
            tag: "src".to_owned(),
            is_stopped,
            ready,
            throttled,
            cgroup,
            run: 0.1,
        };
        let vm = VmRates {
            daemons: vec![daemon],
            ..VmRates::default()
        };
        let evidence = Evidence {
            vm: Some(&vm),
            ..Evidence::default()
        };
        let all = [
            "vm-virtiofsd-stopped",
            "vm-virtiofsd-throttled",
            "vm-virtiofsd-run-queue-wait",
        ];
        for advice in all.iter().flat_map(|id| advice(id, &evidence)) {
            let line = &advice.remedies[0].line;
            assert!(
                line.ends_with(" 9") || line.contains("/sys/fs/cgroup/fs/cpu.max"),
                "{line}"
            );
        }
        all.into_iter()
            .filter(|id| !findings(id, &evidence).is_empty())
            .collect()
    }

    #[test]
    fn the_quota_of_a_group_with_other_processes_is_not_removed() {
        let daemon = DaemonRates {
            pid: 9,
            throttled: Some(0.4),
            ..DaemonRates::default()
        };
        let vm = VmRates {
            daemons: vec![daemon],
            ..VmRates::default()
        };
        let found = advice(
            "vm-virtiofsd-throttled",
            &Evidence {
                vm: Some(&vm),
                ..Evidence::default()
            },
        )
        .remove(0);
        assert_eq!(found.remedies.len(), 1);
        assert_eq!(
            found.remedies[0].action,
            "Start it in a group without a quota"
        );
    }

    #[test]
    fn a_daemon_without_a_cpu_is_found_from_a_twentieth_on() {
        assert_eq!(rules(true, 0.0, None), ["vm-virtiofsd-stopped"]);
        assert_eq!(rules(false, 0.4, Some(0.4)), ["vm-virtiofsd-throttled"]);
        assert_eq!(
            rules(false, 0.4, Some(0.0)),
            ["vm-virtiofsd-run-queue-wait"]
        );
        assert_eq!(rules(false, 0.04, Some(0.04)), [""; 0]);
    }
}
