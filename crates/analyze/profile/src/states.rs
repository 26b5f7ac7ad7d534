//! Threads' time by state: running, runnable without a CPU, or waiting, from the best source there is; and who used the CPUs
//! for which they waited.

use crate::waits::by_call;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{
    BlockedOn, CpuContention, ScheduleFindings, StateFindings, StateSource, StateWait,
    ThreadSchedule, ThreadStates, ThreadWaits, TimeSlice, WaitFor, WallFindings,
};
use vmtax_model::samples::{CpuUse, CpuUses, ThreadCpuUse};
use vmtax_model::{QemuThread, Role, VmFacts, cpu_list};
use vmtax_rules::Evidence;

/// Samples by the wall clock.
#[derive(Clone, Copy)]
pub(crate) struct SampledByWall<'a> {
    /// Findings from the samples.
    pub found: &'a WallFindings,
    /// Length of the sampled time, s.
    pub seconds: f64,
}

/// Each thread's states over the whole time: of the scheduler's events, which have each moment of its beginning, and of the
/// scheduler's own sums between the wall-clock samples that follow, which are nothing where there was one; each for its part of
/// the time. Without both, of the samples alone. `None` where there is none of them.
pub(crate) fn findings(
    wall: Option<SampledByWall<'_>>,
    schedule: Option<&ScheduleFindings>,
    vm: Option<&VmFacts>,
    uses: Option<&CpuUses>,
) -> Option<StateFindings> {
    let roles = vm
        .into_iter()
        .flat_map(|vm| &vm.threads)
        .map(|QemuThread { tid, role }| (*tid, role))
        .collect();
    let observed = Observed {
        wall,
        schedule,
        roles,
    };
    let (source, seconds, mut threads) = observed.states()?;
    threads.iter_mut().for_each(whole);
    threads.sort_by_key(|thread| (Reverse(per_million(busy(thread))), thread.tid));
    let contention = uses.and_then(|uses| cpu_contention(uses, &observed.vcpus()));
    let evidence = Evidence {
        threads: &threads,
        facts: vm,
        contention: contention.as_ref(),
        ..Evidence::default()
    };
    let advice = vmtax_rules::advice(&evidence);
    Some(StateFindings {
        seconds,
        source,
        threads,
        contention,
        advice,
        sliced_s: wall.map_or(0.0, |wall| wall.found.sliced_s),
    })
}

/// Observations of a process's threads.
struct Observed<'a> {
    wall: Option<SampledByWall<'a>>,
    schedule: Option<&'a ScheduleFindings>,
    /// Roles of the threads by TID.
    roles: BTreeMap<i32, &'a Role>,
}

impl<'a> Observed<'a> {
    /// Returns the best source with its length, s, and the states of the threads from it; `None` without a source.
    fn states(&self) -> Option<(StateSource, f64, Vec<ThreadStates>)> {
        Some(match (self.schedule, self.counted(), self.wall) {
            (Some(schedule), Some(wall), _) => {
                let (first, second) = (self.by_events(schedule), self.by_wall_samples(wall));
                (
                    StateSource::SchedulerEventsThenCounters,
                    schedule.seconds + wall.seconds,
                    one_after_the_other(first, schedule.seconds, second, wall.seconds),
                )
            }
            (Some(schedule), None, _) => {
                let states = self.by_events(schedule);
                (StateSource::SchedulerEvents, schedule.seconds, states)
            }
            (None, counted, wall) => {
                let source = match counted {
                    Some(_) => StateSource::SchedulerCounters,
                    None => StateSource::Samples,
                };
                (source, wall?.seconds, self.by_wall_samples(wall?))
            }
        })
    }

