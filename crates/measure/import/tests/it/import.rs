//! Traces of a real guest that did direct reads of its disk, one after the other: its own kernel's, QEMU's and its host's.

use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_findings::{ExitTimes, RequestKind, VmExits, VmLayers};
use vmtax_import::{Import, ImportSettings};
use vmtax_model::testing::host;
use vmtax_model::{
    AddressSpace, Checkpoint, HostFacts, ImportFacts, ImportedFiles, KvmClass, Plan, Study,
    TraceSide, files,
};
use vmtax_recording::Writer;

/// A recording that was made of files.
pub struct Imported {
    _runs: tempfile::TempDir,
    pub trial: PathBuf,
    pub facts: ImportFacts,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

pub fn host_facts() -> HostFacts {
    host(KvmClass::Absent)
}

pub fn settings(files: &[PathBuf]) -> ImportSettings {
    ImportSettings {
        files: files.to_vec(),
        ..ImportSettings::default()
    }
}

pub fn import(settings: ImportSettings) -> Result<Imported, String> {
    let import = Import::open(settings).map_err(|e| e.to_string())?;
    let runs = tempfile::tempdir().unwrap();
    let study = Study::Import(ImportedFiles {
        files: vec!["trace".into()],
    });
    let plan = Plan {
        study,
        ..Plan::new("import", 1, Vec::new(), Vec::new())
    };
    let writer =
        Writer::create_at(&runs.path().join("run"), &plan, &host_facts(), &[], "1").unwrap();
    let mut trial = writer.trial_files(0).unwrap();
    import.store(&mut trial).map_err(|e| e.to_string())?;
    let trial = trial.folder().to_owned();
    let facts = serde_json::from_slice(&fs::read(trial.join(files::IMPORT)).unwrap()).unwrap();
    Ok(Imported {
        _runs: runs,
        trial,
        facts,
    })
}

impl Imported {
    pub fn exits(&self) -> VmExits {
        vmtax_profile::vm_exits(&self.trial).unwrap()
    }

