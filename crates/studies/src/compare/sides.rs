//! The sides of a command line, as variants.

use crate::options::{OptionsError, settings};
use std::collections::BTreeMap;
use vmtax_model::Variant;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
