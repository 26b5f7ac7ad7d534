//! Folded stacks: a line each, `thread;outermost;…;innermost count`, as flame graph tools read them.

use crate::ProfileError;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use vmtax_model::samples::{CodeOrigin, Function, Profile, Sample, Thread};

/// Suffix of frames by code origin: for the kernel and translated code as flame graph tools write it.
const MARKS: [(CodeOrigin, &str); 4] = [
    (CodeOrigin::Kernel, "_[k]"),
    (CodeOrigin::Translated, "_[j]"),
    (CodeOrigin::GuestKernel, "_[gk]"),
    (CodeOrigin::GuestUser, "_[g]"),
];

/// The lines, sorted.
pub fn fold(profile: &Profile) -> Vec<String> {
    let frames: Vec<String> = profile.functions.iter().map(frame).collect();
    // Threads of one name are one, as QEMU's workers come and go.
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for ((thread, stack), count) in profile.counts() {
        let mut line = clean(&profile.threads[thread].name);
        for &function in &profile.stacks[stack] {
            line.push(';');
            line.push_str(&frames[function]);
        }
        *lines.entry(line).or_default() += count;
    }
    lines
        .into_iter()
        .map(|(line, count)| format!("{line} {count}"))
        .collect()
}

/// A function as a frame of a line.
pub(crate) fn frame(function: &Function) -> String {
    let mark = MARKS
        .iter()
        .find(|(origin, _)| *origin == function.origin)
        .map_or("", |(_, mark)| mark);
    clean(&function.name) + mark
}

/// A name without what ends a frame or a line, and what XML cannot hold.
pub(crate) fn clean(name: &str) -> String {
    let is_bad = |c: char| c == ';' || c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    name.chars()
        .map(|c| if is_bad(c) { ',' } else { c })
        .collect()
}

/// Parses folded stacks of any tool. The outermost frame counts as the thread.
///
/// # Errors
/// [`ProfileError::Damaged`] with the first line that is not a folded stack.
pub fn unfold(text: &str, file: &Path) -> Result<Profile, ProfileError> {
    let mut profile = Profile::default();
    let mut functions: HashMap<String, usize> = HashMap::new();
    let mut threads: HashMap<String, usize> = HashMap::new();
    let mut total = 0u64;
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let damaged = || ProfileError::Damaged {
            file: file.to_owned(),
            why: format!(
                "line {} is not a folded stack: expected `thread;function;function count`",
                number + 1
            ),
        };
        let (frames, count) = line.trim_end().rsplit_once(' ').ok_or_else(damaged)?;
        let weight: u64 = count.parse().map_err(|_| damaged())?;
        total = total.checked_add(weight).ok_or_else(damaged)?;
        let mut frames = frames.split(';');
        let name = frames.next().unwrap_or_default();
        let thread = *threads.entry(name.to_owned()).or_insert_with(|| {
            profile.threads.push(Thread {
                tid: 0,
                name: name.to_owned(),
            });
            profile.threads.len() - 1
        });
        let stack = frames.map(|frame| {
            *functions.entry(frame.to_owned()).or_insert_with(|| {
                profile.functions.push(function(frame));
                profile.functions.len() - 1
            })
        });
        profile.stacks.push(stack.collect());
        profile.samples.push(Sample {
            thread,
            stack: profile.stacks.len() - 1,
            time: 0,
            weight,
            cpu: 0,
        });
    }
    Ok(profile)
}

fn function(frame: &str) -> Function {
    let marked = MARKS
        .iter()
        .find_map(|(origin, mark)| Some((frame.strip_suffix(mark)?, *origin)));
    let (name, origin) = marked.unwrap_or((frame, CodeOrigin::Program));
    // `file:nearest+0x10`, `file:nearest-0x10` and `file:0x10`, as names.rs makes them.
    let named = !name.split_once(':').is_some_and(|(_, place)| {
        ["+0x", "-0x"].iter().any(|sign| place.contains(sign)) || place.starts_with("0x")
    });
    Function {
        name: name.to_owned(),
        module: String::new(),
        origin,
        named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_folded_unfolds() {
        let text = "CPU 0/TCG;start;[translated code]_[j];helper 3\nCPU 0/TCG;start;read_[k] 4\nqemu;main;q:f+0x10 1\n";
        let profile = unfold(text, Path::new("x.folded")).unwrap();
        assert_eq!(profile.total(), 8);
        let origins: Vec<CodeOrigin> = profile.functions.iter().map(|f| f.origin).collect();
        assert_eq!(
            origins[..4],
            [
                CodeOrigin::Program,
                CodeOrigin::Translated,
                CodeOrigin::Program,
                CodeOrigin::Kernel
            ]
        );
        assert!(!profile.functions.last().unwrap().named);
        assert_eq!(fold(&profile).join("\n") + "\n", text);
        let error = unfold("a;b 1\nnonsense\n", Path::new("x.folded"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("x.folded: line 2"), "{error}");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(text in "[a-c; 0-9\n_\\[k\\]:+x]{0,300}") {
            if let Ok(profile) = unfold(&text, Path::new("x")) {
                fold(&profile);
            }
        }
    }
}
