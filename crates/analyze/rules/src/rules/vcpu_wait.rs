//! vCPU threads of a running VM that wait: for a host CPU, or for the big QEMU lock (BQL).

use super::run_queue_wait::{AFFINITY, CPUSET, OWN_AFFINITY, OWN_CPUS, of_thread};
use crate::evidence::MIN_SHARE;
use crate::rule::instruction;
use crate::{Evidence, Finding, Rule};
use vmtax_findings::{Breakdown, CpuContention, Part, RunQueueCause, ThreadStates, WaitFor};
use vmtax_model::number::percent;
use vmtax_model::{Machine, Role, Setting, SettingPlace};

pub(super) const VCPU_RUN_QUEUE_WAIT: Rule = Rule {
    id: "vcpu-run-queue-wait",
    finds: "vCPU threads that wait for a host CPU for a twentieth of the time and more",
    remedies: &[
        OWN_CPUS,
        OWN_AFFINITY,
        instruction(
            "Check that no CPU quota throttles it (nr_throttled)",
            "cat QUOTA_FILE CPU_STAT_FILE",
        ),
    ],
    source: CPUSET,
    evaluate: |evidence| {
        let runnable = |thread: &ThreadStates| thread.runnable.unwrap_or(0.0);
        let finding = |(who, fraction): (String, f64)| {
            let text = format!(
                "{who} waiting for a host CPU {} of the time (run-queue wait; steal in the guest, %RDY in esxtop).",
                percent(fraction)
            );
            let most = vcpu_threads(evidence).max_by(|a, b| runnable(a).total_cmp(&runnable(b)));
            let finding = Finding::with_gain(text, fraction);
            let Some(most) = most else { return finding };
            let group = evidence
                .facts
                .and_then(|facts| facts.thread_group(most.tid));
            let may_have_quota = group.is_none_or(|group| group.quota.is_some())
                && !excludes_quota(evidence.contention);
            let finding = Finding {
                unfit: (!may_have_quota).then_some(SettingPlace::Instruction),
                ..finding
            };
            of_thread(finding, evidence, most.tid, most.role.as_ref())
        };
        vcpus(evidence, runnable).map(finding).into_iter().collect()
    },
};

pub(super) const COMMAND_STEAL: Rule = Rule {
    id: "command-steal",
    finds: "a twentieth of a command's time and more in which the guest's vCPUs wait for a host CPU",
    remedies: &[AFFINITY],
    source: CPUSET,
    evaluate: |evidence| {
        let steal = |breakdown: &Breakdown| {
            let parts = breakdown.rows.iter().filter(|row| row.part == Part::Steal);
            (
                breakdown.machine,
                parts.map(|row| row.machine_s).sum::<f64>() / breakdown.machine_s,
            )
        };
        let finding = |(machine, share): (Machine, f64)| {
            let text = format!(
                "{} of the command's time on {machine} is run-queue wait (vCPU steal, %RDY in esxtop): dedicated host CPUs would recover at most that.",
                percent(share)
            );
            Finding::with_gain(text, share)
        };
        let steals = evidence.breakdowns.iter().map(steal);
        let most = steals.max_by(|a, b| a.1.total_cmp(&b.1));
        let most = most.filter(|(_, share)| *share >= MIN_SHARE);
        most.map(finding).into_iter().collect()
    },
};

pub(super) const VCPU_BIG_LOCK: Rule = Rule {
    id: "vcpu-big-lock",
    finds: "vCPU threads that wait for the big QEMU lock (BQL) a twentieth of the time and more",
    remedies: &[
        Setting::named("iothread").remedy(
            "on",
            "Give each disk an iothread of its own, so that the main loop holds the lock less",
        ),
        instruction(
            "See which thread holds it",
            "sudo perf trace -s -e futex -p PID",
        ),
    ],
    source: "QEMU documentation, Using Multiple IOThreads",
    evaluate: |evidence| {
        let waits = |thread: &ThreadStates| {
            let waits = thread.waits.iter();
            let of_lock = waits.filter(|wait| wait.reason == WaitFor::BigLock);
            of_lock.map(|wait| wait.fraction).sum()
        };
        let finding = |(who, fraction): (String, f64)| {
            let text = format!(
                "{who} waiting for the big QEMU lock (BQL) {} of the time.",
                percent(fraction)
            );
            Finding::with_gain(text, fraction)
        };
        vcpus(evidence, waits).map(finding).into_iter().collect()
    },
};

