//! A profile in figures: shares of threads and functions, with the interval that sampling leaves.

use crate::share::share;
use crate::tcg;
use std::collections::HashMap;
use vmtax_model::samples::OnCpu;
use vmtax_model::samples::{CodeOrigin, Profile};
use vmtax_model::{FunctionShare, ProfileFindings, ThreadShare, UnnamedFile};

/// More functions than this no table needs.
const MAX_FUNCTIONS: usize = 200;
/// Returns the findings of [`OnCpu`]; all other fields are left empty.
pub fn findings(found: &OnCpu, pid: i32, program: &str) -> ProfileFindings {
    let seconds = found.seconds;
    let unwound = found.unwound;
    ProfileFindings {
        file: None,
        pid,
        program: program.to_owned(),
        seconds,
        hz: found.hz,
        trigger: found.trigger.clone(),
        kernel: found.kernel,
        samples: found.profile.total(),
        lost: found.lost,
        ended: found.ended,
        state: None,
        process_stop: None,
        user_samples: unwound.outside,
        unwound: share(unwound.to_root, unwound.outside),
        cut: unwound.cut,
        translated_samples: unwound.translated,
        translated_unwound: share(unwound.translated_to_root, unwound.translated),
        own_cpu: found.own_s / seconds.max(f64::EPSILON),
        threads: threads(&found.profile, f64::from(found.hz) * seconds),
        functions: functions(&found.profile),
        unnamed: found
            .unnamed
            .iter()
            .map(|(file, why)| UnnamedFile {
                file: file.clone(),
                why: why.clone(),
            })
            .collect(),
        tcg: tcg::parts(&found.profile),
        states: None,
        wall: None,
        exits: None,
        code: None,
        schedule: None,
        guest: None,
        missing: Vec::new(),
    }
}

/// The threads, the busiest first. `full` is the samples of one that is always on a CPU, 0 where that
/// is unknown.
pub(crate) fn threads(profile: &Profile, full: f64) -> Vec<ThreadShare> {
    let total = profile.total();
    let mut counts = vec![(0u64, 0u64, 0u64); profile.threads.len()];
    for sample in &profile.samples {
        let count = &mut counts[sample.thread];
        count.0 += sample.weight;
        match profile.stacks[sample.stack]
            .last()
            .map(|&leaf| profile.functions[leaf].origin)
        {
            Some(CodeOrigin::Kernel | CodeOrigin::GuestKernel) => count.1 += sample.weight,
            Some(CodeOrigin::Translated) => count.2 += sample.weight,
            _ => {}
        }
    }
    let each = profile
        .threads
        .iter()
        .zip(counts)
        .filter(|(_, count)| count.0 > 0);
    let mut threads: Vec<ThreadShare> = each
        .map(|(thread, (samples, kernel, translated))| ThreadShare {
            tid: thread.tid,
            name: thread.name.clone(),
            share: share(samples, total),
            cpu: (full > 0.0).then(|| samples as f64 / full.max(1.0)),
            kernel,
            translated,
        })
        .collect();
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.share.samples));
    threads
}

/// The functions, those that most samples are in first.
pub(crate) fn functions(profile: &Profile) -> Vec<FunctionShare> {
    let total = profile.total();
    let mut by_stack: HashMap<usize, u64> = HashMap::new();
    for sample in &profile.samples {
        *by_stack.entry(sample.stack).or_default() += sample.weight;
    }
    let mut counts = vec![(0u64, 0u64); profile.functions.len()];
    for (stack, weight) in by_stack {
        let stack = &profile.stacks[stack];
        if let Some(&leaf) = stack.last() {
            counts[leaf].0 += weight;
        }
        let mut once = stack.clone(); // a function that calls itself counts once
        once.sort_unstable();
        once.dedup();
        for function in once {
            counts[function].1 += weight;
        }
    }
    let mut functions: Vec<FunctionShare> = (profile.functions.iter().zip(counts))
        .filter(|(_, count)| count.1 > 0)
        .map(|(function, (inside, below))| FunctionShare {
            name: function.name.clone(),
            module: function.module.clone(),
            layer: origin(function.origin).to_owned(),
            named: function.named,
            inside: share(inside, total),
            total: share(below, total),
        })
        .collect();
    functions.sort_by(|a, b| {
        let key = |f: &FunctionShare| {
            (
                std::cmp::Reverse(f.inside.samples),
                std::cmp::Reverse(f.total.samples),
            )
        };
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    functions.truncate(MAX_FUNCTIONS);
    functions
}

fn origin(origin: CodeOrigin) -> &'static str {
    match origin {
        CodeOrigin::Program => "program",
        CodeOrigin::Library => "library",
        CodeOrigin::Kernel => "kernel",
        CodeOrigin::Translated => "translated",
        CodeOrigin::GuestKernel => "guest-kernel",
        CodeOrigin::GuestUser => "guest-user",
        CodeOrigin::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::unfold;
    use std::path::Path;

    #[test]
    fn a_function_that_calls_itself_counts_once() {
        let profile = unfold(
            "t;f;f;g 3\nt;f 1\nu;[translated code]_[j] 4\n",
            Path::new("x"),
        )
        .unwrap();
        let found = functions(&profile);
        let function_named = |name: &str| found.iter().find(|f| f.name == name).unwrap();
        assert_eq!(
            (
                function_named("f").inside.samples,
                function_named("f").total.samples
            ),
            (1, 4)
        );
        assert_eq!(
            (
                function_named("g").inside.samples,
                function_named("g").total.samples
            ),
            (3, 3)
        );
        let threads = threads(&profile, 8.0);
        assert_eq!(
            (
                threads[1].name.as_str(),
                threads[1].translated,
                threads[1].cpu
            ),
            ("u", 4, Some(0.5))
        );
    }
}
