//! Threads: how each spent the time, and who used the CPUs.

use super::samples::percent;
use crate::charts::profile::{ThreadBars, TimeStrips, bar, has_changed, legend};
use crate::engine::{Cell, Figure, Section, Table, Tone, figures, words};
use crate::number::{self, NONE, count, counted};
use crate::text::{Joined, distinct, listed, only_if, plain};
use vmtax_findings::{
    ProfileFindings, StateFindings, StateSource, StateWait, ThreadRates, ThreadShare, ThreadStates,
    WaitFor,
};
use vmtax_model::{ProcessStop, Role, RunState};

/// Threads that a terminal shows without details, and that a page draws.
const SHOWN: (usize, usize) = (12, 40);
/// Threads whose states are drawn over time.
const STRIPS: usize = 8;
/// Waits of a thread that are named.
const WAITS: usize = 3;
/// Smaller parts of the time are not named.
const NAMED: f64 = 0.01;
/// A part of the time that something should be done about.
const LARGE: f64 = 0.05;

/// Returns the times that threads ran, were runnable, and waited, with the reasons; if no times are known, the
/// function with most samples.
pub fn answer(findings: &ProfileFindings) -> String {
    if let Some(sentence) = does_not_run(findings) {
        return sentence;
    }
    let states = findings
        .states
        .as_ref()
        .and_then(|states| of_states(states, findings));
    states
        .or_else(|| most_sampled(findings))
        .unwrap_or_else(|| "No thread ran while it was sampled.".to_owned())
}

/// The reason for which none of its vCPUs ran: QEMU itself was stopped, or the guest was paused.
fn does_not_run(findings: &ProfileFindings) -> Option<String> {
    let pid = findings.pid;
    match (&findings.process_stop, &findings.state) {
        (Some(ProcessStop::Signal), _) => Some(format!(
            "Process {pid} is stopped (SIGSTOP): all its threads are in state T. `kill -CONT {pid}` resumes it."
        )),
        (Some(ProcessStop::Tracer(tracer)), _) => Some(format!(
            "{} has stopped process {pid}: all its threads are in state t.",
            plain(tracer)
        )),
        (None, Some(RunState::Stopped(why))) => Some(match why.as_str() {
            "paused" => "The guest is paused: no vCPU runs.".to_owned(),
            "guest-panicked" => "The guest has panicked: no vCPU runs.".to_owned(),
            why => format!("The guest does not run: its state is \"{}\".", plain(why)),
        }),
        (None, None) => {
            let states = findings.states.as_ref()?;
            let mut vcpus = states.threads.iter().filter(|t| is_vcpu(t)).peekable();
            vcpus.peek()?;
            // A wake-up by QEMU runs no guest code.
            vcpus.all(is_still).then(|| {
                let seconds = states.seconds;
                format!("No vCPU ran in {seconds:.1} s: the guest is halted or paused; QMP does not tell which.")
            })
        }
        (None, Some(RunState::Running)) => None,
    }
}

fn is_vcpu(thread: &ThreadStates) -> bool {
    matches!(thread.role, Some(Role::Vcpu(_)))
}

/// Returns true if a thread was on a CPU, or in its run queue, for next to no time.
fn is_still(thread: &ThreadStates) -> bool {
    thread.running + thread.runnable.unwrap_or(0.0) < ThreadRates::STILL
}

fn most_sampled(findings: &ProfileFindings) -> Option<String> {
    let function = findings.functions.first()?;
    let name = function.name.trim_start_matches('[').trim_end_matches(']');
    let of = counted(findings.samples, "CPU sample");
    Some(format!(
        "{} of {of} are in {name}, more than in any other function.",
        number::percent(function.inside.share)
    ))
}

/// The vCPUs' time, or that of the busiest thread where there is none.
fn of_states(states: &StateFindings, findings: &ProfileFindings) -> Option<String> {
    let subject = Subject::choose(states, findings)?;
    Some(format!(
        "{} {}{}{}.",
        subject.who(),
        listed(&subject.parts()),
        subject.starved_thread(),
        subject.cause()
    ))
}

/// The threads that the answer is about: the vCPUs, or the busiest thread where there is none.
struct Subject<'a> {
    states: &'a StateFindings,
    threads: Vec<&'a ThreadStates>,
    has_vcpus: bool,
    /// The part of the time in which KVM polled for the vCPUs, if it is large.
    polled: Option<f64>,
    /// True if TCG emulates the guest's CPU.
    is_emulated: bool,
}

