//! The sides of a command line, as variants.

use crate::cli::CompareArgs;
use crate::command::setting::setting;
use crate::fault::Fault;
use std::collections::BTreeMap;
use vmtax_model::Variant;

/// A side as it is without any setting.
const USUAL: &str = "usual";

/// The sides, in the order of: words, QEMUs, kernels.
pub fn variants(args: &CompareArgs) -> Result<Vec<Variant>, Fault> {
    let common = settings(&args.set.join(","))?;
    let words = args.sides.iter().map(String::clone);
    let of = |key: &'static str| move |value: &String| format!("{key}={}", value.replace(',', ",,"));
    let all: Vec<String> =
        words.chain(args.qemu.iter().map(of("qemu"))).chain(args.kernel.iter().map(of("kernel"))).collect();
    let variants: Vec<Variant> = all.iter().map(|side| variant(side, &common)).collect::<Result<_, _>>()?;
    if variants.len() < 2 {
        return Err(Fault::Usage(
            "a comparison takes two sides: as in `vmtax compare --qemu 7.2 --qemu 10.0`, or `vmtax compare usual aio=threads`"
                .to_owned(),
        ));
    }
    for (i, variant) in variants.iter().enumerate() {
        let earlier = &variants[..i];
        if earlier.iter().any(|v| v.name == variant.name) {
            return Err(Fault::Usage(format!(
                "side '{}' is there twice: to hold a machine against itself give the sides names, as in `name=a name=b`",
                variant.name.escape_default()
            )));
        }
    }
    Ok(variants)
}

fn variant(side: &str, common: &BTreeMap<String, String>) -> Result<Variant, Fault> {
    let mut own = if side == USUAL { BTreeMap::new() } else { settings(side)? };
    let name = own.remove("name").unwrap_or_else(|| side.to_owned());
    let mut set = common.clone();
    set.extend(own);
    Ok(Variant { name, set })
}

/// `KEY=VALUE,KEY=VALUE`, where a comma within a value is written twice.
fn settings(text: &str) -> Result<BTreeMap<String, String>, Fault> {
    let mut settings = BTreeMap::new();
    for word in split(text) {
        let (key, value) = setting(&word, "KEY=VALUE, as in aio=native, nor `usual`")?;
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Fault::Usage(format!("{key} is set twice in '{}'", text.escape_default())));
        }
    }
    Ok(settings)
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
        let common = settings("cache=none").unwrap();
        let side = variant("qemu=7.2,append=quiet a=b,,c", &common).unwrap();
        assert_eq!(side.name, "qemu=7.2,append=quiet a=b,,c");
        assert_eq!((side.set["append"].as_str(), side.set["cache"].as_str()), ("quiet a=b,c", "none"));
        let named = variant("name=old,aio=threads", &common).unwrap();
        assert_eq!((named.name.as_str(), named.set.len()), ("old", 2));
        assert_eq!(variant(USUAL, &BTreeMap::new()).unwrap().set.len(), 0);
        for bad in ["aio", "aio=", "=x", "aio=a,aio=b", "aio=a,"] {
            assert_eq!(variant(bad, &common).is_err(), bad != "aio=a,", "{bad}");
        }
    }
}
