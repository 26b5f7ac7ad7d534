//! Rules about what to measure more closely: the largest overhead, requests that a program waits for, intervals that
//! hide differences.

use crate::rule::{measurement, rounds};
use crate::{Evidence, Finding, Rule};
use vmtax_findings::{Comparison, Verdict};
use vmtax_model::number::{nanoseconds, significant};
use vmtax_model::{
    ChangeCost, KernelFacts, Machine, Metric, Remedy, SettingPlace, SourceOfKernel, WorkloadName,
};

/// An interval whose upper end is this many times its lower end hides differences that matter.
const WIDE: f64 = 1.2;

pub(super) const LARGEST_OVERHEAD: Rule = Rule {
    id: "largest-overhead",
    finds: "the metric with the largest overhead of each guest, and its workload",
    remedies: &[measurement(
        "Measure its workload alone and more closely",
        "vmtax run WORKLOAD --rounds 12",
    )],
    source: "",
    evaluate: |evidence| {
        guests(evidence)
            .filter_map(|machine| largest(machine, evidence))
            .collect()
    },
};

pub(super) const WAITING_READS: Rule = Rule {
    id: "waiting-reads",
    finds: "direct requests to the disk that take longer than natively, one at a time",
    remedies: &[measurement(
        "More concurrent requests may hide this latency: run this command, then again with fileio.threads=1, and compare",
        "vmtax run fileio fileio.test-mode=rndrd fileio.extra-flags=direct fileio.threads=16",
    )],
    source: "",
    evaluate: |evidence| {
        guests(evidence)
            .filter_map(|machine| waiting_reads(machine, evidence))
            .collect()
    },
};

pub(super) const WIDE_INTERVALS: Rule = Rule {
    id: "wide-intervals",
    finds: "overheads without a shown difference whose 95 % interval spans a fifth and more",
    remedies: &[rounds("Run more rounds, on a quieter host")],
    source: "",
    evaluate: |evidence| wide_intervals(evidence).into_iter().collect(),
};

/// The guests, but not of a command: its figures are parts of one another, so that the largest says little.
fn guests<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = Machine> + use<'a> {
    evidence.guests().filter({
        let command = evidence.plan.is_some_and(|plan| plan.command().is_some());
        move |_| !command
    })
}

fn largest(machine: Machine, evidence: &Evidence<'_>) -> Option<Finding> {
    // The one that the report's first sentence names.
    let (metric, overhead) = evidence.overhead?.largest_overhead(machine)?;
    (overhead.verdict == Verdict::Slower).then(|| Finding {
        text: format!(
            "On {machine}, {} has the largest overhead: ×{} (time per operation, native: 1).",
            metric.label(),
            significant(overhead.ratio.median)
        ),
        values: vec![("WORKLOAD", metric.workload().to_string())],
        ..Finding::default()
    })
}

fn waiting_reads(machine: Machine, evidence: &Evidence<'_>) -> Option<Finding> {
    let mut overheads = evidence.overheads().filter(|(_, m, _)| *m == machine);
    let (_, _, overhead) = overheads.find(|(metric, ..)| *metric == Metric::DiskMedian)?;
    let longer = nanoseconds(overhead.difference?.median);
    (overhead.verdict == Verdict::Slower).then(|| {
        Finding::new(format!(
            "On {machine} a disk request (O_DIRECT, p50) takes {longer} longer than natively (median of the rounds' differences)."
        ))
    })
}

fn wide_intervals(evidence: &Evidence<'_>) -> Option<Finding> {
    let interval = |overhead: &Comparison| {
        let is_hidden = overhead.verdict == Verdict::Inconclusive;
        let interval = overhead.ratio.interval.filter(|_| is_hidden)?;
        (interval.high > interval.low * WIDE).then_some(interval)
    };
    let wide: Vec<_> = evidence
        .overheads()
        .filter_map(|(metric, machine, overhead)| {
            Some((metric, machine, overhead, interval(overhead)?))
        })
        .collect();
    let widest = wide
        .iter()
        .max_by(|a, b| (a.3.high / a.3.low).total_cmp(&(b.3.high / b.3.low)));
    let (metric, machine, overhead, interval) = widest?;
    let others = match wide.len() {
        1 => String::new(),
        2 => "; 1 other metric has such a CI, too".to_owned(),
        n => format!("; {} other metrics have such a CI, too", n - 1),
    };
    Some(Finding {
        text: format!(
            "The 95 % CI of {} on {machine} is too wide to be conclusive: ×{:.2} to ×{:.2}{others}.",
            metric.label(),
            interval.low,
            interval.high
        ),
        values: vec![("ROUNDS", overhead.rounds.saturating_mul(2).to_string())],
        ..Finding::default()
    })
}

pub(super) const HOST_KERNEL: Remedy<&str> = Remedy {
    place: SettingPlace::Vmtax,
    setting: "kernel",
    value: "IMAGE",
    action: "Boot the guest with the host's own kernel, so that differences in system calls are due to virtualization only",
    line: "--kernel IMAGE",
    cost: Some(ChangeCost::Measurement),
    read_back: "uname -r in the guest",
    undo: "omit --kernel",
};