    pub fn layers(&self) -> VmLayers {
        vmtax_layers::vm(&self.trial, &host_facts()).unwrap()
    }
}

/// A file of this text.
pub fn text(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

fn lines(name: &str, holds: &str) -> u64 {
    fs::read_to_string(data(name))
        .unwrap()
        .lines()
        .filter(|line| line.contains(holds))
        .count() as u64
}

#[test]
fn exits_are_those_of_the_lines() {
    let imported = import(settings(&[data("host.txt")])).unwrap();
    let found = imported.exits();
    let count = |space, address, write| {
        let of = found
            .exits
            .addresses
            .iter()
            .filter(|a| (a.space, a.address, a.write) == (space, address, write));
        of.map(|a| a.exits.count).sum::<u64>()
    };
    assert!(lines("host.txt", "kvm_pio") > 100);
    for port in [0xcf8_u64, 0xcfc, 0x3f8] {
        for (write, name) in [(true, "pio_write"), (false, "pio_read")] {
            let expected = lines("host.txt", &format!("{name} at {port:#x} "));
            assert_eq!(
                count(AddressSpace::Port, port, write),
                expected,
                "{name} {port:#x}"
            );
        }
    }
    assert_eq!(found.vm.name.as_deref(), Some("VM with vCPU thread 15532"));
    assert!(
        found.missing.iter().any(|m| m.what == "times of exits"),
        "{:?}",
        found.missing
    );
    assert!(
        imported
            .facts
            .missing
            .iter()
            .any(|m| m.what == "block requests by layer"),
        "{:?}",
        imported.facts.missing
    );
    assert!(!imported.trial.join(files::VM_TRACE).exists());
}

/// A KVM that tells of exits: each halts for so many µs; `tgid` is printed where it is given.
fn halts(tid: i32, vcpu: u32, count: u64, us: u64, tgid: Option<i32>) -> String {
    let process = tgid.map_or(String::new(), |tgid| format!(" ({tgid:>7})"));
    let line = |n: u64| {
        let at = 1_000_000 * u64::from(vcpu + 1) + n * 1000;
        let stamp = |at: u64| format!("{}.{:06}", at / 1_000_000, at % 1_000_000);
        format!(
            "  CPU {vcpu}/KVM-{tid}{process} [000] d..1. {}: kvm_exit: vcpu {vcpu} reason HLT rip 0x1 info1 0x0 info2 0x0\n  \
             CPU {vcpu}/KVM-{tid}{process} [000] d..1. {}: kvm_entry: vcpu {vcpu}, rip 0x1\n",
            stamp(at),
            stamp(at + us)
        )
    };
    (0..count).map(line).collect()
}

/// `vmx.dat` is trace-cmd's file of 150 ms of a guest that executes one instruction of each kind that VMX intercepts, on Linux 6.12
/// with `kvm_intel` and APICv (Bochs 3.0 as a Core i7-7800X of 1 GHz), without its symbols. The counts and times are those of
/// `trace-cmd report`.
#[test]
fn every_exit_of_intels_vmx_has_its_name_count_and_time() {
    let import = import(ImportSettings {
        tsc_mhz: Some(1000.0),
        ..settings(&[data("vmx.dat")])
    })
    .unwrap();
    let found = import.exits().exits;
    let mut counts: Vec<(&str, u64, u64)> = found
        .reasons
        .iter()
        .map(|r| (r.reason.as_str(), r.exits.count, r.exits.total_ns as u64))
        .collect();
    counts.sort_unstable();
    let expected = [
        ("APIC_ACCESS", 12, 52_956),
        ("APIC_WRITE", 24, 32_484),
        ("CPUID", 72, 105_220),
        ("CR_ACCESS", 48, 76_200),
        ("DR_ACCESS", 12, 16_452),
        ("EPT_MISCONFIG", 36, 1_480_392),
        ("EXCEPTION_NMI", 24, 256_596),
        ("HLT", 45, 145_043_288),
        ("INVD", 12, 16_020),
        ("IO_INSTRUCTION", 154, 1_024_578),
        ("MONITOR_INSTRUCTION", 12, 16_212),
        ("MSR_READ", 12, 19_224),
        ("MSR_WRITE", 12, 19_716),
        ("MWAIT_INSTRUCTION", 12, 16_255),
        ("PAUSE_INSTRUCTION", 36, 70_466),
        ("RDPMC", 12, 20_762),
        ("VMCALL", 12, 17_856),
        ("WBINVD", 12, 18_176),
        ("XSETBV", 12, 17_232),
    ];
    assert_eq!(counts, expected);
    let times = found.times();
    assert_eq!(
        (times.halted_ns, times.spinning_ns),
        (145_043_288.0, 70_466.0),
        "KVM executes MWAIT as a NOP"
    );
    // The guest's time and its exits' are all there is.
    for vcpu in &found.vcpus {
        let sum = vcpu.total_ns + vcpu.in_guest_ns.unwrap();
        assert!(
            (sum / 1e9 / found.seconds - 1.0).abs() < 0.02,
            "{vcpu:?} of {} s",
            found.seconds
        );
    }
}

/// `vmx.dat` with guests that trace-cmd traced with it: their names and vCPU threads.
fn vmx_with_guests(guests: &[(&str, i32)]) -> Vec<u8> {
    const GUEST: u16 = 13;
    let mut options = Vec::new();
    for (name, tid) in guests {
        let mut guest = [name.as_bytes(), b"\0"].concat();
        guest.extend(1_u64.to_le_bytes());
        guest.extend([1, 0, *tid as u32].into_iter().flat_map(u32::to_le_bytes));
        options.extend(GUEST.to_le_bytes());
        options.extend((guest.len() as u32).to_le_bytes());
        options.extend(guest);
    }
    let mut dat = fs::read(data("vmx.dat")).unwrap();
    let after = |dat: &[u8], mark: &[u8]| {
        dat.windows(mark.len()).position(|at| at == mark).unwrap() + mark.len()
    };
    let places = after(&dat, b"flyrecord\0");
    let first = u64::from_le_bytes(dat[places..places + 8].try_into().unwrap()) as usize;
    // The pages stay where they are.
    let padding = dat.drain(first - options.len()..first).collect::<Vec<u8>>();
    assert!(padding.iter().all(|byte| *byte == 0));
    let at = after(&dat, b"options  \0");
    dat.splice(at..at, options);
    dat
}

#[test]
fn a_vm_has_the_name_that_trace_cmd_has_of_its_vcpus() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("named.dat");
    let name_of = |file: PathBuf| {
        let import = import(ImportSettings {
            tsc_mhz: Some(1000.0),
            ..settings(&[file])
        })
        .unwrap();
        import.exits().vm.name.unwrap()
    };
    let unnamed = name_of(data("vmx.dat"));
    let tid = unnamed
        .strip_prefix("VM with vCPU thread ")
        .unwrap()
        .parse()
        .unwrap();
    fs::write(&path, vmx_with_guests(&[("db01", tid + 1), ("web01", tid)])).unwrap();
    assert_eq!(name_of(path), "web01");
}

#[test]
fn each_vms_exits_are_its_own_and_have_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        halts(20, 0, 50, 20, None),
        halts(21, 1, 30, 20, None),
        halts(30, 0, 70, 40, None),
    ]
    .concat();
    let trace = text(&folder, "trace", &all);
    let import_of_process = |pid| {
        import(ImportSettings {
            pid,
            ..settings(std::slice::from_ref(&trace))
        })
    };
    let found = import_of_process(None).unwrap().exits();
    let counts: Vec<(u32, u64)> = found
        .exits
        .vcpus
        .iter()
        .map(|vcpu| (vcpu.vcpu, vcpu.count))
        .collect();
    assert_eq!(counts, [(0, 50), (1, 30)], "the VM with most exits");
    let halt = &found.exits.reasons[0];
    assert_eq!(
        (halt.reason.as_str(), halt.exits.timed, halt.exits.mean_ns),
        ("HLT", 80, Some(20_000.0))
    );
    assert!(
        found
            .missing
            .iter()
            .any(|m| m.what.starts_with("other VMs") && m.why.ends_with(": 30"))
    );
    let other = import_of_process(Some(30)).unwrap().exits();
    assert_eq!(
        (
            other.exits.reasons[0].exits.count,
            other.exits.reasons[0].exits.mean_ns
        ),
        (70, Some(40_000.0))
    );
    let error = import_of_process(Some(99)).err().unwrap();
    assert!(
        error.contains("no vCPU of process 99") && error.contains("20, 21, 30"),
        "{error}"
    );

    // On a host of AMD's: one vCPU halts, the other writes MSRs.
    let all = [
        halts(20, 0, 50, 600, None).replace("HLT", "hlt"),
        halts(21, 1, 50, 20, None).replace("HLT", "msr"),
    ];
    let found = import(settings(&[text(&folder, "amd", &all.concat())]))
        .unwrap()
        .exits()
        .exits;
    let mut reasons: Vec<(&str, u64)> = found
        .reasons
        .iter()
        .map(|r| (r.reason.as_str(), r.exits.timed))
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, [("hlt", 50), ("msr", 50)]);
    assert_eq!(
        found.times(),
        ExitTimes {
            halted_ns: 30e6,
            spinning_ns: 0.0,
            handled_ns: 1e6
        }
    );

    // With processes, threads of one need no order.
    let all = [halts(20, 1, 50, 20, Some(7)), halts(21, 0, 30, 20, Some(7))].concat();
    let found = import(ImportSettings {
        pid: Some(7),
        ..settings(&[text(&folder, "tgid", &all)])
    })
    .unwrap()
    .exits();
    assert_eq!((found.vm.pid, found.exits.vcpus.len()), (7, 2));
}

