//! A profile in figures, with the interval that sampling leaves: shares of threads and functions, under TCG of the parts of
//! QEMU's work (to run translated code, to translate, or to serve it), and changes between two profiles.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use vmtax_findings::{
    FunctionChange, FunctionShare, ProfileChanges, ProfileFindings, SampleShare, TcgPart, TcgShare,
    ThreadShare, UnnamedFile,
};
use vmtax_model::samples::{CodeOrigin, OnCpu, Profile, Sample};

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
    SampleShare {
        samples: part,
        share: p,
        low: (middle - half).max(0.0),
        high: (middle + half).min(1.0),
    }
}

/// More functions than this no table needs.
const MAX_FUNCTIONS: usize = 200;

/// Returns the findings of [`OnCpu`]; all other fields are left empty.
pub fn findings(found: &OnCpu, pid: i32, program: &str) -> ProfileFindings {
    let seconds = found.seconds;
    let unwound = found.unwound;
    let unnamed = found.unnamed.iter();
    let unnamed_file = |(file, why): &(String, String)| UnnamedFile {
        file: file.clone(),
        why: why.clone(),
    };
    ProfileFindings {
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
        unnamed: unnamed.map(unnamed_file).collect(),
        tcg: parts(&found.profile),
        ..ProfileFindings::default()
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
        let leaf = profile.stacks[sample.stack].last();
        match leaf.map(|&leaf| profile.functions[leaf].origin) {
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
    threads.sort_by_key(|thread| Reverse(thread.share.samples));
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
            layer: <&str>::from(function.origin).to_owned(),
            named: function.named,
            inside: share(inside, total),
            total: share(below, total),
        })
        .collect();
    let key = |f: &FunctionShare| Reverse((f.inside.samples, f.total.samples));
    functions.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name)));
    functions.truncate(MAX_FUNCTIONS);
    functions
}

/// Functions that translate the guest's code (accel/tcg/translate-all.c, translator.c; tcg/tcg.c).
const TRANSLATES: [&str; 4] = [
    "tb_gen_code",
    "tcg_gen_code",
    "gen_intermediate_code",
    "translator_loop",
];
/// Functions that only the search for the next block of code calls (accel/tcg/cpu-exec.c), by which it is known where
/// its own name was stripped.
const SEARCHES: [&str; 2] = ["qht_lookup_custom", "get_page_addr_code_hostp"];
/// Prefixes of softmmu's functions (accel/tcg/cputlb.c; target/i386/tcg/sysemu/excp_helper.c).
const SOFTMMU: [&str; 9] = [
    "tlb_",
    "probe_access",
    "victim_tlb_hit",
    "mmu_lookup",
    "io_readx",
    "io_writex",
    "load_helper",
    "store_helper",
    "x86_cpu_tlb_fill",
];

/// The parts of the samples of threads that ran translated code, the largest first; empty where none did.
pub fn parts(profile: &Profile) -> Vec<TcgShare> {
    let runs = |sample: &Sample| above_translated(profile, &profile.stacks[sample.stack]).is_some();
    let samples = profile.samples.iter();
    let threads: HashSet<usize> = samples.filter(|s| runs(s)).map(|s| s.thread).collect();
    let searching = searching(profile);
    let name = |number: &usize| profile.functions[*number].name.as_str();
    let mut counts: HashMap<TcgPart, u64> = HashMap::new();
    let samples = profile.samples.iter();
    for sample in samples.filter(|sample| threads.contains(&sample.thread)) {
        let stack = &profile.stacks[sample.stack];
        let has = |is: &dyn Fn(&str) -> bool| stack.iter().any(|number| is(name(number)));
        let part = match above_translated(profile, stack) {
            Some([]) => TcgPart::Translated,
            Some(above) => called(above, &searching, name),
            None if has(&|name| TRANSLATES.contains(&name)) => TcgPart::Translation,
            None if has(&|name| name.starts_with("cpu_exec")) => TcgPart::Loop,
            None => TcgPart::Outside,
        };
        *counts.entry(part).or_default() += sample.weight;
    }
    let total = counts.values().sum();
    let mut parts: Vec<TcgShare> = counts
        .into_iter()
        .map(|(part, count)| TcgShare {
            part,
            share: share(count, total),
        })
        .collect();
    parts.sort_by_key(|part| (Reverse(part.share.samples), part.part));
    parts
}

