//! The sides of a command line, as variants: options of workloads or attributes of the disk's request queue among their settings,
//! and whether they take turns in one boot.

use crate::options::{OptionsError, settings};
use std::collections::BTreeMap;
use vmtax_model::{Needs, Plan, Variant, WorkloadName, WorkloadSpec};
use vmtax_workload::{block_work, descriptor};

/// A side as it is without any setting.
const DEFAULT: &str = "default";

/// A list of values is of variants, one each, unless it has a single value and there are two variants without it: that
/// value is of all of them.
pub(super) fn of_all<'a>(
    words: &[String],
    lists: &[(&str, &'a [String])],
    key: &str,
) -> Option<&'a str> {
    let listed = lists
        .iter()
        .map(|(_, values)| values.len())
        .filter(|n| *n > 1);
    let [(_, [value])] = lists
        .iter()
        .filter(|(name, _)| *name == key)
        .copied()
        .collect::<Vec<_>>()[..]
    else {
        return None;
    };
    (words.len() + listed.sum::<usize>() > 1).then_some(value)
}

/// The variants: those of `words`, then one for each value of each list; each with what `set` sets on all.
pub(super) fn sides(
    words: &[String],
    lists: &[(&str, &[String])],
    set: &[String],
) -> Result<Vec<Variant>, OptionsError> {
    let common = side_settings(set)?;
    let listed = lists
        .iter()
        .filter(|(key, _)| of_all(words, lists, key).is_none())
        .flat_map(|(key, values)| {
            values
                .iter()
                .map(move |value| format!("{key}={}", value.replace(',', ",,")))
        });
    let all = words.iter().cloned().chain(listed);
    let variants: Vec<Variant> = all
        .map(|text| variant(&text, &common))
        .collect::<Result<_, _>>()?;
    if variants.len() < 2 {
        return OptionsError::usage(
            "a comparison takes two variants: as in `vmtax compare --qemu 7.2 --qemu 10.0`, or `vmtax compare default aio=threads`",
        );
    }
    for (i, variant) in variants.iter().enumerate() {
        let earlier = &variants[..i];
        if earlier.iter().any(|v| v.name == variant.name) {
            return OptionsError::usage(format!(
                "variant '{}' is given twice: to compare a configuration with itself name the variants, as in `name=a name=b`",
                variant.name.escape_default()
            ));
        }
    }
    Ok(variants)
}

fn variant(side: &str, common: &BTreeMap<String, String>) -> Result<Variant, OptionsError> {
    let mut own = if side == DEFAULT {
        BTreeMap::new()
    } else {
        side_settings(&[side])?
    };
    let name = own.remove("name").unwrap_or_else(|| side.to_owned());
    let mut set = common.clone();
    set.extend(own);
    Ok(Variant { name, set })
}

fn side_settings(words: &[impl AsRef<str>]) -> Result<BTreeMap<String, String>, OptionsError> {
    settings(
        words,
        "KEY=VALUE, as in aio=native, nor `default`, nor a workload",
    )
}

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
        (WorkloadName::Fileio, _) | (_, Needs::Share | Needs::Command | Needs::HostProgram) => true,
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
    use vmtax_model::{Compare, Machine, Study, WithCommand};

    fn listed<'a>(qemu: &'a [String], kernel: &'a [String]) -> [(&'static str, &'a [String]); 2] {
        [("qemu", qemu), ("kernel", kernel)]
    }

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_single_kernel_is_of_all_variants_and_several_are_variants() {
        let names = |words: &[&str], qemu: &[&str], kernel: &[&str]| {
            let (words, qemu, kernel) = (strings(words), strings(qemu), strings(kernel));
            let lists = listed(&qemu, &kernel);
            let all: Vec<String> = ["qemu", "kernel"]
                .into_iter()
                .filter_map(|key| of_all(&words, &lists, key))
                .map(str::to_owned)
                .collect();
            let variants = sides(&words, &lists, &[]).unwrap();
            (
                variants
                    .into_iter()
                    .map(|variant| variant.name)
                    .collect::<Vec<_>>(),
                all,
            )
        };
        let expect = |variants: &[&str], all: &[&str]| (strings(variants), strings(all));
        assert_eq!(
            names(&["default", "aio=native"], &[], &["F"]),
            expect(&["default", "aio=native"], &["F"])
        );
        assert_eq!(
            names(&["name=a", "name=b"], &["Q"], &["F"]),
            expect(&["a", "b"], &["Q", "F"])
        );
        assert_eq!(
            names(&[], &["7.2", "10.0"], &["F"]),
            expect(&["qemu=7.2", "qemu=10.0"], &["F"])
        );
        let each = ["a", "kernel=F", "kernel=G"];
        assert_eq!(names(&["name=a"], &[], &["F", "G"]), expect(&each, &[]));
        assert_eq!(
            names(&[], &["7.2"], &["F"]),
            expect(&["qemu=7.2", "kernel=F"], &[]),
            "none besides"
        );
        assert_eq!(
            names(&["default"], &["7.2"], &[]),
            expect(&["default", "qemu=7.2"], &[]),
            "one is no comparison"
        );
    }

    #[test]
    fn a_side_is_its_settings() {
        let common = side_settings(&["cache=none"]).unwrap();
        let side = variant("qemu=7.2,kernel-args=quiet a=b,,c", &common).unwrap();
        assert_eq!(side.name, "qemu=7.2,kernel-args=quiet a=b,,c");
        assert_eq!(
            (side.set["kernel-args"].as_str(), side.set["cache"].as_str()),
            ("quiet a=b,c", "none")
        );
        let named = variant("name=old,aio=threads", &common).unwrap();
        assert_eq!((named.name.as_str(), named.set.len()), ("old", 2));
        assert_eq!(variant(DEFAULT, &BTreeMap::new()).unwrap().set.len(), 0);
        for bad in ["aio", "aio=", "=x", "aio=a,aio=b", "aio=a,"] {
            assert_eq!(variant(bad, &common).is_err(), bad != "aio=a,", "{bad}");
        }
    }

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
        let study = Study::Compare(WithCommand {
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
