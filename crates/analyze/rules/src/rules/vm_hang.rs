//! A VM that does not run at all although nobody paused it: its process is stopped, its threads are blocked in the kernel, QEMU
//! does not answer, or its guest's kernel has failed. What else is known of such a VM explains nothing.

use super::vm_cpu::{INTERNAL_ERROR, MIN_READY, PANICKED, resume};
use crate::rule::{about_vm, instruction, is_libvirts, measurement, qmp, qmp_line, virsh};
use crate::{Evidence, Finding, Rule};
use serde_json::json;
use vmtax_findings::VmRates;
use vmtax_model::number::{counted, duration};
use vmtax_model::{
    BlockedThread, FailureKind, KernelFailure, Manager, ProcessStop, Role, shell_line,
};

/// A kernel that hangs reports a lockup each 20 s, a stall each 3 minutes or more often.
const RECENT_S: u64 = 600;
const LOCKUPS: &str =
    "Linux kernel documentation, Softlockup detector and hardlockup detector; Bug hunting";
const STATES: &str = "Linux manual pages, proc_pid_stat(5): state";

pub(super) const VM_PROCESS_STOPPED: Rule = Rule {
    id: "vm-process-stopped",
    finds: "a VM whose process a signal stopped: all its threads are in state T",
    remedies: &[instruction(
        "Resume QEMU (kill -CONT QEMU_PID)",
        "sudo kill -CONT QEMU_PID",
    )],
    source: "Linux manual pages, signal(7): SIGSTOP",
    evaluate: |evidence| {
        let text = |vm: &VmRates| match vm.process_stop {
            Some(ProcessStop::Signal) => Some(format!(
                "QEMU is stopped (SIGSTOP) and does not answer: all threads of process {} are in state T.",
                vm.pid
            )),
            _ => None,
        };
        finding(evidence, text)
    },
};

pub(super) const VM_PROCESS_TRACED: Rule = Rule {
    id: "vm-process-traced",
    finds: "a VM whose process a debugger or another tracer stopped: all its threads are in state t",
    remedies: &[instruction(
        "Continue QEMU in the tracer, or detach the tracer",
        "",
    )],
    source: STATES,
    evaluate: |evidence| {
        let text = |vm: &VmRates| match &vm.process_stop {
            Some(ProcessStop::Tracer(tracer)) => Some(format!(
                "{} has stopped QEMU, which does not answer: all threads of process {} are in state t.",
                tracer.escape_default(),
                vm.pid
            )),
            _ => None,
        };
        finding(evidence, text)
    },
};

pub(super) const VM_BLOCKED_THREAD: Rule = Rule {
    id: "vm-blocked-thread",
    finds: "a vCPU thread, the main loop or an iothread that was in uninterruptible sleep (state D) for the whole interval",
    remedies: &[
        instruction(
            "Find what it waits for in the kernel: storage or a network file system that does not answer, swap, a frozen control group",
            "sudo cat /proc/QEMU_PID/task/BLOCKED_TID/stack",
        ),
        instruction(
            "See whether the kernel logged a hung task or I/O errors",
            "sudo dmesg --level=err,warn",
        ),
    ],
    source: STATES,
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let blocked = || vm.blocked.iter().filter(|thread| thread.is_uninterruptible);
            let first = blocked().min_by_key(|thread| order(&thread.role))?;
            let others = match blocked().count() - 1 {
                0 => String::new(),
                n => format!(", as {} of QEMU", counted(n as u64, "further thread")),
            };
            let silent = vm.monitor_timeout_s.map_or(String::new(), |s| {
                format!("; QMP did not answer within {s} s")
            });
            let text = format!(
                "{} did not run for {:.1} s: it is in uninterruptible sleep (state D){}{others}{silent}.",
                named(first),
                vm.seconds,
                place(first)
            );
            let vcpus = blocked().filter(|thread| matches!(thread.role, Role::Vcpu(_)));
            let gain = if blocked().any(|thread| thread.role == Role::Main) {
                1.0
            } else {
                (vcpus.count() as f64 / vm.vcpus.max(1) as f64).min(1.0)
            };
            Some(Finding {
                values: [values(vm), vec![("BLOCKED_TID", first.tid.to_string())]].concat(),
                ..Finding::with_gain(text, gain)
            })
        })
    },
};