#[test]
fn requests_of_guest_and_qemu_are_joined_by_cause_and_effect() {
    let imported = import(settings(&[data("guest.txt"), data("qemu.log")])).unwrap();
    let sides: Vec<TraceSide> = imported.facts.files.iter().map(|file| file.side).collect();
    assert_eq!(sides, [TraceSide::Guest, TraceSide::Qemu]);
    let found = imported.layers();
    let [reads] = found.requests.as_slice() else {
        panic!("{:?}", found.requests)
    };
    let completed = lines("guest.txt", "block_rq_complete");
    assert_eq!(
        (
            reads.traced.kind,
            reads.traced.count.number(),
            reads.disk.as_str()
        ),
        (RequestKind::Read, completed, "guest disk 254:0")
    );
    // The kernel had read the first sectors before it was traced, so one pop too many has that offset.
    assert!(
        reads.traced.followed + 1 >= completed,
        "{} of {completed}",
        reads.traced.followed
    );
    let column = &found.layers.columns[0];
    assert!(
        (1.0..200_000.0).contains(&column.clock.bound_ns),
        "{:?}",
        column.clock
    );
    let labels: Vec<&str> = column.rows.iter().map(|row| row.label.as_str()).collect();
    for checkpoint in [
        Checkpoint::QemuPop,
        Checkpoint::QemuPush,
        Checkpoint::GuestInterrupt,
    ] {
        assert!(
            labels
                .iter()
                .any(|label| label.ends_with(checkpoint.label())),
            "{labels:?}"
        );
    }
}

