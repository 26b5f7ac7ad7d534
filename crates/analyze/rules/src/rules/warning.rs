//! Rules about warnings: causes that make figures weaker or different from what they seem.

use super::host::OWN_CGROUP;
use super::overhead::HOST_KERNEL;
use crate::rule::{instruction, measurement, rounds};
use crate::{Finding, Rule};
use vmtax_model::Warning;

/// A rule about one kind of warning: its sentence, and what replaces which word of the remedies.
macro_rules! warning {
    ($id:literal, $finds:literal, [$($remedy:expr),*], $pattern:pat => $text:expr $(, $word:literal = $value:expr)*) => {
        Rule {
            id: $id,
            finds: $finds,
            remedies: &[$($remedy),*],
            source: "",
            evaluate: |evidence| {
                let finding = |warning: &Warning| match warning {
                    $pattern => {
                        Some(Finding { text: $text, values: vec![$(($word, $value.to_string())),*], ..Finding::default() })
                    }
                    _ => None,
                };
                evidence.warnings.iter().filter_map(finding).collect()
            },
        }
    };
}

/// Every rule about a warning, by the name that recordings have for it.
pub(super) const WARNINGS: &[Rule] = &[
    warning!("kernels-differ", "host and guest with different kernels", [HOST_KERNEL],
    Warning::KernelsDiffer { host, machine, guest } => format!(
        "The host runs Linux {host} and the {machine} guest {guest}: results of system calls and system time include the \
         differences between these kernels."
    )),
    warning!("no-memory-limit", "native trials without the guest's limit of memory", [OWN_CGROUP],
    Warning::NoMemoryLimit { reason } => format!(
        "The native trials could use all of the host's memory ({reason}), the guest could not: this biases file \
         figures of native upwards."
    )),
    warning!("too-few-rounds", "fewer rounds than an interval needs", [rounds("Use ROUNDS rounds or more")],
        Warning::TooFewRounds { rounds, needed } => format!(
            "{rounds} complete round{} no 95 % interval; it takes {needed}.",
            if *rounds == 1 { " gives" } else { "s give" }
        ), "ROUNDS" = needed),
    warning!("trials-missing", "trials without a result", [],
    Warning::TrialsMissing { machine, missing, planned, reason } => {
        format!("{missing} of {planned} trials on {machine} have no result. The first: {reason}")
    }),
    warning!("smaller-than-reference", "sizes smaller than those of --full",
    [measurement("Use the full sizes", "--full")],
    Warning::SmallerThanReference { what } => {
        format!("Workloads are smaller than with `--full`, so their figures are not comparable with published ones of \
             that size (docs/workloads.md): {what}.")
    }),
    warning!("no-tsc", "operations timed by clock_gettime", [measurement("See what the clocks are", "vmtax doctor")],
    Warning::NoTsc { machine, reason } => format!(
        "{machine} is timed by clock_gettime, not by the TSC ({reason}): short operations carry more of the timer."
    )),
    warning!("partial-boot", "a machine that booted without a part", [measurement("Try another kernel", "vmtax get kernel")],
        Warning::PartialBoot { machine, complaint } => format!("{machine} booted without {complaint}.")),
    warning!("msize-capped", "a smaller msize of 9p than asked for",
        [instruction("Ask for GOT at most, or use a newer kernel", "")],
        Warning::MsizeCapped { asked, got } => format!(
            "9p's msize is {got}, not the {asked} that were asked for: the guest's kernel or QEMU allows no more."
        ), "GOT" = got),
    warning!("few-open-files", "a limit of open files below what a guest holds open",
        [instruction("Raise the limit (at most `ulimit -Hn`), or hold fewer", "ulimit -Sn NEEDED")],
        Warning::FewOpenFiles { method, limit, needed } => format!(
            "The server of {method} may have {limit} files open, for the {needed} names of the guest: QEMU closes and \
             opens them again, which takes its time, another server refuses the rest."
        ), "NEEDED" = needed),
    warning!("other-times", "recordings that were not made in the same rounds",
        [instruction("Name both variants in one `vmtax compare`: they are then measured in the same rounds", "")],
        Warning::OtherTimes => "The recordings were made at different times: the differences include those of the \
                                host.".to_owned()),
    warning!("also-differ", "variants of a comparison that differ in more than was asked for",
    [instruction("Set it in both variants", "")],
    Warning::AlsoDiffer { variant, what } => {
        format!("Variant '{variant}' differs from the baseline in more than was asked for: {what}.")
    }),
    warning!("host-drift", "a host that was slower in one third of a comparison than in another",
    [instruction("Repeat on a quieter host", "")],
    Warning::HostDrift { percent } => format!(
        "The host's speed drifted by up to {percent} % during the run (first, middle and last third compared). Variants are only \
         compared within a round, which removes slow drift."
    )),
    warning!("not-pinned", "a host with too few CPUs to pin each vCPU to one", [
        instruction(
            "Use a host with NEEDED CPUs or more",
            "",
        )
    ],
    Warning::NotPinned { cpus, online } => format!(
        "{} not pinned, which adds noise: of the host CPUs that vmtax may use ({online}), too few are left for \
         QEMU's other threads.",
        if *cpus == 1 { "The vCPU was".to_owned() } else { format!("The {cpus} vCPUs were") }
    ), "NEEDED" = cpus.max(online).saturating_add(1)),
    warning!("stood-still", "a guest that stood still during a trial that keeps a vCPU busy",
    [instruction("Do not stop QEMU or suspend the host while measuring; measure again", "")],
    Warning::StoodStill { machine, seconds } => format!(
        "The {machine} guest stood still for {seconds} s of a trial that keeps a vCPU busy: its vCPUs neither ran nor \
         waited for a CPU (QEMU was stopped, the host suspended, or its memory swapped out). The trial does not count."
    )),
    warning!("on-host-loopback", "a network without a namespace of its own",
    [instruction("Run vmtax as root", "")],
    Warning::OnHostLoopback { reason } => format!(
        "The echo server was on the host's loopback device, and guests reached it by QEMU's user-mode network ({reason}): there \
         is no tap, and native's packets cross no veth pair."
    )),
    warning!("busy-host", "vCPUs of a measured guest that wait for a host CPU a tenth of the time in which they could run",
    [instruction("Repeat on a quieter host", "")],
    Warning::BusyHost { machine, percent } => format!(
        "The host was busy: the vCPUs of the {machine} guest waited for a host CPU {percent} % of the time in which they could run. \
         Its figures contain this wait, as native's contain their own."
    )),
    warning!("stolen-time", "steal time of a host that is itself a VM",
    [instruction("Repeat on a quieter host", "")],
    Warning::StolenTime { percent } => format!(
        "Steal time was {percent} % of the host's CPU time while measuring: this host is a VM."
    )),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Evidence, about};
    use vmtax_model::{Machine, ShareMethod};

    #[test]
    fn each_warning_fires_the_rule_of_its_name_and_no_other() {
        let (machine, reason, what) = (Machine::KVM, String::from("reason"), String::from("what"));
        let each = [
            Warning::KernelsDiffer {
                host: "6.1".into(),
                machine,
                guest: "6.12".into(),
            },
            Warning::NoMemoryLimit {
                reason: reason.clone(),
            },
            Warning::TooFewRounds {
                rounds: 5,
                needed: 6,
            },
            Warning::TrialsMissing {
                machine,
                missing: 1,
                planned: 2,
                reason: reason.clone(),
            },
            Warning::SmallerThanReference { what: what.clone() },
            Warning::NoTsc { machine, reason },
            Warning::PartialBoot {
                machine,
                complaint: what.clone(),
            },
            Warning::MsizeCapped { asked: 2, got: 1 },
            Warning::FewOpenFiles {
                method: ShareMethod::NineP,
                limit: 1,
                needed: 2,
            },
            Warning::OtherTimes,
            Warning::AlsoDiffer {
                variant: "b".into(),
                what,
            },
            Warning::HostDrift { percent: 1 },
            Warning::NotPinned { cpus: 2, online: 2 },
            Warning::StoodStill {
                machine,
                seconds: 20,
            },
            Warning::OnHostLoopback {
                reason: String::from("reason"),
            },
            Warning::BusyHost {
                machine,
                percent: 35,
            },
            Warning::StolenTime { percent: 1 },
        ];
        assert_eq!(
            each.each_ref().map(Warning::id),
            WARNINGS.iter().map(|rule| rule.id).collect::<Vec<_>>()[..]
        );
        assert_eq!(
            Warning::IDS,
            WARNINGS.iter().map(|rule| rule.id).collect::<Vec<_>>()
        );
        for (i, warning) in each.iter().enumerate() {
            let evidence = Evidence {
                warnings: &each[i..=i],
                ..Evidence::default()
            };
            let fired: Vec<String> = crate::evaluate(&evidence)
                .into_iter()
                .map(|advice| advice.rule)
                .collect();
            assert_eq!(fired, [warning.id()]);
        }
        assert_eq!(about(&each).len(), each.len());
        // Recorded where more CPUs were left free: the remedy needs more than the host had.
        let pinned = &about(&[Warning::NotPinned { cpus: 1, online: 2 }])[0];
        assert!(
            pinned.remedies[0]
                .action
                .starts_with("Use a host with 3 CPUs or more"),
            "{pinned:?}"
        );
        let few = &about(&each[2..3])[0];
        assert_eq!(
            (&*few.finding, &*few.remedies[0].line),
            (
                "5 complete rounds give no 95 % interval; it takes 6.",
                "--rounds 6"
            )
        );
    }
}