impl<'a> Subject<'a> {
    /// Chooses the threads; `None` if there is none.
    fn choose(states: &'a StateFindings, findings: &ProfileFindings) -> Option<Subject<'a>> {
        let vcpus = states.threads.iter().filter(|thread| is_vcpu(thread));
        let mut threads: Vec<&ThreadStates> = vcpus.collect();
        let has_vcpus = !threads.is_empty();
        if !has_vcpus {
            threads.push(states.threads.first()?);
        }
        let polled =
            halt_polling(findings, threads.len()).filter(|part| *part >= LARGE && has_vcpus);
        Some(Subject {
            states,
            threads,
            has_vcpus,
            polled,
            is_emulated: !findings.tcg.is_empty(),
        })
    }

    /// Returns the mean of a figure over the threads.
    fn mean(&self, of: &dyn Fn(&ThreadStates) -> f64) -> f64 {
        self.threads.iter().map(|t| of(t)).sum::<f64>() / self.threads.len() as f64
    }

    /// Returns the part of the time in which they were runnable without a CPU.
    fn runnable(&self) -> f64 {
        self.mean(&|thread| thread.runnable.unwrap_or(0.0))
    }

    /// Returns the part of the time in which they waited for this reason.
    fn waiting(&self, reason: WaitFor) -> f64 {
        let of_reason = |wait: &StateWait| (wait.reason == reason).then_some(wait.fraction);
        self.mean(&|thread| thread.waits.iter().filter_map(of_reason).sum())
    }

    /// Returns the beginning of the sentence: the threads, and the verb. A thread that is no vCPU is named with its TID.
    fn who(&self) -> String {
        match self.threads.as_slice() {
            [one] if !self.has_vcpus => {
                let threads = counted(self.states.threads.len() as u64, "thread");
                format!(
                    "The busiest of {threads}, {} (TID {}), spent",
                    one.name, one.tid
                )
            }
            [one] => format!("{} spent", one.name),
            several => format!("The {} vCPU threads spent on average", several.len()),
        }
    }

    /// Returns the largest parts of the time, in words.
    fn parts(&self) -> Vec<String> {
        let running = if self.states.source == StateSource::Samples {
            "running or runnable"
        } else {
            "running"
        };
        let polling = self.polled.map_or(String::new(), |part| {
            format!(" (including {} in KVM halt polling)", number::percent(part))
        });
        let part = |(i, (part, what)): (usize, &(f64, String))| {
            let of_it = only_if(what == running, &*polling);
            let of = only_if(i == 0, format!(" of {:.1}\u{a0}s", self.states.seconds));
            format!("{}{of} {what}{of_it}", number::percent(*part))
        };
        let fractions = self.fractions(running);
        let parts = fractions
            .iter()
            .filter(|(fraction, _)| *fraction >= NAMED)
            .take(4);
        parts.enumerate().map(part).collect()
    }

    /// Returns every part of the time with its name, the largest first.
    fn fractions(&self, running: &str) -> Vec<(f64, String)> {
        let (runnable, halted) = (self.runnable(), self.waiting(WaitFor::Guest));
        let mut parts = vec![
            (self.mean(&|thread| thread.running), running.to_owned()),
            (runnable, "waiting for a CPU (run-queue wait)".to_owned()),
            (halted, "idle (guest halted)".to_owned()),
        ];
        let reasons = [
            WaitFor::Resume,
            WaitFor::BigLock,
            WaitFor::Lock,
            WaitFor::Io,
            WaitFor::Work,
            WaitFor::Events,
            WaitFor::Sleep,
            WaitFor::Other,
        ];
        parts.extend(reasons.map(|reason| {
            let what = format!("waiting for {}", reason.label());
            (self.waiting(reason), what)
        }));
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        parts
    }

    /// Returns the clause about the thread beside the vCPUs that lacked a CPU; empty where there is none.
    fn starved_thread(&self) -> String {
        let other = starved(self.states).filter(|_| self.has_vcpus);
        other.map_or(String::new(), |(thread, runnable)| {
            let the = only_if(thread.role == Some(Role::Main), "the ");
            let part = number::percent(runnable);
            format!("; {the}{} waited for a CPU {part} of the time", thread.name)
        })
    }

    /// Returns the clause about the cause of the vCPUs' largest part, where it is known; else empty.
    fn cause(&self) -> String {
        if !self.has_vcpus {
            return String::new();
        }
        if self.runnable() >= LARGE || starved(self.states).is_some() {
            return vmtax_rules::why_run_queue_wait(self.states.contention.as_ref());
        }
        let big_lock = self.waiting(WaitFor::BigLock);
        let idle = self.waiting(WaitFor::Guest) + self.polled.unwrap_or(0.0);
        let cause = match () {
            () if big_lock >= LARGE => ": the big QEMU lock (BQL) is contended",
            () if idle >= 0.9 => ": the guest is mostly idle",
            () if self.is_emulated => ": TCG emulates the guest's CPU",
            () => "",
        };
        cause.to_owned()
    }
}

/// The part of the vCPUs' time in which KVM polled for an event instead of blocking their threads, by its own counters.
fn halt_polling(findings: &ProfileFindings, vcpus: usize) -> Option<f64> {
    let exits = findings
        .exits
        .as_ref()
        .filter(|exits| exits.seconds > 0.0)?;
    let polled = ["halt_poll_success_ns", "halt_poll_fail_ns"];
    let polled = polled
        .iter()
        .filter_map(|name| exits.counters.get(*name).copied());
    let ns = polled.reduce(|all, ns| all.saturating_add(ns))?;
    Some(ns as f64 / 1e9 / exits.seconds / vcpus as f64)
}

/// The thread beside the vCPUs that lacked a CPU for the largest part of the time, if that is large.
fn starved(states: &StateFindings) -> Option<(&ThreadStates, f64)> {
    let others = states.threads.iter().filter(|thread| !is_vcpu(thread));
    let runnable = others.filter_map(|thread| Some((thread, thread.runnable?)));
    runnable
        .filter(|(_, part)| *part >= LARGE)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The threads that were on a CPU or in its run queue; where none was, all, for what they waited for.
fn shown(found: &StateFindings) -> Vec<&ThreadStates> {
    let ran = found.threads.iter().filter(|thread| !is_still(thread));
    let ran: Vec<&ThreadStates> = ran.collect();
    if ran.is_empty() {
        found.threads.iter().collect()
    } else {
        ran
    }
}

/// The threads that are left out, by name.
fn idle(found: &StateFindings) -> Option<String> {
    let shown: Vec<i32> = shown(found).iter().map(|thread| thread.tid).collect();
    let threads = found.threads.iter();
    let idle = threads
        .filter(|thread| !shown.contains(&thread.tid))
        .map(|thread| format!("{} ({})", thread.name, thread.tid))
        .joined(", ");
    (!idle.is_empty()).then(|| format!("Did not run: {idle}."))
}

/// The threads as bars; a terminal has them in a table.
pub fn states(found: &StateFindings) -> Figure<'_> {
    let all = shown(found);
    let bars = all
        .iter()
        .take(SHOWN.1)
        .map(|thread| (*thread, beside(thread)))
        .collect();
    let more = all.len().saturating_sub(SHOWN.1);
    let more = only_if(
        more > 0,
        format!(" {} are not drawn.", counted(more as u64, "further thread")),
    );
    Figure {
        caption: source(found) + &more,
        table: Some(table(found)),
        ..Figure::new(ThreadBars(bars))
    }
}

/// The states of threads over time, where a recording has them: the vCPUs and the main loop, and others that changed.
/// A detail, unless one changed.
pub fn over_time(found: &StateFindings) -> Option<Section<'_>> {
    let is_first = |thread: &ThreadStates| is_vcpu(thread) || thread.role == Some(Role::Main);
    let threads = found.threads.iter();
    let threads = threads.filter(|thread| !thread.slices.is_empty());
    let mut threads: Vec<&ThreadStates> = threads
        .filter(|thread| is_first(thread) || has_changed(thread))
        .collect();
    threads.sort_by_key(|thread| !is_first(thread));
    threads.truncate(STRIPS);
    let first = threads.first()?;
    let parts = first.slices.len();
    let detail = !threads.iter().any(|thread| has_changed(thread));
    let seconds = found.sliced_s;
    let caption = format!(
        "Wall-clock samples in {parts} equal parts of the {seconds:.1} s between the first and the last; they do not distinguish running from runnable."
    );
    let strips = Figure {
        caption,
        ..Figure::new(TimeStrips { threads, seconds })
    };
    Some(Section {
        detail,
        ..Section::new("Threads over time", [strips])
    })
}

