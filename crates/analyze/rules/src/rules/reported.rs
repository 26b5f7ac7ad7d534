//! Costs in outputs that people paste: VM exits of `perf kvm stat report`, jobs of fio.

use crate::rule::{instruction, measurement};
use crate::{Evidence, Exits, Finding, Rule};
use vmtax_findings::ExitReason;
use vmtax_model::number::{count as grouped, nanoseconds, percent};
use vmtax_model::{ExitReportRow, FioJob, Remedy};

/// The rules about jobs of fio.
pub(super) const FIO: &[Rule] = &[FIO_GAP, FIO_BUFFERED, FIO_ONE_REQUEST];

/// The rules about VM exits.
pub(super) const EXITS: &[Rule] = &[
    EXITS_MMIO,
    EXITS_PORT,
    EXITS_MSR,
    EXITS_APIC,
    EXITS_PAUSE,
    EXITS_MEMORY,
    EXITS_HOST,
];

/// Below this part of the time of all exits in which the guest is not idle, reasons are not worth a finding.
const MIN_PART: f64 = 0.1;
/// Below this part of the vCPUs' time they are not, either.
const MIN_VCPU_PART: f64 = 0.01;
/// A guest that reaches so much of the host's requests a second has no gap.
const NO_GAP: f64 = 0.95;

const TRACE_EXITS: Remedy<&str> = measurement(
    "See which device or register they are of",
    "vmtax exits --vm VM",
);

const FIO_GAP: Rule = Rule {
    id: "reported-fio-gap",
    finds: "two outputs of fio, of which one has fewer requests a second by the same job",
    remedies: &[
        measurement("See which layer adds the time", "vmtax layers --vm VM"),
        measurement(
            "Or run the job natively and in a test guest, and see which layers make the difference",
            "vmtax layers --fio JOB",
        ),
    ],
    source: "",
    evaluate: |evidence| {
        let [a, b] = evidence.fio else {
            return Vec::new();
        };
        let (first, second) = (&a.jobs, &b.jobs);
        let gap = |one, other| {
            gap(
                Reported {
                    job: one,
                    source: &a.source,
                },
                Reported {
                    job: other,
                    source: &b.source,
                },
            )
        };
        // Jobs that run several times have one name: each once.
        let is_first = |(at, job): &(usize, &FioJob)| {
            first[..*at].iter().all(|earlier| earlier.name != job.name)
        };
        let of_both = first
            .iter()
            .enumerate()
            .filter(is_first)
            .filter_map(|(_, job)| {
                Some((
                    job,
                    second
                        .iter()
                        .find(|other| other.name == job.name && is_same_work(job, other))?,
                ))
            });
        let mut gaps: Vec<_> = of_both.map(|(first, second)| gap(first, second)).collect();
        // Of two outputs with one job each the names do not matter.
        if let ([one], [other], true) = (first.as_slice(), second.as_slice(), gaps.is_empty()) {
            gaps.extend(is_same_work(one, other).then(|| gap(one, other)));
        }
        gaps.into_iter().flatten().collect()
    },
};

const FIO_BUFFERED: Rule = Rule {
    id: "reported-fio-buffered",
    finds: "a job of fio through the page cache (direct=0): what it measures is memory as much as a disk",
    remedies: &[instruction(
        "Measure the disk without it",
        "fio --direct=1 …",
    )],
    source: "fio documentation, direct",
    evaluate: |evidence| {
        of_jobs(evidence, |job| {
            let is_buffered = job
                .options
                .get("direct")
                .is_some_and(|direct| direct == "0");
            is_buffered.then(|| format!("Job {} goes through the page cache (direct=0).", job.name))
        })
    },
};

const FIO_ONE_REQUEST: Rule = Rule {
    id: "reported-fio-one-request",
    finds: "a job of fio with one request at a time: its requests a second are the inverse of its latency",
    remedies: &[measurement(
        "See in which layer a request's time is",
        "vmtax layers --vm VM",
    )],
    source: "",
    evaluate: |evidence| {
        let is_alone = |job: &FioJob| {
            let depth = job.options.get("iodepth").map_or("1", String::as_str);
            depth == "1" && job.count <= 1 && job.completion_ns > 0.0
        };
        of_jobs(evidence, |job| {
            is_alone(job).then(|| {
                format!(
                    "Job {} has one request in flight: {} IOPS, because each takes {}; only a lower latency raises the IOPS of one request, more jobs hide it.",
                    job.name,
                    grouped(job.iops.round() as u64),
                    nanoseconds(job.completion_ns)
                )
            })
        })
    },
};

