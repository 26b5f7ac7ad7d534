//! Variants, as they stand on a command line.

use super::error::OptionsError;
use super::workloads::key_value;
use std::collections::BTreeMap;
use vmtax_model::Variant;

/// A table with more columns is hard to read.
const MAX_VARIANTS: usize = 16;

/// Each word `KEY=VALUE`, or several with a comma between them, where a comma within a value is written twice; `form` says how
/// it is written, with an example.
///
/// # Errors
/// For another word, and a key that is set twice.
pub(crate) fn settings<T: AsRef<str>>(
    words: &[T],
    form: &str,
) -> Result<BTreeMap<String, String>, OptionsError> {
    let mut settings = BTreeMap::new();
    for word in words.iter().flat_map(|word| split(word.as_ref())) {
        let (key, value) = key_value(&word, form)?;
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return OptionsError::usage(format!(
                "{} is set twice: set it once",
                key.escape_default()
            ));
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
    if !word.is_empty() || words.is_empty() {
        words.push(word);
    }
    words
}

/// Every combination of the lists in `vary`, each over `set`.
///
/// # Errors
/// For a word of another form, and more than 16 combinations.
pub(crate) fn variants(vary: &[String], set: &[String]) -> Result<Vec<Variant>, OptionsError> {
    let set = settings(set, "KEY=VALUE, as in --set cache=none")?;
    let mut variants = vec![Variant {
        name: String::new(),
        set,
    }];
    for word in vary {
        let form = "KEY=VALUE,VALUE, as in --vary aio=threads,native";
        let (key, list) = key_value(word, form)?;
        if list.split(',').any(str::is_empty) {
            return OptionsError::usage(format!("'{word}' is not {form}"));
        }
        let variant_with = |variant: &Variant, value: &str| {
            let mut variant = variant.clone();
            variant.set.insert(key.to_owned(), value.to_owned());
            let gap = if variant.name.is_empty() { "" } else { " " };
            variant.name += &format!("{gap}{key}={value}");
            variant
        };
        variants = variants
            .iter()
            .flat_map(|v| list.split(',').map(move |value| variant_with(v, value)))
            .collect();
    }
    if variants.len() > MAX_VARIANTS {
        return OptionsError::usage(format!(
            "--vary makes {} columns, {MAX_VARIANTS} is the limit: vary fewer at a time",
            variants.len()
        ));
    }
    Ok(variants)
}

/// A share method with its options, `9p,msize=524288,cache=loose`, as a variant of that name.
///
/// # Errors
/// For options of another form.
pub(crate) fn share_variant(text: &str) -> Result<Variant, OptionsError> {
    let words: Vec<&str> = text.split(',').collect();
    let options = settings(&words[1..], "OPTION=VALUE, as in 9p,cache=loose")?;
    // The QEMU that shares it may be part of the method.
    let named = |(key, value)| {
        (
            if key == "qemu" {
                key
            } else {
                format!("share.{key}")
            },
            value,
        )
    };
    let method = ("share".to_owned(), words[0].to_owned());
    Ok(Variant {
        name: text.to_owned(),
        set: options.into_iter().map(named).chain([method]).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_column() {
        let words = |list: &[&str]| list.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let all = variants(
            &words(&["aio=threads,native", "iothread=off,on"]),
            &words(&["cache=none"]),
        )
        .unwrap();
        let names: Vec<&str> = all.iter().map(|v| v.name.as_str()).collect();
        let wanted = [
            "aio=threads iothread=off",
            "aio=threads iothread=on",
            "aio=native iothread=off",
        ];
        assert_eq!(names[..3], wanted);
        assert!(all.iter().all(|v| v.set["cache"] == "none"));
        assert_eq!(variants(&[], &[]).unwrap(), [Variant::default()]);
        for bad in ["aio", "aio=", "=native", "aio=a,,b"] {
            assert!(variants(&words(&[bad]), &[]).is_err(), "{bad}");
        }
        assert!(variants(&words(&["a=1,2,3,4,5", "b=1,2,3,4,5"]), &[]).is_err());
        assert!(variants(&[], &words(&["a=1", "a=2"])).is_err());
    }

    #[test]
    fn one_word_has_several_settings() {
        let set = settings(&["cache=none,aio=native", "model=max,,-la57"], "KEY=VALUE").unwrap();
        let pairs: Vec<_> = set
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("aio", "native"), ("cache", "none"), ("model", "max,-la57")]
        );
        for bad in ["", ",", "cache=none,aio", "cache=none,cache=none"] {
            assert!(settings(&[bad], "KEY=VALUE").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_method_has_options() {
        let method = share_variant("9p,msize=524288,qemu=5.2").unwrap();
        assert_eq!(method.name, "9p,msize=524288,qemu=5.2");
        assert_eq!(method.set["share"], "9p");
        assert_eq!(
            (
                method.set["share.msize"].as_str(),
                method.set["qemu"].as_str()
            ),
            ("524288", "5.2")
        );
        assert!(share_variant("9p,msize").is_err() && share_variant("9p,=1").is_err());
    }
}
