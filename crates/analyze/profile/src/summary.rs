//! A profile in figures: shares of threads and functions, with the interval that sampling leaves.

use crate::tcg;
use std::collections::HashMap;
use vmtax_model::samples::OnCpu;
use vmtax_model::samples::{CodeOrigin, Profile};
use vmtax_model::{FunctionShare, ProfileFindings, SampleShare, ThreadShare, UnnamedFile};

/// More functions than this no table needs.
const MOST: usize = 200;
/// Half of the two-sided 95 % of a normal distribution, standard deviations.
const Z: f64 = 1.96;

/// A share of samples with its interval at 95 %.
pub fn share(part: u64, of: u64) -> SampleShare {
    share_within(Z, part, of)
}

/// A share of samples with its interval of `z` standard deviations of a normal distribution to both sides (Wilson's, which
/// holds for few samples and for shares near 0).
pub(crate) fn share_within(z: f64, part: u64, of: u64) -> SampleShare {
    let (k, n) = (part as f64, of.max(1) as f64);
    let p = k / n;
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    SampleShare { samples: part, share: p, low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
}

/// What [`OnCpu`] found; what else belongs to it is left empty.
pub fn of(found: &OnCpu, pid: i32, program: &str) -> ProfileFindings {
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
        user_samples: unwound.outside,
        unwound: share(unwound.to_root, unwound.outside),
        cut: unwound.cut,
        translated_samples: unwound.translated,
        translated_unwound: share(unwound.translated_to_root, unwound.translated),
        own_cpu: found.own_s / seconds.max(f64::EPSILON),
        threads: threads(&found.profile, f64::from(found.hz) * seconds),
        functions: functions(&found.profile),
        unnamed: found.unnamed.iter().map(|(file, why)| UnnamedFile { file: file.clone(), why: why.clone() }).collect(),
        tcg: tcg::parts(&found.profile),
        wall: None,
        exits: None,
        code: None,
        schedule: None,
        guest: None,
        missing: Vec::new(),
    }
}

/// The threads, the busiest first. `full` is the samples of one that is always on a processor, 0 where that
/// is unknown.
pub(crate) fn threads(profile: &Profile, full: f64) -> Vec<ThreadShare> {
    let total = profile.total();
    let mut counts = vec![(0u64, 0u64, 0u64); profile.threads.len()];
    for sample in &profile.samples {
        let count = &mut counts[sample.thread];
        count.0 += sample.weight;
        match profile.stacks[sample.stack].last().map(|&leaf| profile.functions[leaf].origin) {
            Some(CodeOrigin::Kernel | CodeOrigin::GuestKernel) => count.1 += sample.weight,
            Some(CodeOrigin::Translated) => count.2 += sample.weight,
            _ => {}
        }
    }
    let each = profile.threads.iter().zip(counts).filter(|(_, count)| count.0 > 0);
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
        let key = |f: &FunctionShare| (std::cmp::Reverse(f.inside.samples), std::cmp::Reverse(f.total.samples));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    functions.truncate(MOST);
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
    fn shares_have_wilsons_interval() {
        let half = share(50, 100);
        assert!((half.low - 0.4038).abs() < 1e-4 && (half.high - 0.5962).abs() < 1e-4, "{half:?}");
        let none = share(0, 100);
        assert!(none.low == 0.0 && (none.high - 0.0370).abs() < 1e-4, "{none:?}");
        assert_eq!(share(0, 0).share, 0.0);
    }

    #[test]
    fn a_function_that_calls_itself_counts_once() {
        let profile = unfold("t;f;f;g 3\nt;f 1\nu;[translated code]_[j] 4\n", Path::new("x")).unwrap();
        let found = functions(&profile);
        let of = |name: &str| found.iter().find(|f| f.name == name).unwrap();
        assert_eq!((of("f").inside.samples, of("f").total.samples), (1, 4));
        assert_eq!((of("g").inside.samples, of("g").total.samples), (3, 3));
        let threads = threads(&profile, 8.0);
        assert_eq!((threads[1].name.as_str(), threads[1].translated, threads[1].cpu), ("u", 4, Some(0.5)));
    }
}