pub(super) const VM_NO_PROGRESS: Rule = Rule {
    id: "vm-no-progress",
    finds: "a VM whose QEMU does not answer at its monitor while no vCPU thread runs, or not the main loop",
    remedies: &[measurement(
        "See where QEMU's threads wait",
        "vmtax profile --vm VM",
    )],
    source: "QEMU documentation, QEMU Machine Protocol",
    evaluate: |evidence| {
        let text = |vm: &VmRates| {
            let seconds = vm.monitor_timeout_s.filter(|_| vm.process_stop.is_none())?;
            // What is blocked has its own rule.
            if vm.blocked.iter().any(|thread| thread.is_uninterruptible) {
                return None;
            }
            let threads = || vm.threads.iter();
            let vcpus = || threads().filter(|thread| matches!(thread.role, Role::Vcpu(_)));
            let main_loop_stands = threads().any(|t| t.role == Role::Main && !t.ran());
            let (what, stands) = match vcpus().any(|vcpu| vcpu.ran()) {
                false if vcpus().next().is_some() => ("QEMU does not respond", "no vCPU ran"),
                true if main_loop_stands => (
                    "QEMU's main loop does not respond while vCPUs run",
                    "the main loop did not run",
                ),
                _ => return None,
            };
            let main = vm.blocked.iter().find(|thread| thread.role == Role::Main);
            let main = main.map_or(String::new(), |main| {
                format!("; {} waits{}", lower(&named(main)), place(main))
            });
            Some(format!(
                "{what}: QMP did not answer within {seconds} s, and {stands} in {:.1} s{main}.",
                vm.seconds
            ))
        };
        finding(evidence, text)
    },
};

pub(super) const VM_GUEST_PANICKED: Rule = Rule {
    id: "vm-guest-panicked",
    finds: "a guest whose kernel has panicked: QEMU's run state is guest-panicked (pvpanic), or the last boot in a console's file ends with a kernel panic",
    remedies: &[
        instruction("Reset the VM", "RESET"),
        instruction(
            "To find the cause save the guest's memory before that, and open it with crash",
            "DUMP",
        ),
    ],
    source: "Linux kernel documentation, Kernel panic: panic=, and QEMU documentation, PVPANIC device",
    evaluate: |evidence| {
        let finding = |vm: &VmRates| {
            let state = vm.stopped().filter(|state| *state == PANICKED);
            let failure = vm.kernel_failure.as_ref();
            let panic = failure.filter(|failure| failure.kind == FailureKind::Panic);
            let said = panic.map(quoted);
            let text = match (state, said) {
                (Some(state), None) => {
                    format!("The guest has panicked: QEMU's run state is \"{state}\".")
                }
                (Some(state), Some(said)) => {
                    format!("The guest has panicked (run state \"{state}\"): {said}.")
                }
                (None, Some(said)) => {
                    format!("The guest has panicked, its console ends with {said}.")
                }
                (None, None) => return None,
            };
            Some(Finding {
                values: failed_values(vm),
                ..Finding::new(text)
            })
        };
        about_vm(evidence, finding)
    },
};

