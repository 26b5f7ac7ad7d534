//! Requests for each of which QEMU makes a coroutine with a stack of its own, since its pool of them is too small.

use super::vm_serving::symbol;
use crate::rule::{about_vm, instruction, measurement};
use crate::{Finding, Rule};
use vmtax_findings::{FunctionShare, ProfileFindings, SampleShare};
use vmtax_model::number::percent;

/// Since then a thread keeps two batches of 128 coroutines, and all threads share a further pool (util/qemu-coroutine.c).
const SHARED_POOL: (u32, u32) = (9, 0);
/// Functions in which QEMU makes and frees a coroutine; where their callers have no names, those of their stacks.
const FUNCTIONS: [[&str; 2]; 2] = [
    ["qemu_coroutine_new", "qemu_coroutine_delete"],
    ["qemu_alloc_stack", "qemu_free_stack"],
];
/// Part of the time of one thread below which coroutines are no cost.
const MIN_TIME: f64 = 0.02;

pub(super) const VM_COROUTINES: Rule = Rule {
    id: "vm-coroutine-pool",
    finds: "a QEMU before 9.0 that makes and frees coroutines for its requests for a fiftieth of a CPU's time and more, as samples of its functions show: more are in flight than its pool holds",
    remedies: &[
        instruction(
            "Start the VM with QEMU 9.0 or newer: its threads share their unused coroutines",
            "qemu-system-x86_64 --version",
        ),
        measurement("See what else QEMU's threads do", "vmtax profile --vm VM"),
    ],
    source: "QEMU commit, coroutine: cap per-thread local pool size",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let is_old = vm.settings.qemu.is_none_or(|version| version < SHARED_POOL);
            let profile = evidence.profile.filter(|_| is_old)?;
            let share = in_coroutines(profile)?;
            let cpus = profile.samples as f64 / (f64::from(profile.hz) * profile.seconds);
            let time = |part: f64| (part * cpus).min(1.0);
            let text = format!(
                "QEMU makes and frees coroutines for its requests: {} of a CPU's time (95 % CI {} to {}, by {} samples), as its pool is smaller than the requests in flight.",
                percent(time(share.share)),
                percent(time(share.low)),
                percent(time(share.high)),
                share.samples
            );
            (time(share.low) >= MIN_TIME).then(|| Finding::of_vm(vm, text, time(share.share)))
        })
    },
};

/// The share of samples in functions that make and free coroutines; `None` without samples.
fn in_coroutines(profile: &ProfileFindings) -> Option<SampleShare> {
    let full = f64::from(profile.hz) * profile.seconds;
    if profile.samples == 0 || full <= 0.0 {
        return None;
    }
    let total = |name: &&str| {
        let is_named =
            |function: &&FunctionShare| function.layer == "program" && symbol(function) == *name;
        let found = profile.functions.iter().find(is_named);
        found.map(|function| function.total)
    };
    let sums = FUNCTIONS.map(|names| {
        names
            .iter()
            .filter_map(total)
            .reduce(|one, other| SampleShare {
                samples: one.samples.saturating_add(other.samples),
                share: one.share + other.share,
                low: one.low + other.low,
                high: one.high + other.high,
            })
    });
    sums.into_iter().flatten().max_by_key(|sum| sum.samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use crate::test_evidence::advice;
    use vmtax_findings::VmRates;
    use vmtax_model::VmSettings;

    /// Two seconds of a busy thread at 1000 samples a second, of which so many make and free coroutines.
    fn found(samples: [u64; 2], qemu: Option<(u32, u32)>) -> Option<String> {
        let function = |(name, samples): (&str, u64)| {
            let share = samples as f64 / 2000.0;
            let total = SampleShare {
                samples,
                share,
                low: share * 0.8,
                high: share * 1.2,
            };
            FunctionShare {
                name: name.to_owned(),
                module: "qemu-system-x86_64".to_owned(),
                layer: "program".to_owned(),
                named: true,
                inside: SampleShare {
                    samples: 1,
                    ..total
                },
                total,
            }
        };
        let functions = FUNCTIONS[0].into_iter().zip(samples).map(function);
        let profile = ProfileFindings {
            hz: 1000,
            seconds: 2.0,
            samples: 2000,
            functions: functions.collect(),
            ..ProfileFindings::default()
        };
        let settings = VmSettings {
            qemu,
            ..VmSettings::default()
        };
        let vm = VmRates {
            settings,
            ..VmRates::default()
        };
        let evidence = Evidence {
            vm: Some(&vm),
            profile: Some(&profile),
            ..Evidence::default()
        };
        let found = advice("vm-coroutine-pool", &evidence).into_iter().next()?;
        Some(found.finding.replace('\u{a0}', " "))
    }

    #[test]
    fn coroutines_that_are_made_for_each_request_are_found() {
        assert_eq!(
            found([120, 60], Some((6, 2))).unwrap(),
            "QEMU makes and frees coroutines for its requests: 9.0 % of a CPU's time (95 % CI 7.2 % to 11 %, by 180 samples), as its pool is smaller than the requests in flight."
        );
        assert!(
            found([120, 60], None).is_some(),
            "no monitor tells its version"
        );
        assert_eq!(found([120, 60], Some((9, 0))), None, "its pool grows");
        assert_eq!(found([20, 10], Some((6, 2))), None, "1.2 % at least");
    }
}