const EXITS_MMIO: Rule = Rule {
    id: "reported-mmio-exits",
    finds: "exits by accesses to registers of devices in memory: doorbells of virtio, HPET, emulated NICs",
    remedies: &[
        TRACE_EXITS,
        instruction(
            "Give the guest virtio devices with ioeventfd, and a clock that is no HPET",
            "",
        ),
    ],
    source: "Linux kernel, arch/x86/kvm/vmx/vmx.c: handle_ept_misconfig",
    evaluate: |evidence| {
        of_reasons(
            evidence,
            &["EPT_MISCONFIG"],
            "The guest accesses registers of devices in memory",
        )
    },
};

const EXITS_PORT: Rule = Rule {
    id: "reported-port-exits",
    finds: "exits by port I/O, most of which QEMU answers: PM timer, serial port, IDE",
    remedies: &[
        TRACE_EXITS,
        instruction(
            "For a Linux guest: use kvm-clock or the TSC as the clock source, and log to a virtio console",
            "",
        ),
        instruction(
            "For Windows: hv-time and hv-stimer, so that it does not read the PM timer",
            "vmtax review TEXT # the VM's XML or command line",
        ),
    ],
    source: "Linux commit ad3610919e6f: an access to a port that QEMU answers takes 5,800 cycles",
    evaluate: |evidence| of_reasons(evidence, &["IO_INSTRUCTION", "io", "ioio"], "Port I/O"),
};

const EXITS_MSR: Rule = Rule {
    id: "reported-msr-exits",
    finds: "exits by accesses to model-specific registers: timers and IPIs between vCPUs, for the most part",
    remedies: &[
        instruction(
            "Reduce the guest's timer rate (HZ=100 or 250, NO_HZ), and wake its vCPUs less often",
            "",
        ),
        instruction(
            "See whether the host posts interrupts without exits (APICv, AVIC: Y or 1), else enable it",
            "grep . /sys/module/kvm_*/parameters/{enable_apicv,avic} 2>/dev/null",
        ),
        TRACE_EXITS,
    ],
    source: "Linux commit 26efe2fd92e5: setting the TSC-deadline timer takes 2,500 to 3,000 cycles",
    evaluate: |evidence| {
        of_reasons(
            evidence,
            &["MSR_WRITE", "MSR_READ", "msr"],
            "The guest sets timers or interrupts other vCPUs",
        )
    },
};

const EXITS_APIC: Rule = Rule {
    id: "reported-apic-exits",
    finds: "exits by accesses to the local APIC, which a CPU with APICv or AVIC and a guest in x2APIC mode do not make",
    remedies: &[
        instruction(
            "Switch x2APIC and PV EOI on for the guest",
            "-cpu …,x2apic=on,kvm-pv-eoi=on",
        ),
        instruction(
            "See whether the host has APICv or AVIC on (Y or 1), else enable it",
            "grep . /sys/module/kvm_*/parameters/{enable_apicv,avic} 2>/dev/null",
        ),
    ],
    source: "Linux commit ae7a2a3fb6f8: PV EOI saves up to half of the exits of an interrupt",
    evaluate: |evidence| {
        of_reasons(
            evidence,
            &["APIC_ACCESS", "TPR_BELOW_THRESHOLD"],
            "The guest accesses its local APIC",
        )
    },
};

const EXITS_PAUSE: Rule = Rule {
    id: "reported-pause-exits",
    finds: "exits by PAUSE: vCPUs that spin for a lock, often one whose owner does not run",
    remedies: &[
        instruction(
            "Give the VMs of the host fewer vCPUs than it has CPUs, or this one dedicated CPUs",
            "",
        ),
        measurement("See whether its vCPUs wait for a CPU: %RDY", "vmtax top VM"),
    ],
    source: "Linux kernel, arch/x86/kvm/vmx/vmx.c: ple_gap",
    evaluate: |evidence| {
        of_reasons(
            evidence,
            &["PAUSE_INSTRUCTION", "pause"],
            "vCPUs spin for a lock, often one whose owner does not run",
        )
    },
};

const EXITS_MEMORY: Rule = Rule {
    id: "reported-memory-exits",
    finds: "exits by page faults of the guest's memory, and on AMD by accesses to registers of devices in memory",
    remedies: &[
        instruction(
            "Keep the guest's memory in huge pages, and prevent the host from swapping, merging or moving it",
            "",
        ),
        measurement("See which: memory or a device", "vmtax exits --vm VM"),
    ],
    source: "Intel 749114 (crosvm): huge pages take 70 % of these exits away",
    evaluate: |evidence| {
        of_reasons(
            evidence,
            &["EPT_VIOLATION", "npf"],
            "The host has to bring pages of the guest's memory in, or a device is accessed",
        )
    },
};