    /// Returns the wall-clock samples where they come with the scheduler's own sums.
    fn counted(&self) -> Option<SampledByWall<'a>> {
        self.wall.filter(|wall| {
            wall.found
                .threads
                .iter()
                .any(|thread| thread.on_cpu.is_some())
        })
    }

    /// Returns the threads' states from the scheduler's events.
    fn by_events(&self, schedule: &ScheduleFindings) -> Vec<ThreadStates> {
        let states_of = |thread: &ThreadSchedule| {
            let (seen, role) = (self.seen(thread.tid), self.role(thread.tid));
            traced(schedule, thread, seen, role)
        };
        schedule.threads.iter().map(states_of).collect()
    }

    /// Returns the threads' states from the wall-clock samples.
    fn by_wall_samples(&self, wall: SampledByWall<'_>) -> Vec<ThreadStates> {
        let states_of = |thread: &ThreadWaits| sampled(thread, self.role(thread.tid));
        wall.found.threads.iter().map(states_of).collect()
    }

    /// Returns a thread's wall-clock samples.
    fn seen(&self, tid: i32) -> Option<&'a ThreadWaits> {
        let wall = self.wall?;
        wall.found.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Returns a thread's role, where that is known.
    fn role(&self, tid: i32) -> Option<Role> {
        self.roles.get(&tid).map(|role| (*role).clone())
    }

    /// Returns the TIDs of the vCPUs.
    fn vcpus(&self) -> Vec<i32> {
        self.roles
            .iter()
            .filter(|(_, role)| matches!(role, Role::Vcpu(_)))
            .map(|(tid, _)| *tid)
            .collect()
    }
}

/// The states of each thread over two periods, of lengths in s. One that is known in one of them alone began or ended meanwhile.
fn one_after_the_other(
    first: Vec<ThreadStates>,
    first_s: f64,
    second: Vec<ThreadStates>,
    second_s: f64,
) -> Vec<ThreadStates> {
    let mut all = first;
    for mut later in second {
        let Some(thread) = all.iter_mut().find(|thread| thread.tid == later.tid) else {
            all.push(later);
            continue;
        };
        let part = second_s / (first_s + second_s).max(f64::MIN_POSITIVE);
        whole(thread);
        whole(&mut later);
        thread
            .waits
            .iter_mut()
            .for_each(|wait| wait.fraction *= 1.0 - part);
        thread.running += part * (later.running - thread.running);
        thread.runnable = thread
            .runnable
            .zip(later.runnable)
            .map(|(at_first, then)| at_first + part * (then - at_first));
        for wait in later.waits {
            // Events name no functions of the program: such a wait is the same as one in which samples saw some.
            let is_same = |w: &&mut StateWait| {
                (w.reason, &w.call) == (wait.reason, &wait.call)
                    && (w.below == wait.below || w.below.is_empty())
            };
            match thread.waits.iter_mut().find(is_same) {
                Some(same) => {
                    same.fraction += part * wait.fraction;
                    same.below = wait.below;
                }
                None => thread.waits.push(StateWait {
                    fraction: part * wait.fraction,
                    ..wait
                }),
            }
        }
    }
    all
}

/// Of the time, running or runnable.
fn busy(thread: &ThreadStates) -> f64 {
    thread.running + thread.runnable.unwrap_or(0.0)
}

fn per_million(fraction: f64) -> u64 {
    (fraction * 1e6) as u64
}

fn sampled(thread: &ThreadWaits, role: Option<Role>) -> ThreadStates {
    let wait = |wait: &vmtax_findings::WaitShare| StateWait {
        reason: of_role(wait.reason, &wait.call, role.as_ref()),
        call: wait.call.clone(),
        below: wait.below.clone(),
        fraction: wait.share.share,
    };
    ThreadStates {
        tid: thread.tid,
        name: thread.name.clone(),
        running: thread.on_cpu.unwrap_or(thread.runs.share),
        runnable: thread.on_cpu.and(thread.ready),
        waits: thread.waits.iter().map(wait).collect(),
        slices: slices(thread, role.as_ref()),
        role,
    }
}