/// A file of QEMU's simple backend with one request.
fn simple_trace(folder: &tempfile::TempDir) -> PathBuf {
    let name = b"virtio_blk_handle_read";
    let words = |all: &[u64]| {
        all.iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let halves = |all: &[u32]| {
        all.iter()
            .flat_map(|half| half.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let header = words(&[u64::MAX, 0xf2b1_77cb_0aa4_29b4, 4]);
    let mapping = [words(&[0, 7]), halves(&[name.len() as u32]), name.to_vec()].concat();
    let event = [
        words(&[1, 7, 5_000_000_000]),
        halves(&[24 + 32, 4711]),
        words(&[1, 2, 0, 8]),
    ]
    .concat();
    let path = folder.path().join("simple");
    fs::write(&path, [header, mapping, event].concat()).unwrap();
    path
}

#[test]
fn two_traces_of_qemu_must_have_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let simple = simple_trace(&folder);
    assert!(
        import(settings(std::slice::from_ref(&simple))).is_ok(),
        "alone"
    );
    assert!(
        import(settings(&[data("qemu.log"), data("qemu.log")])).is_ok(),
        "one clock"
    );
    let error = import(settings(&[data("qemu.log"), simple])).err().unwrap();
    assert!(
        error.contains("is stamped by realtime, ") && error.contains("by mono: import one of them"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn each_side_alone_has_its_own_requests() {
    let found = import(settings(&[data("guest.txt")])).unwrap().layers();
    assert_eq!(
        found.requests[0].traced.followed,
        lines("guest.txt", "block_rq_complete")
    );
    let unobserved =
        |m: &&vmtax_model::Missing| m.what.starts_with("KVM, QEMU and the host's kernel");
    assert_eq!(
        found.layers.columns[0]
            .missing
            .iter()
            .filter(unobserved)
            .count(),
        1
    );

    let found = import(settings(&[data("qemu.log")])).unwrap().layers();
    let followed: u64 = found
        .requests
        .iter()
        .map(|requests| requests.traced.followed)
        .sum();
    assert_eq!(followed, lines("qemu.log", "virtio_blk_req_complete"));
    let most = found
        .requests
        .iter()
        .max_by_key(|requests| requests.traced.followed)
        .unwrap();
    assert_eq!(most.traced.thread, "QEMU thread 15531");
}

#[test]
fn clocks_that_do_not_join_are_named() {
    let imported = import(settings(&[
        data("host.txt"),
        data("qemu.log"),
        data("guest.txt"),
    ]))
    .unwrap();
    let why = imported
        .facts
        .missing
        .iter()
        .find(|m| m.what.starts_with("events of"))
        .expect("a reason");
    assert!(
        why.why.contains("do not overlap") && why.fix.contains("-C mono"),
        "{why:?}"
    );
    assert_eq!(imported.layers().requests.len(), 1);
    assert!(
        imported
            .exits()
            .exits
            .reasons
            .iter()
            .map(|r| r.exits.count)
            .sum::<u64>()
            > 100
    );
}

/// A file of QEMU's simple backend: reads of 4 KiB, each of 100 µs, one after the other from this time on, ns.
fn simple(begin: u64, reads: u64) -> Vec<u8> {
    let mut file: Vec<u8> = [u64::MAX, 0xf2b1_77cb_0aa4_29b4, 4]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    for (number, name) in [
        (0_u64, "virtio_blk_handle_read"),
        (1, "virtio_blk_req_complete"),
    ] {
        file.extend([0, number].into_iter().flat_map(u64::to_le_bytes));
        file.extend((name.len() as u32).to_le_bytes());
        file.extend(name.as_bytes());
    }
    let mut event = |number: u64, at: u64, arguments: &[u64]| {
        file.extend([1, number, at].into_iter().flat_map(u64::to_le_bytes));
        file.extend((24 + 8 * arguments.len() as u32).to_le_bytes());
        file.extend(4711_u32.to_le_bytes());
        file.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
    };
    for n in 0..reads {
        let at = begin + n * 200_000;
        event(0, at, &[0x10, 0x20, 8 * n, 8]);
        event(1, at + 100_000, &[0x10, 0x20, 0]);
    }
    file
}

#[test]
fn qemus_simple_trace_is_on_the_clock_of_the_hosts_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let host = fs::read_to_string(data("host.txt")).unwrap();
    let stamp = host
        .lines()
        .rfind(|line| line.contains("kvm_pio"))
        .unwrap()
        .split(' ')
        .find_map(|word| {
            let (seconds, micros) = word.strip_suffix(':')?.split_once('.')?;
            Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000)
        });
    let qemu = folder.path().join("simple");
    let import_at = |begin: u64| {
        fs::write(&qemu, simple(begin, 20)).unwrap();
        import(settings(&[data("host.txt"), qemu.clone()])).unwrap()
    };
    let imported = import_at(stamp.unwrap() - 2_000_000);
    let [joined] = imported.facts.clocks.as_slice() else {
        panic!("{:?}", imported.facts.missing)
    };
    assert!(
        joined.method.contains("whose times overlap") && joined.bound_ns.is_none(),
        "{joined:?}"
    );
    let found = imported.layers();
    assert_eq!(
        (
            found.requests[0].traced.count.number(),
            found.requests[0].traced.followed
        ),
        (20, 20)
    );
    assert!(
        (found.requests[0].gavg.mean_ns - 100_000.0).abs() < 1.0,
        "{:?}",
        found.requests[0].gavg
    );
    assert_eq!(found.vm.name, imported.exits().vm.name);
    // Of another boot.
    let apart = import_at(5);
    assert!(apart.facts.clocks.is_empty());
    assert!(
        apart
            .facts
            .missing
            .iter()
            .any(|m| m.why.contains("do not overlap")),
        "{:?}",
        apart.facts.missing
    );
    assert_eq!(apart.layers().requests[0].traced.followed, 20);
}

#[test]
fn a_shared_counter_joins_guest_and_host() {
    let folder = tempfile::tempdir().unwrap();
    // Each microsecond of the guest's trace is a tick.
    let ticks = fs::read_to_string(data("guest.txt"))
        .unwrap()
        .replace("     1.0", "      10");
    let guest = text(&folder, "guest", &ticks);
    let import_with_offset = |offset: Option<i64>, begin: u64| {
        let line = |at: u64, event: &str| format!("  CPU 0/KVM-20 [000] d..1. {at}: {event}\n");
        let offset = offset.map(|offset| {
            line(
                begin,
                &format!("kvm_write_tsc_offset: vcpu=0 prev=0 next={}", offset as u64),
            )
        });
        let exits = (0..100).map(|n| {
            line(
                begin + n * 1000,
                "kvm_pio: pio_write at 0x80 size 1 count 1 val 0x0",
            )
        });
        let host = text(
            &folder,
            "host",
            &offset.into_iter().chain(exits).collect::<String>(),
        );
        import(ImportSettings {
            tsc_mhz: Some(1.0),
            ..settings(&[host, guest.clone()])
        })
        .unwrap()
    };
    for (offset, begin, method) in [
        (Some(-5_000_000), 6_050_000, "KVM's offset"),
        (None, 1_050_000, "reads as it is"),
        (Some(7), 1_050_000, "KVM's"),
    ] {
        let imported = import_with_offset(offset, begin);
        let [joined] = imported.facts.clocks.as_slice() else {
            panic!("{offset:?}: {:?}", imported.facts)
        };
        assert!(
            joined.method.contains(method) && joined.bound_ns == Some(1000.0),
            "{joined:?}"
        );
        let found = imported.layers();
        assert_eq!(
            found.requests[0].traced.followed,
            lines("guest.txt", "block_rq_complete"),
            "{:?}",
            found.layers.columns[0].matched
        );
    }
    // Nowhere does the guest's time lie within the host's.
    assert!(import_with_offset(None, 9_000_000).facts.clocks.is_empty());
}

#[test]
fn what_cannot_be_imported_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let says = |files: &[PathBuf], expected: &str| {
        let error = import(settings(files)).err().expect(expected);
        assert!(
            error.contains(expected) && error.lines().count() == 1,
            "{error}"
        );
    };
    says(&[folder.path().join("absent")], "failed to read");
    says(&[folder.path().to_owned()], "not a regular file");
    says(&[text(&folder, "empty", "")], "not a trace that is known");
    says(
        &[text(&folder, "zeros", "\0\0\0")],
        "not a trace that is known",
    );
    says(
        &[text(&folder, "prose", "nothing\nof the kind\n")],
        "no line of an event",
    );
    says(
        &[text(&folder, "other", "a-1 [000] 1.000001: foo: bar\n")],
        "no event of KVM",
    );
    says(
        &[
            data("guest.txt"),
            text(
                &folder,
                "copy",
                &fs::read_to_string(data("guest.txt")).unwrap(),
            ),
        ],
        "--guest-trace",
    );
    let ticks = halts(20, 0, 3, 20, None).replace("1.0", "10");
    let ticks = text(&folder, "ticks", &ticks);
    says(std::slice::from_ref(&ticks), "--tsc-mhz");
    let scaled = import(ImportSettings {
        tsc_mhz: Some(2000.0),
        ..settings(&[ticks])
    })
    .unwrap()
    .exits();
    assert_eq!(scaled.exits.reasons[0].exits.mean_ns, Some(10.0));
    // Cut anywhere, what is left of it is read.
    let whole = fs::read(data("qemu.log")).unwrap();
    let cut = folder.path().join("cut");
    fs::write(&cut, &whole[..whole.len() / 2 + 3]).unwrap();
    let found = import(settings(&[cut])).unwrap().layers();
    assert!(
        found
            .requests
            .iter()
            .map(|requests| requests.traced.followed)
            .sum::<u64>()
            > 5
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a stranger changed: an import, or an error; and what was imported is analyzed.
    #[test]
    fn any_change_is_survived(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40), cut in any::<prop::sample::Index>(), which in 0..3_usize) {
        let folder = tempfile::tempdir().unwrap();
        let mut files = ["guest.txt", "qemu.log", "host.txt"].map(data);
        let mut content = fs::read(&files[which]).unwrap();
        for (at, with) in changes {
            let at = at.index(content.len());
            content[at] = with;
        }
        content.truncate(cut.index(content.len() * 2 + 1));
        files[which] = folder.path().join("changed");
        fs::write(&files[which], content).unwrap();
        for files in [&files[..], &files[..2], &files[which..=which]] {
            let Ok(imported) = import(settings(files)) else { continue };
            if imported.trial.join(vmtax_model::files::VM_TRACE).exists() {
                let _ = vmtax_layers::vm(&imported.trial, &host_facts());
            }
            if imported.trial.join(vmtax_model::files::EXITS).exists() {
                let _ = imported.exits();
            }
        }
    }
}