const EXITS_HOST: Rule = Rule {
    id: "reported-host-interrupts",
    finds: "exits by interrupts that the host handles: its own, and those by which KVM delivers the guest's timers and interrupts",
    remedies: &[
        instruction(
            "Keep the host's interrupts and other tasks off the CPUs of the vCPUs",
            "cat /proc/interrupts",
        ),
        measurement("See who uses these CPUs", "vmtax diagnose VM"),
    ],
    source: "Linux kernel documentation, CPU Isolation",
    evaluate: |evidence| {
        of_reasons(
            evidence,
            &["EXTERNAL_INTERRUPT", "interrupt", "intr", "nmi"],
            "Interrupts that the host handles stop the guest",
        )
    },
};

/// The finding about some reasons of exits: of a running VM by their part of the vCPUs' time, of a report by their part of the time
/// of those in which the guest is not idle.
pub(super) fn of_reasons(evidence: &Evidence<'_>, reasons: &[&str], what: &str) -> Vec<Finding> {
    let counted = evidence.exits.map(counted);
    let report = counted.as_deref().unwrap_or(evidence.exit_report);
    let busy = || report.iter().filter(|row| !row.is_idle());
    let of_these = |row: &&ExitReportRow| reasons.contains(&row.reason.as_str());
    let rows: Vec<&ExitReportRow> = busy().filter(of_these).collect();
    let time: f64 = rows.iter().map(|row| row.time_ns()).sum();
    let (part, least, whole) = match evidence.exits {
        Some(exits) => {
            let whole = format!("the vCPUs' time in {:.1} s", exits.seconds);
            (exits.part(time), MIN_VCPU_PART, whole)
        }
        None => {
            let all: f64 = busy().map(ExitReportRow::time_ns).sum();
            let whole = "the time of all exits except HLT".to_owned();
            (time / all.max(f64::MIN_POSITIVE), MIN_PART, whole)
        }
    };
    let count: u64 = rows
        .iter()
        .fold(0, |all, row| all.saturating_add(row.count));
    if part < least || count == 0 {
        return Vec::new();
    }
    let names: Vec<&str> = rows.iter().map(|row| row.reason.as_str()).collect();
    vec![Finding {
        gain: part,
        ..Finding::new(format!(
            "{what}: {} exits ({}), {} each, {} of {whole}.",
            grouped(count),
            names.join(", "),
            nanoseconds(time / count as f64),
            percent(part)
        ))
    }]
}

/// The exits of a running VM as a report has them.
fn counted(exits: &Exits<'_>) -> Vec<ExitReportRow> {
    let row = |reason: &ExitReason| ExitReportRow {
        reason: reason.reason.clone(),
        count: reason.exits.count,
        mean_ns: reason.exits.total_ns / reason.exits.count.max(1) as f64,
    };
    exits.reasons.iter().map(row).collect()
}

fn of_jobs(evidence: &Evidence<'_>, text: impl Fn(&FioJob) -> Option<String>) -> Vec<Finding> {
    // Of host and guest the last is the guest.
    let jobs = evidence
        .fio
        .last()
        .into_iter()
        .flat_map(|output| &output.jobs);
    let found = jobs.filter_map(text).map(Finding::new);
    found.take(1).collect()
}

/// Returns true for jobs that ask the same of their disks.
fn is_same_work(one: &FioJob, other: &FioJob) -> bool {
    let asks = |job: &FioJob, key: &str, default: &str| {
        let given = job.options.get(key).map_or(default, String::as_str);
        given.to_ascii_lowercase()
    };
    // fio leaves out what has its default value.
    let is_same =
        |(key, default): (&str, &str)| asks(one, key, default) == asks(other, key, default);
    let bytes = |job: &FioJob| bytes(&asks(job, "bs", "4k"));
    let both_tell = |key: &str| [one, other].iter().all(|job| job.options.contains_key(key));
    one.count == other.count
        && [("rw", "read"), ("iodepth", "1")].into_iter().all(is_same)
        && bytes(one) == bytes(other)
        // fio's text has no line about it.
        && (!both_tell("direct") || is_same(("direct", "0")))
}

/// A size as fio's options and its text write it: `4k`, `4096B`, `64.0KiB`; of a range the first.
fn bytes(text: &str) -> Option<u64> {
    let first = text.split([',', '-']).next()?;
    let number = first.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = first[number.len()..]
        .trim_end_matches("ib")
        .trim_end_matches('b');
    let scale = match unit {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1_048_576.0,
        "g" => 1_073_741_824.0,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * scale) as u64)
}

/// A job, and the text that reports it.
#[derive(Clone, Copy)]
struct Reported<'a> {
    job: &'a FioJob,
    source: &'a str,
}

