//! Options: how a workload declares them, what values are allowed, and their one canonical spelling.

use crate::WorkloadError;
use std::ops::RangeInclusive;
use vmtax_model::{WorkloadName, WorkloadSpec, parse_size};

/// An option of a workload.
#[derive(Debug, Clone, Copy)]
pub struct OptionInfo {
    /// As it is typed after the workload's name.
    pub name: &'static str,
    /// Value of the option when it is not given.
    pub default: &'static str,
    /// Description of what the option does, one line.
    pub help: &'static str,
    /// Other tools' names of it.
    pub aliases: &'static [Alias],
    kind: Kind,
}

/// Another tool's name of an option: fio's `bs`. One that has values of its own (`rw=randread`) lists what each means here.
#[derive(Debug, Clone, Copy)]
pub struct Alias {
    /// As the other tool has it.
    pub name: &'static str,
    values: &'static [(&'static str, &'static str)],
}

/// A name for the same values.
pub(crate) const fn alias(name: Text) -> Alias {
    Alias { name, values: &[] }
}

/// A name with values of its own, each with what it means here.
pub(crate) const fn alias_of(name: Text, values: &'static [(Text, Text)]) -> Alias {
    Alias { name, values }
}

/// The values an option takes.
#[derive(Debug, Clone, Copy)]
enum Kind {
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
    /// Any text, which the workload reads.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Some of these words, comma separated; the option's default is the word for the default set.
    SomeOf(&'static [&'static str]),
}

type Text = &'static str;
type Texts = &'static [&'static str];

const fn option(name: Text, default: Text, help: Text, kind: Kind) -> OptionInfo {
    OptionInfo {
        name,
        default,
        help,
        aliases: &[],
        kind,
    }
}

/// A whole number: a `u64`, or a `u32` where what is allowed fits.
pub(crate) const fn count(
    name: Text,
    default: Text,
    allowed: RangeInclusive<u64>,
    help: Text,
) -> OptionInfo {
    let (min, max) = (*allowed.start(), *allowed.end());
    option(name, default, help, Kind::Count { min, max })
}

/// Bytes, a multiple of `multiple`: a `u64`.
pub(crate) const fn size(
    name: Text,
    default: Text,
    allowed: RangeInclusive<u64>,
    multiple: u64,
    help: Text,
) -> OptionInfo {
    let (min, max) = (*allowed.start(), *allowed.end());
    option(name, default, help, Kind::Size { min, max, multiple })
}

/// Seconds: an `f64`.
pub(crate) const fn seconds(
    name: Text,
    default: Text,
    allowed: RangeInclusive<f64>,
    help: Text,
) -> OptionInfo {
    let (min, max) = (*allowed.start(), *allowed.end());
    option(name, default, help, Kind::Seconds { min, max })
}

/// A ratio up to a million: an `f64`.
pub(crate) const fn ratio(name: Text, default: Text, help: Text) -> OptionInfo {
    option(name, default, help, Kind::Ratio)
}

/// `on` or `off`: a `bool`.
pub(crate) const fn switch(name: Text, default: Text, help: Text) -> OptionInfo {
    option(name, default, help, Kind::Switch)
}

/// A text that the workload reads itself: a `String`.
pub(crate) const fn text(name: Text, default: Text, help: Text) -> OptionInfo {
    option(name, default, help, Kind::Text)
}

/// One of the words: a [`Word`].
pub(crate) const fn one_of(name: Text, default: Text, words: Texts, help: Text) -> OptionInfo {
    option(name, default, help, Kind::OneOf(words))
}

/// Some of the words: [`Words`], of which `default` gives none.
pub(crate) const fn some_of(name: Text, default: Text, words: Texts, help: Text) -> OptionInfo {
    option(name, default, help, Kind::SomeOf(words))
}

/// One of an option's words.
pub(crate) type Word = &'static str;
/// Some of an option's words, in the order of their declaration; none where the default set is meant.
pub(crate) type Words = Vec<&'static str>;

/// An option's value, parsed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A count, or bytes.
    Number(u64),
    /// Seconds, or a ratio.
    Real(f64),
    Switch(bool),
    Text(String),
    Word(Word),
    Words(Words),
}

