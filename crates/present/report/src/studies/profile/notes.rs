//! Notes for the reader of a profile: the quality of the samples, their cost, and missing data.

use super::samples::percent;
use super::{exits, guest};
use crate::number::{count, counted, nanoseconds, were};
use crate::text::{Joined, only_if};
use vmtax_findings::{FunctionShare, Pauses, ProfileFindings, UnnamedFile, WallFindings};

/// With fewer samples on CPU than this a fraction of a half is known to a tenth at best.
const FEW: u64 = 100;
/// Stops that a guest can notice, ns.
const LONG_STOP_NS: f64 = 1e6;

/// Returns the quality of the samples, and their cost.
pub fn quality(findings: &ProfileFindings) -> Vec<String> {
    let mut lines = Vec::new();
    let outside = only_if(findings.translated_samples > 0, " outside translated code");
    if findings.user_samples > 0 {
        lines.push(format!(
            "Of {} with a user-space stack{outside}, {} were unwound completely.",
            counted(findings.user_samples, "sample"),
            percent(findings.unwound.share)
        ));
    }
    if findings.translated_samples > 0 {
        lines.push(format!(
            "{} in translated guest code; for {} of them the stack was unwound through it to QEMU's own frames.",
            counted(findings.translated_samples, "sample"),
            percent(findings.translated_unwound.share)
        ));
    }
    lines.extend(findings.wall.as_ref().map(wall_clock));
    lines.extend(windows(findings));
    lines.extend(findings.guest.iter().flat_map(guest::method));
    lines.extend(findings.exits.iter().flat_map(exits::method));
    lines.extend(findings.code.iter().map(guest::code_method));
    if findings.file.is_none() {
        lines.push(format!(
            "vmtax itself used {} of a CPU during the recording.",
            percent(findings.own_cpu)
        ));
    }
    lines
}

/// Returns the number of wall-clock samples, and how they were taken.
fn wall_clock(wall: &WallFindings) -> String {
    let (pauses, moments) = (&wall.pauses, count(wall.moments));
    match pauses.count {
        0 => format!(
            "Wall-clock sampling: {moments} passes over all threads, none of which stopped a thread. A waiting thread's stack was \
             copied while it waited. Running threads have no wall-clock stacks; use --stop-threads to include them."
        ),
        stops => format!(
            "Wall-clock sampling: {moments} passes over all threads, {}: {} with the thread stopped, for {} each, \
             and {} of waiting threads without a stop.",
            counted(stops + pauses.unstopped, "sample"),
            count(stops),
            lengths(pauses),
            count(pauses.unstopped)
        ),
    }
}

/// "12 µs (median), 80 µs (p99), 1.20 ms (max)".
fn lengths(pauses: &Pauses) -> String {
    let [p50, p99, max] = [pauses.p50_ns, pauses.p99_ns, pauses.max_ns].map(nanoseconds);
    format!("{p50} (median), {p99} (p99), {max} (max)")
}

/// Returns the time that each observer observed; `None` for fewer than two.
fn windows(findings: &ProfileFindings) -> Option<String> {
    let states = findings.states.as_ref();
    let exits = findings.exits.as_ref();
    let all = [
        states.map(|states| ("thread states", states.seconds)),
        (findings.seconds > 0.0).then_some(("samples", findings.seconds)),
        exits.map(|exits| ("VM exits", exits.seconds)),
    ];
    let all = all.into_iter().flatten();
    let all: Vec<String> = all.map(|(what, s)| format!("{what} {s:.1} s")).collect();
    (all.len() > 1).then(|| format!("Observed: {}.", all.join(", ")))
}

/// Returns notes for the reader, with remedies.
pub fn notes(findings: &ProfileFindings) -> Vec<String> {
    let mut notes = sampling(findings);
    notes.extend(stops(findings));
    notes.extend(findings.guest.iter().flat_map(guest::notes));
    notes.extend(lost_events(findings));
    notes.extend(cut_stacks(findings));
    notes.extend(timer_skid(findings));
    notes.extend(unnamed_functions(findings));
    notes
}

