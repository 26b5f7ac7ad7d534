//! Options: what is accepted, how it is spelled afterwards, what is reported about the rest; and docs/workloads.md
//! against them.

use proptest::prelude::*;
use std::fmt::Write;
use vmtax_model::{WorkloadName, WorkloadSpec};
use vmtax_workload::{Preset, WorkloadError, descriptor};

fn check(spec: &WorkloadSpec) -> Result<WorkloadSpec, WorkloadError> {
    vmtax_workload::check(spec).map(|checked| checked.spec())
}

fn accepted(name: WorkloadName, option: &str, value: &str) -> Option<String> {
    check(&WorkloadSpec::new(name).with(option, value))
        .ok()
        .map(|full| full.options[option].clone())
}

#[test]
fn every_default_is_valid_and_filled_in() {
    for &name in WorkloadName::ALL {
        let full = check(&WorkloadSpec::new(name)).unwrap();
        assert_eq!(full.options.len(), descriptor(name).options.len(), "{name}");
        assert_eq!(check(&full).unwrap(), full, "{name}");
        assert_eq!(descriptor(name).name, name);
    }
}

#[test]
fn full_is_the_reference_and_every_preset_can_be_run() {
    for &name in WorkloadName::ALL {
        for (option, value) in name.reference() {
            assert_eq!(
                descriptor(name).preset(Preset::Full).options[*option],
                *value,
                "{name}.{option}"
            );
        }
        for preset in [Preset::Quick, Preset::Default, Preset::Full] {
            check(&descriptor(name).preset(preset)).unwrap();
        }
    }
}

#[test]
fn the_defaults_are_those_of_sysbench() {
    let value =
        |name, option: &str| check(&WorkloadSpec::new(name)).unwrap().options[option].clone();
    assert_eq!(value(WorkloadName::Cpu, "max-prime"), "10000");
    assert_eq!(value(WorkloadName::Memory, "block-size"), "1K");
    assert_eq!(value(WorkloadName::Memory, "total-size"), "100G");
    assert_eq!(value(WorkloadName::Fileio, "block-size"), "16K");
    assert_eq!(value(WorkloadName::Mutex, "locks"), "50000");
    assert_eq!(value(WorkloadName::Threads, "yields"), "1000");
}

#[test]
fn an_unknown_option_is_named_with_the_known_ones() {
    let error = check(&WorkloadSpec::new(WorkloadName::Cpu).with("max-prim", 3))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("max-prim") && error.contains("max-prime, threads, time, events"),
        "{error}"
    );
}