impl OptionInfo {
    /// The option with names that other tools have for it.
    pub(crate) const fn aliases(self, aliases: &'static [Alias]) -> OptionInfo {
        OptionInfo { aliases, ..self }
    }

    /// The value, where the text is one that is allowed.
    fn parse(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        let number = |number: Option<u64>, min, max| {
            let allowed = number.filter(|n| (min..=max).contains(n));
            allowed.map(Value::Number)
        };
        let real = |min, max| {
            let number = text.parse::<f64>().ok();
            number.filter(|x| (min..=max).contains(x)).map(Value::Real)
        };
        match self.kind {
            Kind::Count { min, max } => number(text.parse().ok(), min, max),
            Kind::Size { min, max, multiple } => {
                number(parse_size(text).filter(|n| n % multiple == 0), min, max)
            }
            Kind::Seconds { min, max } => real(min, max),
            Kind::Ratio => real(0.0, 1e6),
            Kind::Switch if ["on", "off"].contains(&text) => Some(Value::Switch(text == "on")),
            Kind::Switch => None,
            Kind::Text => Some(Value::Text(text.to_owned())),
            Kind::OneOf(words) => words.iter().find(|w| **w == text).map(|w| Value::Word(w)),
            Kind::SomeOf(_) if text == self.default => Some(Value::Words(Vec::new())),
            Kind::SomeOf(words) => {
                let given: Vec<&str> = text.split(',').map(str::trim).collect();
                // In the table's order and each once, so that two ways to say the same are equal.
                let chosen = words.iter().copied().filter(|w| given.contains(w));
                let is_allowed = given.iter().all(|g| words.contains(g));
                is_allowed.then(|| Value::Words(chosen.collect()))
            }
        }
    }

    /// The canonical spelling of a value: `parse` gives the value again.
    fn text(&self, value: &Value) -> String {
        match value {
            Value::Number(n) if matches!(self.kind, Kind::Size { .. }) => size_text(*n),
            Value::Number(n) => n.to_string(),
            Value::Real(x) => x.to_string(),
            Value::Switch(on) => (if *on { "on" } else { "off" }).to_owned(),
            Value::Text(text) => text.clone(),
            Value::Word(word) => (*word).to_owned(),
            Value::Words(words) if words.is_empty() => self.default.to_owned(),
            Value::Words(words) => words.join(","),
        }
    }

    /// Returns a description of the allowed values, for people.
    fn allowed(&self) -> String {
        match self.kind {
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Size { min, max, multiple } => {
                let (min, max) = (size_text(min), size_text(max));
                let step = match multiple {
                    ..=1 => String::new(),
                    _ => format!(", a multiple of {multiple}"),
                };
                format!("a size from {min} to {max}{step}, such as 4096, 64K, 2G")
            }
            Kind::Seconds { min, max } => format!("seconds from {min} to {max}, such as 0.5"),
            Kind::Ratio => "a ratio from 0 to 1000000, such as 1.5".to_owned(),
            Kind::Switch => "on or off".to_owned(),
            Kind::Text => "a text".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::SomeOf(words) => format!(
                "{}, or some of {} (comma separated)",
                self.default,
                words.join(", ")
            ),
        }
    }
}

/// Sets an option by its name, or by another tool's.
///
/// # Errors
/// [`WorkloadError::BadValue`] for a value that another tool's option does not have.
pub(crate) fn set(
    spec: &mut WorkloadSpec,
    known: &[OptionInfo],
    name: &str,
    value: &str,
) -> Result<(), WorkloadError> {
    let aliases = known
        .iter()
        .flat_map(|option| option.aliases.iter().map(move |alias| (option.name, alias)));
    let mut is_known = false;
    for (option, alias) in aliases.filter(|(_, alias)| alias.name == name) {
        is_known = true;
        let here = match alias.values.iter().find(|(theirs, _)| *theirs == value) {
            Some((_, here)) => here,
            None if alias.values.is_empty() => value,
            None => {
                let theirs: Vec<&str> = alias.values.iter().map(|(theirs, _)| *theirs).collect();
                let allowed = format!("one of {}", theirs.join(", "));
                return Err(bad_value(spec.name, name, value, allowed));
            }
        };
        spec.options.insert(option.to_owned(), here.to_owned());
    }
    if !is_known {
        spec.options.insert(name.to_owned(), value.to_owned());
    }
    Ok(())
}

