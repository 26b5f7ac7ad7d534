//! Work of QEMU's vCPU threads under TCG: to run translated code, to translate, or to serve it.

use crate::share::share;
use std::collections::{HashMap, HashSet};
use vmtax_model::samples::{CodeOrigin, Profile};
use vmtax_model::{TcgPart, TcgShare};

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
    let translated = |number: &usize| profile.functions[*number].origin == CodeOrigin::Translated;
    let runs = |stack: &[usize]| stack.iter().position(translated);
    let threads: HashSet<usize> = profile
        .samples
        .iter()
        .filter(|s| runs(&profile.stacks[s.stack]).is_some())
        .map(|s| s.thread)
        .collect();
    let searching = searching(profile);
    let mut counts: HashMap<TcgPart, u64> = HashMap::new();
    let mut total = 0;
    for sample in profile
        .samples
        .iter()
        .filter(|sample| threads.contains(&sample.thread))
    {
        let stack = &profile.stacks[sample.stack];
        let name = |number: &usize| profile.functions[*number].name.as_str();
        let part = match runs(stack).map(|at| &stack[at + 1..]) {
            Some([]) => TcgPart::Translated,
            Some(above) => called(above, &searching, name),
            None if stack
                .iter()
                .map(name)
                .any(|name| TRANSLATES.contains(&name)) =>
            {
                TcgPart::Translation
            }
            None if stack
                .iter()
                .map(name)
                .any(|name| name.starts_with("cpu_exec")) =>
            {
                TcgPart::Loop
            }
            None => TcgPart::Outside,
        };
        *counts.entry(part).or_default() += sample.weight;
        total += sample.weight;
    }
    let mut parts: Vec<TcgShare> = counts
        .into_iter()
        .map(|(part, count)| TcgShare {
            part,
            share: share(count, total),
        })
        .collect();
    parts.sort_by_key(|part| (std::cmp::Reverse(part.share.samples), part.part));
    parts
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
    let translated = |number: &usize| profile.functions[*number].origin == CodeOrigin::Translated;
    let above = |stack: &Vec<usize>| {
        stack
            .iter()
            .position(translated)
            .map(|at| stack[at + 1..].to_vec())
    };
    let searches = |number: &usize| SEARCHES.contains(&profile.functions[*number].name.as_str());
    // Itself, or through one function more.
    let found = profile
        .stacks
        .iter()
        .filter_map(above)
        .filter(|above| above.iter().take(3).skip(1).any(searches));
    found.map(|above| above[0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::unfold;
    use std::path::Path;

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
