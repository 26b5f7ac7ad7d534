//! Profiles for pprof and its kin: gzipped protocol buffers. Field numbers as in pprof's `profile.proto`.

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;
use vmtax_model::samples::{self, CodeOrigin, Profile};

#[derive(Clone, PartialEq, Message)]
struct Proto {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Texts by number; the first is empty, as the format wants it.
struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Texts {
    /// Returns texts of which only the first is there.
    fn new() -> Texts {
        Texts {
            all: vec![String::new()],
            numbers: HashMap::from([(String::new(), 0)]),
        }
    }

    /// Returns a type of values in a unit.
    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.number(kind),
            unit: self.number(unit),
        }
    }

    fn number(&mut self, text: &str) -> i64 {
        *self.numbers.entry(text.to_owned()).or_insert_with(|| {
            self.all.push(text.to_owned());
            self.all.len() as i64 - 1
        })
    }
}

/// The profile as the bytes of a `.pb.gz` file: each stack's samples and, where the rate is known, its CPU time;
/// threads as labels. `time` is the duration of sampling.
///
/// # Errors
/// Errors of the compressor.
pub fn bytes(profile: &Profile, hz: u32, time: Duration) -> io::Result<Vec<u8>> {
    let mut texts = Texts::new();
    let count = texts.value_type("samples", "count");
    let cpu = texts.value_type("cpu", "nanoseconds");
    let period = 1_000_000_000_i64.checked_div(hz.into()).unwrap_or(0);
    let thread = texts.number("thread");

    let modules = modules(profile);
    let mapping = mappings(&modules, &mut texts);
    let location = locations(profile, &modules);
    let function = functions(profile, &mut texts);
    let sample = stack_samples(profile, period, thread, &mut texts);
    let proto = Proto {
        sample_type: if period > 0 {
            vec![count, cpu.clone()]
        } else {
            vec![count]
        },
        sample,
        mapping,
        location,
        function,
        string_table: texts.all,
        duration_nanos: i64::try_from(time.as_nanos()).unwrap_or(i64::MAX),
        period_type: (period > 0).then_some(cpu),
        period,
    };
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(&proto.encode_to_vec())?;
    out.finish()
}

/// Returns the modules of the profile's functions, that of the program first.
fn modules(profile: &Profile) -> Vec<&str> {
    let mut modules: Vec<&str> = profile
        .functions
        .iter()
        .map(|function| function.module.as_str())
        .collect();
    modules.sort_unstable();
    modules.dedup();
    // Readers take the first for the program.
    let program = profile
        .functions
        .iter()
        .find(|function| function.origin == CodeOrigin::Program);
    modules.sort_by_key(|module| program.is_none_or(|program| program.module != *module));
    modules
}

/// Returns a mapping for each module.
fn mappings(modules: &[&str], texts: &mut Texts) -> Vec<Mapping> {
    let mapping = |(module, id): (&&str, u64)| Mapping {
        id,
        filename: texts.number(if module.is_empty() { "[none]" } else { module }),
        has_functions: true,
    };
    modules.iter().zip(1..).map(mapping).collect()
}

/// Returns a location for each function, in the mapping of its module.
fn locations(profile: &Profile, modules: &[&str]) -> Vec<Location> {
    let location = |(function, id): (&samples::Function, u64)| {
        let module = modules.iter().position(|module| *module == function.module);
        Location {
            id,
            mapping_id: module.map_or(0, |number| number as u64 + 1),
            line: vec![Line { function_id: id }],
        }
    };
    profile.functions.iter().zip(1..).map(location).collect()
}

/// Returns the functions with their names, each with the ID of its location.
fn functions(profile: &Profile, texts: &mut Texts) -> Vec<Function> {
    let function = |(function, id): (&samples::Function, u64)| {
        let name = texts.number(&function.name);
        Function {
            id,
            name,
            system_name: name,
            filename: texts.number(&function.module),
        }
    };
    profile.functions.iter().zip(1..).map(function).collect()
}

/// Returns the samples of each thread's stacks. `period`: CPU time of a sample, ns, 0 where unknown; `thread`: number of
/// the label's key.
fn stack_samples(profile: &Profile, period: i64, thread: i64, texts: &mut Texts) -> Vec<Sample> {
    let sample = |((number, stack), count): ((usize, usize), u64)| {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let location_id = profile.stacks[stack]
            .iter()
            .rev()
            .map(|&function| function as u64 + 1)
            .collect();
        let label = vec![Label {
            key: thread,
            text: texts.number(&profile.threads[number].name),
        }];
        let value = if period > 0 {
            vec![count, count.saturating_mul(period)]
        } else {
            vec![count]
        };
        Sample {
            location_id,
            value,
            label,
        }
    };
    profile.counts().into_iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::unfold;
    use std::io::Read;
    use std::path::Path;

    #[test]
    fn stacks_come_back_with_their_time() {
        let profile = unfold(
            "burner;main;fifty 3\nburner;main 1\nother;main;kernel_[k] 2\n",
            Path::new("x"),
        )
        .unwrap();
        let gz = bytes(&profile, 100, Duration::from_secs(1)).unwrap();
        let mut raw = Vec::new();
        flate2::read::GzDecoder::new(&gz[..])
            .read_to_end(&mut raw)
            .unwrap();
        let proto = Proto::decode(&raw[..]).unwrap();
        let text = |number: i64| proto.string_table[number as usize].as_str();
        assert_eq!(text(0), "");
        let name = |location: &u64| text(proto.function[*location as usize - 1].name).to_owned();
        let mut lines: Vec<String> = Vec::new();
        for sample in &proto.sample {
            // The innermost comes first.
            let stack: Vec<String> = sample.location_id.iter().rev().map(name).collect();
            lines.push(format!(
                "{};{} {:?}",
                text(sample.label[0].text),
                stack.join(";"),
                sample.value
            ));
        }
        lines.sort();
        let expected = [
            "burner;main [1, 10000000]",
            "burner;main;fifty [3, 30000000]",
            "other;main;kernel [2, 20000000]",
        ];
        assert_eq!(lines, expected);
        assert_eq!(
            (proto.period, proto.duration_nanos),
            (10_000_000, 1_000_000_000)
        );
        assert!(
            proto
                .location
                .iter()
                .all(|l| proto.mapping.iter().any(|m| m.id == l.mapping_id))
        );
        // Of folded stacks nobody knows the rate.
        assert_eq!(
            bytes(&profile, 0, Duration::ZERO)
                .map(|b| b.is_empty())
                .ok(),
            Some(false)
        );
    }
}
