//! Disks that QEMU serves in its main loop, and doorbells of virtio devices that a vCPU thread of QEMU handles itself.

use crate::evidence::{Register, has_iothread, part, title};
use crate::rule::{about_exits, instruction, measurement};
use crate::{Evidence, Finding, Rule};
use vmtax_findings::{LayerColumn, State};
use vmtax_model::number::count;
use vmtax_model::{Layer, Remedy, Setting};

const IOTHREAD: Remedy<&str> =
    Setting::named("iothread").remedy("on", "Give the disk an iothread of its own");
const COMPARE: Remedy<&str> = measurement(
    "Measure with and without it first",
    "vmtax layers --vary iothread=off,on",
);
const SOURCE: &str = "QEMU documentation, Using Multiple IOThreads";

pub(super) const MAIN_LOOP_LOCK: Rule = Rule {
    id: "main-loop-lock",
    finds: "a twentieth of a request and more in which it waits for a lock in QEMU, without an iothread",
    remedies: &[IOTHREAD, COMPARE],
    source: SOURCE,
    evaluate: |evidence| lock(evidence, false).into_iter().collect(),
};

pub(super) const IOTHREAD_LOCK: Rule = Rule {
    id: "iothread-lock",
    finds: "the same with an iothread",
    remedies: &[instruction(
        "See which thread holds it",
        "sudo perf trace -s -e futex -p PID",
    )],
    source: "",
    evaluate: |evidence| lock(evidence, true).into_iter().collect(),
};

pub(super) const MAIN_LOOP_KICK: Rule = Rule {
    id: "main-loop-kick",
    finds: "a twentieth of a request and more between the guest's kick and QEMU's main loop, and no iothread compared",
    remedies: &[IOTHREAD, COMPARE],
    source: SOURCE,
    evaluate: |evidence| {
        let varied = evidence
            .plan
            .is_some_and(|plan| plan.variants.iter().any(|v| v.set.contains_key("iothread")));
        let finding = |column: &LayerColumn| {
            let waits = |state| {
                matches!(
                    state,
                    State::Runnable | State::CpuWakeUp | State::GuestCpuWakeUp
                )
            };
            let kick = part(column, |row| {
                row.layer == Layer::Notify && !waits(row.state)
            })?;
            let text = format!(
                "{:.0} % of the traced time on {} is spent between the guest's kick and QEMU's main loop, excluding run-queue wait and C-state exit.",
                kick * 100.0,
                title(column)
            );
            Some(Finding::with_gain(text, kick))
        };
        let column = evidence
            .main_disk_column()
            .filter(|column| !varied && !has_iothread(column));
        column.and_then(finding).into_iter().collect()
    },
};

fn lock(evidence: &Evidence<'_>, with_iothread: bool) -> Option<Finding> {
    let column = evidence
        .main_disk_column()
        .filter(|column| has_iothread(column) == with_iothread)?;
    let lock = part(column, |row| row.state == State::Lock)?;
    let text = format!(
        "{:.0} % of the traced time on {} is waiting for a lock in QEMU.",
        lock * 100.0,
        title(column)
    );
    Some(Finding::with_gain(text, lock))
}

pub(super) const NOTIFY_WITHOUT_IOEVENTFD: Rule = Rule {
    id: "notify-without-ioeventfd",
    finds: "kicks of a virtio device that go on to QEMU's own vCPU thread",
    remedies: &[Setting::named("ioeventfd").remedy(
        "on",
        "Switch ioeventfd on: KVM then wakes another thread, and the vCPU continues",
    )],
    source: "QEMU commit 0ebf76aae583: an emulated NVMe disk went from 35,000 to 41,000 requests a second, one at a time",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let kicks = exits.writes_to_qemu(Register::Notify);
            let text = format!(
                "QEMU's vCPU threads themselves handle {} kicks of virtio devices: the vCPU does not run the guest during this time.",
                count(kicks)
            );
            exits
                .many(kicks)
                .then(|| Finding::with_gain(text, exits.share(kicks)))
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Register::Notify;
    use crate::test_evidence::{column, findings, fires};
    use vmtax_findings::ThreadCalls;
    use vmtax_model::{Checkpoint, Machine, Plan, Role, Variant};

    fn findings_for(
        id: &str,
        layer: Layer,
        state: State,
        mean_ns: f64,
        iothread: bool,
    ) -> Vec<String> {
        let mut column = column(&[
            (layer, state, mean_ns),
            (Layer::Device, State::Waiting, 100e3 - mean_ns),
        ]);
        if iothread {
            let role = Role::Iothread("disk-io".into());
            column.calls.push(ThreadCalls {
                role,
                calls: Vec::new(),
                locks: None,
            });
        }
        findings(
            id,
            &Evidence {
                columns: &[column],
                ..Evidence::default()
            },
        )
    }

    #[test]
    fn the_remedy_for_a_lock_depends_on_the_iothread() {
        let lock = |id, iothread| findings_for(id, Layer::Qemu, State::Lock, 10e3, iothread);
        let text = "10 % of the traced time on kvm is waiting for a lock in QEMU.";
        assert_eq!(
            (lock("main-loop-lock", false), lock("iothread-lock", false)),
            (vec![text.into()], vec![])
        );
        assert_eq!(
            (lock("main-loop-lock", true), lock("iothread-lock", true)),
            (vec![], vec![text.into()])
        );
        assert_eq!(
            findings_for("main-loop-lock", Layer::Qemu, State::Running, 10e3, false),
            [""; 0]
        );
        assert_eq!(
            findings_for("iothread-lock", Layer::Qemu, State::Lock, 1e3, true),
            [""; 0]
        );
    }

    #[test]
    fn a_kick_to_the_main_loop_is_found_unless_an_iothread_was_compared() {
        let kick =
            |state, iothread| findings_for("main-loop-kick", Layer::Notify, state, 10e3, iothread);
        let text = "10 % of the traced time on kvm is spent between the guest's kick and QEMU's main loop, excluding run-queue wait and C-state exit.";
        assert_eq!(kick(State::Waiting, false), [text]);
        assert_eq!(kick(State::Waiting, true), [""; 0]);
        assert_eq!(kick(State::CpuWakeUp, false), [""; 0]);
        // A network card has no iothread.
        let row = (Layer::Notify, State::Waiting, 10e3);
        let mut card = column(&[row]);
        card.rows[0].to = Checkpoint::NetTxWake;
        assert_eq!(
            findings(
                "main-loop-kick",
                &Evidence {
                    columns: &[card],
                    ..Evidence::default()
                }
            ),
            [""; 0]
        );
        let set = [("iothread".to_owned(), "on".to_owned())].into();
        let variants = vec![Variant {
            name: "iothread=on".into(),
            set,
        }];
        let plan = Plan {
            variants,
            ..Plan::new("layers", 1, vec![Machine::KVM], Vec::new())
        };
        let columns = [column(&[row])];
        let varied = Evidence {
            plan: Some(&plan),
            columns: &columns,
            ..Evidence::default()
        };
        assert_eq!(findings("main-loop-kick", &varied), [""; 0]);
    }

    #[test]
    fn kicks_fire_where_qemu_handles_them() {
        assert!(fires(
            "notify-without-ioeventfd",
            &[(Notify, [0, 600, 600])]
        ));
        assert!(
            !fires("notify-without-ioeventfd", &[(Notify, [0, 6000, 0])]),
            "KVM took them"
        );
    }
}
