//! The screen as a terminal of 80 and of 160 columns has it.

use crate::keys::{Action, Request, action};
use crate::page::draw;
use crate::state::{State, View};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;
use vmtax_findings::{
    Advice, DiskRates, ExitAddress, ExitCount, ExitReason, GuestExits, IoRates, NicRates,
    ThreadRates, TopSample, VmRates,
};
use vmtax_model::{Remedy, Role, RunState};

pub(crate) fn vm(pid: i32, name: &str, run: f64, gain: Option<f64>) -> VmRates {
    let remedy = Remedy {
        line: format!("vmtax profile --vm {name}"),
        ..Remedy::default()
    };
    let finding = |gain| Advice {
        finding: "It waits.".to_owned(),
        gain,
        remedies: vec![remedy.clone()],
        ..Advice::default()
    };
    let io = IoRates {
        reads_per_s: 1234.0,
        blkavg_ns: Some(81_000.0),
        ..IoRates::default()
    };
    VmRates {
        pid,
        name: Some(name.to_owned()),
        vcpus: 2,
        run: Some(run),
        ready: Some(0.01),
        io: Some(io),
        threads: vec![ThreadRates {
            tid: pid + 1,
            role: Role::Vcpu(0),
            run,
            ready: 0.01,
            turns_per_s: 0.0,
            throttled: Some(0.0),
        }],
        disks: vec![DiskRates {
            name: "vd0".to_owned(),
            io: Some(io),
            ..DiskRates::default()
        }],
        nics: vec![NicRates {
            tap: "tap7".to_owned(),
            rx_packets_per_s: 55.0,
            ..NicRates::default()
        }],
        findings: gain.map(finding).into_iter().collect(),
        ..VmRates::default()
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds >= 0.1);
    let duration = seconds.map(Duration::from_secs_f64);
    duration.ok_or_else(|| "give 0.1 to 86400 seconds".to_owned())
}

pub(crate) fn sample(vms: Vec<VmRates>) -> TopSample {
    TopSample {
        time: "2026-11-24T23:00:01.5Z".to_owned(),
        own_cpu: 0.004,
        vms,
        ..TopSample::default()
    }
}

pub(crate) fn state() -> State {
    let mut state = State::new(Duration::from_secs(2), seconds);
    state.show(sample(vec![
        vm(10, "web", 0.9, None),
        vm(20, "db", 0.2, Some(0.5)),
        vm(30, "idle", 0.0, None),
    ]));
    state
}

/// The characters of a screen, without blanks at the ends of lines.
pub(crate) fn text_of(backend: &TestBackend) -> String {
    let buffer = backend.buffer();
    let row = |y| {
        let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..buffer.area.height).map(row).collect()
}

fn screen_of(state: &mut State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    text_of(terminal.backend())
}

fn screen(state: &mut State, width: u16) -> String {
    screen_of(state, width, 24)
}

pub(crate) fn press(state: &mut State, keys: &[KeyCode]) -> Option<Action> {
    keys.iter()
        .map(|key| action(KeyEvent::new(*key, KeyModifiers::NONE), state))
        .last()
        .flatten()
}

fn names(state: &State) -> Vec<String> {
    state.rows().iter().map(|vm| vm.label()).collect()
}

#[test]
fn the_list_has_the_columns_that_fit_and_the_selected_ones_sentence() {
    let mut state = state();
    for width in [80, 160] {
        let text = screen(&mut state, width);
        for part in [
            "level 0 (counters), vmtax: 0.4 % CPU",
            "%RUN",
            "%RDY",
            "%THR",
            "IOPS",
            "BLKAVG",
            "81.0 µs",
            "1234",
            "vCPU 0 90%",
        ] {
            assert!(
                text.replace('\u{a0}', " ").contains(part),
                "{part} in {width} columns:\n{text}"
            );
        }
        assert!(
            text.contains("db: It waits.") && text.contains("Next: vmtax profile --vm db"),
            "{text}"
        );
        assert_eq!(text.contains("MFLT/s"), width == 160, "{text}");
    }
}

#[test]
fn rows_are_sorted_by_findings_and_by_any_column() {
    let mut state = state();
    assert_eq!(
        names(&state),
        ["db", "web", "idle"],
        "the one with a finding, then by %RUN"
    );
    press(&mut state, &[KeyCode::Char('U')]);
    assert_eq!(names(&state), ["web", "db", "idle"]);
    press(&mut state, &[KeyCode::Char('r')]);
    assert_eq!(names(&state), ["idle", "db", "web"]);
    press(&mut state, &[KeyCode::Char('r'), KeyCode::Char('N')]);
    assert_eq!(names(&state), ["db", "idle", "web"]);
    press(&mut state, &[KeyCode::Char('<'), KeyCode::Char('<')]);
    assert_eq!(state.order_name(), "MFLT/s", "round to the last column");
}