/// Returns a thread's samples in parts of the time, with what each waited for.
fn slices(thread: &ThreadWaits, role: Option<&Role>) -> Vec<TimeSlice> {
    let slice = |counts: &Vec<u64>| {
        let mut slice = TimeSlice {
            samples: counts.first().copied().unwrap_or_default(),
            ..TimeSlice::default()
        };
        let waits = thread.waits.iter().zip(counts.iter().skip(1));
        for (wait, count) in waits.filter(|(_, count)| **count > 0) {
            let reason = of_role(wait.reason, &wait.call, role);
            *slice.waits.entry(reason).or_default() += count;
        }
        slice
    };
    thread.slices.iter().map(slice).collect()
}

/// Returns a thread's states from the scheduler's events. The cause of a wait that began before the events is taken
/// from the samples.
fn traced(
    schedule: &ScheduleFindings,
    thread: &ThreadSchedule,
    seen: Option<&ThreadWaits>,
    role: Option<Role>,
) -> ThreadStates {
    let wait = |on: &BlockedOn| {
        let mut futexes = schedule.futexes.iter();
        let futex = futexes.find(|futex| on.futex.as_ref() == Some(&futex.address));
        let reason = match futex {
            Some(futex) => futex.what.unwrap_or(WaitFor::Other),
            None => by_call(&on.call),
        };
        StateWait {
            reason: of_role(reason, &on.call, role.as_ref()),
            call: on.call.clone(),
            below: futex.map_or(String::new(), |futex| futex.below.clone()),
            fraction: on.share,
        }
    };
    let seen = seen.map(|thread| sampled(thread, role.clone()));
    let (seen, slices) = seen.map_or_else(Default::default, |seen| (seen.waits, seen.slices));
    let all: f64 = seen.iter().map(|wait| wait.fraction).sum();
    let mut waits: Vec<StateWait> = Vec::new();
    for on in &thread.on {
        let is_known = !on.call.is_empty() || on.futex.is_some() || all <= 0.0;
        let (named, part) = if is_known {
            (vec![wait(on)], 1.0)
        } else {
            (seen.clone(), on.share / all)
        };
        for wait in named {
            let fraction = wait.fraction * part;
            let same = waits
                .iter_mut()
                .find(|w| (w.reason, &w.call, &w.below) == (wait.reason, &wait.call, &wait.below));
            match same {
                Some(same) => same.fraction += fraction,
                None => waits.push(StateWait { fraction, ..wait }),
            }
        }
    }
    ThreadStates {
        tid: thread.tid,
        name: thread.name.clone(),
        running: thread.runs,
        runnable: Some(thread.ready),
        waits,
        slices,
        role,
    }
}

/// While its guest is halted a vCPU's thread of TCG waits at a condition, one of KVM in KVM_RUN, where it blocks for nothing else.
/// One of the pool, or of vhost, waits for work where no stack names another reason.
fn of_role(reason: WaitFor, call: &str, role: Option<&Role>) -> WaitFor {
    match (reason, role) {
        (WaitFor::Work, Some(Role::Vcpu(_))) => WaitFor::Guest,
        (WaitFor::Other, Some(Role::Vcpu(_))) if call == "ioctl" => WaitFor::Guest,
        (WaitFor::Other, Some(Role::Worker)) if call == "futex" => WaitFor::Work,
        // It shows the call in which QEMU made it.
        (WaitFor::Other, Some(Role::Vhost)) => WaitFor::Work,
        _ => reason,
    }
}

/// Makes the fractions add up to 1: what no sample met is a wait of unknown reason; what clocks that are read one after the
/// other have too much is taken from all.
fn whole(thread: &mut ThreadStates) {
    let sum = busy(thread) + thread.waits.iter().map(|wait| wait.fraction).sum::<f64>();
    if sum > 1.0 {
        thread.running /= sum;
        let waits = thread.waits.iter_mut().map(|wait| &mut wait.fraction);
        for fraction in thread.runnable.iter_mut().chain(waits) {
            *fraction /= sum;
        }
    } else if sum < 1.0 {
        let rest = StateWait {
            reason: WaitFor::Other,
            call: String::new(),
            below: String::new(),
            fraction: 1.0 - sum,
        };
        thread.waits.push(rest);
    }
    thread
        .waits
        .sort_by_key(|wait| Reverse(per_million(wait.fraction)));
}

