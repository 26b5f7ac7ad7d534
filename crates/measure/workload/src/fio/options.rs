//! Options of fio, and what becomes of each in a job that somebody pasted.
//!
//! It is a list of what is known to be harmless, not of what is harmful: fio has several hundred options, and each version more. An
//! option that is missing here is refused by its name, which costs a line; one that is missing in a list of harmful ones could cost
//! a disk. The sandbox is the second wall: it has no other disk, file or network. Source: fio(1) of fio 3.33 and 3.39,
//! and fio's examples.

use super::error::FioError;

/// What becomes of an option.
pub(super) enum Rule {
    /// It is fio's as it is.
    Kept,
    /// It changes no request, and is left out without a word.
    LeftOut,
    /// It is left out, and a line says why.
    Mapped(&'static str),
    /// It is refused, with the reason.
    Refused(&'static str),
}

/// Options that shape requests, buffers, order, rates, figures.
const KEPT: &[&str] = &[
    "allrandrepeat",
    "atomic",
    "ba",
    "block_error_percentiles",
    "bs",
    "bs_is_seq_rand",
    "bs_unaligned",
    "bsrange",
    "bssplit",
    "buffer_compress_chunk",
    "buffer_compress_percentage",
    "buffer_pattern",
    "buffered",
    "clat_percentiles",
    "clocksource",
    "cmdprio",
    "cmdprio_bssplit",
    "cmdprio_class",
    "cmdprio_hint",
    "cmdprio_percentage",
    "continue_on_error",
    "cpuchunks",
    "cpuload",
    "cpumask",
    "cpumode",
    "cpus_allowed",
    "cpus_allowed_policy",
    "dedupe_global",
    "dedupe_mode",
    "dedupe_percentage",
    "dedupe_working_set_percentage",
    "direct",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "disk_util",
    "do_verify",
    "end_fsync",
    "error_dump",
    "exit_on_io_done",
    "exit_what",
    "exitall",
    "exitall_on_error",
    "experimental_verify",
    "fadvise_hint",
    "fdatasync",
    "fill_device",
    "fixedbufs",
    "flow",
    "flow_id",
    "flow_sleep",
    "force_async",
    "fsync",
    "fsync_on_close",
    "group_reporting",
    "gtod_cpu",
    "gtod_reduce",
    "hipri",
    "hipri_percentage",
    "hugepage-size",
    "ignore_error",
    "ignore_zone_limits",
    "invalidate",
    "io_size",
    "io_submit_mode",
    "iodepth",
    "iodepth_batch",
    "iodepth_batch_complete_max",
    "iodepth_batch_complete_min",
    "iodepth_low",
    "ioengine",
    "iomem_align",
    "job_max_open_zones",
    "kb_base",
    "lat_percentiles",
    "latency_percentile",
    "latency_run",
    "latency_target",
    "latency_window",
    "lockfile",
    "lockmem",
    "loops",
    "max_latency",
    "max_open_zones",
    "mem",
    "new_group",
    "nice",
    "nonvectored",
    "norandommap",
    "nowait",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "number_ios",
    "numjobs",
    "offset",
    "offset_align",
    "offset_increment",
    "overwrite",
    "percentage_random",
    "percentile_list",
    "pre_read",
    "prio",
    "prioclass",
    "priohint",
    "random_distribution",
    "random_generator",
    "random_sequence_stride",
    "randrepeat",
    "randseed",
    "rate",
    "rate_cycle",
    "rate_ignore_thinktime",
    "rate_iops",
    "rate_iops_min",
    "rate_min",
    "rate_process",
    "read_beyond_wp",
    "readfua",
    "refill_buffers",
    "registerfiles",
    "rw",
    "rw_sequencer",
    "rwmixread",
    "rwmixwrite",
    "scramble_buffers",
    "serialize_overlap",
    "sg_write_mode",
    "significant_figures",
    "size",
    "slat_percentiles",
    "softrandommap",
    "spr_num_regions",
    "spr_op",
    "sprandom",
    "sqthread_poll",
    "sqthread_poll_cpu",
    "startdelay",
    "stats",
    "steadystate",
    "steadystate_check_interval",
    "steadystate_duration",
    "steadystate_ramp_time",
    "stonewall",
    "stream_id",
    "sync",
    "sync_file_range",
    "thinktime",
    "thinktime_blocks",
    "thinktime_blocks_type",
    "thinktime_iotime",
    "thinktime_spin",
    "thp",
    "thread",
    "trim_backlog",
    "trim_backlog_batch",
    "trim_percentage",
    "trim_verify_zero",
    "uncached",
    "unified_rw_reporting",
    "unit_base",
    "userspace_reap",
    "verify",
    "verify_async",
    "verify_async_cpus",
    "verify_backlog",
    "verify_backlog_batch",
    "verify_fatal",
    "verify_header_seed",
    "verify_interval",
    "verify_offset",
    "verify_only",
    "verify_pattern",
    "verify_write_sequence",
    "wait_for",
    "write_barrier",
    "write_hint",
    "writefua",
    "zero_buffers",
    "zone_reset_frequency",
    "zone_reset_threshold",
    "zonecapacity",
    "zonemode",
    "zonerange",
    "zonesize",
    "zoneskip",
];

/// Options of fio's own logs, of making files, of words for people.
const LEFT_OUT: &[&str] = &[
    "allow_file_create",
    "allow_mounted_write",
    "bwavgtime",
    "create_fsync",
    "create_on_open",
    "create_serialize",
    "description",
    "fallocate",
    "iopsavgtime",
    "log_alternate_epoch",
    "log_alternate_epoch_clock_id",
    "log_avg_msec",
    "log_compression",
    "log_compression_cpus",
    "log_entries",
    "log_hist_coarseness",
    "log_hist_msec",
    "log_issue_time",
    "log_max_value",
    "log_offset",
    "log_prio",
    "log_store_compressed",
    "log_unix_epoch",
    "log_window_value",
    "per_job_logs",
    // Of the profile `tiobench`: without it, it says nothing.
    "threads",
    "unique_filename",
    "unlink",
    "unlink_each_loop",
    "verify_dump",
    "verify_state_save",
    "write_bw_log",
    "write_hist_log",
    "write_iops_log",
    "write_lat_log",
];

/// Options of where, which the measured disk decides.
const MAPPED: &[(&str, &str)] = &[
    ("directory", "the requests go to the measured disk"),
    ("file_service_type", "the measured disk is one file"),
    ("filename", "the measured disk"),
    ("filename_format", "the requests go to the measured disk"),
    ("filesize", "the measured disk has its own size"),
    ("nrfiles", "the measured disk is one file"),
    ("openfiles", "the measured disk is one file"),
];

/// Options of how long, which a measurement of a fixed time decides.
pub(super) const TIMES: [&str; 3] = ["ramp_time", "runtime", "time_based"];

const PROGRAM: &str = "it runs a program";
const TRACE: &str = "it names a trace, with the devices of the machine that recorded it";
const GROUP: &str = "it moves fio into a control group of the host";
const USER: &str = "it runs fio as another user";
const REFUSED: &[(&str, &str)] = &[
    ("cgroup", GROUP),
    ("cgroup_nodelete", GROUP),
    ("cgroup_weight", GROUP),
    ("create_only", "it makes files and no requests"),
    ("exec_postrun", PROGRAM),
    ("exec_prerun", PROGRAM),
    (
        "file_append",
        "it makes the file longer, and a disk has its size",
    ),
    ("gid", USER),
    ("include", "it names another file: paste what is in it"),
    (
        "ioscheduler",
        "it changes the I/O scheduler of a device of the host",
    ),
    ("merge_blktrace_file", TRACE),
    ("merge_blktrace_iters", TRACE),
    ("merge_blktrace_scalars", TRACE),
    ("opendir", "it names a directory, whose files it would use"),
    (
        "profile",
        "it replaces the job by one that is built into fio",
    ),
    ("read_iolog", TRACE),
    ("read_iolog_chunked", TRACE),
    ("replay_align", TRACE),
    ("replay_no_stall", TRACE),
    ("replay_redirect", TRACE),
    ("replay_scale", TRACE),
    ("replay_skip", TRACE),
    ("replay_time_scale", TRACE),
    ("uid", USER),
    (
        "verify_state_load",
        "it names a file with the state of another run",
    ),
    ("write_iolog", "it names a file that a trace is written to"),
];

/// Other names of options.
const ALIASES: &[(&str, &str)] = &[
    ("blockalign", "ba"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("disable_bw", "disable_bw_measurement"),
    ("fileoffset", "offset"),
    ("fill_fs", "fill_device"),
    ("io_limit", "io_size"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("iomem", "mem"),
    ("mem_align", "iomem_align"),
    ("ratecycle", "rate_cycle"),
    ("ratemin", "rate_min"),
    ("readwrite", "rw"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_interval", "steadystate_check_interval"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
];

/// Options that a command line gives without a value.
const FLAGS: &[&str] = &[
    "bs_unaligned",
    "exitall",
    "exitall_on_error",
    "group_reporting",
    "new_group",
    "norandommap",
    "refill_buffers",
    "stonewall",
    "thread",
    "time_based",
    "verify_only",
    "zero_buffers",
];

/// Options of fio itself, which say how it prints: those with a value, then those without.
const OF_OUTPUT: &[&str] = &[
    "alloc-size",
    "append-terse",
    "debug",
    "eta",
    "eta-interval",
    "eta-newline",
    "idle-prof",
    "max-jobs",
    "output",
    "output-format",
    "status-interval",
    "terse-version",
];
const FLAGS_OF_OUTPUT: &[&str] = &["bandwidth-log", "minimal", "readonly", "warnings-fatal"];

/// Engines that make requests to the disk of `filename`, or none at all (`null`, `cpuio`).
const ENGINES: &[&str] = &[
    "cpuio", "io_uring", "libaio", "linuxaio", "mmap", "null", "posixaio", "psync", "pvsync",
    "pvsync2", "sg", "splice", "sync", "vsync",
];

/// The name that fio itself has for an option.
pub(super) fn canonical(name: &str) -> &str {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    alias.map_or(name, |(_, name)| name)
}

/// Returns true if a command line may give the option without a value.
pub(super) fn is_flag(name: &str) -> bool {
    FLAGS.contains(&canonical(name)) || FLAGS_OF_OUTPUT.contains(&name)
}

/// Returns true for an option of fio itself that only says how it prints.
pub(super) fn is_of_output(name: &str) -> bool {
    OF_OUTPUT.contains(&name) || FLAGS_OF_OUTPUT.contains(&name)
}

/// What becomes of an option of this name, which is fio's own; `None` of one that is not known.
pub(super) fn rule(name: &str) -> Option<Rule> {
    let named = |all: &[(&str, &'static str)]| {
        let mut all = all.iter();
        all.find(|(known, _)| *known == name).map(|(_, why)| *why)
    };
    if KEPT.contains(&name) || TIMES.contains(&name) {
        Some(Rule::Kept)
    } else if LEFT_OUT.contains(&name) {
        Some(Rule::LeftOut)
    } else if let Some(why) = named(MAPPED) {
        Some(Rule::Mapped(why))
    } else {
        named(REFUSED).map(Rule::Refused)
    }
}

/// Checks the value of an option that is kept or mapped: some name a file, a device or a program.
pub(super) fn check_value(name: &str, value: &str) -> Result<(), FioError> {
    let refused = |why| Err(FioError::refused(name, value, why));
    let is_mapped = MAPPED.iter().any(|(mapped, _)| *mapped == name);
    // Behind a backslash it is part of a name.
    let has_list = value.replace("\\:", "").contains(':');
    match name {
        "filename" if has_list => {
            refused("it names several files or disks, and one disk is measured: name one")
        }
        // fio computes with what stands behind it in a shell, and takes the environment's values.
        _ if value.contains('$') && !is_mapped => {
            refused("write the value in place of what $ stands for")
        }
        "ioengine" if !ENGINES.contains(&value) => refused(
            "this engine runs a program, loads one, uses the network, or makes no requests to the disk of filename: leave it out",
        ),
        "buffer_pattern" | "verify_pattern" if value.contains('\'') => {
            refused("it names a file: give the pattern itself")
        }
        "mem" if value.contains([':', '/']) => refused("it names a file: leave the file out"),
        // fio 3.33, on Linux 6.18, libaio with 32 requests in flight: also after one request, without a time.
        "io_submit_mode" if value == "offload" => {
            refused("fio does not end with several requests in flight: leave it out")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_in_one_list() {
        let mut all: Vec<&str> = [KEPT, LEFT_OUT, &TIMES].concat();
        all.extend(MAPPED.iter().chain(REFUSED).map(|(name, _)| name));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for (alias, name) in ALIASES {
            assert!(rule(name).is_some() && rule(alias).is_none(), "{alias}");
        }
        assert!(FLAGS.iter().all(|name| rule(name).is_some()));
    }

    #[test]
    fn a_mode_with_which_fio_does_not_end_is_refused() {
        assert!(check_value("io_submit_mode", "inline").is_ok());
        let why = check_value("io_submit_mode", "offload").unwrap_err();
        assert!(
            why.to_string()
                .starts_with("fio's io_submit_mode=offload: ")
        );
    }

    /// The options of the installed fio have a rule each, so that none is refused as unknown.
    #[test]
    fn the_options_of_the_installed_fio_are_known() {
        let Ok(output) = std::process::Command::new("fio").arg("--cmdhelp").output() else {
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| {
            let (name, _) = line.split_once(':')?;
            // Long names are cut short.
            Some(name.trim()).filter(|name| name.len() < 22 && !name.contains(' '))
        });
        let unknown: Vec<&str> = names
            .filter(|name| *name != "name" && rule(name).is_none())
            .collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }
}