pub(super) const VM_INTERNAL_ERROR: Rule = Rule {
    id: "vm-internal-error",
    finds: "a VM that QEMU has stopped because KVM could not go on running it: QEMU's run state is internal-error",
    remedies: &[
        instruction(
            "Read in QEMU's log what KVM says (KVM internal error, or KVM: entry failed)",
            "LOG",
        ),
        instruction("Reset the VM", "RESET"),
    ],
    source: "Linux kernel documentation, The Definitive KVM API Documentation: KVM_EXIT_INTERNAL_ERROR",
    evaluate: |evidence| {
        let finding = |vm: &VmRates| {
            let state = vm.stopped().filter(|state| *state == INTERNAL_ERROR)?;
            let text =
                format!("KVM could not go on running the guest: QEMU's run state is \"{state}\".");
            let log = match vm.name.as_ref().filter(|_| is_libvirts(vm)) {
                Some(name) => {
                    let file = format!("/var/log/libvirt/qemu/{name}.log");
                    shell_line(&["sudo", "tail", "-n", "50", &file].map(str::to_owned))
                }
                None => "QEMU's standard error".to_owned(),
            };
            Some(Finding {
                values: [failed_values(vm), vec![("LOG", log)]].concat(),
                ..Finding::new(text)
            })
        };
        about_vm(evidence, finding)
    },
};

pub(super) const VM_GUEST_FAILED: Rule = Rule {
    id: "vm-guest-failed",
    finds: "a guest whose kernel reported a lockup, an RCU stall or an oops on a console within the last 10 minutes, while its vCPUs had their host CPUs",
    remedies: &[
        instruction("If the guest does not respond, reset the VM", "RESET"),
        instruction(
            "To find the cause save the guest's memory before that, and open it with crash",
            "DUMP",
        ),
    ],
    source: LOCKUPS,
    evaluate: |evidence| reported(evidence, true),
};

pub(super) const VM_GUEST_REPORT: Rule = Rule {
    id: "vm-guest-report",
    finds: "a guest whose kernel reported a lockup, an RCU stall or an oops since its last boot, longer ago, or while its vCPUs waited for host CPUs",
    remedies: &[instruction(
        "Read the guest's kernel log, and reboot the guest after an oops",
        "CONSOLE",
    )],
    source: LOCKUPS,
    evaluate: |evidence| reported(evidence, false),
};

/// Findings about a lockup, a stall or an oops: with `is_first` those that explain all else, otherwise the older ones and those of
/// vCPUs that wait for a host CPU, which a guest takes for a lockup.
fn reported(evidence: &Evidence<'_>, is_first: bool) -> Vec<Finding> {
    let finding = |vm: &VmRates| {
        let failure = vm.kernel_failure.as_ref();
        let failure = failure.filter(|failure| failure.kind != FailureKind::Panic)?;
        let mut lacking = [vm.ready, vm.throttled].into_iter().flatten();
        let lacks_cpus = lacking.any(|part| part >= MIN_READY);
        let explains = failure.age_s <= RECENT_S && !lacks_cpus && vm.stopped().is_none();
        let what = match failure.kind {
            FailureKind::Oops => "an oops",
            _ => "a lockup",
        };
        let age = duration(failure.age_s as f64);
        let text = format!(
            "The guest's kernel reports {what} at the end of its console, written {age} ago: {}.",
            quoted(failure)
        );
        let file = failure.file.to_string_lossy().into_owned();
        // A terminal would obey what the guest wrote.
        let tail = shell_line(&["sudo", "tail", "-n", "100", &file].map(str::to_owned));
        let console = format!("{tail} | cat -v");
        let values = [failed_values(vm), vec![("CONSOLE", console)]].concat();
        (explains == is_first).then(|| Finding {
            values,
            ..Finding::new(text)
        })
    };
    about_vm(evidence, finding)
}

/// The kernel's line in quotes, and the file that has it. The guest writes the line.
fn quoted(failure: &KernelFailure) -> String {
    let (line, file) = (&failure.line, failure.file.display().to_string());
    let line = line.escape_default();
    format!("\"{line}\" ({})", file.escape_default())
}

