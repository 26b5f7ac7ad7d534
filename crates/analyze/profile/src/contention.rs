//! Who used the CPUs for which a process's threads waited.

use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::samples::{CpuUse, CpuUses, ThreadCpuUse};
use vmtax_model::{CpuContention, cpu_list};

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
    let waits = |thread: &&Thread| thread.waited >= MIN_WAIT;
    let mut waiting: Vec<&Thread> = threads
        .iter()
        .filter(|thread| first.contains(&thread.tid))
        .filter(waits)
        .collect();
    if waiting.is_empty() {
        waiting = threads.iter().filter(waits).collect();
    }
    let longest = waiting
        .iter()
        .map(|thread| thread.waited)
        .fold(0.0, f64::max);
    waiting.retain(|thread| thread.waited >= longest * LONG);
    let waited: f64 = waiting.iter().map(|thread| thread.waited).sum();
    let cpus: BTreeSet<usize> = waiting
        .iter()
        .flat_map(|thread| thread.cpus.iter().copied())
        .collect();
    // A CPU that an affinity names need not be there.
    let cpus: BTreeSet<usize> = cpus
        .into_iter()
        .filter(|cpu| after.busy_ms.contains_key(cpu))
        .collect();
    if waited <= 0.0 || cpus.is_empty() {
        return None;
    }
    let ran = waiting
        .iter()
        .map(|thread| thread.ran * thread.waited / waited)
        .sum();
    let on_them = |matches: &dyn Fn(&Thread) -> bool| -> f64 {
        threads
            .iter()
            .filter(|thread| matches(thread))
            .map(|thread| thread.ran)
            .sum()
    };
    let least = on_them(&|thread| {
        thread
            .cpus
            .iter()
            .all(|cpu| cpus.contains(cpu) || !after.busy_ms.contains_key(cpu))
    });
    let busy_ms = |cpu: &usize| {
        after.busy_ms[cpu].saturating_sub(before.busy_ms.get(cpu).copied().unwrap_or(0))
    };
    let busy = cpus
        .iter()
        .map(busy_ms)
        .map(|ms| ms as f64 * 1e6 / ns)
        .sum::<f64>();
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
    use vmtax_model::RunQueueCause::{self, OtherLoad, OwnThreads, Quota};

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