/// Returns true if the wait is known to have other causes than a CPU quota.
fn excludes_quota(contention: Option<&CpuContention>) -> bool {
    contention.is_some_and(|found| {
        found.throttled.is_some() && !found.causes().0.contains(&RunQueueCause::Quota)
    })
}

fn vcpu_threads<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = &'a ThreadStates> + use<'a> {
    evidence
        .threads
        .iter()
        .filter(|thread| matches!(thread.role, Some(Role::Vcpu(_))))
}

/// "vCPU 0 was", "The 2 vCPU threads were", and their mean; `None` where that is too little for advice.
fn vcpus(
    evidence: &Evidence<'_>,
    fraction: impl Fn(&ThreadStates) -> f64,
) -> Option<(String, f64)> {
    let vcpus: Vec<&ThreadStates> = vcpu_threads(evidence).collect();
    let mean = vcpus.iter().map(|thread| fraction(thread)).sum::<f64>() / vcpus.len() as f64;
    let who = match vcpus.as_slice() {
        [one] => format!(
            "{} was",
            one.role.as_ref().map(Role::label).unwrap_or_default()
        ),
        several => format!("The {} vCPU threads were", several.len()),
    };
    (mean >= MIN_SHARE).then_some((who, mean))
}

#[cfg(test)]
mod tests {
    use crate::Evidence;
    use crate::test_evidence::{advice, findings};
    use vmtax_findings::{Breakdown, Part, PartRow, StateWait, ThreadStates, WaitFor};
    use vmtax_model::{Machine, Managed, Manager, Role, ThreadGroup, VmFacts};

    fn vcpu(number: u32, runnable: f64, big_lock: f64) -> ThreadStates {
        let (call, below) = ("futex".to_owned(), String::new());
        let waits = vec![StateWait {
            reason: WaitFor::BigLock,
            call,
            below,
            fraction: big_lock,
        }];
        let (role, runnable) = (Some(Role::Vcpu(number)), Some(runnable));
        ThreadStates {
            role,
            runnable,
            waits,
            running: 0.2,
            ..ThreadStates::default()
        }
    }

    #[test]
    fn vcpus_without_a_host_cpu_are_found_from_a_twentieth_on() {
        let findings_for = |threads: &[ThreadStates]| {
            findings(
                "vcpu-run-queue-wait",
                &Evidence {
                    threads,
                    ..Evidence::default()
                },
            )
        };
        let said = |who| {
            format!(
                "{who} waiting for a host CPU 57 % of the time (run-queue wait; steal in the guest, %RDY in esxtop)."
            )
        };
        let whole = |texts: Vec<String>| {
            texts
                .iter()
                .map(|text| text.replace('\u{a0}', " "))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            whole(findings_for(&[vcpu(0, 0.54, 0.0), vcpu(1, 0.6, 0.0)])),
            [said("The 2 vCPU threads were")]
        );
        assert_eq!(
            whole(findings_for(&[vcpu(0, 0.57, 0.0)])),
            [said("vCPU 0 was")]
        );
        let worker = ThreadStates {
            role: Some(Role::Worker),
            ..vcpu(0, 0.9, 0.9)
        };
        assert_eq!(findings_for(&[vcpu(0, 0.04, 0.0), worker]), [""; 0]);
    }

    /// Lines of the remedies for two vCPUs of which the second waits most.
    fn lines(managed: Option<Managed>, group: Option<ThreadGroup>) -> Vec<String> {
        let threads = [(12, vcpu(0, 0.4, 0.0)), (13, vcpu(1, 0.6, 0.0))];
        let threads = threads.map(|(tid, thread)| ThreadStates { tid, ..thread });
        let facts = VmFacts {
            name: Some("web01".to_owned()),
            cgroup: Some("/machine.slice/vm.scope/libvirt/emulator".to_owned()),
            managed,
            thread_groups: group.into_iter().collect(),
            ..VmFacts::unknown(11)
        };
        let evidence = Evidence {
            threads: &threads,
            facts: Some(&facts),
            ..Evidence::default()
        };
        let advice = advice("vcpu-run-queue-wait", &evidence).remove(0);
        advice
            .remedies
            .into_iter()
            .map(|remedy| remedy.line)
            .collect()
    }