/// Returns notes on samples that are too few, without the kernel's part, or lost.
fn sampling(findings: &ProfileFindings) -> Vec<String> {
    let mut notes = Vec::new();
    if (1..FEW).contains(&findings.samples) {
        let more = match (&findings.file, findings.trigger.as_str()) {
            (None, _) => "sample longer (--duration, or a longer workload), or more often (--hz)",
            (Some(_), "") => "record longer, or more often",
            (Some(_), _) => "record longer, or more often (perf record -F)",
        };
        let only = counted(findings.samples, "sample");
        notes.push(format!(
            "Only {only} on CPU: the functions' shares of CPU time are imprecise: {more}."
        ));
    }
    if findings.samples > 0 && !findings.kernel && findings.file.is_none() {
        let why = "The kernel's part of the stacks was not sampled: run as root, or `sudo sysctl kernel.perf_event_paranoid=1`.";
        notes.push(why.to_owned());
    }
    if findings.lost > 0 {
        let less = findings.file.as_ref().map_or("--hz", |_| "perf record -F");
        let (lost, were) = (counted(findings.lost, "sample"), were(findings.lost));
        notes.push(format!("{lost} {were} lost: sample less often ({less})."));
    }
    notes
}

/// Returns notes on long stops of threads by wall-clock sampling, and on their end.
fn stops(findings: &ProfileFindings) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(wall) = &findings.wall else {
        return notes;
    };
    let pauses = &wall.pauses;
    if pauses.p99_ns > LONG_STOP_NS {
        notes.push(format!(
            "Wall-clock sampling stopped a thread for {}: the host is busy. Threads of a VM that \
             vmtax did not start are stopped only with --stop-threads.",
            lengths(pauses)
        ));
    }
    if let Some(ended) = wall.stops_ended {
        let [after, stop, limit] =
            [ended.after_ns, ended.stop_ns, ended.limit_ns].map(|ns| nanoseconds(ns as f64));
        notes.push(format!(
            "No thread was stopped any more after {after} of wall-clock samples: one stop lasted {stop}, the limit is {limit} \
             (--stop-threads=TIME). Later samples have no stacks of running threads."
        ));
    }
    notes
}

/// Returns a note on lost events of the scheduler and of system calls.
fn lost_events(findings: &ProfileFindings) -> Option<String> {
    let schedule = findings.schedule.as_ref();
    let schedule = schedule.filter(|schedule| schedule.lost > 0)?;
    Some(format!(
        "{} of the scheduler and of system calls {} lost: their figures cover only the {:.2} s before.",
        counted(schedule.lost, "event"),
        were(schedule.lost),
        schedule.seconds
    ))
}

/// Returns a note on stacks deeper than the copied part, where they are many.
fn cut_stacks(findings: &ProfileFindings) -> Option<String> {
    let are_many = findings.cut * 20 > findings.user_samples;
    are_many.then(|| {
        let file = findings.file.as_ref();
        let more = file.map_or("--stack", |_| "perf record --call-graph dwarf,BYTES");
        let (cut, were) = (counted(findings.cut, "stack"), were(findings.cut));
        format!("{cut} {were} deeper than the copied part: copy more ({more}).")
    })
}

/// Returns a note on the skid of samples that a timer takes in the kernel.
fn timer_skid(findings: &ProfileFindings) -> Option<String> {
    let by_timer =
        findings.trigger.starts_with("cpu-clock") && findings.kernel && findings.samples > 0;
    by_timer.then(|| {
        "No hardware counter is available: samples come from a timer, and those in the kernel skid to where it enables \
         interrupts again."
            .to_owned()
    })
}

/// Returns notes on the samples in functions without a name: outside any mapped file, and in files without symbols.
fn unnamed_functions(findings: &ProfileFindings) -> Vec<String> {
    let mut notes = Vec::new();
    let samples = |of: &dyn Fn(&FunctionShare) -> bool| {
        let all = findings.functions.iter();
        let found = all.filter(|function| !function.named && of(function));
        let sum: u64 = found.map(|function| function.inside.samples).sum();
        (sum > 0).then(|| percent(sum as f64 / findings.samples.max(1) as f64))
    };
    let is_in_file =
        |function: &FunctionShare| findings.unnamed.iter().any(|file| is_in(function, file));
    if let Some(fraction) = samples(&|function| !is_in_file(function)) {
        notes.push(format!(
            "{fraction} of the samples are at addresses without a mapped file (unknown:ADDRESS); in a VM these are guest code."
        ));
    }
    if let Some(fraction) = samples(&is_in_file) {
        notes.push(format!(
            "{fraction} of the samples are in functions without symbols (FILE:NEAREST±OFFSET): {}. \
             Give an unstripped build with --symbols, or install the package with its debug symbols (-dbgsym).",
            files_without_symbols(findings)
        ));
    }
    notes
}

