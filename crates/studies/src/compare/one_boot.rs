//! Variants that differ in options of workloads or attributes of the disk's request queue: what they set, and whether they take turns in one boot.

use crate::options::OptionsError;
use std::collections::BTreeMap;
use vmtax_model::{Needs, Plan, Variant, WorkloadName, WorkloadSpec};
use vmtax_workload::{block_work, descriptor};

/// Writes `bs=4K` beside the workload `disk` as its `disk.block-size=4K`, in each variant.
///
/// # Errors
/// For an option that several of the workloads have, and a value that an alias does not have.
pub(super) fn name_workload_options(
    variants: &mut [Variant],
    workloads: &[WorkloadSpec],
) -> Result<(), OptionsError> {
    for variant in variants {
        let mut set = BTreeMap::new();
        for (key, value) in std::mem::take(&mut variant.set) {
            let Some((name, option)) = workload_option(&key, workloads)? else {
                set.insert(key, value);
                continue;
            };
            let mut spec = WorkloadSpec::new(name);
            vmtax_workload::set_option(&mut spec, option, &value)?;
            set.extend(
                spec.options
                    .into_iter()
                    .map(|(option, value)| (format!("{name}.{option}"), value)),
            );
        }
        variant.set = set;
    }
    Ok(())
}

/// The workload and its option that a variant's setting is of; `None` for a setting of the guest or the host.
fn workload_option<'k>(
    key: &'k str,
    workloads: &[WorkloadSpec],
) -> Result<Option<(WorkloadName, &'k str)>, OptionsError> {
    if !Variant::is_of_disk(key) {
        return Ok(Variant::workload_option(key));
    }
    let has_option = |name: &WorkloadName| {
        let mut options = descriptor(*name).options.iter();
        options.any(|option| {
            option.name == key || option.aliases.iter().any(|alias| alias.name == key)
        })
    };
    let having: Vec<WorkloadName> = workloads
        .iter()
        .map(|spec| spec.name)
        .filter(has_option)
        .collect();
    match having[..] {
        [] => Ok(None),
        [only] => Ok(Some((only, key))),
        [first, second, ..] => OptionsError::usage(format!(
            "'{key}' is an option of {first} and of {second}: write {first}.{key} or {second}.{key}"
        )),
    }
}

/// Returns true if variants take turns in one boot by default: they differ only in settings that can change while the
/// guest runs, and no workload leaves anything in the guest that the next one would find.
pub(super) fn suits_one_boot(plan: &Plan) -> bool {
    let differ = !plan.differing_settings().is_empty();
    let leaves_state = |variant| {
        plan.workloads_of(variant)
            .iter()
            .any(|spec| leaves_state(spec, &plan.variants[variant]))
    };
    differ && plan.one_boot_fault().is_none() && !(0..plan.variants.len()).any(leaves_state)
}

