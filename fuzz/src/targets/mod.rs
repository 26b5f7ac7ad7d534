//! One function for each parser of outside data. It panics where the parser breaks a promise.

mod guests;
mod profiles;
mod recordings;
mod texts;
mod traces;
mod vmms;

/// A parser that inputs go to.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target, and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Reads an input.
    pub run: fn(&[u8]),
}

/// Registers functions of the modules by their names.
macro_rules! targets {
    ($($module:ident: $($name:ident),+;)+) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[
            $($(Target { name: stringify!($name), run: $module::$name },)+)+
        ];
    };
}

targets! {
    guests: bzimage, launch, micro, modinfo, mountinfo, qemu_points, wire;
    profiles: guest_code, profile_elf, profile_folded, profile_guest, profile_perf;
    recordings: dataset, guest_file, latency, recording;
    texts: fio, mcp, plan, review, thresholds, tools, twin;
    traces: packet, trace_dat, trace_format, trace_pages, trace_perf, trace_simple, trace_text;
    vmms: console, domain_stats, memory_tree, monitor_counters, process_files, rings, vm_settings;
}