/// Shorter waits, as a part of the time, have no cause worth a name.
const MIN_WAIT: f64 = 0.05;
/// Threads that waited so much less than the one that waited longest are not the question.
const LONG: f64 = 0.5;

/// A thread between the two samples; CPU time in CPUs.
struct Thread {
    tid: i32,
    cpus: BTreeSet<usize>,
    ran: f64,
    waited: f64,
}

/// `first`: the threads whose waits matter most, the vCPUs. Where none of them waited, those of any thread.
pub(crate) fn cpu_contention(uses: &CpuUses, first: &[i32]) -> Option<CpuContention> {
    let CpuUses { before, after } = uses;
    let ns = Some(after.at_ns.checked_sub(before.at_ns)? as f64).filter(|ns| *ns > 0.0)?;
    let threads = threads(before, after, ns);
    let waiting = waiting(&threads, first);
    let waited: f64 = waiting.iter().map(|thread| thread.waited).sum();
    // A CPU that an affinity names need not be there.
    let is_there = |cpu: &usize| after.busy_ms.contains_key(cpu);
    let cpus = waiting
        .iter()
        .flat_map(|thread| thread.cpus.iter().copied());
    let cpus: BTreeSet<usize> = cpus.filter(is_there).collect();
    if waited <= 0.0 || cpus.is_empty() {
        return None;
    }
    let ran = waiting
        .iter()
        .map(|thread| thread.ran * thread.waited / waited)
        .sum();
    let on_them = |matches: &dyn Fn(&Thread) -> bool| -> f64 {
        let threads = threads.iter().filter(|thread| matches(thread));
        threads.map(|thread| thread.ran).sum()
    };
    let least = on_them(&|thread| {
        let mut used = thread.cpus.iter();
        used.all(|cpu| cpus.contains(cpu) || !is_there(cpu))
    });
    let busy_ms = |cpu: &usize| {
        let before = before.busy_ms.get(cpu).copied().unwrap_or(0);
        after.busy_ms[cpu].saturating_sub(before)
    };
    let busy = cpus.iter().map(busy_ms);
    let busy = busy.map(|ms| ms as f64 * 1e6 / ns).sum::<f64>();
    // The kernel counts a CPU's time by ticks, a thread's exactly.
    let most = on_them(&|thread| !thread.cpus.is_disjoint(&cpus)).min(busy.max(least));
    let throttled = after.throttled_us.zip(before.throttled_us);
    Some(CpuContention {
        cpus: cpu_list::format(cpus.into_iter()),
        threads: waiting.len(),
        waited,
        ran,
        own: [least, most],
        other: [(busy - most).max(0.0), (busy - least).max(0.0)],
        throttled: throttled.map(|(after, before)| after.saturating_sub(before) as f64 * 1e3 / ns),
    })
}

/// The threads that waited longest: of `first`, if any of those waited.
fn waiting<'a>(threads: &'a [Thread], first: &[i32]) -> Vec<&'a Thread> {
    let waits = |thread: &&Thread| thread.waited >= MIN_WAIT;
    let all = threads.iter().filter(waits);
    let mut waiting: Vec<&Thread> = all
        .clone()
        .filter(|thread| first.contains(&thread.tid))
        .collect();
    if waiting.is_empty() {
        waiting = all.collect();
    }
    let longest = waiting.iter().map(|t| t.waited).fold(0.0, f64::max);
    waiting.retain(|thread| thread.waited >= longest * LONG);
    waiting
}