fn bad_value(workload: WorkloadName, option: &str, value: &str, allowed: String) -> WorkloadError {
    WorkloadError::BadValue {
        workload,
        option: option.to_owned(),
        value: value.to_owned(),
        allowed,
    }
}

fn size_text(bytes: u64) -> String {
    let (unit, shift) = [("T", 40), ("G", 30), ("M", 20), ("K", 10)]
        .into_iter()
        .find(|(_, shift)| bytes > 0 && bytes % (1 << shift) == 0)
        .unwrap_or(("", 0));
    format!("{}{unit}", bytes >> shift)
}

/// A type that the value of an option can have.
pub(crate) trait OptionValue: Sized {
    /// The value as this type; `None` where the option is declared with another kind of values.
    fn from_value(value: Value) -> Option<Self>;
    fn value(&self) -> Value;
}

macro_rules! option_values {
    ($($type:ty: $value:pat => $of:expr, $this:ident => $back:expr;)*) => {$(
        impl OptionValue for $type {
            fn from_value(value: Value) -> Option<Self> {
                if let $value = value { $of } else { None }
            }
            fn value(&self) -> Value {
                let $this = self;
                $back
            }
        }
    )*};
}

option_values! {
    u64: Value::Number(n) => Some(n), n => Value::Number(*n);
    u32: Value::Number(n) => n.try_into().ok(), n => Value::Number(u64::from(*n));
    f64: Value::Real(x) => Some(x), x => Value::Real(*x);
    bool: Value::Switch(on) => Some(on), on => Value::Switch(*on);
    String: Value::Text(text) => Some(text), text => Value::Text(text.clone());
    Word: Value::Word(word) => Some(word), word => Value::Word(word);
    Words: Value::Words(words) => Some(words), words => Value::Words(words.clone());
}

/// The options of a workload as a struct with typed fields: [`crate::descriptor::workload!`] makes it.
pub(crate) trait Options {
    /// From a value for each option, in order; `None` where a field's type is not that of its option's values.
    fn from_values(values: Vec<Value>) -> Option<Self>
    where
        Self: Sized;
    /// A value for each option, in order.
    fn values(&self) -> Vec<Value>;
}

/// The spec's value of each of the options, in their order, defaults filled in.
///
/// # Errors
/// An option other than these, or a value that is not allowed.
pub(crate) fn parse(
    spec: &WorkloadSpec,
    known: &[OptionInfo],
) -> Result<Vec<Value>, WorkloadError> {
    if let Some(option) = spec
        .options
        .keys()
        .find(|o| known.iter().all(|k| k.name != o.as_str()))
    {
        return Err(WorkloadError::UnknownOption {
            workload: spec.name,
            option: option.clone(),
            known: known.iter().map(|o| o.name).collect::<Vec<_>>().join(", "),
        });
    }
    let value = |option: &OptionInfo| {
        let given = spec.options.get(option.name);
        let text = given.map_or(option.default, String::as_str);
        let parsed = option.parse(text);
        parsed.ok_or_else(|| bad_value(spec.name, option.name, text, option.allowed()))
    };
    known.iter().map(value).collect()
}

/// The values as a spec: every option, in canonical spelling.
pub(crate) fn spec(name: WorkloadName, known: &[OptionInfo], values: &[Value]) -> WorkloadSpec {
    let options = known
        .iter()
        .zip(values)
        .map(|(option, value)| (option.name.to_owned(), option.text(value)));
    WorkloadSpec {
        name,
        options: options.collect(),
    }
}

/// Name of the option that says for how long a workload measures.
pub(crate) const TIME: &str = "time";

/// Seconds as nanoseconds.
pub(crate) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// A run that neither its time nor the option `counter`, which is `count`, would end is refused.
pub(crate) fn must_end(
    workload: WorkloadName,
    time: f64,
    counter: &str,
    count: u64,
) -> Result<(), WorkloadError> {
    if nanoseconds(time) == 0 && count == 0 {
        let conflict = format!("time=0 and {counter}=0 would never end: set one of them");
        return Err(WorkloadError::conflict(workload, conflict));
    }
    Ok(())
}