/// Returns the first files with samples in functions without symbols, each with the reason.
fn files_without_symbols(findings: &ProfileFindings) -> String {
    let sampled = |file: &&UnnamedFile| {
        let mut functions = findings.functions.iter();
        functions.any(|one| !one.named && is_in(one, file))
    };
    let name = |file: &UnnamedFile| {
        let name = file.file.rsplit('/').next().unwrap_or_default();
        format!("{name} ({})", file.why)
    };
    let files = findings.unnamed.iter().filter(sampled);
    files.take(4).map(name).joined(", ")
}

/// Returns true if a function is of this file.
fn is_in(function: &FunctionShare, file: &UnnamedFile) -> bool {
    function.module == file.file
}

#[cfg(test)]
mod tests {
    use super::super::samples::heading;
    use super::*;
    use vmtax_findings::{GuestFindings, SampleShare, ScheduleFindings};
    use vmtax_model::samples::StopsEnded;

    /// A profile of which there is so much of everything.
    fn counted(n: u64) -> ProfileFindings {
        let pauses = Pauses {
            count: n,
            unstopped: n,
            p50_ns: 0.0,
            p99_ns: 0.0,
            max_ns: 0.0,
        };
        let unwound = SampleShare::default();
        let wall = WallFindings {
            sliced_s: 0.0,
            moments: n,
            samples: n,
            pauses,
            stops_ended: None,
            unwound,
            threads: vec![],
        };
        ProfileFindings {
            trigger: "cycles".to_owned(),
            hz: n as u32,
            samples: n,
            lost: n,
            user_samples: n,
            cut: n,
            translated_samples: n,
            wall: Some(wall),
            schedule: Some(ScheduleFindings {
                seconds: 1.0,
                lost: n,
                threads: vec![],
                futexes: vec![],
            }),
            guest: Some(GuestFindings {
                lost: n,
                user_samples: n,
                ..GuestFindings::default()
            }),
            ..ProfileFindings::default()
        }
    }

    fn said(findings: &ProfileFindings) -> String {
        [vec![heading(findings)], quality(findings), notes(findings)]
            .concat()
            .join("\n")
    }

    #[test]
    fn few_samples_are_reported_with_how_to_get_more() {
        let rough = |findings: &ProfileFindings| {
            notes(findings)
                .into_iter()
                .find(|note| note.contains("imprecise"))
        };
        let few = rough(&counted(99)).unwrap();
        assert!(
            few.starts_with("Only 99 samples")
                && few.contains("--duration")
                && few.contains("--hz"),
            "{few}"
        );
        assert!(
            rough(&counted(1))
                .unwrap()
                .starts_with("Only 1 sample on CPU")
        );
        assert_eq!([rough(&counted(0)), rough(&counted(100))], [None, None]);
        let theirs = rough(&ProfileFindings {
            file: Some("perf.data".to_owned()),
            ..counted(9)
        })
        .unwrap();
        assert!(
            theirs.contains("perf record -F") && !theirs.contains("--hz"),
            "{theirs}"
        );
    }

    #[test]
    fn stops_are_reported_and_their_end() {
        let mut findings = counted(200);
        assert!(
            said(&findings).contains("samples: 200 with the thread stopped")
                && !said(&findings).contains("any more")
        );
        let wall = findings.wall.as_mut().unwrap();
        wall.stops_ended = Some(StopsEnded {
            after_ns: 3_000_000_000,
            limit_ns: 5_000_000,
            stop_ns: 12_000_000,
        });
        assert!(said(&findings).contains(
            "after 3.00 s of wall-clock samples: one stop lasted 12.00 ms, the limit is 5.00 ms"
        ));
        let wall = findings.wall.as_mut().unwrap();
        (wall.stops_ended, wall.pauses.count) = (None, 0);
        assert!(said(&findings).contains("none of which stopped a thread"));
    }

    #[test]
    fn one_is_not_many() {
        let (one, two) = (said(&counted(1)), said(&counted(2)));
        for word in ["sample", "stack", "event"] {
            assert!(
                one.contains(&format!("1 {word} ")) || one.contains(&format!("1 {word};")),
                "{word}: {one}"
            );
            assert!(
                !one.contains(&format!("1 {word}s")) && two.contains(&format!("2 {word}s")),
                "{word}: {one} {two}"
            );
        }
        assert!(
            one.contains("1 sample was lost") && two.contains("2 samples were lost"),
            "{one}"
        );
    }
}
