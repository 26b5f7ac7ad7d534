//! One function for each parser of outside data. It panics where the parser breaks a promise.

mod bzimage;
mod console;
mod dataset;
mod domain_stats;
mod fio;
mod guest_code;
mod guest_file;
mod latency;
mod launch;
mod memory_tree;
mod micro;
mod modinfo;
mod monitor_counters;
mod mountinfo;
mod packet;
mod plan;
mod profile_elf;
mod profile_folded;
mod profile_guest;
mod profile_perf;
mod qemu_points;
mod recording;
mod review;
mod thresholds;
mod tools;
mod trace_dat;
mod trace_format;
mod trace_pages;
mod trace_perf;
mod trace_simple;
mod trace_text;
mod twin;
mod vm_settings;
mod wire;

/// A parser that inputs go to.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target, and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Reads an input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "bzimage",
        run: bzimage::run,
    },
    Target {
        name: "console",
        run: console::run,
    },
    Target {
        name: "dataset",
        run: dataset::run,
    },
    Target {
        name: "domain_stats",
        run: domain_stats::run,
    },
    Target {
        name: "fio",
        run: fio::run,
    },
    Target {
        name: "guest_code",
        run: guest_code::run,
    },
    Target {
        name: "guest_file",
        run: guest_file::run,
    },
    Target {
        name: "latency",
        run: latency::run,
    },
    Target {
        name: "launch",
        run: launch::run,
    },
    Target {
        name: "memory_tree",
        run: memory_tree::run,
    },
    Target {
        name: "micro",
        run: micro::run,
    },
    Target {
        name: "modinfo",
        run: modinfo::run,
    },
    Target {
        name: "monitor_counters",
        run: monitor_counters::run,
    },
    Target {
        name: "mountinfo",
        run: mountinfo::run,
    },
    Target {
        name: "packet",
        run: packet::run,
    },
    Target {
        name: "plan",
        run: plan::run,
    },
    Target {
        name: "profile_elf",
        run: profile_elf::run,
    },
    Target {
        name: "profile_folded",
        run: profile_folded::run,
    },
    Target {
        name: "profile_guest",
        run: profile_guest::run,
    },
    Target {
        name: "profile_perf",
        run: profile_perf::run,
    },
    Target {
        name: "qemu_points",
        run: qemu_points::run,
    },
    Target {
        name: "recording",
        run: recording::run,
    },
    Target {
        name: "review",
        run: review::run,
    },
    Target {
        name: "thresholds",
        run: thresholds::run,
    },
    Target {
        name: "tools",
        run: tools::run,
    },
    Target {
        name: "trace_dat",
        run: trace_dat::run,
    },
    Target {
        name: "trace_format",
        run: trace_format::run,
    },
    Target {
        name: "trace_pages",
        run: trace_pages::run,
    },
    Target {
        name: "trace_perf",
        run: trace_perf::run,
    },
    Target {
        name: "trace_simple",
        run: trace_simple::run,
    },
    Target {
        name: "trace_text",
        run: trace_text::run,
    },
    Target {
        name: "twin",
        run: twin::run,
    },
    Target {
        name: "vm_settings",
        run: vm_settings::run,
    },
    Target {
        name: "wire",
        run: wire::run,
    },
];
