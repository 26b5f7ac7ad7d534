//! Recorded traces against what others print of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod recorded;

use std::path::{Path, PathBuf};
use vmtax_trace::{EventId, Field, Formats};

/// A file or folder of the recorded traces.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Prints events as the kernel prints them into `trace`, without the task's name and the flags in front.
pub struct Printer<'f> {
    /// Formats of the trace's events.
    pub formats: &'f Formats,
}

impl Printer<'_> {
    fn field(&self, id: EventId, name: &str) -> Field {
        self.formats
            .field(id, name)
            .expect("a field of this format")
    }

    /// Returns the text that the kernel prints behind the event's name.
    pub fn arguments(&self, id: EventId, data: &[u8]) -> String {
        let signed = |name: &str| self.field(id, name).signed(data).expect("a number");
        let text = |name: &str| {
            self.field(id, name)
                .text(data)
                .expect("a text")
                .into_owned()
        };
        match self.formats.get(id).expect("a known event").name.as_str() {
            "sys_enter" => {
                let args = self.field(id, "args");
                let args: Vec<String> = (0..6)
                    .map(|i| {
                        args.element(i)
                            .and_then(|arg| arg.unsigned(data))
                            .expect("an argument")
                    })
                    .map(|arg| format!("{arg:x}"))
                    .collect();
                format!("NR {} ({})", signed("id"), args.join(", "))
            }
            "sys_exit" => format!("NR {} = {}", signed("id"), signed("ret")),
            "sched_switch" => {
                // TASK_REPORT_MAX of Linux 4.14 and newer: one above the eight states that have a letter.
                let state = signed("prev_state");
                let letters = ["S", "D", "T", "t", "X", "Z", "P", "I"];
                let set: Vec<&str> = (0..8)
                    .filter(|bit| state & 1 << bit != 0)
                    .map(|bit| letters[bit as usize])
                    .collect();
                let letter = if set.is_empty() {
                    "R".to_owned()
                } else {
                    set.join("|")
                };
                let preempted = if state & 0x100 != 0 { "+" } else { "" };
                format!(
                    "prev_comm={} prev_pid={} prev_prio={} prev_state={letter}{preempted} ==> next_comm={} next_pid={} \
                     next_prio={}",
                    text("prev_comm"),
                    signed("prev_pid"),
                    signed("prev_prio"),
                    text("next_comm"),
                    signed("next_pid"),
                    signed("next_prio")
                )
            }
            "sched_waking" => format!(
                "comm={} pid={} prio={} target_cpu={:03}",
                text("comm"),
                signed("pid"),
                signed("prio"),
                signed("target_cpu")
            ),
            "sched_process_exec" => {
                format!(
                    "filename={} pid={} old_pid={}",
                    text("filename"),
                    signed("pid"),
                    signed("old_pid")
                )
            }
            other => panic!("{other} is not in the recording"),
        }
    }
}
