//! In words: why a VM's threads waited for a host CPU.

use vmtax_model::number::percent;
use vmtax_model::{CpuContention, RunQueueCause, cpu_list};

/// ": the VM's own threads compete for host CPU 1 (of their time: VM 98 %, other tasks 1 %)", the causes behind a statement of the wait; where the
/// figures do not separate them, as a list.
pub fn why_run_queue_wait(contention: Option<&CpuContention>) -> String {
    let Some(contention) = contention else {
        return ". Possible causes: the VM's own threads share too few host CPUs, other load on them, or a CPU quota"
            .to_owned();
    };
    let (causes, is_certain) = contention.causes();
    let has = |cause| causes.contains(&cause);
    let cpus = cpu_list::parse(&contention.cpus).map_or(0, |cpus| cpus.len());
    let host = format!(
        "host CPU{} {}",
        if cpus == 1 { "" } else { "s" },
        contention.cpus
    );
    let range = |[least, most]: [f64; 2]| {
        let [least, most] = [least, most].map(|cpu| percent(cpu / cpus.max(1) as f64));
        if least == most {
            most
        } else {
            format!("{} to {most}", least.trim_end_matches("\u{a0}%"))
        }
    };
    let used = format!(
        "of their time: VM {}, other tasks {}",
        range(contention.own),
        range(contention.other)
    );
    let throttled = contention.throttled.map_or(0.0, |throttled| {
        throttled / contention.waited.max(f64::EPSILON)
    });
    let throttled = format!("throttled for {} of this wait", percent(throttled.min(1.0)));
    let (own, other) = (
        has(RunQueueCause::OwnThreads),
        has(RunQueueCause::OtherLoad),
    );
    if !is_certain {
        let own = own.then_some("the VM's own threads");
        let other = other.then_some("other load");
        let quota = has(RunQueueCause::Quota).then_some("a CPU quota");
        let causes: Vec<&str> = [own, other, quota].into_iter().flatten().collect();
        return format!(
            ". Possible causes on {host} ({used}): {}",
            causes.join(", ")
        );
    }
    let competing = match (own, other) {
        (true, true) => Some(format!(
            "the VM's own threads and other load compete for {host} ({used})"
        )),
        (true, false) => Some(format!("the VM's own threads compete for {host} ({used})")),
        (false, true) => Some(format!("other load uses {host} as well ({used})")),
        (false, false) => None,
    };
    let quota =
        has(RunQueueCause::Quota).then(|| format!("the VM's CPU quota is used up ({throttled})"));
    format!(
        ": {}",
        competing
            .into_iter()
            .chain(quota)
            .collect::<Vec<_>>()
            .join(", and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(own: [f64; 2], other: [f64; 2], throttled: Option<f64>) -> String {
        let found = CpuContention {
            cpus: "0-1".to_owned(),
            threads: 1,
            waited: 0.8,
            ran: 0.8,
            own,
            other,
            throttled,
        };
        why_run_queue_wait(Some(&found)).replace('\u{a0}', " ")
    }

    #[test]
    fn the_cause_is_named_with_the_cpu_time_of_both_sides() {
        assert_eq!(
            why([1.6; 2], [0.04; 2], None),
            ": the VM's own threads compete for host CPUs 0-1 (of their time: VM 80 %, other tasks 2.0 %)"
        );
        assert_eq!(
            why([0.9; 2], [1.1; 2], Some(0.0)),
            ": other load uses host CPUs 0-1 as well (of their time: VM 45 %, other tasks 55 %)"
        );
        assert_eq!(
            why([1.2; 2], [0.8; 2], Some(0.2)),
            ": the VM's own threads and other load compete for host CPUs 0-1 (of their time: VM 60 %, other tasks 40 %), and the VM's CPU \
             quota is used up (throttled for 25 % of this wait)"
        );
        assert_eq!(
            why([0.8; 2], [0.0; 2], Some(0.6)),
            ": the VM's CPU quota is used up (throttled for 75 % of this wait)"
        );
    }

    #[test]
    fn causes_that_the_figures_do_not_separate_are_listed() {
        assert_eq!(
            why([0.8, 1.6], [0.0, 0.8], None),
            ". Possible causes on host CPUs 0-1 (of their time: VM 40 to 80 %, other tasks 0.0 to 40 %): the VM's own threads, other load"
        );
        assert!(why_run_queue_wait(None).starts_with(". Possible causes: the VM's own threads"));
    }
}