/// "running 25.0 % · runnable 57.0 % · waiting for an interrupt (guest halted) 18.0 % (ioctl)".
fn beside(thread: &ThreadStates) -> String {
    let states = [
        ("running", Some(thread.running)),
        ("runnable", thread.runnable),
    ];
    let states = states.into_iter().filter_map(|(name, part)| {
        let part = part.filter(|part| *part >= NAMED)?;
        Some(format!("{name} {}", percent(part)))
    });
    states
        .chain(named(thread).map(|one| format!("waiting for {}", wait(one))))
        .joined(" · ")
}

fn named(thread: &ThreadStates) -> impl Iterator<Item = &StateWait> {
    thread
        .waits
        .iter()
        .filter(|wait| wait.fraction >= NAMED)
        .take(WAITS)
}

/// "events 98.1 % (ppoll, os_host_main_loop_wait)".
fn wait(wait: &StateWait) -> String {
    let place = match (wait.call.as_str(), wait.below.as_str()) {
        ("", "") => String::new(),
        (call, "") => format!(" ({call})"),
        ("", below) => format!(" ({below})"),
        (call, below) => format!(" ({call}, {below})"),
    };
    format!("{} {}{place}", wait.reason.label(), percent(wait.fraction))
}

fn source(found: &StateFindings) -> String {
    let of = match found.source {
        StateSource::SchedulerCounters => {
            "Times are from /proc/PID/task/TID/schedstat; what a wait is for, from wall-clock samples."
        }
        StateSource::SchedulerEventsThenCounters => {
            "Times are from the scheduler's tracepoints (sched_switch, sched_waking) at first, then from /proc/PID/task/TID/schedstat."
        }
        StateSource::SchedulerEvents => {
            "Times are from the scheduler's tracepoints (sched_switch, sched_waking)."
        }
        StateSource::Samples => {
            "Wall-clock samples alone: they do not distinguish running from runnable."
        }
    };
    format!("Fractions of {:.1} s. {of}", found.seconds)
}