/// The values of `RESET` and `DUMP` in remedies.
fn failed_values(vm: &VmRates) -> Vec<(&'static str, String)> {
    // A VM that QEMU has stopped stays stopped after a reset.
    let is_stopped = vm.stopped().is_some();
    let file = format!("/var/tmp/{}.dump", vm.argument());
    let reset = match vm.manager {
        Some(Manager::Proxmox) => "qm reset VMID".to_owned(),
        Some(_) => virsh(vm, &["reset", "DOMAIN"]),
        None => {
            let then = if is_stopped {
                "{\"execute\":\"cont\"}"
            } else {
                ""
            };
            qmp_line(vm, &format!("{{\"execute\":\"system_reset\"}}{then}"))
        }
    };
    let dump = match is_libvirts(vm) {
        true => virsh(vm, &["dump", "DOMAIN", &file, "--memory-only"]),
        false => {
            let arguments = json!({ "paging": false, "protocol": format!("file:{file}") });
            qmp(vm, "dump-guest-memory", &arguments)
        }
    };
    let reset = match vm.manager.is_some() && is_stopped {
        true => format!("{reset} && {}", resume(vm)),
        false => reset,
    };
    vec![("RESET", reset), ("DUMP", dump)]
}

/// A finding about the whole VM, which gets nothing done.
fn finding(evidence: &Evidence<'_>, text: impl Fn(&VmRates) -> Option<String>) -> Vec<Finding> {
    about_vm(evidence, |vm| {
        Some(Finding {
            values: values(vm),
            ..Finding::with_gain(text(vm)?, 1.0)
        })
    })
}

/// The values of `VM` and `QEMU_PID` in remedies.
fn values(vm: &VmRates) -> Vec<(&'static str, String)> {
    vec![("VM", vm.argument()), ("QEMU_PID", vm.pid.to_string())]
}

/// The main loop holds up everything, a vCPU its part of the guest.
fn order(role: &Role) -> u8 {
    match role {
        Role::Main => 0,
        Role::Vcpu(_) => 1,
        _ => 2,
    }
}

/// "The main loop (TID 7)".
fn named(thread: &BlockedThread) -> String {
    let label = thread.role.label();
    let the = if matches!(thread.role, Role::Vcpu(_)) {
        ""
    } else {
        "The "
    };
    format!("{the}{label} (TID {})", thread.tid)
}

fn lower(text: &str) -> String {
    text.strip_prefix("The ")
        .map_or_else(|| text.to_owned(), |rest| format!("the {rest}"))
}

/// The place in the kernel where it is.
fn place(thread: &BlockedThread) -> String {
    thread.wait_channel.as_ref().map_or(String::new(), |name| {
        format!(" in the kernel's {}", name.escape_default())
    })
}

#[cfg(test)]
mod tests {
    use crate::Evidence;
    use crate::test_evidence::{advice, says};
    use proptest::prelude::*;
    use vmtax_findings::{ThreadRates, VmRates};
    use vmtax_model::{
        BlockedThread, FailureKind, KernelFailure, ProcessStop, Role, RunState, Vmm,
    };

    fn first(vm: &VmRates) -> Option<String> {
        crate::evaluate(&Evidence {
            vm: Some(vm),
            ..Evidence::default()
        })
        .into_iter()
        .next()
        .map(|found| found.rule)
    }

    fn thread(role: Role, tid: i32, is_uninterruptible: bool, name: &str) -> BlockedThread {
        BlockedThread {
            tid,
            role,
            is_uninterruptible,
            wait_channel: Some(name.to_owned()),
        }
    }

    /// A VM of two vCPUs, of which the first ran for a part of the time.
    fn vm(run: f64) -> VmRates {
        let vcpu = |number, run: f64| ThreadRates {
            tid: 11 + number as i32,
            role: Role::Vcpu(number),
            run,
            ready: 0.0,
            turns_per_s: run * 100.0,
            throttled: None,
        };
        let threads = vec![vcpu(0, run), vcpu(1, 0.0)];
        VmRates {
            pid: 10,
            vcpus: 2,
            seconds: 4.0,
            threads,
            ..VmRates::default()
        }
    }