/// Returns true if a workload leaves files, a filled page cache, clusters of an image, or data that the host writes
/// back later.
fn leaves_state(spec: &WorkloadSpec, variant: &Variant) -> bool {
    match (spec.name, spec.name.needs()) {
        (WorkloadName::Fileio, _) | (_, Needs::Share | Needs::Command) => true,
        (WorkloadName::Disk, _) => {
            let is_raw = variant
                .get("format")
                .is_none_or(|format| format == Variant::FORMATS[0]);
            let is_direct = variant
                .get("cache")
                .is_none_or(|cache| ["none", "directsync"].contains(&cache));
            !(is_raw && is_direct) && block_work(spec).is_ok_and(|work| work.write)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::sides::sides;
    use vmtax_model::{Compare, CompareSpec, Machine, Study};

    /// The plan of `compare SIDES -- WORKLOADS`, with `set` on all sides.
    fn plan(words: &str, set: &[&str], workloads: &[WorkloadName]) -> Result<Plan, OptionsError> {
        let owned =
            |words: &mut dyn Iterator<Item = &str>| words.map(str::to_owned).collect::<Vec<_>>();
        let (words, set) = (
            owned(&mut words.split(' ')),
            owned(&mut set.iter().copied()),
        );
        let workloads: Vec<WorkloadSpec> =
            workloads.iter().copied().map(WorkloadSpec::new).collect();
        let mut variants = sides(&words, &[], &set)?;
        name_workload_options(&mut variants, &workloads)?;
        let settings = Compare {
            min_effect: 0.02,
            budget_s: None,
            one_boot: false,
        };
        let study = Study::Compare(CompareSpec {
            settings,
            command: None,
        });
        Ok(Plan {
            variants,
            study,
            ..Plan::new("compare", 8, vec![Machine::TCG], workloads)
        })
    }

    #[test]
    fn an_option_of_the_workload_is_written_with_its_name() {
        let plan = plan("rw=randread bs=8K,aio=native", &[], &[WorkloadName::Disk]).unwrap();
        let set = |variant: usize| {
            plan.variants[variant]
                .set
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(set(0), ["disk.mode=random", "disk.operation=read"]);
        assert_eq!(set(1), ["aio=native", "disk.block-size=8K"]);
        assert_eq!(plan.variants[0].name, "rw=randread", "as it was typed");
        assert!(
            plan.variants[0].disk().is_empty() && plan.variants[1].disk().len() == 1,
            "QEMU gets its own alone"
        );
        assert_eq!(plan.workloads_of(0)[0].options["mode"], "random");
        assert_eq!(plan.check(), Ok(()));
    }

    #[test]
    fn an_option_of_two_workloads_is_refused_with_both_names() {
        let both = [WorkloadName::Cpu, WorkloadName::Disk];
        let error = plan("time=1 time=2", &[], &both).unwrap_err().to_string();
        assert!(error.contains("cpu.time or disk.time"), "{error}");
        let plan = plan("name=a,cpu.time=1 name=b,cpu.time=2", &[], &both).unwrap();
        assert_eq!(plan.variants[1].get("cpu.time"), Some("2"));
    }

    #[test]
    fn variants_share_a_boot_where_they_differ_in_what_leaves_nothing_behind() {
        use WorkloadName::{Cpu, Disk, Fileio, NetRr};
        for (words, set, workloads, shares) in [
            ("bs=4K bs=8K", &[][..], &[Disk][..], true),
            ("default bs=8K", &[], &[Disk, Cpu], true),
            ("rw=randread rw=randwrite", &[], &[Disk], true),
            ("rw=randread rw=randwrite", &["aio=native"], &[Disk], true),
            (
                "name=a,cpu.time=1 name=b,cpu.time=2",
                &["qemu=7.2", "cpus=2"],
                &[Disk, Cpu],
                true,
            ),
            ("size=1 size=64", &[], &[NetRr], true),
            ("default block-queue.scheduler=none", &[], &[Disk], true),
            (
                "bs=4K bs=8K,block-queue.scheduler=none",
                &["block-queue.nr_requests=64"],
                &[Disk],
                true,
            ),
            // What a running guest cannot change.
            ("bs=4K bs=8K,aio=native", &[], &[Disk], false),
            ("bs=4K bs=8K,machine=kvm", &[], &[Disk], false),
            ("bs=4K bs=8K,host.halt-poll-ns=0", &[], &[Disk], false),
            ("qemu=7.2 qemu=10.0", &[], &[Disk], false),
            // Equal: a test of whole boots.
            ("name=a name=b", &[], &[Disk], false),
            ("name=a,bs=4K name=b,bs=4K", &[], &[Disk], false),
            // What the first side leaves reaches the second.
            (
                "rw=randread rw=randwrite",
                &["format=qcow2"],
                &[Disk],
                false,
            ),
            (
                "rw=randread rw=randwrite",
                &["cache=writeback"],
                &[Disk],
                false,
            ),
            ("rw=read rw=randread", &["cache=writeback"], &[Disk], true),
            ("disk.bs=4K disk.bs=8K", &[], &[Disk, Fileio], false),
        ] {
            let plan = plan(words, set, workloads).unwrap();
            assert_eq!(suits_one_boot(&plan), shares, "{words} {set:?}");
        }
    }
}