/// Those that are there at the end; one that began meanwhile has run since then alone.
fn threads(before: &CpuUse, after: &CpuUse, ns: f64) -> Vec<Thread> {
    let begun: BTreeMap<i32, &ThreadCpuUse> = before
        .threads
        .iter()
        .map(|thread| (thread.tid, thread))
        .collect();
    let between = |thread: &ThreadCpuUse| {
        let (ran, waited) = begun
            .get(&thread.tid)
            .map_or((0, 0), |begun| (begun.ran_ns, begun.waited_ns));
        Some(Thread {
            tid: thread.tid,
            cpus: cpu_list::parse(&thread.cpus)?.into_iter().collect(),
            ran: thread.ran_ns.saturating_sub(ran) as f64 / ns,
            waited: thread.waited_ns.saturating_sub(waited) as f64 / ns,
        })
    };
    after.threads.iter().filter_map(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::RunQueueCause::{self, OtherLoad, OwnThreads, Quota};
    use vmtax_findings::{SampleShare, WaitShare};
    use vmtax_model::ThreadGroup;

    fn vm() -> VmFacts {
        let folder = "/sys/fs/cgroup/machine.slice/vm.scope/libvirt/vcpu0".into();
        let group = ThreadGroup {
            tid: 11,
            folder,
            cpus: Some("0-3".to_owned()),
            quota: None,
            is_shared: false,
        };
        VmFacts {
            vcpus: 1,
            thread_groups: vec![group],
            threads: vec![
                QemuThread {
                    tid: 10,
                    role: Role::Main,
                },
                QemuThread {
                    tid: 11,
                    role: Role::Vcpu(0),
                },
            ],
            ..VmFacts::unknown(10)
        }
    }

    fn share(share: f64) -> SampleShare {
        SampleShare {
            share,
            ..SampleShare::default()
        }
    }

    /// 8 s in which vCPU 0 ran and was runnable so long, as far as the scheduler says, and waited the rest.
    fn by_wall(found: &WallFindings, seconds: f64) -> Option<SampledByWall<'_>> {
        Some(SampledByWall { found, seconds })
    }

    fn wall(counted: Option<(f64, f64)>) -> WallFindings {
        let waited = WaitShare {
            reason: WaitFor::Work,
            call: "futex".into(),
            below: "f".into(),
            share: share(0.1),
        };
        let thread = |tid, waits| ThreadWaits {
            tid,
            name: String::new(),
            seen: 10,
            runs: share(0.9),
            on_cpu: counted.map(|(on_cpu, _)| on_cpu),
            ready: counted.map(|(_, ready)| ready),
            slices: vec![vec![5, 3]; 2],
            waits,
        };
        WallFindings {
            sliced_s: 7.5,
            moments: 10,
            samples: 20,
            pauses: vmtax_findings::Pauses {
                count: 0,
                unstopped: 0,
                p50_ns: 0.0,
                p99_ns: 0.0,
                max_ns: 0.0,
            },
            stops_ended: None,
            unwound: share(1.0),
            threads: vec![thread(10, Vec::new()), thread(11, vec![waited])],
        }
    }

    fn schedule() -> ScheduleFindings {
        let on = BlockedOn {
            call: "ioctl".into(),
            futex: None,
            count: 3,
            share: 0.5,
        };
        let thread = ThreadSchedule {
            tid: 11,
            name: String::new(),
            runs: 0.3,
            ready: 0.2,
            blocked: 0.5,
            on: vec![on],
            calls: vec![],
        };
        ScheduleFindings {
            seconds: 1.0,
            lost: 0,
            threads: vec![thread],
            futexes: vec![],
        }
    }

    #[test]
    fn fractions_of_each_thread_add_up_to_one() {
        let vm = vm();
        for found in [
            findings(
                by_wall(&wall(Some((0.3, 0.6))), 8.0),
                Some(&schedule()),
                Some(&vm),
                None,
            ),
            findings(by_wall(&wall(Some((0.5, 0.6))), 8.0), None, Some(&vm), None),
            findings(by_wall(&wall(None), 8.0), None, None, None),
            findings(None, Some(&schedule()), Some(&vm), None),
        ] {
            for thread in found.unwrap().threads {
                let waits: f64 = thread.waits.iter().map(|wait| wait.fraction).sum();
                assert!((busy(&thread) + waits - 1.0).abs() < 1e-9, "{thread:?}");
            }
        }
        assert_eq!(findings(None, None, Some(&vm), None), None);
    }

    #[test]
    fn times_are_the_schedulers_and_a_vcpu_waits_for_its_guest() {
        let (vm, counted) = (vm(), wall(Some((0.3, 0.6))));
        let found = findings(by_wall(&counted, 8.0), None, Some(&vm), None).unwrap();
        assert_eq!(
            (found.source, found.seconds),
            (StateSource::SchedulerCounters, 8.0)
        );
        let vcpu = found
            .threads
            .iter()
            .find(|thread| thread.role == Some(Role::Vcpu(0)))
            .unwrap();
        assert_eq!(
            (vcpu.running, vcpu.runnable, vcpu.waits[0].reason),
            (0.3, Some(0.6), WaitFor::Guest)
        );
        let rule: Vec<&str> = found
            .advice
            .iter()
            .map(|advice| advice.rule.as_str())
            .collect();
        assert_eq!(rule, ["vcpu-run-queue-wait"]);
        assert!(
            found.advice[0]
                .remedies
                .iter()
                .any(|remedy| remedy.line.contains("libvirt/vcpu0/cpuset.cpus"))
        );
        let found = findings(
            by_wall(&wall(None), 8.0),
            Some(&schedule()),
            Some(&vm),
            None,
        )
        .unwrap();
        assert_eq!(
            (found.source, found.threads[0].waits[0].reason),
            (StateSource::SchedulerEvents, WaitFor::Guest)
        );
    }

    /// A VM that is suspended after the events, or was until then, is not what its first second says.
    #[test]
    fn each_period_counts_for_as_long_as_it_was() {
        let vm = vm();
        let found = findings(
            by_wall(&wall(Some((0.0, 0.04))), 9.0),
            Some(&schedule()),
            Some(&vm),
            None,
        )
        .unwrap();
        assert_eq!(
            (found.source, found.seconds),
            (StateSource::SchedulerEventsThenCounters, 10.0)
        );
        assert_eq!(found.sliced_s, 7.5);
        let vcpu = found
            .threads
            .iter()
            .find(|thread| thread.tid == 11)
            .unwrap();
        let slice = TimeSlice {
            samples: 5,
            waits: [(WaitFor::Guest, 3)].into(),
        };
        assert_eq!(vcpu.slices, vec![slice; 2], "as a vCPU waits");
        assert!((vcpu.running - 0.03).abs() < 1e-9, "{vcpu:?}");
        assert!((vcpu.runnable.unwrap() - 0.056).abs() < 1e-9, "{vcpu:?}");
        // Half of the first second, a tenth of the rest by samples; who was in no sample waits for something unknown.
        let guest: f64 = vcpu
            .waits
            .iter()
            .filter(|wait| wait.reason == WaitFor::Guest)
            .map(|w| w.fraction)
            .sum();
        assert!((guest - (0.05 + 0.09)).abs() < 1e-9, "{vcpu:?}");
    }

    /// One wall-clock moment is no period, so the scheduler's sums say nothing between: the events do.
    #[test]
    fn one_moment_does_not_hide_that_a_thread_was_runnable() {
        let mut one = wall(Some((0.0, 0.0)));
        one.moments = 1;
        one.threads
            .iter_mut()
            .for_each(|thread| thread.waits.clear());
        let mut schedule = schedule();
        schedule.threads[0].runs = 0.09;
        schedule.threads[0].ready = 0.41;
        let found = findings(by_wall(&one, 0.01), Some(&schedule), Some(&vm()), None).unwrap();
        assert!(
            (found.seconds - 1.01).abs() < 1e-9
                && (found.threads[0].runnable.unwrap() - 0.41).abs() < 0.01
        );
    }

    /// A stripped QEMU has no stack that names the condition at which its pool waits.
    #[test]
    fn a_thread_of_the_pool_waits_for_work() {
        let worker = QemuThread {
            tid: 11,
            role: Role::Worker,
        };
        let vm = VmFacts {
            threads: vec![worker],
            ..VmFacts::unknown(10)
        };
        let mut schedule = schedule();
        let on = |call: &str, futex: Option<&str>| BlockedOn {
            call: call.into(),
            futex: futex.map(str::to_owned),
            count: 1,
            share: 0.25,
        };
        schedule.threads[0].on = vec![on("futex", Some("0x10")), on("ioctl", None)];
        let found = findings(None, Some(&schedule), Some(&vm), None).unwrap();
        let waits = &found.threads[0].waits;
        let reason_of = |call: &str| waits.iter().find(|wait| wait.call == call).unwrap().reason;
        assert_eq!(
            (reason_of("futex"), reason_of("ioctl")),
            (WaitFor::Work, WaitFor::Other)
        );
        assert_eq!(WaitFor::Other.label(), "an unknown event");
    }

    /// A vhost worker is a task of the kernel's: its system call is that in which QEMU made it, and no stack names a function.
    #[test]
    fn a_vhost_worker_that_does_not_run_waits_for_work() {
        let worker = QemuThread {
            tid: 11,
            role: Role::Vhost,
        };
        let vm = VmFacts {
            threads: vec![worker],
            ..VmFacts::unknown(10)
        };
        let mut schedule = schedule();
        let (call, futex, count, share) = ("ioctl".into(), None, 1, 0.5);
        schedule.threads[0].on = vec![BlockedOn {
            call,
            futex,
            count,
            share,
        }];
        let found = findings(None, Some(&schedule), Some(&vm), None).unwrap();
        let reasons: Vec<WaitFor> = found.threads[0].waits.iter().map(|w| w.reason).collect();
        assert_eq!(reasons[0], WaitFor::Work, "{reasons:?}");
        assert_eq!(WaitFor::Work.label(), "work");
    }

    #[test]
    fn a_wait_that_began_before_the_events_is_named_by_samples() {
        let mut schedule = schedule();
        schedule.threads[0].on = vec![
            BlockedOn {
                call: String::new(),
                futex: None,
                count: 1,
                share: 0.4,
            },
            BlockedOn {
                call: "futex".into(),
                futex: None,
                count: 1,
                share: 0.1,
            },
        ];
        let found = findings(by_wall(&wall(None), 8.0), Some(&schedule), None, None).unwrap();
        let waits: Vec<_> = found.threads[0]
            .waits
            .iter()
            .map(|w| (w.reason, w.below.as_str(), w.fraction))
            .collect();
        assert_eq!(
            waits,
            [(WaitFor::Work, "f", 0.4), (by_call("futex"), "", 0.1)]
        );
        let found = findings(None, Some(&schedule), None, None).unwrap();
        assert_eq!(
            found.threads[0].waits[0].reason,
            WaitFor::Other,
            "nothing names it"
        );
    }

    /// 2 s of threads with (TID, CPUs, running, waiting) on CPUs that were busy for so long, s.
    fn uses(
        threads: &[(i32, &str, f64, f64)],
        busy: &[(usize, f64)],
        throttled: Option<f64>,
    ) -> CpuUses {
        let use_at = |at_s: f64| CpuUse {
            at_ns: (at_s * 1e9) as u64,
            busy_ms: busy
                .iter()
                .map(|(cpu, s)| (*cpu, (1e3 * s * (at_s - 10.0) / 2.0) as u64))
                .collect(),
            threads: threads
                .iter()
                .map(|(tid, cpus, ran, waited)| ThreadCpuUse {
                    tid: *tid,
                    cpus: (*cpus).to_owned(),
                    ran_ns: (1e9 * ran * (at_s - 10.0)) as u64,
                    waited_ns: (1e9 * waited * (at_s - 10.0)) as u64,
                })
                .collect(),
            throttled_us: throttled.map(|part| (1e6 * part * (at_s - 10.0)) as u64),
        };
        CpuUses {
            before: use_at(10.0),
            after: use_at(12.0),
        }
    }

    /// The CPUs and the causes of vCPU threads 11 and 12.
    fn causes(uses: &CpuUses) -> (String, Vec<RunQueueCause>, bool) {
        let found = cpu_contention(uses, &[11, 12]).unwrap();
        let (causes, is_certain) = found.causes();
        (found.cpus, causes, is_certain)
    }

    #[test]
    fn a_vm_that_is_pinned_to_one_cpu_waits_for_itself() {
        let threads = [
            (10, "1", 0.02, 0.3),
            (11, "1", 0.49, 0.5),
            (12, "1", 0.48, 0.5),
        ];
        assert_eq!(
            causes(&uses(&threads, &[(0, 2.0), (1, 2.0)], None)),
            ("1".to_owned(), vec![OwnThreads], true)
        );
    }

    #[test]
    fn a_hog_on_the_cpu_of_a_vcpu_is_other_load() {
        let threads = [
            (10, "0-1", 0.02, 0.0),
            (11, "1", 0.5, 0.5),
            (12, "0", 0.6, 0.01),
        ];
        assert_eq!(
            causes(&uses(&threads, &[(0, 1.2), (1, 2.0)], Some(0.0))).1,
            [OtherLoad]
        );
        let unpinned = [(10, "0-1,5", 0.02, 0.0), (11, "0-1,5", 0.9, 0.1)];
        let found = causes(&uses(&unpinned, &[(0, 2.0), (1, 2.0)], None));
        assert_eq!(
            found,
            ("0-1".to_owned(), vec![OtherLoad], true),
            "CPU 5 is offline"
        );
    }

    #[test]
    fn a_quota_is_told_by_its_own_counter() {
        let threads = [(11, "0-1", 0.2, 0.8)];
        assert_eq!(
            causes(&uses(&threads, &[(0, 0.4), (1, 0.0)], Some(0.7))).1,
            [Quota]
        );
        assert_eq!(
            causes(&uses(&threads, &[(0, 0.4), (1, 0.0)], None)).1,
            [OwnThreads, OtherLoad, Quota]
        );
    }

    /// An unpinned main loop may have run on the vCPU's CPU, or other load did.
    #[test]
    fn where_a_thread_ran_is_not_made_up() {
        let threads = [(10, "0-1", 0.5, 0.0), (11, "1", 0.5, 0.4)];
        let found = cpu_contention(&uses(&threads, &[(0, 1.0), (1, 2.0)], None), &[11]).unwrap();
        assert_eq!((found.own, found.other), ([0.5, 1.0], [0.0, 0.5]));
        assert_eq!(found.causes(), (vec![OwnThreads, OtherLoad], false));
    }

    #[test]
    fn short_waits_and_clocks_that_stand_have_no_cause() {
        assert_eq!(
            cpu_contention(&uses(&[(11, "1", 0.9, 0.01)], &[(1, 2.0)], None), &[11]),
            None
        );
        let mut still = uses(&[(11, "1", 0.9, 0.9)], &[(1, 2.0)], None);
        still.after.at_ns = still.before.at_ns;
        assert_eq!(cpu_contention(&still, &[11]), None);
        let main_loop = [(10, "1", 0.3, 0.6), (11, "1", 0.7, 0.01)];
        let found = cpu_contention(&uses(&main_loop, &[(1, 2.0)], None), &[11]).unwrap();
        assert_eq!(
            found.causes(),
            (vec![OwnThreads], true),
            "the vCPU polls on its CPU"
        );
    }
}