    #[test]
    fn another_vmm_is_named_and_gets_no_remedy_of_qemus() {
        let of = |vmm| VmRates {
            vmm,
            process_stop: Some(ProcessStop::Signal),
            ..vm(0.0)
        };
        for (vmm, begin) in [
            (Vmm::Firecracker, "Firecracker is stopped (SIGSTOP)"),
            (Vmm::Unknown, "The VMM is stopped (SIGSTOP)"),
        ] {
            let said = says("vm-process-stopped", &of(vmm));
            assert!(said[0].starts_with(begin), "{said:?}");
        }
        let lines = |vmm| {
            let panicked = VmRates {
                process_stop: None,
                state: Some(RunState::Stopped("guest-panicked".to_owned())),
                ..of(vmm)
            };
            let evidence = Evidence {
                vm: Some(&panicked),
                ..Evidence::default()
            };
            let advice = advice("vm-guest-panicked", &evidence);
            let remedies = advice.into_iter().flat_map(|advice| advice.remedies);
            remedies.map(|remedy| remedy.line).collect::<Vec<_>>()
        };
        let is_of_qemu = |line: &String| line.contains("QMP_SOCKET");
        assert!(lines(Vmm::Qemu).iter().any(is_of_qemu));
        assert!(!lines(Vmm::Firecracker).iter().any(is_of_qemu));
    }

    #[test]
    fn a_stopped_process_is_found_first_with_the_command_that_resumes_it() {
        let state = Some(RunState::Stopped("paused".to_owned()));
        let stopped = VmRates {
            process_stop: Some(ProcessStop::Signal),
            state,
            ..vm(0.0)
        };
        assert_eq!(
            says("vm-process-stopped", &stopped),
            [
                "QEMU is stopped (SIGSTOP) and does not answer: all threads of process 10 are in state T."
            ]
        );
        assert_eq!(
            first(&stopped).as_deref(),
            Some("vm-process-stopped"),
            "also of a guest that is paused"
        );
        let remedy = &advice(
            "vm-process-stopped",
            &Evidence {
                vm: Some(&stopped),
                ..Evidence::default()
            },
        )[0]
        .remedies[0];
        assert_eq!(
            (&*remedy.action, &*remedy.line),
            ("Resume QEMU (kill -CONT 10)", "sudo kill -CONT 10")
        );
        let tracer = Some(ProcessStop::Tracer("gdb (PID 7)".to_owned()));
        let traced = VmRates {
            process_stop: tracer,
            ..vm(0.0)
        };
        assert_eq!(
            says("vm-process-traced", &traced),
            [
                "gdb (PID 7) has stopped QEMU, which does not answer: all threads of process 10 are in state t."
            ]
        );
        assert_eq!(
            (
                says("vm-process-stopped", &traced).len(),
                says("vm-process-stopped", &vm(0.5)).len()
            ),
            (0, 0)
        );
    }

    #[test]
    fn a_thread_that_is_blocked_is_named_with_where_it_is() {
        let blocked = vec![
            thread(Role::Vcpu(0), 11, true, "folio_wait_bit_common"),
            thread(Role::Main, 10, true, "rpc_wait_bit_killable"),
        ];
        let all = VmRates {
            blocked: blocked.clone(),
            monitor_timeout_s: Some(2.0),
            ..vm(0.0)
        };
        assert_eq!(
            says("vm-blocked-thread", &all),
            [
                "The main loop (TID 10) did not run for 4.0 s: it is in uninterruptible sleep (state D) in the kernel's \
                 rpc_wait_bit_killable, as 1 further thread of QEMU; QMP did not answer within 2 s."
            ]
        );
        assert_eq!(
            (first(&all).as_deref(), says("vm-no-progress", &all).len()),
            (Some("vm-blocked-thread"), 0)
        );
        let one = VmRates {
            blocked: blocked[..1].to_vec(),
            ..vm(0.0)
        };
        let found = &advice(
            "vm-blocked-thread",
            &Evidence {
                vm: Some(&one),
                ..Evidence::default()
            },
        )[0];
        assert!(
            found.finding.starts_with("vCPU 0 (TID 11) did not run"),
            "{}",
            found.finding
        );
        assert_eq!(
            (found.gain, &*found.remedies[0].line),
            (0.5, "sudo cat /proc/10/task/11/stack")
        );
    }

