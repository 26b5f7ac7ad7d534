//! Options: names, defaults, what values are allowed, and their one canonical spelling.

use crate::WorkloadError;
use vmtax_model::WorkloadSpec;

/// An option of a workload.
#[derive(Debug, Clone, Copy)]
pub struct OptionInfo {
    /// As it is typed after the workload's name.
    pub name: &'static str,
    /// Its value when it is not given.
    pub default: &'static str,
    /// What it does, one line.
    pub help: &'static str,
    pub(crate) kind: Kind,
}

/// The values an option takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A whole number.
    Count { min: u64, max: u64 },
    /// Bytes, with an optional suffix K, M, G or T (powers of 1024).
    Size { min: u64, max: u64, multiple: u64 },
    /// Seconds, fractions allowed.
    Seconds { min: f64, max: f64 },
    /// A ratio of counts.
    Ratio,
    /// `on` or `off`.
    Switch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Some of these words, comma separated; the first field is the word for the default set.
    SomeOf(&'static str, &'static [&'static str]),
}

impl Kind {
    pub fn canonical(self, text: &str) -> Option<String> {
        let text = text.trim();
        match self {
            Kind::Count { min, max } => {
                text.parse::<u64>().ok().filter(|n| (min..=max).contains(n)).map(|n| n.to_string())
            }
            Kind::Size { min, max, multiple } => {
                parse_size(text).filter(|n| (min..=max).contains(n) && n % multiple == 0).map(size_text)
            }
            Kind::Seconds { min, max } => {
                text.parse::<f64>().ok().filter(|s| (min..=max).contains(s)).map(|s| s.to_string())
            }
            Kind::Ratio => text.parse::<f64>().ok().filter(|r| (0.0..=1e6).contains(r)).map(|r| r.to_string()),
            Kind::Switch => ["on", "off"].contains(&text).then(|| text.to_owned()),
            Kind::OneOf(words) => words.contains(&text).then(|| text.to_owned()),
            Kind::SomeOf(usual, words) => {
                if text.is_empty() || text == usual {
                    return Some(usual.to_owned());
                }
                let given: Vec<&str> = text.split(',').map(str::trim).collect();
                // In the table's order and each once, so that two ways to say the same are equal.
                let chosen: Vec<&str> = words.iter().copied().filter(|w| given.contains(w)).collect();
                given.iter().all(|g| words.contains(g)).then(|| chosen.join(","))
            }
        }
    }

    pub fn allowed(self) -> String {
        match self {
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Size { min, max, multiple } => {
                let step = if multiple > 1 { format!(", a multiple of {multiple}") } else { String::new() };
                format!("a size from {} to {}{step}, such as 4096, 64K, 2G", size_text(min), size_text(max))
            }
            Kind::Seconds { min, max } => format!("seconds from {min} to {max}, such as 0.5"),
            Kind::Ratio => "a ratio from 0 to 1000000, such as 1.5".to_owned(),
            Kind::Switch => "on or off".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::SomeOf(usual, words) => format!("{usual}, or some of {} (comma separated)", words.join(", ")),
        }
    }
}

/// Bytes, with an optional suffix K, M, G or T (powers of 1024); a plain count as it is. `None` for what is neither.
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn size_text(bytes: u64) -> String {
    let (unit, shift) = [("T", 40), ("G", 30), ("M", 20), ("K", 10)]
        .into_iter()
        .find(|(_, shift)| bytes > 0 && bytes % (1 << shift) == 0)
        .unwrap_or(("", 0));
    format!("{}{unit}", bytes >> shift)
}

/// The typed values of a spec that [`check`] has made complete.
pub(crate) struct Values<'a>(pub &'a WorkloadSpec);

impl Values<'_> {
    fn parsed<T>(&self, option: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, WorkloadError> {
        let value = self.text(option);
        parse(value).ok_or_else(|| WorkloadError::BadValue {
            workload: self.0.name,
            option: option.to_owned(),
            value: value.to_owned(),
            allowed: "a value as `check` returns it".to_owned(),
        })
    }

    /// A number, or a size in bytes.
    pub fn number(&self, option: &str) -> Result<u64, WorkloadError> {
        self.parsed(option, parse_size)
    }

    /// A count that the table bounds to 32 bits.
    pub fn small(&self, option: &str) -> Result<u32, WorkloadError> {
        self.parsed(option, |v| v.parse().ok())
    }

    /// A ratio, or seconds.
    pub fn real(&self, option: &str) -> Result<f64, WorkloadError> {
        self.parsed(option, |v| v.parse().ok())
    }

    /// Seconds as nanoseconds.
    pub fn nanoseconds(&self, option: &str) -> Result<u64, WorkloadError> {
        Ok((self.real(option)? * 1e9) as u64)
    }

    /// A switch.
    pub fn is_on(&self, option: &str) -> bool {
        self.text(option) == "on"
    }

    /// A word, or words.
    pub fn text(&self, option: &str) -> &str {
        self.0.options.get(option).map_or("", String::as_str)
    }
}

/// A run that neither its time nor `counter`, the option that counts, would end is refused.
pub(crate) fn must_end(spec: &WorkloadSpec, counter: &str) -> Result<(), WorkloadError> {
    let values = Values(spec);
    if values.nanoseconds("time")? == 0 && values.number(counter)? == 0 {
        return Err(WorkloadError::Conflict {
            workload: spec.name,
            conflict: format!("time=0 and {counter}=0 would never end: set one of them"),
        });
    }
    Ok(())
}