    #[test]
    fn the_group_of_the_thread_is_named_and_none_that_others_share() {
        let libvirt = || {
            Some(Managed {
                manager: Manager::Libvirt,
                id: "18-6".to_owned(),
            })
        };
        let group = |folder: &str, is_shared| {
            Some(ThreadGroup {
                tid: 13,
                folder: folder.into(),
                cpus: Some("0-3".to_owned()),
                quota: Some(format!("{folder}/cpu.max").into()),
                is_shared,
            })
        };
        let own = "/sys/fs/cgroup/machine.slice/vm.scope/libvirt/vcpu1";
        assert_eq!(
            lines(libvirt(), group(own, false)),
            [
                &format!(
                    "echo CPUS | sudo tee {own}/cpuset.cpus # libvirt: virsh vcpupin web01 1 CPUS --live"
                ),
                "sudo taskset -pc CPUS 13",
                &format!("cat {own}/cpu.max {own}/cpu.stat"),
            ]
        );
        let session = "/sys/fs/cgroup/user.slice/user-0.slice/session-93.scope";
        let of_session = lines(None, group(session, true));
        assert_eq!(of_session[0], "sudo taskset -pc CPUS 13");
        assert!(
            of_session
                .iter()
                .all(|line| !line.contains("tee") && !line.contains("virsh")),
            "{of_session:?}"
        );
        let scope = "/sys/fs/cgroup/system.slice/run-u1.scope";
        assert_eq!(
            lines(None, group(scope, false))[0],
            format!("echo CPUS | sudo tee {scope}/cpuset.cpus")
        );
        let without_file = ThreadGroup {
            cpus: None,
            ..group(scope, false).unwrap()
        };
        assert_eq!(
            lines(None, Some(without_file))[0],
            "sudo taskset -pc CPUS 13",
            "no cpuset controller"
        );
        assert_eq!(lines(None, None)[0], "sudo taskset -pc CPUS 13");
    }

    #[test]
    fn a_quota_is_looked_for_where_the_threads_controller_has_one() {
        let of_group = |quota: Option<&str>| {
            let group = ThreadGroup {
                tid: 13,
                folder: "/sys/fs/cgroup/cpuset/".into(),
                cpus: None,
                quota: quota.map(Into::into),
                is_shared: true,
            };
            lines(None, Some(group))
        };
        let version_1 = "/sys/fs/cgroup/cpu/vm/cpu.cfs_quota_us";
        assert_eq!(
            of_group(Some(version_1))[1..],
            [format!("cat {version_1} /sys/fs/cgroup/cpu/vm/cpu.stat")]
        );
        assert_eq!(of_group(None)[1..], [""; 0], "the root group has no quota");
    }

    #[test]
    fn a_command_whose_vcpus_wait_for_a_host_cpu_has_advice_from_a_twentieth_on() {
        let advice_for = |steal_s: f64| {
            let row = |part, machine_s| PartRow {
                part,
                native_s: None,
                machine_s,
            };
            let rows = vec![row(Part::User, 1.0 - steal_s), row(Part::Steal, steal_s)];
            let machine = Machine::TCG;
            let found = Breakdown {
                machine,
                rounds: 2,
                native_s: None,
                machine_s: 1.0,
                rows,
                unexplained_s: 0.0,
            };
            advice(
                "command-steal",
                &Evidence {
                    breakdowns: &[found],
                    ..Evidence::default()
                },
            )
        };
        let found = &advice_for(0.54)[0];
        assert_eq!(
            found.finding.replace('\u{a0}', " "),
            "54 % of the command's time on tcg is run-queue wait (vCPU steal, %RDY in esxtop): dedicated host CPUs would recover at most that."
        );
        assert!(
            found.gain > 0.5 && found.remedies[0].line.contains("taskset"),
            "{found:?}"
        );
        assert!(advice_for(0.04).is_empty());
    }

    #[test]
    fn vcpus_that_wait_for_the_big_lock_are_found_from_a_twentieth_on() {
        let findings_for = |lock| {
            let threads = [vcpu(0, 0.0, lock)];
            findings(
                "vcpu-big-lock",
                &Evidence {
                    threads: &threads,
                    ..Evidence::default()
                },
            )
        };
        assert_eq!(
            findings_for(0.25)[0].replace('\u{a0}', " "),
            "vCPU 0 was waiting for the big QEMU lock (BQL) 25 % of the time."
        );
        assert_eq!(findings_for(0.04), [""; 0]);
    }
}