#[test]
fn a_bad_value_is_named_with_what_is_allowed() {
    for (name, option, value, allowed) in [
        (WorkloadName::Cpu, "max-prime", "2", "from 3"),
        (WorkloadName::Cpu, "threads", "-1", "from 1 to 1024"),
        (WorkloadName::Cpu, "time", "soon", "0.5"),
        (WorkloadName::Cpu, "time", "NaN", "0.5"),
        (WorkloadName::Memory, "block-size", "12", "a multiple of 8"),
        (WorkloadName::Memory, "block-size", "K", "64K"),
        (
            WorkloadName::Memory,
            "total-size",
            "99999999999999999999T",
            "2G",
        ),
        (WorkloadName::Memory, "oper", "reed", "read, write, none"),
        (WorkloadName::Fileio, "fsync-end", "maybe", "on or off"),
        (
            WorkloadName::Fileio,
            "extra-flags",
            "direct,fast",
            "sync, dsync, direct",
        ),
        (WorkloadName::Fileio, "rw-ratio", "-1", "a ratio from 0"),
        (
            WorkloadName::Syscalls,
            "only",
            "getpid,reboot",
            "getpid, read_null",
        ),
        (
            WorkloadName::Disk,
            "block-size",
            "1000",
            "a multiple of 512",
        ),
    ] {
        let error = check(&WorkloadSpec::new(name).with(option, value)).unwrap_err();
        assert!(matches!(error, WorkloadError::BadValue { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("{name}.{option}={value}: give")) && text.contains(allowed),
            "{text}"
        );
    }
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let refused = |name: WorkloadName, given: &[(&str, &str)]| {
        let spec = given
            .iter()
            .fold(WorkloadSpec::new(name), |spec, (option, value)| {
                spec.with(option, value)
            });
        matches!(check(&spec), Err(WorkloadError::Conflict { .. }))
    };
    assert!(refused(WorkloadName::Cpu, &[("time", "0")]));
    assert!(!refused(
        WorkloadName::Cpu,
        &[("time", "0"), ("events", "5")]
    ));
    assert!(refused(WorkloadName::Disk, &[("time", "0")]));
    assert!(refused(
        WorkloadName::Memory,
        &[("block-size", "1M"), ("total-size", "3M"), ("threads", "4")]
    ));
    assert!(refused(WorkloadName::Fileio, &[("total-size", "1M")]));
    assert!(refused(
        WorkloadName::Fileio,
        &[("extra-flags", "direct"), ("block-size", "1000")]
    ));
    assert!(refused(
        WorkloadName::Fileio,
        &[("extra-flags", "direct"), ("num", "100")]
    ));
}

#[test]
fn a_sync_after_each_write_replaces_the_others() {
    let full = check(&WorkloadSpec::new(WorkloadName::Fileio).with("fsync-all", "on")).unwrap();
    assert_eq!(
        (
            full.options["fsync-freq"].as_str(),
            full.options["fsync-end"].as_str()
        ),
        ("0", "off")
    );
}

#[test]
fn what_writes_says_how_much() {
    let room = |spec: &WorkloadSpec, tree_files| {
        let room = vmtax_workload::check(spec).unwrap().room(tree_files);
        (room.share_bytes, room.share_files, room.held_bytes)
    };
    let bonnie = WorkloadSpec::new(WorkloadName::Bonnie)
        .with("size", "10M")
        .with("files", 10)
        .with("file-size", 1);
    assert_eq!(room(&bonnie, 0), ((10 << 20) + 10 * (4096 + 64), 13, 0));
    let fids = WorkloadSpec::new(WorkloadName::OpenFids).with("count", 40_000);
    assert_eq!((room(&fids, 0).1, room(&fids, 39_990).1), (40_042, 4006));
    assert_eq!(room(&WorkloadSpec::new(WorkloadName::Tree), 0), (0, 0, 0));
    let names = WorkloadSpec::new(WorkloadName::Names)
        .with("files", 1000)
        .with("depth", 10)
        .with("xattrs", 1);
    assert_eq!(
        room(&names, 0),
        (1000 * 64 + 10 * 4096 + 100 * 4096, 1012, 0)
    );
    assert_eq!(room(&fids, 0).2, 0);
    assert_eq!(room(&fids.with("how", "held"), 0).2, 40_000 * 2048);
}

#[test]
fn a_duration_is_shared_out_among_kinds_of_calls() {
    let time = |name, options: &[(&str, &str)]| {
        let mut spec = options
            .iter()
            .fold(WorkloadSpec::new(name), |spec, (option, value)| {
                spec.with(option, value)
            });
        vmtax_workload::set_duration(&mut spec, 3.0).unwrap();
        spec.options.get("time").cloned()
    };
    assert_eq!(time(WorkloadName::Cpu, &[]).as_deref(), Some("3"));
    assert_eq!(time(WorkloadName::Syscalls, &[]).as_deref(), Some("0.2"));
    assert_eq!(
        time(WorkloadName::Syscalls, &[("only", "getpid,stat")]).as_deref(),
        Some("1.5")
    );
    assert_eq!(time(WorkloadName::Tree, &[]), None);
}

proptest! {
    #[test]
    fn sizes_mean_the_same_however_spelled(n in 1u64..1 << 20, (suffix, shift) in prop_oneof![
        Just(("K", 10)), Just(("k", 10)), Just(("M", 20)), Just(("G", 30)),
    ]) {
        let short = accepted(WorkloadName::Memory, "total-size", &format!("{n}{suffix}"));
        let long = accepted(WorkloadName::Memory, "total-size", &(n << shift).to_string());
        prop_assert!(short.is_some());
        prop_assert_eq!(short, long);
    }

    #[test]
    fn what_comes_out_goes_in_again(value in "[0-9a-zA-Z.,-]{0,8}", workload in 0..7usize, option in 0..14usize) {
        let name = WorkloadName::ALL[workload];
        let known = descriptor(name).options;
        let spec = WorkloadSpec::new(name).with(known[option % known.len()].name, value);
        if let Ok(full) = check(&spec) {
            prop_assert_eq!(check(&full).unwrap(), full);
        }
    }
}

fn table() -> String {
    let mut table =
        "| workload | what it measures | options | figures |\n|---|---|---|---|\n".to_owned();
    for &name in WorkloadName::ALL {
        let workload = descriptor(name);
        let options: Vec<String> = workload
            .options
            .iter()
            .map(|o| format!("`{}={}`", o.name, o.default))
            .collect();
        let figures: Vec<String> = name
            .metrics()
            .map(|m| {
                format!("`{}` {}", m.id(), m.unit().symbol())
                    .trim_end()
                    .to_owned()
            })
            .collect();
        let (options, figures) = (options.join(" "), figures.join(", "));
        writeln!(
            table,
            "| `{name}` | {} | {options} | {figures} |",
            workload.about
        )
        .unwrap();
    }
    table
}

#[test]
fn the_table_in_the_docs_is_that_of_the_program() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/workloads.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once("<!-- workloads -->\n").unwrap();
    let (shown, _) = rest.split_once("<!-- end of workloads -->").unwrap();
    let table = table();
    assert!(
        shown == table,
        "put this table into docs/workloads.md:\n{table}"
    );
}