/// Makes the table of the states of each thread, a row for each wait that matters.
fn table(found: &StateFindings) -> Table {
    // Threads of one name are distinguished by their TIDs.
    let names = shown(found).into_iter().map(|thread| &thread.name);
    let are_distinct = distinct(names.clone()).len() == names.count();
    let columns = vec![
        words("thread").cut(16, 10),
        figures("tid").spare(if are_distinct { 2 } else { 0 }),
        words("").spare(3).noted(Some(legend())),
        figures("running"),
        figures("run queue"),
        figures("blocked, idle"),
        words("waits for").broken(28, 16),
    ];
    let mut table = Table::new("Threads", columns).most(2 * SHOWN.0);
    for thread in shown(found) {
        let waiting = thread.waits.iter().map(|wait| wait.fraction).sum();
        let runnable = Cell::from(thread.runnable.map_or(NONE.to_owned(), percent));
        let large = thread.runnable.is_some_and(|runnable| runnable >= LARGE);
        let cells = vec![
            thread.name.as_str().into(),
            thread.tid.to_string().into(),
            Cell::from(bar(thread)).tone(Tone::Soft),
            percent(thread.running).into(),
            runnable.tone(if large { Tone::Bad } else { Tone::Plain }),
            percent(waiting).into(),
        ];
        table.first_with(cells, named(thread).map(wait));
    }
    table.notes(idle(found).into_iter().chain([source(found)]).collect())
}