    #[test]
    fn a_silent_monitor_is_a_hang_only_where_no_vcpu_runs() {
        let blocked = vec![thread(Role::Main, 10, false, "futex_wait_queue")];
        let silent = |run| VmRates {
            monitor_timeout_s: Some(2.0),
            blocked: blocked.clone(),
            ..vm(run)
        };
        assert_eq!(
            says("vm-no-progress", &silent(0.0)),
            [
                "QEMU does not respond: QMP did not answer within 2 s, and no vCPU ran in 4.0 s; the main loop (TID 10) waits \
                 in the kernel's futex_wait_queue."
            ]
        );
        let woken = says("vm-no-progress", &silent(0.0002));
        assert_eq!(woken.len(), 1, "a thread that woke up ran no guest");
        assert_eq!(says("vm-no-progress", &silent(0.01)), [""; 0], "it runs");
        let main = |run: f64| ThreadRates {
            tid: 10,
            role: Role::Main,
            run,
            ready: 0.0,
            turns_per_s: run,
            throttled: None,
        };
        let with_main = |run, of_main| {
            let vm = silent(run);
            VmRates {
                threads: [vm.threads.clone(), vec![main(of_main)]].concat(),
                ..vm
            }
        };
        assert_eq!(
            says("vm-no-progress", &with_main(0.5, 0.0)),
            [
                "QEMU's main loop does not respond while vCPUs run: QMP did not answer within 2 s, and the main loop did not run in \
                 4.0 s; the main loop (TID 10) waits in the kernel's futex_wait_queue."
            ]
        );
        assert_eq!(
            says("vm-no-progress", &with_main(0.5, 0.1)),
            [""; 0],
            "it is slow, and does not stand"
        );
        assert_eq!(
            says("vm-no-progress", &vm(0.0)),
            [""; 0],
            "the monitor answers"
        );
        let unknown = VmRates {
            threads: Vec::new(),
            ..silent(0.0)
        };
        assert_eq!(
            says("vm-no-progress", &unknown),
            [""; 0],
            "no vCPU thread is known"
        );
    }

    fn failing(kind: FailureKind, age_s: u64, line: &str) -> VmRates {
        let kernel_failure = KernelFailure {
            kind,
            line: line.to_owned(),
            file: "/var/log/web01.log".into(),
            age_s,
        };
        VmRates {
            kernel_failure: Some(kernel_failure),
            ready: Some(0.0),
            ..vm(1.0)
        }
    }

    const PANIC: &str = "Kernel panic - not syncing: a \"b\" \u{1b}";

    #[test]
    fn a_panic_is_first_without_a_gain_also_of_vcpus_that_wait() {
        let panicked = VmRates {
            ready: Some(0.88),
            ..failing(FailureKind::Panic, 9000, PANIC)
        };
        assert_eq!(
            says("vm-guest-panicked", &panicked),
            [
                r#"The guest has panicked, its console ends with "Kernel panic - not syncing: a \"b\" \u{1b}" (/var/log/web01.log)."#
            ]
        );
        let all = crate::evaluate(&Evidence {
            vm: Some(&panicked),
            ..Evidence::default()
        });
        assert_eq!(
            (&*all[0].rule, all[0].gain, &*all[1].rule),
            ("vm-guest-panicked", 0.0, "vm-run-queue-wait")
        );
        assert_eq!(
            all[0].remedies[0].line,
            "echo '{\"execute\":\"qmp_capabilities\"}{\"execute\":\"system_reset\"}' | socat -t1 - UNIX-CONNECT:QMP_SOCKET,shut-none"
        );
        assert!(
            all[0].remedies[1].line.contains("dump-guest-memory"),
            "{:?}",
            all[0].remedies[1]
        );
        let stopped = VmRates {
            process_stop: Some(ProcessStop::Signal),
            ..panicked
        };
        assert_eq!(first(&stopped).as_deref(), Some("vm-process-stopped"));
    }