#[test]
fn the_selection_stays_with_its_vm_and_ends_with_it() {
    let mut state = state();
    press(&mut state, &[KeyCode::Down, KeyCode::Down, KeyCode::Down]);
    assert_eq!(state.selected, Some(30));
    state.show(sample(vec![
        vm(30, "idle", 0.95, None),
        vm(10, "web", 0.9, None),
    ]));
    assert_eq!(state.selected, Some(30));
    press(&mut state, &[KeyCode::Enter]);
    assert_eq!(state.view, View::Detail);
    state.show(sample(vec![vm(10, "web", 0.9, None)]));
    assert_eq!(
        (state.selected, state.view),
        (Some(10), View::List),
        "it has ended"
    );
    state.show(sample(Vec::new()));
    assert!(screen(&mut state, 80).contains("No VM runs on this host"));
    assert_eq!(
        press(&mut state, &[KeyCode::Enter, KeyCode::Char('t')]),
        None
    );
}

#[test]
fn details_show_threads_disks_taps_and_traced_exits() {
    let mut state = state();
    assert_eq!(
        press(&mut state, &[KeyCode::Char('t')]),
        Some(Action::Ask(Request::TraceExits(20)))
    );
    assert!(screen(&mut state, 80).contains("Tracing VM exits"));
    let reason = ExitReason::new(
        "IO_INSTRUCTION".to_owned(),
        ExitCount {
            per_s: 77.0,
            ..ExitCount::default()
        },
    );
    let address = |(device, address): (&str, u64)| ExitAddress {
        space: vmtax_model::AddressSpace::Port,
        address,
        write: true,
        device: device.to_owned(),
        register: "data".to_owned(),
        exits: ExitCount::default(),
    };
    let exits = GuestExits {
        seconds: 3.0,
        vcpus: Vec::new(),
        reasons: vec![reason],
        addresses: [("serial", 0x3f8), ("", 0x80)].map(address).to_vec(),
        devices_from: vmtax_findings::DevicesFrom::UsualPlaces,
        timing: String::new(),
        lost: 0,
        counters: Default::default(),
        page_faults: None,
        timers: Vec::new(),
        advice: Vec::new(),
    };
    let mut traced = vm(20, "db", 0.2, None);
    traced.traced_exits = Some(exits);
    traced.state = Some(RunState::Stopped("paused".to_owned()));
    state.show(sample(vec![traced]));
    press(&mut state, &[KeyCode::Enter]);
    let mut terminal = Terminal::new(TestBackend::new(100, 70)).unwrap();
    terminal.draw(|frame| draw(frame, &mut state)).unwrap();
    let text = terminal.backend().to_string();
    for part in [
        "vCPUs, and other threads by role",
        "vCPU 0",
        "vd0",
        "tap7",
        "stopped (paused)",
        "IO_INSTRUCTION",
        "77.0",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let device = |address: &str| {
        text.lines()
            .find(|line| line.contains(address))
            .map(|line| line.contains("serial"))
    };
    assert_eq!(
        [device("0x3f8"), device("0x80")],
        [Some(true), Some(false)],
        "{text}"
    );
    assert!(!text.contains("Tracing"));
}

#[test]
fn help_has_every_column_and_a_tiny_terminal_is_survived() {
    let mut state = state();
    press(&mut state, &[KeyCode::Char('?')]);
    let mut terminal = Terminal::new(TestBackend::new(80, 50)).unwrap();
    terminal.draw(|frame| draw(frame, &mut state)).unwrap();
    let text = terminal.backend().to_string();
    assert!(
        vmtax_model::Counter::columns().all(|column| text.contains(column.column)),
        "{text}"
    );
    for (width, height) in [(1, 1), (10, 3), (30, 5), (300, 100)] {
        for view in [View::List, View::Detail, View::Help] {
            state.view = view;
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &mut state)).unwrap();
        }
    }
}

#[test]
fn a_hostile_name_does_not_reach_the_terminal() {
    let mut state = State::new(Duration::from_secs(2), seconds);
    state.show(sample(vec![vm(10, "a\u{1b}[2J\u{202e}b", 0.9, Some(0.1))]));
    for view in [View::List, View::Detail] {
        state.view = view;
        let text = screen(&mut state, 80);
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text}"
        );
    }
}