/// Returns what translated code called, innermost last; `None` if a stack has no translated code.
fn above_translated<'a>(profile: &Profile, stack: &'a [usize]) -> Option<&'a [usize]> {
    let translated = |number: &usize| profile.functions[*number].origin == CodeOrigin::Translated;
    let at = stack.iter().position(translated)?;
    Some(&stack[at + 1..])
}

/// Returns the part of TCG that translated code called.
fn called<'a>(
    above: &[usize],
    searching: &HashSet<usize>,
    name: impl Fn(&usize) -> &'a str,
) -> TcgPart {
    let first = name(&above[0]);
    if above
        .iter()
        .any(|number| name(number).starts_with("memory_region_dispatch_"))
    {
        TcgPart::Devices
    } else if searching.contains(&above[0]) || first == "helper_lookup_tb_ptr" {
        TcgPart::Search
    } else if first.ends_with("_mmu") || SOFTMMU.iter().any(|begin| first.starts_with(begin)) {
        TcgPart::Softmmu
    } else {
        TcgPart::Helpers
    }
}

/// The functions that translated code calls and that search for the next block.
fn searching(profile: &Profile) -> HashSet<usize> {
    let searches = |number: &usize| SEARCHES.contains(&profile.functions[*number].name.as_str());
    // Itself, or through one function more.
    let found = profile
        .stacks
        .iter()
        .filter_map(|stack| above_translated(profile, stack))
        .filter(|above| above.iter().take(3).skip(1).any(searches));
    found.map(|above| above[0]).collect()
}

/// Probability that chance alone names a function that did not change, when two profiles are compared.
const WRONG: f64 = 0.05;

/// The functions whose own share of the samples (self) differs by more than sampling noise: their intervals do not
/// overlap. These are the wider the more functions are compared (Bonferroni's correction), so that among all of them chance
/// names one in fewer than one of twenty comparisons, however many there are.
pub fn changes(before: &Profile, after: &Profile) -> ProfileChanges {
    let (old, new) = (inside(before), inside(after));
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let compared = names.len();
    let z = deviations(WRONG / compared.max(1) as f64);
    let share_in = |counts: &HashMap<&str, u64>, name, profile: &Profile| {
        share_within(z, counts.get(name).copied().unwrap_or(0), profile.total())
    };
    let changes = names.into_iter().map(|name| FunctionChange {
        name: name.to_owned(),
        before: share_in(&old, name, before),
        after: share_in(&new, name, after),
    });
    let apart = |c: &FunctionChange| c.before.high < c.after.low || c.after.high < c.before.low;
    let mut changed: Vec<FunctionChange> = changes.filter(apart).collect();
    let size = |c: &FunctionChange| (c.after.share - c.before.share).abs();
    changed.sort_by(|a, b| size(b).total_cmp(&size(a)));
    ProfileChanges { compared, changed }
}