pub(super) const OTHER_GUEST_KERNEL: Rule = Rule {
    id: "other-guest-kernel",
    finds: "system calls compared between different kernels of host and guest, although the host's own can boot",
    remedies: &[HOST_KERNEL],
    source: "",
    evaluate: |evidence| {
        let (Some(plan), Some(host), Some(overhead)) =
            (evidence.plan, evidence.host, evidence.overhead)
        else {
            return Vec::new();
        };
        let release = |machine| {
            let mut kernels = overhead.kernels.iter();
            let (_, kernel) = kernels.find(|(of, _)| *of == machine)?;
            Some(&kernel.release)
        };
        let native = release(Machine::NATIVE).unwrap_or(&host.kernel);
        let differs = |machine| release(machine).is_some_and(|guest| guest != native);
        let mut workloads = plan.workloads.iter();
        let applies =
            workloads.any(|w| w.name == WorkloadName::Syscalls) && evidence.guests().any(differs);
        let own = host
            .kernels
            .iter()
            .find(|k| k.release == host.kernel && k.source == SourceOfKernel::Running);
        let finding = |own: &KernelFacts| {
            let text =
                "Host and guest ran different kernels, and the host's own kernel is available.";
            Finding {
                values: vec![("IMAGE", own.image.display().to_string())],
                ..Finding::new(text.to_owned())
            }
        };
        own.filter(|_| applies).map(finding).into_iter().collect()
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{Overheads, advice};
    use vmtax_model::{CommandSpec, KernelFacts, Machine, Metric, SourceOfKernel, Study};

    /// Of the metric with the largest ratio another workload has a larger mean.
    const SYSCALLS: [(Metric, f64); 3] = [
        (Metric::CpuEvents, 5.0),
        (Metric::SyscallGetpid, 2.0),
        (Metric::SyscallPipe, 8.0),
    ];

    #[test]
    fn the_largest_overhead_is_that_of_the_first_sentence() {
        let overheads = Overheads::new(Machine::KVM, &SYSCALLS);
        let found = advice("largest-overhead", &overheads.evidence());
        let text = "On kvm, pipe round trip has the largest overhead: ×8.00 (time per operation, native: 1).";
        assert_eq!(
            found.iter().map(|a| &*a.finding).collect::<Vec<_>>(),
            [text]
        );
        assert_eq!(
            found[0].remedies[0].line,
            "vmtax run --machine native,kvm syscalls --rounds 12"
        );
    }

    #[test]
    fn a_command_and_inconclusive_overheads_have_no_largest() {
        let mut overheads = Overheads::new(Machine::KVM, &SYSCALLS);
        overheads.plan.study =
            Study::Exec(Box::new(CommandSpec::new(vec!["make".into()], "/".into())));
        assert_eq!(advice("largest-overhead", &overheads.evidence()), []);
        let even = Overheads::new(Machine::KVM, &SYSCALLS).verdict(Verdict::Inconclusive);
        assert_eq!(advice("largest-overhead", &even.evidence()), []);
    }

    #[test]
    fn requests_that_wait_are_told_in_microseconds_where_they_cost() {
        let reads = Overheads::new(Machine::KVM, &[(Metric::DiskMedian, 1.5)]);
        let found = advice("waiting-reads", &reads.evidence());
        assert!(
            found[0].finding.contains("takes 500 ns longer"),
            "{found:?}"
        );
        assert_eq!(
            advice("waiting-reads", &reads.verdict(Verdict::Faster).evidence()),
            []
        );
    }

    #[test]
    fn more_rounds_are_advised_where_intervals_are_wide_and_show_nothing() {
        let shown =
            Overheads::new(Machine::KVM, &[(Metric::MemoryBandwidth, 1.0)]).interval(0.3, 3.0);
        assert_eq!(advice("wide-intervals", &shown.evidence()), []);
        let hidden = shown.verdict(Verdict::Inconclusive);
        let found = advice("wide-intervals", &hidden.evidence());
        assert!(
            found[0]
                .finding
                .contains("The 95 % CI of memory transfer on kvm is too wide to be conclusive: ×0.30 to ×3.00."),
            "{found:?}"
        );
        assert_eq!(found[0].remedies[0].line, "--rounds 12");
        assert_eq!(
            advice("wide-intervals", &hidden.interval(0.95, 1.05).evidence()),
            []
        );
    }

    fn with_kernel(release: &str, source: SourceOfKernel) -> Vec<vmtax_findings::Advice> {
        let mut overheads =
            Overheads::new(Machine::KVM, &[(Metric::SyscallGetpid, 2.0)]).kernels("6.1", "6.12");
        let image = format!("/boot/vmlinuz-{release}").into();
        overheads.host.kernel = "6.1".into();
        overheads.host.kernels = vec![KernelFacts {
            image,
            modules: None,
            release: release.into(),
            source,
        }];
        advice("other-guest-kernel", &overheads.evidence())
    }

    #[test]
    fn the_hosts_own_kernel_is_the_remedy() {
        let found = with_kernel("6.1", SourceOfKernel::Running);
        assert_eq!(
            (&*found[0].remedies[0].setting, &*found[0].remedies[0].value),
            ("kernel", "/boot/vmlinuz-6.1")
        );
    }

    #[test]
    fn other_kernels_and_the_same_kernel_are_no_findings() {
        assert_eq!(with_kernel("6.12", SourceOfKernel::Cache), []);
        assert_eq!(with_kernel("5.10", SourceOfKernel::Running), []);
        let overheads = Overheads::new(Machine::KVM, &[(Metric::SyscallGetpid, 2.0)]);
        assert_eq!(advice("other-guest-kernel", &overheads.evidence()), []);
    }
}