/// The threads by samples on CPU.
pub fn on_cpu(findings: &ProfileFindings) -> Table {
    let part_of =
        |one: &ThreadShare, part: u64| percent(part as f64 / one.share.samples.max(1) as f64);
    Table::of("Threads on CPU", &findings.threads)
        .column(words("thread").cut(16, 10), |one| one.name.as_str())
        .column(figures("tid").spare(3), |one| one.tid.to_string())
        .column(figures("CPU"), |one| {
            one.cpu.map_or(NONE.to_owned(), percent)
        })
        .column(figures("samples").samples().spare(2), |one| {
            count(one.share.samples)
        })
        .column(figures("of all"), |one| percent(one.share.share))
        .column(figures("in kernel").spare(1), |one| {
            part_of(one, one.kernel)
        })
        .column(figures("translated").spare(1), |one| {
            part_of(one, one.translated)
        })
        .done()
        .most(SHOWN.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{DevicesFrom, GuestExits};

    #[test]
    fn threads_that_did_not_run_are_named_below_the_others() {
        let thread = |tid, running| ThreadStates {
            tid,
            name: format!("t{tid}"),
            running,
            ..ThreadStates::default()
        };
        let found = |threads: &[ThreadStates]| StateFindings {
            threads: threads.to_vec(),
            ..StateFindings::default()
        };
        let some = found(&[thread(1, 0.5), thread(2, 0.0)]);
        assert_eq!(
            (shown(&some).len(), idle(&some).as_deref()),
            (1, Some("Did not run: t2 (2)."))
        );
        let none = found(&[thread(1, 0.0), thread(2, 0.0)]);
        assert_eq!((shown(&none).len(), idle(&none)), (2, None));
    }

    #[test]
    fn a_guest_that_does_not_run_is_not_idle() {
        let waits = vec![StateWait {
            reason: WaitFor::Resume,
            call: String::new(),
            below: String::new(),
            fraction: 1.0,
        }];
        let vcpu = ThreadStates {
            name: "vCPU 0".to_owned(),
            role: Some(Role::Vcpu(0)),
            waits,
            ..ThreadStates::default()
        };
        let (source, threads) = (StateSource::SchedulerEvents, vec![vcpu]);
        let states = StateFindings {
            seconds: 2.0,
            source,
            threads,
            ..StateFindings::default()
        };
        let answer_for_state = |state: Option<&str>, process_stop| {
            let state = state.map(|why| RunState::Stopped(why.to_owned()));
            let states = Some(states.clone());
            answer(&ProfileFindings {
                pid: 7,
                state,
                process_stop,
                states,
                ..ProfileFindings::default()
            })
        };
        assert_eq!(
            answer_for_state(Some("paused"), None),
            "The guest is paused: no vCPU runs."
        );
        assert_eq!(
            answer_for_state(Some("io-error"), None),
            "The guest does not run: its state is \"io-error\"."
        );
        let stopped = answer_for_state(Some("paused"), Some(ProcessStop::Signal));
        assert!(
            stopped.starts_with("Process 7 is stopped (SIGSTOP)")
                && stopped.contains("kill -CONT 7"),
            "{stopped}"
        );
        let traced = answer_for_state(None, Some(ProcessStop::Tracer("gdb (PID 9)".to_owned())));
        assert!(
            traced.starts_with("gdb (PID 9) has stopped process 7"),
            "{traced}"
        );
        // Woken once, for a moment.
        let mut findings = ProfileFindings {
            states: Some(states),
            ..ProfileFindings::default()
        };
        if let Some(states) = &mut findings.states {
            states.threads[0].running = 0.0002;
        }
        let woken = answer(&findings);
        assert!(woken.starts_with("No vCPU ran in 2.0 s"), "{woken}");
    }

    /// Halt polling is CPU time of the vCPU's thread in which the guest is idle.
    #[test]
    fn halt_polling_is_no_work_of_the_guest() {
        let answer_with_polling = |polled_ns: u64| {
            let (reason, call, below) = (WaitFor::Guest, String::new(), String::new());
            let waits = vec![StateWait {
                reason,
                call,
                below,
                fraction: 0.52,
            }];
            let vcpu = ThreadStates {
                name: "vCPU 0".to_owned(),
                role: Some(Role::Vcpu(0)),
                running: 0.48,
                runnable: Some(0.0),
                waits,
                ..ThreadStates::default()
            };
            let (source, threads) = (StateSource::SchedulerEvents, vec![vcpu]);
            let states = StateFindings {
                seconds: 2.0,
                source,
                threads,
                ..StateFindings::default()
            };
            let counters = [
                ("halt_poll_success_ns", polled_ns / 4),
                ("halt_poll_fail_ns", polled_ns / 4 * 3),
            ];
            let exits = GuestExits {
                seconds: 4.0,
                vcpus: Vec::new(),
                reasons: Vec::new(),
                addresses: Vec::new(),
                devices_from: DevicesFrom::UsualPlaces,
                timing: String::new(),
                lost: 0,
                advice: Vec::new(),
                counters: counters.map(|(name, ns)| (name.to_owned(), ns)).into(),
                page_faults: None,
                timers: Vec::new(),
            };
            let found = ProfileFindings {
                states: Some(states),
                exits: Some(exits),
                ..ProfileFindings::default()
            };
            answer(&found).replace('\u{a0}', " ")
        };
        assert_eq!(
            answer_with_polling(1_640_000_000),
            "vCPU 0 spent 52 % of 2.0 s idle (guest halted) and 48 % running (including 41 % in KVM halt polling): the guest is mostly idle."
        );
        assert_eq!(
            answer_with_polling(40_000_000),
            "vCPU 0 spent 52 % of 2.0 s idle (guest halted) and 48 % running.",
            "a hundredth"
        );
    }
}