    #[test]
    fn qemus_run_state_says_that_the_guest_has_panicked() {
        let state = Some(RunState::Stopped("guest-panicked".to_owned()));
        let manager = Some(vmtax_model::Manager::Libvirt);
        let known = VmRates {
            state: state.clone(),
            manager,
            name: Some("web01".to_owned()),
            ..vm(0.0)
        };
        assert_eq!(
            says("vm-guest-panicked", &known),
            ["The guest has panicked: QEMU's run state is \"guest-panicked\"."]
        );
        let found = crate::evaluate(&Evidence {
            vm: Some(&known),
            ..Evidence::default()
        });
        assert_eq!(
            found.iter().map(|found| &*found.rule).collect::<Vec<_>>(),
            ["vm-guest-panicked"],
            "said once"
        );
        assert_eq!(
            found[0].remedies[0].line,
            "virsh reset web01 && virsh resume web01"
        );
        assert_eq!(
            found[0].remedies[1].line,
            "virsh dump web01 /var/tmp/web01.dump --memory-only"
        );
        let both = VmRates {
            state,
            ..failing(FailureKind::Panic, 1, "Kernel panic - not syncing: a")
        };
        let said = &says("vm-guest-panicked", &both)[0];
        assert!(
            said.starts_with(
                "The guest has panicked (run state \"guest-panicked\"): \"Kernel panic"
            ),
            "{said}"
        );
        let paused = VmRates {
            state: Some(RunState::Stopped("paused".to_owned())),
            ..vm(0.0)
        };
        assert_eq!(
            (
                says("vm-guest-panicked", &paused).len(),
                first(&paused).as_deref()
            ),
            (0, Some("vm-stopped"))
        );
    }

    #[test]
    fn a_lockup_is_first_where_it_is_recent_and_the_vcpus_have_their_cpus() {
        let soft = "watchdog: BUG: soft lockup - CPU#0 stuck for 22s!";
        let recent = failing(FailureKind::Lockup, 12, soft);
        let said = format!(
            "The guest's kernel reports a lockup at the end of its console, written 12 s ago: \"{soft}\" (/var/log/web01.log)."
        );
        assert_eq!(
            (
                says("vm-guest-failed", &recent),
                says("vm-guest-report", &recent).len()
            ),
            (vec![said], 0)
        );
        assert_eq!(first(&recent).as_deref(), Some("vm-guest-failed"));
        let waits = VmRates {
            ready: Some(0.88),
            ..recent.clone()
        };
        assert_eq!(
            first(&waits).as_deref(),
            Some("vm-run-queue-wait"),
            "the host causes the lockup"
        );
        let old = failing(FailureKind::Oops, 9000, "Oops: 0002 [#1]");
        for later in [&waits, &old] {
            assert_eq!(
                (
                    says("vm-guest-failed", later).len(),
                    says("vm-guest-report", later).len()
                ),
                (0, 1)
            );
        }
        let found = &advice(
            "vm-guest-report",
            &Evidence {
                vm: Some(&old),
                ..Evidence::default()
            },
        )[0];
        assert_eq!(
            found.remedies[0].line,
            "sudo tail -n 100 /var/log/web01.log | cat -v"
        );
    }

