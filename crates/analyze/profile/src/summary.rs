//! A profile in figures: shares of threads and functions, and under TCG of the parts of QEMU's work: to run translated code, to
//! translate, or to serve it.

use crate::share::share;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use vmtax_model::samples::{CodeOrigin, OnCpu, Profile, Sample};
use vmtax_model::{FunctionShare, ProfileFindings, TcgPart, TcgShare, ThreadShare, UnnamedFile};

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
        tcg: parts(&found.profile),
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
            layer: origin(function.origin).to_owned(),
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
}
