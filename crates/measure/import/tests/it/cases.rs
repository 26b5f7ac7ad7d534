//! Traces that say less than they seem to, or say it otherwise: what is not in them is said, and not guessed.

use crate::import::{Imported, import, settings, text};
use vmtax_findings::State;
use vmtax_import::ImportSettings;
use vmtax_model::{Layer, Missing, TraceSide, files};

/// A vCPU thread's event, or that of another thread, this many µs after the begin.
fn line(cpu: u32, us: u64, event: &str) -> String {
    format!("  CPU 0/KVM-70 [00{cpu}] d..1. 5.{us:06}: {event}\n")
}

/// A text of this file, imported.
fn imported(content: &str) -> Result<Imported, String> {
    let folder = tempfile::tempdir().unwrap();
    import(settings(&[text(&folder, "trace", content)]))
}

/// Exits of one reason: its name, number, number with a time, mean time in ns.
type Exits = (String, u64, u64, Option<f64>);

/// Exits by reason, and what is missing.
fn exits(content: &str) -> (Vec<Exits>, Vec<Missing>) {
    let found = imported(content).unwrap().exits();
    let rows = found.exits.reasons.into_iter();
    let mut rows: Vec<_> = rows
        .map(|row| {
            (
                row.reason,
                row.exits.count,
                row.exits.timed,
                row.exits.mean_ns,
            )
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    (rows, found.missing)
}

#[test]
fn what_is_no_trace_of_an_x86_vm_with_times_is_refused_by_its_name() {
    let kvm = |event: &str| line(1, 1, event);
    let arm = "a KVM of ARM: vmtax reads x86-64's";
    let cases = [
        (kvm("kvm_exit: TRAP: HSR_EC: 0x0001 (WFx), PC: 0xffff80008101"), arm),
        (kvm("kvm_exit: [FAILED TO PARSE] ret=2 esr_ec=1 vcpu_pc=0xffff8000"), arm),
        (kvm("kvm_timer_update_irq: VCPU: 0, IRQ 27, level 1"), arm),
        (kvm("kvm_exit: SEPC:0x80, SCAUSE:0x15, STVAL:0x0, HTVAL:0x0, HTINST:0x0"), "a KVM of RISC-V"),
        (kvm("kvm_s390_sie_enter: 00[0704c00180000000-000000000]: entering sie flags"), "a KVM of s390"),
        (kvm("kvm_guest_exit: VCPU 0: trap=HV_DECREMENTER pc=0xc0 msr=0x8"), "a KVM of PowerPC"),
        (kvm("kvm_exit: [Idle]PC: 0x9000000000221f60"), "a KVM of LoongArch or MIPS"),
        (
            "virtio_blk_handle_write vdev 0x5 req 0x6 sector 8 nsectors 8\nvirtio_blk_req_complete vdev 0x5 req 0x6 status 0\n"
                .to_owned(),
            "a QEMU log without times: record with `-msg timestamp=on`",
        ),
        (
            "qemu: warning: a guest\nbdrv_co_preadv bs 0x55 offset 0x1000 bytes 4096 flags 0x0\n".to_owned(),
            "a QEMU log without times",
        ),
    ];
    for (content, expected) in cases {
        let error = imported(&content).err().expect(expected);
        assert!(
            error.contains(expected) && error.lines().count() == 1,
            "{error}"
        );
    }
    // A thread may be called as QEMU's events are.
    let perf = "scsi_eh_0 70 [001] 5.000001: kvm:kvm_exit: vcpu 0 reason HLT rip 0x1 info1 0x0\n";
    assert_eq!(exits(perf).0[0].0, "HLT");
}

#[test]
fn exits_whose_fields_are_printed_by_name_have_their_reasons_and_times() {
    let exit = |us, fields: &str| {
        line(1, us, &format!("kvm_exit: [FAILED TO PARSE] {fields}"))
            + &line(1, us + 3, "kvm_entry: [FAILED TO PARSE] vcpu_id=0")
    };
    let reasons = [
        ("exit_reason=12 guest_rip=0x1 isa=1", "HLT"),
        ("exit_reason=48 guest_rip=0x1 isa=1", "EPT_VIOLATION"),
        ("exit_reason=49 guest_rip=0x1 isa=1", "EPT_MISCONFIG"),
        ("exit_reason=32 guest_rip=0x1 isa=1", "MSR_WRITE"),
        ("exit_reason=1 guest_rip=0x1 isa=1", "EXTERNAL_INTERRUPT"),
        ("exit_reason=30 guest_rip=0x1 isa=1", "IO_INSTRUCTION"),
        ("exit_reason=120 guest_rip=0x1 isa=2", "hlt"),
        ("exit_reason=0xc guest_rip=0x1", "unknown (0xc)"),
        ("exit_reason=13 isa=7", "unknown (0xd)"),
        ("exit_reason=1048576 isa=4294967295", "unknown (0x100000)"),
    ];
    let lines: String = (0..)
        .zip(&reasons)
        .map(|(n, (fields, _))| exit(n * 10, fields))
        .collect();
    // A name that the tool printed is that of no number.
    let named = line(1, 990, "kvm_exit: reason EXIT_NEW rip 0x1");
    let (rows, _) = exits(&(lines + &named));
    let mut expected: Vec<_> = reasons
        .iter()
        .map(|(_, name)| ((*name).to_owned(), 1, 1, Some(3000.0)))
        .chain([("EXIT_NEW".to_owned(), 1, 0, None)])
        .collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(rows, expected);
}

#[test]
fn exits_alone_have_no_times_and_do_not_say_what_qemu_had() {
    let alone: String = (0..20)
        .map(|n| line(1, n * 10, "kvm_exit: reason HLT rip 0x1 info 0 0"))
        .collect();
    let says = |missing: &[Missing], event: &str| {
        missing
            .iter()
            .any(|m| m.why == format!("{event} is not in the trace") && m.fix == "record `-e kvm`")
    };
    let user = |content: &str| {
        imported(content).unwrap().exits().exits.reasons[0]
            .exits
            .user
    };
    let (rows, missing) = exits(&alone);
    assert_eq!(rows, [("HLT".to_owned(), 20, 0, None)]);
    assert!(
        says(&missing, "kvm_entry") && says(&missing, "kvm_userspace_exit"),
        "{missing:?}"
    );
    assert_eq!(user(&alone), None);
    // Where one is in the trace, the others had none.
    let with = alone
        + &line(1, 300, "kvm_exit: reason IO_INSTRUCTION rip 0x1 info 0 0")
        + &line(1, 301, "kvm_userspace_exit: reason KVM_EXIT_IO (2)")
        + &line(1, 302, "kvm_entry: vcpu 0");
    let (_, missing) = exits(&with);
    assert!(
        !says(&missing, "kvm_entry") && !says(&missing, "kvm_userspace_exit"),
        "{missing:?}"
    );
    assert_eq!(user(&with), Some(0));
    // Entries alone are no exits.
    let (rows, missing) = exits(&line(1, 1, "kvm_entry: vcpu 0"));
    assert_eq!(rows, []);
    assert!(
        missing.iter().any(|m| m.why.ends_with("has no kvm_exit")),
        "{missing:?}"
    );
}

#[test]
fn an_exit_before_a_loss_on_its_cpu_has_no_time() {
    let exit = |us, lost: &str, entry_us, entry_cpu| {
        line(
            1,
            us,
            "kvm_exit: reason EXTERNAL_INTERRUPT rip 0x1 info 0 0",
        ) + lost
            + &line(entry_cpu, entry_us, "kvm_entry: vcpu 0")
    };
    let whole = exit(0, "", 4, 1);
    for (lost, cpu, timed) in [
        ("CPU:1 [LOST 9 EVENTS]\n", 1, 1),
        ("CPU:1 [LOST 9 EVENTS]\n", 2, 1),
        ("CPU:2 [9 EVENTS DROPPED]\n", 2, 1),
        ("CPU:3 [LOST 9 EVENTS]\n", 1, 2),
    ] {
        let content = whole.clone() + &exit(1000, lost, 1004 + 4000 * (2 - timed), cpu);
        let (rows, _) = exits(&content);
        assert_eq!(
            rows,
            [("EXTERNAL_INTERRUPT".to_owned(), 2, timed, Some(4000.0))],
            "{lost} {cpu}"
        );
        assert_eq!(imported(&content).unwrap().exits().exits.lost, 9);
    }
}

/// Reads of a disk, 200 µs each, as the kernel of any machine has them.
fn block_requests(device: &str) -> String {
    let event = |n: u64, us, what: &str| {
        let at = n * 1000 + us;
        format!("  app-9 [000] ..... 5.{at:06}: {what}\n")
    };
    (0..50_u64)
        .map(|n| {
            let sector = 8 * n;
            event(
                n,
                0,
                &format!("block_rq_issue: {device} R 4096 () {sector} + 8 [app]"),
            ) + &event(
                n,
                200,
                &format!("block_rq_complete: {device} R () {sector} + 8 [0]"),
            )
        })
        .collect()
}

#[test]
fn a_block_trace_without_a_sign_of_a_vm_has_no_layers_of_one() {
    let requests = block_requests("259,0");
    let host = imported(&requests).unwrap();
    assert_eq!(host.facts.files[0].side, TraceSide::Unknown);
    assert!(
        host.facts
            .missing
            .iter()
            .any(|m| m.why.contains("is of a VM") && m.fix.contains("--guest-trace")),
        "{:?}",
        host.facts.missing
    );
    let found = host.layers();
    assert_eq!(
        (
            found.requests[0].disk.as_str(),
            found.requests[0].gavg.mean_ns
        ),
        ("disk 259:0", 200_000.0)
    );
    assert_eq!((found.layers.columns.len(), found.vm.name), (0, None));
    // The interrupts of virtio's devices are of a guest; so is the file that --guest-trace names.
    let virtio =
        requests.clone() + &line(0, 999_999, "irq_handler_entry: irq=25 name=virtio0-req.0");
    let folder = tempfile::tempdir().unwrap();
    let file = text(&folder, "trace", &requests);
    let named = ImportSettings {
        guest: Some(file.clone()),
        ..settings(&[file])
    };
    for guest in [imported(&virtio), import(named)] {
        let guest = guest.unwrap();
        assert_eq!(guest.facts.files[0].side, TraceSide::Guest);
        let found = guest.layers();
        assert_eq!(found.requests[0].disk, "guest disk 259:0");
        let rows = &found.layers.columns[0].rows;
        assert!(
            rows.iter()
                .any(|row| (row.layer, row.state) == (Layer::BelowGuest, State::NotDistinguished)),
            "{rows:?}"
        );
        assert!(!rows.iter().any(|row| row.layer == Layer::Qemu), "{rows:?}");
    }
}

#[test]
fn a_qemu_log_of_the_virtqueue_alone_does_not_say_what_is_beneath() {
    let log: String = (0..50)
        .map(|n| {
            let at = 1000 * n;
            format!(
                "7@1700000000.{at:06}:virtio_blk_handle_read vdev 0x5 req 0x{n:x}00 sector {} nsectors 8\n\
                 7@1700000000.{:06}:virtio_blk_req_complete vdev 0x5 req 0x{n:x}00 status 0\n",
                8 * n,
                at + 500
            )
        })
        .collect();
    let imported = imported(&log).unwrap();
    assert!(imported.trial.join(files::VM_TRACE).exists());
    let rows = &imported.layers().layers.columns[0].rows;
    let [row] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    assert_eq!(
        (row.layer, row.state),
        (Layer::BelowVirtqueue, State::NotDistinguished)
    );
    assert_eq!(row.layer.label(), "below QEMU's virtqueue");
}