/// Returns the number of standard deviations that leave this much of a normal distribution outside, on both sides
/// together (Abramowitz and Stegun 26.2.23; off by less than 5e-4).
fn deviations(outside: f64) -> f64 {
    let t = (-2.0 * (outside / 2.0).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// Samples by the function that they were in.
fn inside(profile: &Profile) -> HashMap<&str, u64> {
    let mut counts = HashMap::new();
    for sample in &profile.samples {
        if let Some(&leaf) = profile.stacks[sample.stack].last() {
            *counts
                .entry(profile.functions[leaf].name.as_str())
                .or_default() += sample.weight;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::unfold;
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

    #[test]
    fn each_part_has_its_samples() {
        let text = "CPU 0/TCG;cpu_exec;[translated code]_[j] 40\n\
                    CPU 0/TCG;cpu_exec;[translated code]_[j];helper_le_ldq_mmu 10\n\
                    CPU 0/TCG;cpu_exec;[translated code]_[j];helper_le_stl_mmu;tlb_fill;x86_cpu_tlb_fill 5\n\
                    CPU 0/TCG;cpu_exec;[translated code]_[j];helper_le_stl_mmu;memory_region_dispatch_write;serial_ioport_write 4\n\
                    CPU 0/TCG;cpu_exec;[translated code]_[j];qemu:curr_cflags+0x40 8\n\
                    CPU 0/TCG;cpu_exec;[translated code]_[j];qemu:curr_cflags+0x40;qemu:cpu_loop_exit_atomic+0x20;qht_lookup_custom 2\n\
                    CPU 0/TCG;cpu_exec;[translated code]_[j];helper_syscall 6\n\
                    CPU 0/TCG;cpu_exec;tb_gen_code;tcg_gen_code 12\n\
                    CPU 0/TCG;cpu_exec;cpu_handle_interrupt 7\n\
                    CPU 0/TCG;qemu_mutex_lock_impl 6\n\
                    qemu;main_loop 100\n";
        let profile = unfold(text, Path::new("x")).unwrap();
        let found: Vec<(TcgPart, u64)> = parts(&profile)
            .iter()
            .map(|p| (p.part, p.share.samples))
            .collect();
        let expected = [
            (TcgPart::Translated, 40),
            (TcgPart::Softmmu, 15),
            (TcgPart::Translation, 12),
            (TcgPart::Search, 10),
            (TcgPart::Loop, 7),
            (TcgPart::Helpers, 6),
            (TcgPart::Outside, 6),
            (TcgPart::Devices, 4),
        ];
        assert_eq!(found, expected);
        assert!((parts(&profile)[0].share.share - 0.4).abs() < 1e-12);
        // Nobody translates under KVM.
        assert_eq!(
            parts(&unfold("CPU 0/KVM;main;ioctl 3\n", Path::new("x")).unwrap()),
            []
        );
    }

    #[test]
    fn shares_have_wilsons_interval() {
        let half = share(50, 100);
        assert!(
            (half.low - 0.4038).abs() < 1e-4 && (half.high - 0.5962).abs() < 1e-4,
            "{half:?}"
        );
        let none = share(0, 100);
        assert!(
            none.low == 0.0 && (none.high - 0.0370).abs() < 1e-4,
            "{none:?}"
        );
        assert_eq!(share(0, 0).share, 0.0);
    }

    #[test]
    fn what_is_gone_is_named_and_what_may_be_chance_is_not() {
        let profile_of = |text: &str| unfold(text, Path::new("x")).unwrap();
        let before = profile_of("t;main;look_up 400\nt;main;other 300\nt;main 300\n");
        let after = profile_of("t;main;other 230\nt;main 260\nt;main;new 10\n");
        let ProfileChanges {
            compared,
            changed: found,
        } = changes(&before, &after);
        assert_eq!(compared, 4);
        let names: Vec<&str> = found.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["look_up", "main", "other", "new"]);
        assert_eq!((found[0].before.share, found[0].after.samples), (0.4, 0));
        assert_eq!(changes(&before, &before).changed, []);
        // 5 against 8 of a hundred say nothing.
        assert_eq!(
            changes(
                &profile_of("t;a 95\nt;b 5\n"),
                &profile_of("t;a 92\nt;b 8\n")
            )
            .changed,
            []
        );
    }

    #[test]
    fn among_many_functions_one_that_chance_may_have_changed_is_not_named() {
        // Of about a thousand samples 40, and then 85.
        let profile_with = |own: u64, others: u64| {
            let other = |number: u64| format!("t;f{number} {}\n", (1000 - own) / others);
            let lines: String = (0..others).map(other).collect();
            unfold(&(lines + &format!("t;own {own}\n")), Path::new("x")).unwrap()
        };
        let named = |others| {
            changes(&profile_with(40, others), &profile_with(85, others))
                .changed
                .iter()
                .any(|c| c.name == "own")
        };
        assert!(named(2) && !named(200));
    }

    #[test]
    fn deviations_are_those_of_tables() {
        for (outside, known) in [
            (0.05, 1.95996),
            (0.01, 2.57583),
            (1e-4, 3.89059),
            (1e-6, 4.89164),
        ] {
            assert!(
                (deviations(outside) - known).abs() < 5e-4,
                "{outside}: {}",
                deviations(outside)
            );
        }
    }
}