    #[test]
    fn what_kvm_could_not_run_is_not_resumed_but_its_log_is_read() {
        let state = Some(RunState::Stopped("internal-error".to_owned()));
        let failed = VmRates {
            state,
            name: Some("web01".to_owned()),
            ..vm(0.0)
        };
        assert_eq!(
            says("vm-internal-error", &failed),
            ["KVM could not go on running the guest: QEMU's run state is \"internal-error\"."]
        );
        assert_eq!(
            (first(&failed).as_deref(), says("vm-stopped", &failed).len()),
            (Some("vm-internal-error"), 0)
        );
        let log = |vm: &VmRates| {
            let found = advice(
                "vm-internal-error",
                &Evidence {
                    vm: Some(vm),
                    ..Evidence::default()
                },
            );
            found[0].remedies[0].line.clone()
        };
        assert_eq!(log(&failed), "QEMU's standard error");
        let domain = VmRates {
            manager: Some(vmtax_model::Manager::Libvirt),
            ..failed
        };
        assert_eq!(
            log(&domain),
            "sudo tail -n 50 /var/log/libvirt/qemu/web01.log"
        );
    }

    const STATES: [&str; 7] = [
        "vm-process-stopped",
        "vm-process-traced",
        "vm-blocked-thread",
        "vm-no-progress",
        "vm-guest-panicked",
        "vm-internal-error",
        "vm-stopped",
    ];

    /// States that a VM may be in at once, and the rule that says so first; `None` where it runs.
    fn in_state() -> impl Strategy<Value = (VmRates, Option<&'static str>)> {
        let stop = prop_oneof![
            4 => Just(None),
            1 => Just(Some(ProcessStop::Signal)),
            1 => Just(Some(ProcessStop::Tracer("gdb (PID 7)".to_owned()))),
        ];
        let states = [
            "paused",
            "prelaunch",
            "inmigrate",
            "postmigrate",
            "io-error",
            "watchdog",
            "guest-panicked",
            "internal-error",
        ];
        let state = prop_oneof![
            1 => Just(None),
            2 => Just(Some(RunState::Running)),
            2 => prop::sample::select(states.to_vec()).prop_map(|state| Some(RunState::Stopped(state.to_owned()))),
        ];
        let failure = prop::option::weighted(
            0.3,
            Just(failing(FailureKind::Panic, 9000, PANIC).kernel_failure),
        );
        let [silent, is_blocked] = [prop::bool::weighted(0.3), prop::bool::weighted(0.2)];
        (stop, state, failure, silent, is_blocked, 0.0..1.0, 0.0..1.0).prop_map(
            |(stop, state, failure, silent, is_blocked, run, ready)| {
                let stopped = if let Some(RunState::Stopped(state)) = &state {
                    state.clone()
                } else {
                    String::new()
                };
                let does_run = stop.is_none() && stopped.is_empty() && !is_blocked && !silent;
                let blocked = vec![thread(Role::Vcpu(0), 11, true, "folio_wait_bit_common")];
                let kernel_failure = failure.flatten();
                let expected = match (&stop, &*stopped) {
                    (Some(ProcessStop::Signal), _) => Some("vm-process-stopped"),
                    (Some(ProcessStop::Tracer(_)), _) => Some("vm-process-traced"),
                    _ if is_blocked => Some("vm-blocked-thread"),
                    _ if silent => Some("vm-no-progress"),
                    (None, "guest-panicked") => Some("vm-guest-panicked"),
                    _ if kernel_failure.is_some() => Some("vm-guest-panicked"),
                    (None, "internal-error") => Some("vm-internal-error"),
                    (None, "") => None,
                    _ => Some("vm-stopped"),
                };
                let rates = VmRates {
                    process_stop: stop,
                    state,
                    kernel_failure,
                    monitor_timeout_s: silent.then_some(2.0),
                    blocked: if is_blocked { blocked } else { Vec::new() },
                    run: Some(if does_run { run } else { 0.0 }),
                    ready: Some(if does_run { ready } else { 0.0 }),
                    ..vm(if does_run { run } else { 0.0 })
                };
                (rates, expected)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_state_of_a_vm_comes_before_what_it_costs((rates, expected) in in_state()) {
            let found = first(&rates);
            match expected {
                Some(rule) => prop_assert_eq!(found.as_deref(), Some(rule), "{:#?}", rates),
                None => prop_assert!(!found.is_some_and(|rule| STATES.contains(&&*rule)), "{:#?}", rates),
            }
        }
    }
}