/// The slower of two runs of a job, with the time that each of its requests takes longer.
fn gap(first: Reported<'_>, second: Reported<'_>) -> Option<Finding> {
    let ratio = second.job.iops / first.job.iops;
    let (ratio, slow, fast) = if ratio <= 1.0 {
        (ratio, second, first)
    } else {
        (1.0 / ratio, first, second)
    };
    let iops = |one: Reported<'_>| grouped(one.job.iops.round() as u64);
    let [slow_ns, fast_ns] = [slow, fast].map(|one| one.job.completion_ns);
    let each = if slow_ns > fast_ns {
        format!(
            "; a request takes {} longer ({} compared with {})",
            nanoseconds(slow_ns - fast_ns),
            nanoseconds(slow_ns),
            nanoseconds(fast_ns)
        )
    } else {
        String::new()
    };
    (ratio.is_finite() && ratio < NO_GAP).then(|| Finding {
        gain: 1.0 - ratio,
        ..Finding::new(format!(
            "Job {}: {} IOPS in {}, {} in {}{each}.",
            slow.job.name,
            iops(slow),
            slow.source,
            iops(fast),
            fast.source
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review;
    use vmtax_model::FioOutput;

    fn report(rows: &[(&str, u64, f64)]) -> Vec<ExitReportRow> {
        let row = |(reason, count, mean_ns): &(&str, u64, f64)| ExitReportRow {
            reason: (*reason).to_owned(),
            count: *count,
            mean_ns: *mean_ns,
        };
        rows.iter().map(row).collect()
    }

    fn rules_of(rows: &[(&str, u64, f64)]) -> Vec<String> {
        let report = report(rows);
        let evidence = Evidence {
            exit_report: &report,
            ..Evidence::default()
        };
        review(&evidence).into_iter().map(|one| one.rule).collect()
    }

    #[test]
    fn idling_is_no_cost_and_the_largest_part_comes_first() {
        let found = rules_of(&[
            ("HLT", 9000, 1e6),
            ("MSR_WRITE", 100, 1000.0),
            ("IO_INSTRUCTION", 100, 9000.0),
        ]);
        assert_eq!(found, ["reported-port-exits", "reported-msr-exits"]);
        assert_eq!(rules_of(&[("HLT", 9000, 1e6)]), [""; 0]);
        // Those of AMD have names of their own.
        assert_eq!(
            rules_of(&[("hlt", 9, 1e6), ("npf", 100, 10.0)]),
            ["reported-memory-exits"]
        );
    }

    #[test]
    fn page_tables_are_shadowed_only_where_invlpg_ends_in_kvm() {
        assert_eq!(rules_of(&[("CR_ACCESS", 100, 10.0)]), [""; 0]);
        assert_eq!(
            rules_of(&[("CR_ACCESS", 100, 10.0), ("INVLPG", 1, 10.0)]),
            ["shadow-paging"]
        );
    }

    fn job(name: &str, iops: f64, completion_ns: f64, options: &[(&str, &str)]) -> FioJob {
        FioJob {
            name: name.to_owned(),
            count: 1,
            iops,
            completion_ns,
            options: options
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn findings(fio: &[Vec<FioJob>]) -> Vec<String> {
        let output = |(jobs, source): (&Vec<FioJob>, &str)| FioOutput {
            source: source.to_owned(),
            jobs: jobs.clone(),
        };
        let fio: Vec<_> = fio.iter().zip(["host", "guest"]).map(output).collect();
        let evidence = Evidence {
            fio: &fio,
            ..Evidence::default()
        };
        review(&evidence)
            .into_iter()
            .map(|one| format!("{}: {}", one.rule, one.finding))
            .collect()
    }

    #[test]
    fn a_gap_is_that_of_the_same_job() {
        let deep = [("rw", "randread"), ("iodepth", "32")];
        let host = vec![job("a", 1000.0, 1e6, &deep), job("b", 5.0, 1.0, &deep)];
        let guest = vec![job("a", 250.0, 4e6, &deep)];
        assert_eq!(
            findings(&[host.clone(), guest.clone()]),
            [
                "reported-fio-gap: Job a: 250 IOPS in guest, 1,000 in host; a request takes 3.00 ms longer (4.00 ms compared with 1.000 ms)."
            ]
        );
        let other = vec![job(
            "a",
            250.0,
            4e6,
            &[("rw", "randwrite"), ("iodepth", "32")],
        )];
        assert_eq!(findings(&[host.clone(), other]), [""; 0]);
        assert_eq!(findings(&[host.clone(), host]), [""; 0]);
        // Of two single jobs the names do not matter, nor which comes first.
        let named = vec![job("x", 1000.0, 1e6, &deep)];
        assert!(
            findings(&[guest, named])[0]
                .starts_with("reported-fio-gap: Job a: 250 IOPS in host, 1,000 in guest;")
        );
    }

    #[test]
    fn what_a_job_measures_is_said() {
        let one = job("a", 100.0, 1e7, &[("iodepth", "1"), ("direct", "0")]);
        let found = findings(&[vec![one]]);
        assert!(
            found[0].starts_with("reported-fio-buffered")
                && found[1].starts_with("reported-fio-one-request")
        );
    }
}