#[test]
fn q_and_ctrl_c_end_it() {
    let mut state = state();
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Some(Action::Quit));
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(action(ctrl_c, &mut state), Some(Action::Quit));
}

/// A text without blanks and the backslashes of lines that a shell goes on with.
fn without_gaps(text: &str) -> String {
    let is_gap = |c: char| c.is_whitespace() || c == '\\';
    text.chars().filter(|c| !is_gap(*c)).collect()
}

#[test]
fn sentences_and_commands_are_wrapped_and_never_cut() {
    let finding = "The vCPUs wait for a host CPU, and this sentence goes on for longer than any terminal of the usual widths is wide, so that it takes several lines.";
    let line = "echo 'max 100000' | sudo tee /sys/fs/cgroup/machine.slice/web01.scope/libvirt/vcpu0/cpu.max /sys/fs/cgroup/machine.slice/web01.scope/libvirt/vcpu1/cpu.max";
    let mut waits = vm(10, "web", 0.9, Some(0.5));
    waits.findings[0].finding = finding.to_owned();
    waits.findings[0].remedies[0].line = line.to_owned();
    for (view, width) in [View::List, View::Detail]
        .into_iter()
        .flat_map(|view| [40, 80, 100].map(|width| (view, width)))
    {
        let mut state = State::new(Duration::from_secs(2), seconds);
        state.show(sample(vec![waits.clone()]));
        state.view = view;
        let text = screen_of(&mut state, width, 60);
        for all in [finding, line] {
            let is_whole = without_gaps(&text).contains(&without_gaps(all));
            assert!(is_whole, "{all:?} at {width}:\n{text}");
        }
    }
}

#[test]
fn at_forty_columns_whole_columns_are_shown_and_keys_that_help() {
    let mut state = state();
    let text = screen(&mut state, 40);
    let head = text.lines().find(|line| line.starts_with("VM ")).unwrap();
    let names: Vec<&str> = head.split_whitespace().skip(1).collect();
    let is_column = |name: &&str| vmtax_model::Counter::columns().any(|one| one.column == *name);
    assert!(names.len() > 2 && names.iter().all(is_column), "{text}");
    for part in ["columns left out", "? help  q quit", "db: It waits."] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn columns_that_a_person_chose_are_shown_first_and_hidden_ones_never() {
    let mut state = state();
    let head_at = |state: &mut State, width| {
        let text = screen(state, width);
        let head = text.lines().find(|line| line.starts_with("VM "));
        head.unwrap().to_owned()
    };
    let head = |state: &mut State| head_at(state, 80);
    assert!(!head(&mut state).contains("MFLT/s"));
    press(&mut state, &[KeyCode::Char('f')]);
    let last = [KeyCode::PageDown; 3];
    press(&mut state, &last);
    press(&mut state, &[KeyCode::Char(' '), KeyCode::Enter]);
    assert!(head(&mut state).contains("MFLT/s"), "shown");
    press(&mut state, &[KeyCode::Char('f'), KeyCode::Char(' ')]);
    press(&mut state, &[KeyCode::Char('s'), KeyCode::Esc]);
    assert_eq!(state.order_name(), "MFLT/s");
    let wide = |state: &mut State| head_at(state, 200).contains("MFLT/s");
    assert!(!wide(&mut state), "hidden");
    press(&mut state, &[KeyCode::Char('f'), KeyCode::Char(' ')]);
    press(&mut state, &[KeyCode::Esc]);
    assert!(wide(&mut state), "automatic again");
}

#[test]
fn an_interval_is_asked_for_and_a_wrong_one_refused() {
    let mut state = state();
    let keys = |text: &str| text.chars().map(KeyCode::Char).collect::<Vec<_>>();
    for key in ['s', 'd'] {
        press(&mut state, &[KeyCode::Char(key), KeyCode::Enter]);
        assert!(state.prompt.is_none(), "nothing changes nothing");
    }
    press(&mut state, &keys("s0.05"));
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    let text = screen(&mut state, 80);
    assert!(text.contains("\"0.05\": give 0.1"), "{text}");
    press(&mut state, &keys("q5"));
    press(&mut state, &[KeyCode::Backspace, KeyCode::Backspace]);
    press(&mut state, &keys("0.5"));
    let half = Duration::from_millis(500);
    assert_eq!(
        press(&mut state, &[KeyCode::Enter]),
        Some(Action::Ask(Request::SetInterval(half)))
    );
    assert_eq!((state.interval, state.prompt.is_none()), (half, true));
    press(&mut state, &keys("s7"));
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!((state.interval, state.prompt.is_none()), (half, true));
}
