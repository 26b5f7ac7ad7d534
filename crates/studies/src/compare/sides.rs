//! The sides of a command line, as variants.

use crate::options::{OptionsError, settings};
use std::collections::BTreeMap;
use vmtax_model::Variant;

/// A side as it is without any setting.
const DEFAULT: &str = "default";

/// The variants: those of `words`, then one for each value of each list; each with what `set` sets on all.
pub(super) fn sides(
    words: &[String],
    lists: &[(&str, &[String])],
    set: &[String],
) -> Result<Vec<Variant>, OptionsError> {
    let common = side_settings(&set.join(","))?;
    let listed = lists
        .iter()
        .flat_map(|(key, values)| values.iter().map(move |value| format!("{key}={}", value.replace(',', ",,"))));
    let all = words.iter().cloned().chain(listed);
    let variants: Vec<Variant> = all.map(|text| variant(&text, &common)).collect::<Result<_, _>>()?;
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
    let mut own = if side == DEFAULT { BTreeMap::new() } else { side_settings(side)? };
    let name = own.remove("name").unwrap_or_else(|| side.to_owned());
    let mut set = common.clone();
    set.extend(own);
    Ok(Variant { name, set })
}

/// `KEY=VALUE,KEY=VALUE`, where a comma within a value is written twice.
fn side_settings(text: &str) -> Result<BTreeMap<String, String>, OptionsError> {
    settings(&split(text), "KEY=VALUE, as in aio=native, nor `default`, nor a workload")
}

/// As QEMU splits its own options.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ',' if rest.peek() == Some(&',') => {
                rest.next();
                word.push(',');
            }
            ',' => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_its_settings() {
        let common = side_settings("cache=none").unwrap();
        let side = variant("qemu=7.2,append=quiet a=b,,c", &common).unwrap();
        assert_eq!(side.name, "qemu=7.2,append=quiet a=b,,c");
        assert_eq!((side.set["append"].as_str(), side.set["cache"].as_str()), ("quiet a=b,c", "none"));
        let named = variant("name=old,aio=threads", &common).unwrap();
        assert_eq!((named.name.as_str(), named.set.len()), ("old", 2));
        assert_eq!(variant(DEFAULT, &BTreeMap::new()).unwrap().set.len(), 0);
        for bad in ["aio", "aio=", "=x", "aio=a,aio=b", "aio=a,"] {
            assert_eq!(variant(bad, &common).is_err(), bad != "aio=a,", "{bad}");
        }
    }
}
