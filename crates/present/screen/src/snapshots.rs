//! States of the screen compared whole with files, each at 80, 100 and 160 columns: `UPDATE_EXPECT=1` writes them as they are now.

use crate::keys::action;
use crate::page::draw;
use crate::state::State;
use crate::tests::{press, sample, seconds, state, text_of, vm};
use expect_test::expect_file;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::path::Path;
use std::time::Duration;
use vmtax_findings::{
    Advice, DeviceRates, DevicesFrom, DiskRates, ExitAddress, ExitCount, ExitReason, GuestExits,
    HostRates, ProcessRate, ThreadRates, TopSample, VmRates,
};
use vmtax_model::{Accelerator, AddressSpace, Manager, Remedy, Role, RunState};

const WIDTHS: [u16; 3] = [80, 100, 160];

/// Compares a state in a terminal of so many rows with its file.
fn compare(name: &str, rows: u16, mut state: State) {
    let mut page = String::new();
    for width in WIDTHS {
        let mut terminal = Terminal::new(TestBackend::new(width, rows)).unwrap();
        terminal.draw(|frame| draw(frame, &mut state)).unwrap();
        page += &format!("{width} columns\n");
        page += &text_of(terminal.backend());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens");
    expect_file![folder.join(format!("{name}.txt"))].assert_eq(&page);
}

fn typed(state: &mut State, text: &str) {
    for c in text.chars() {
        let key = if c == '\n' {
            KeyCode::Enter
        } else {
            KeyCode::Char(c)
        };
        action(KeyEvent::new(key, KeyModifiers::NONE), state);
    }
}

fn shown(sample: TopSample) -> State {
    let mut state = State::new(Duration::from_secs(2), seconds);
    state.show(sample);
    state
}

fn advice(finding: &str, gain: f64, remedies: &[[&str; 2]]) -> Advice {
    let remedy = |[action, line]: &[&str; 2]| Remedy {
        action: (*action).to_owned(),
        line: (*line).to_owned(),
        ..Remedy::default()
    };
    Advice {
        rule: "test".to_owned(),
        finding: finding.to_owned(),
        gain,
        remedies: remedies.iter().map(remedy).collect(),
        ..Advice::default()
    }
}

fn of_rule(rule: &str, advice: Advice) -> Advice {
    Advice {
        rule: rule.to_owned(),
        ..advice
    }
}

fn host(findings: Vec<Advice>) -> Option<HostRates> {
    Some(HostRates {
        cpus: 8,
        used: 3.25,
        used_by_vms: 2.5,
        used_by_others: 0.75,
        largest_other: Some(ProcessRate {
            pid: 4711,
            name: "cc1plus".to_owned(),
            used: 0.625,
        }),
        runnable: Some(4),
        load: Some(3.12),
        memory: Some(32 << 30),
        available: Some(20 << 30),
        swapped_in_per_s: Some(0.0),
        swapped_out_per_s: Some(0.0),
        findings,
    })
}

fn thp() -> Advice {
    let line = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
    let action = "Set transparent huge pages to madvise, which QEMU uses, then restart the VM";
    let finding = "Transparent huge pages are off on the host.";
    advice(finding, 0.0, &[[action, line]])
}

fn ksm() -> Advice {
    let finding = "The host merges equal pages (KSM): a guest that writes to a merged page waits until it is copied.";
    let action =
        "Where memory is not short, stop merging; what is merged stays so until it is written to";
    let line = "echo 0 | sudo tee /sys/kernel/mm/ksm/run";
    advice(finding, 0.0, &[[action, line]])
}

fn three(host: Option<HostRates>) -> TopSample {
    let vms = [
        vm(10, "web", 0.9, None),
        vm(20, "db", 0.2, None),
        vm(30, "idle", 0.0, None),
    ];
    TopSample {
        host,
        ..sample(vms.to_vec())
    }
}

#[test]
fn before_the_first_sample_and_without_a_vm() {
    compare(
        "first-interval",
        12,
        State::new(Duration::from_secs(2), seconds),
    );
    let none = TopSample {
        host: host(Vec::new()),
        ..sample(Vec::new())
    };
    compare("no-vm", 12, shown(none));
}

#[test]
fn lists_in_each_order() {
    compare("list", 20, state());
    compare("list-healthy-host", 20, shown(three(host(Vec::new()))));
    let mut by_column = state();
    typed(&mut by_column, "U");
    compare("list-by-run", 20, by_column);
    let mut reversed = state();
    typed(&mut reversed, "Nr");
    compare("list-by-name-reversed", 20, reversed);
}

#[test]
fn lists_with_many_vms_and_long_names() {
    let many = (0..40).map(|n| vm(100 + n, &format!("guest{n:02}"), f64::from(n) / 50.0, None));
    let mut many = shown(sample(many.collect()));
    for _ in 0..25 {
        press(&mut many, &[KeyCode::Down]);
    }
    compare("list-many", 20, many);
    let long = vm(
        10,
        "production-database-of-the-accounting-department",
        0.9,
        Some(0.5),
    );
    compare("list-long-name", 16, shown(sample(vec![long])));
    let hostile = vm(10, "a\u{1b}[2J\u{202e}b", 0.9, Some(0.1));
    compare("list-hostile-name", 16, shown(sample(vec![hostile])));
}

/// A finding and a command that are longer than any of the widths.
fn long_finding() -> VmRates {
    let finding = "A CPU quota of a control group with other processes (/sys/fs/cgroup/machine.slice/machine-qemu\\x2d3\\x2dweb01.scope/cpu.max) throttles the VM 42 % of its vCPUs' time (%THR; %MLMTD in esxtop).";
    let quota = "echo 'max 100000' | sudo tee '/sys/fs/cgroup/machine.slice/machine-qemu\\x2d3\\x2dweb01.scope/libvirt/cpu.max' # libvirt: virsh schedinfo web01 --live vcpu_quota=-1";
    let start = "sudo systemd-run --scope --slice=machine.slice qemu-system-x86_64";
    let remedies = [
        ["Raise or remove the quota of the VM's group", quota],
        [
            "Or start the VM in a group of its own without a quota above it, which no other process of the host uses up",
            start,
        ],
        ["Or give the VM fewer vCPUs", ""],
    ];
    VmRates {
        findings: vec![advice(finding, 0.42, &remedies)],
        ..vm(10, "web01", 0.4, None)
    }
}

#[test]
fn findings_are_wrapped() {
    compare("finding-long", 24, shown(sample(vec![long_finding()])));
    let mut details = shown(sample(vec![long_finding()]));
    press(&mut details, &[KeyCode::Enter]);
    compare("detail-finding-long", 46, details);
    let mut low = shown(sample(vec![long_finding()]));
    low.tracing = Some(10);
    compare("finding-long-low-terminal", 9, low);
}

#[test]
fn what_all_vms_share_is_said_once() {
    compare("host-setting", 20, shown(three(host(vec![thp()]))));
    compare("host-settings", 20, shown(three(host(vec![thp(), ksm()]))));
    let mut details = shown(three(host(vec![thp(), ksm()])));
    press(&mut details, &[KeyCode::Enter]);
    compare("detail-host-settings", 60, details);
    let busy = "The host's 8 CPUs are in use 97\u{a0}% of the time: the vCPUs of all 2 VMs wait for one, 12\u{a0}% to 40\u{a0}% of their time (%RDY). The VMs use 6.80 CPUs, all else 0.98, of which cc1plus (PID 4711) uses 0.62.";
    let remedies = [
        [
            "Lower the priority of the other load, or run it on another host",
            "sudo renice -n 19 -p 4711",
        ],
        [
            "Or move a VM to another host, or give the VMs fewer vCPUs",
            "",
        ],
    ];
    let busy = of_rule("host-cpus-busy", advice(busy, 0.26, &remedies));
    let waits = |pid, name, ready| {
        let text = format!("The vCPUs wait for a host CPU {ready}\u{a0}% of the time (%RDY).");
        let wait = of_rule("vm-run-queue-wait", advice(&text, ready / 100.0, &[]));
        VmRates {
            ready: Some(ready / 100.0),
            findings: vec![wait],
            ..vm(pid, name, 0.6, None)
        }
    };
    let all = TopSample {
        host: host(vec![busy, thp()]).map(|host| HostRates {
            used: 7.78,
            used_by_vms: 6.8,
            used_by_others: 0.98,
            runnable: Some(19),
            load: Some(14.6),
            ..host
        }),
        ..sample(vec![waits(10, "web", 12.0), waits(20, "db", 40.0)])
    };
    compare("host-busy", 24, shown(all));
}

#[test]
fn a_host_that_swaps_and_its_disks() {
    let on_disk = |name: &str, per_s, mean_ns| DiskRates {
        name: "vd0".to_owned(),
        device: Some(DeviceRates {
            name: name.to_owned(),
            per_s,
            mean_ns,
        }),
        ..DiskRates::default()
    };
    let with_disk = |vm: VmRates, disk| VmRates {
        disks: vec![disk],
        ..vm
    };
    let vms = vec![
        with_disk(
            vm(10, "web", 0.9, None),
            on_disk("nvme0n1", 3400.0, Some(605e3)),
        ),
        with_disk(vm(20, "db", 0.2, None), on_disk("dm-3", 3.0, None)),
        with_disk(vm(30, "idle", 0.0, None), on_disk("sdb", 0.0, None)),
    ];
    let swaps = host(Vec::new()).map(|host| HostRates {
        available: Some(600 << 20),
        swapped_in_per_s: Some(13e6),
        swapped_out_per_s: Some(2e6),
        ..host
    });
    let all = TopSample {
        host: swaps,
        ..sample(vms)
    };
    compare("host-swaps", 20, shown(all));
}

fn without_monitor() -> VmRates {
    VmRates {
        io: None,
        disks: Vec::new(),
        threads: Vec::new(),
        run: Some(0.0),
        throttled: None,
        no_monitor: Some("its only monitor serves another client".to_owned()),
        ..vm(40, "sealed", 0.0, None)
    }
}

#[test]
fn figures_that_are_not_known() {
    compare("unknown", 16, shown(sample(vec![without_monitor()])));
    let mut details = shown(sample(vec![without_monitor()]));
    press(&mut details, &[KeyCode::Enter]);
    compare("detail-unknown", 30, details);
}

#[test]
fn events() {
    let paused = VmRates {
        state: Some(RunState::Stopped("paused".to_owned())),
        manager: Some(Manager::Libvirt),
        findings: vec![advice(
            "The guest does not run: its state is \"paused\".",
            1.0,
            &[["Resume the guest", "virsh resume web"]],
        )],
        ..vm(10, "web", 0.0, None)
    };
    compare("paused", 16, shown(sample(vec![paused.clone()])));
    let mut details = shown(sample(vec![paused]));
    press(&mut details, &[KeyCode::Enter]);
    compare("detail-paused", 40, details);
    let mut tracing = state();
    typed(&mut tracing, "t");
    compare("tracing", 16, tracing);
    let notes = TopSample {
        notes: vec![
            "old (PID 77) has ended".to_owned(),
            "VM exits of db were not traced: KVM's trace events need root, and this user is not; run vmtax as root".to_owned(),
        ],
        ..three(host(Vec::new()))
    };
    compare("notes", 16, shown(notes));
    let level_2 = TopSample {
        level: 2,
        own_cpu: 0.123,
        ..three(host(Vec::new()))
    };
    compare("level-2", 16, shown(level_2));
}

#[test]
fn fields_and_intervals() {
    let mut fields = state();
    typed(&mut fields, "f");
    compare("fields", 24, fields);
    let mut chosen = state();
    // %RDY hidden, EXIT/s shown and sorted by.
    typed(&mut chosen, "fjj  jjj s");
    compare("fields-chosen", 24, chosen);
    let mut list = state();
    typed(&mut list, "fjj  jjj sf");
    compare("list-chosen-fields", 16, list);
    let mut asked = state();
    typed(&mut asked, "s");
    compare("interval", 14, asked);
    let mut wrong = state();
    typed(&mut wrong, "d0\n1");
    compare("interval-wrong", 14, wrong);
    let mut changed = state();
    typed(&mut changed, "s0.5\n");
    compare("interval-changed", 14, changed);
}

#[test]
fn help_whole_and_scrolled() {
    let mut help = state();
    typed(&mut help, "?");
    compare("help", 40, help);
    let mut scrolled = state();
    typed(&mut scrolled, "?jjjjjjjj");
    compare("help-scrolled", 16, scrolled);
}

fn thread(tid: i32, role: Role, run: f64, throttled: Option<f64>) -> ThreadRates {
    ThreadRates {
        tid,
        role,
        run,
        ready: run / 10.0,
        turns_per_s: 0.0,
        throttled,
    }
}

fn large(throttled: impl Fn(u32) -> Option<f64>) -> VmRates {
    let vcpu = |n: u32| {
        let run = 0.9 - 0.1 * f64::from(n);
        thread(100 + n as i32, Role::Vcpu(n), run, throttled(n))
    };
    let worker = |tid| thread(tid, Role::Worker, 0.04, throttled(9));
    let others = [
        thread(99, Role::Main, 0.31, throttled(9)),
        thread(98, Role::Iothread("io0".to_owned()), 0.22, throttled(9)),
        worker(140),
        worker(141),
        worker(142),
    ];
    let mut threads: Vec<ThreadRates> = (0..4).map(vcpu).chain(others).collect();
    threads.sort_by(|a, b| b.run.total_cmp(&a.run));
    VmRates {
        vcpus: 4,
        memory: 8 << 30,
        accelerator: Some(Accelerator::Kvm),
        manager: Some(Manager::Libvirt),
        throttled: Some(0.05),
        threads,
        ..vm(97, "large", 0.75, None)
    }
}

#[test]
fn details_have_each_vcpu_and_other_threads_by_role() {
    let mut details = state();
    press(&mut details, &[KeyCode::Enter]);
    compare("detail", 44, details);
    let mut scrolled = state();
    press(&mut scrolled, &[KeyCode::Enter, KeyCode::PageDown]);
    compare("detail-scrolled", 16, scrolled);
    let own = |n| Some(if n == 1 { 0.2 } else { 0.0 });
    let mut details = shown(sample(vec![large(own)]));
    press(&mut details, &[KeyCode::Enter]);
    compare("detail-vcpus", 50, details);
    let mut details = shown(sample(vec![large(|_| None)]));
    press(&mut details, &[KeyCode::Enter]);
    compare("detail-vcpus-shared-quota", 50, details);
}

#[test]
fn details_have_what_was_traced() {
    let count = |per_s, mean_ns| ExitCount {
        per_s,
        mean_ns,
        ..ExitCount::default()
    };
    let address = |device: &str, address, mean_ns| ExitAddress {
        space: AddressSpace::Port,
        address,
        write: true,
        device: device.to_owned(),
        register: "data".to_owned(),
        exits: count(40.0, mean_ns),
    };
    let reason = |name: &str, per_s| ExitReason::new(name.to_owned(), count(per_s, Some(2100.0)));
    let exits = GuestExits {
        seconds: 3.0,
        vcpus: Vec::new(),
        reasons: vec![reason("IO_INSTRUCTION", 77.0), reason("HLT", 1200.0)],
        addresses: vec![
            address("serial", 0x3f8, Some(21_000.0)),
            address("", 0x80, None),
        ],
        devices_from: DevicesFrom::UsualPlaces,
        timing: String::new(),
        lost: 0,
        counters: Default::default(),
        page_faults: None,
        timers: Vec::new(),
        advice: Vec::new(),
    };
    let traced = VmRates {
        traced_exits: Some(exits),
        ..vm(20, "db", 0.2, None)
    };
    let mut details = shown(sample(vec![traced]));
    press(&mut details, &[KeyCode::Enter]);
    compare("detail-traced", 50, details);
}
