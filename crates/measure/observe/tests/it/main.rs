//! Tests of observing a host and its threads, on this host: a tracer in instances of its own, what it records, what it leaves, what
//! is swept; and a thread that does not stop when it is asked to.
//!
//! Needs root and tracefs; without, each test says so and passes.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use std::arch::global_asm;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use vmtax_model::samples::ThreadState;
use vmtax_model::testing::skipped;
use vmtax_model::{EventKind, Side};
use vmtax_observe::{
    HostDevice, ProbeSet, ThreadReader, TracedEvent, Tracer, Uprobe, event_costs,
    remove_stale_traces, tracefs,
};

/// Tests check what is left of all tracers of this process, so one runs at a time.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if let Err(why) = tracefs() {
        skipped(&format!("needs root and tracefs: {why}"));
        return None;
    }
    Some(TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Where tracefs is mounted, if in no folder.
fn root() -> PathBuf {
    tracefs().unwrap()
}

/// Instances and probe definitions with `part` in their names.
fn left(part: &str) -> Vec<String> {
    let instances = fs::read_dir(root().join("instances")).unwrap().flatten();
    let mut found: Vec<String> = instances
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    found.extend(
        fs::read_to_string(root().join("uprobe_events"))
            .unwrap()
            .lines()
            .map(str::to_owned),
    );
    found.retain(|name| name.contains(part));
    found
}

fn of_this_process() -> Vec<String> {
    let process = std::process::id();
    let mut found = left(&format!("vmtax-{process}-"));
    found.extend(left(&format!("vmtax_{process}_")));
    found
}

fn event(
    system: &'static str,
    names: &'static [&'static str],
    filter: Option<&str>,
) -> TracedEvent {
    TracedEvent {
        system,
        names,
        filter: filter.map(str::to_owned),
    }
}

fn save(tracer: &Tracer) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::<String, Vec<u8>>::new();
    tracer.off().unwrap();
    let mut sink = |name: &str, bytes: &[u8]| -> std::io::Result<()> {
        files
            .entry(name.to_owned())
            .or_default()
            .extend_from_slice(bytes);
        Ok(())
    };
    tracer.save(&mut sink).unwrap();
    files
}

/// Events of an instance, and how many were lost.
fn counted(files: &BTreeMap<String, Vec<u8>>, kind: &str) -> (u64, u64) {
    let stats = String::from_utf8(files["stats"].clone()).unwrap();
    let (mut ours, mut read, mut lost) = (false, 0, 0);
    for line in stats.lines() {
        match line.split_once(": ") {
            None => ours = line.starts_with(kind),
            Some((name, value)) if ours => match name {
                "read events" => read += value.parse::<u64>().unwrap(),
                "overrun" | "dropped events" => lost += value.parse::<u64>().unwrap(),
                _ => {}
            },
            Some(_) => {}
        }
    }
    (read, lost)
}

fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn getppid(times: u32) {
    for _ in 0..times {
        // SAFETY: no arguments, no effects.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

#[test]
#[ignore = "needs root"]
fn calls_of_given_threads_alone_are_recorded_while_it_is_on() {
    let Some(_turn) = turn() else { return };
    let set = ProbeSet {
        threads: vec![thread()],
        bound: vec![event("raw_syscalls", &["sys_enter"], Some("id == 110"))],
        free: vec![event("sched", &["no_such_name", "sched_switch"], None)],
        ..ProbeSet::default()
    };
    let tracer = Tracer::start(&set, 256).unwrap();
    assert_eq!(tracer.missing(), []);
    getppid(10);
    tracer.on().unwrap();
    let stranger = std::thread::spawn(|| getppid(1000));
    getppid(700);
    stranger.join().unwrap();
    let files = save(&tracer);
    getppid(10);
    // The other thread is a child of this one, so it counts.
    assert_eq!(counted(&files, "bound."), (1700, 0));
    assert!(counted(&files, "free.").0 > 0);
    assert_eq!(files["clock"], b"x86-tsc\n");
    assert!(String::from_utf8_lossy(&files["header_page"]).contains("timestamp"));
    assert!(
        String::from_utf8_lossy(&files["formats/raw_syscalls.sys_enter"])
            .starts_with("name: sys_enter")
    );
    assert!(
        files.contains_key("formats/sched.sched_switch")
            && !files.contains_key("formats/sched.no_such_name")
    );
    let raw: usize = files
        .iter()
        .filter(|(name, _)| name.starts_with("bound.cpu"))
        .map(|(_, bytes)| bytes.len())
        .sum();
    // Each event has 8 + 8 + 48 bytes and its header; pages are whole.
    assert!(raw % 4096 == 0 && raw > 1700 * 64, "{raw}");
    drop(tracer);
    assert_eq!(of_this_process(), [] as [&str; 0]);
}

#[test]
#[ignore = "needs root"]
fn strangers_are_not_recorded_among_given_threads() {
    let Some(_turn) = turn() else { return };
    let (send, wait) = std::sync::mpsc::channel::<()>();
    // Started before, so it is neither given nor a child of one.
    let stranger = std::thread::spawn(move || {
        wait.recv().unwrap();
        getppid(500);
    });
    let bound = vec![event("raw_syscalls", &["sys_enter"], Some("id == 110"))];
    let set = ProbeSet {
        threads: vec![thread()],
        bound,
        ..ProbeSet::default()
    };
    let tracer = Tracer::start(&set, 256).unwrap();
    tracer.on().unwrap();
    send.send(()).unwrap();
    getppid(300);
    stranger.join().unwrap();
    assert_eq!(counted(&save(&tracer), "bound."), (300, 0));
}

#[test]
#[ignore = "needs root"]
fn what_does_not_fit_is_lost_and_counted() {
    let Some(_turn) = turn() else { return };
    let bound = vec![event("raw_syscalls", &["sys_enter"], Some("id == 110"))];
    let set = ProbeSet {
        threads: vec![thread()],
        bound,
        ..ProbeSet::default()
    };
    let tracer = Tracer::start(&set, 16).unwrap();
    tracer.on().unwrap();
    getppid(5000);
    let (read, lost) = counted(&save(&tracer), "bound.");
    assert!(read > 0 && lost > 0 && read + lost == 5000, "{read} {lost}");
}

#[test]
#[ignore = "needs root"]
fn what_is_not_there_is_missing_and_the_rest_runs() {
    let Some(_turn) = turn() else { return };
    let set = ProbeSet {
        threads: vec![thread()],
        bound: vec![
            event("no_such_system", &["no_such_event"], None),
            event("raw_syscalls", &["sys_exit"], Some("no_such_field == 1")),
            event("raw_syscalls", &["sys_enter"], Some("id == 110")),
        ],
        uprobes: vec![Uprobe {
            event: "pop",
            binary: "/nonexistent".into(),
            offset: 0x1000,
            fields: "vq=%di:x64".into(),
            function: "virtqueue_pop",
        }],
        ..ProbeSet::default()
    };
    let tracer = Tracer::start(&set, 64).unwrap();
    let what: Vec<&str> = tracer.missing().iter().map(|m| m.what.as_str()).collect();
    assert_eq!(
        what,
        [
            "the event no_such_system:no_such_event",
            "the event raw_syscalls:sys_exit",
            "QEMU's virtqueue_pop"
        ]
    );
    tracer.on().unwrap();
    getppid(5);
    assert_eq!(counted(&save(&tracer), "bound."), (5, 0));
}

#[test]
#[ignore = "needs root"]
fn a_panic_leaves_nothing() {
    let Some(_turn) = turn() else { return };
    let result = std::panic::catch_unwind(|| {
        let tracer = Tracer::start(&with_uprobe(place_of(cheap as *const u8)), 64).unwrap();
        assert_eq!(of_this_process().len(), 2, "an instance and a probe");
        tracer.on().unwrap();
        panic!("as it may happen");
    });
    assert!(result.is_err());
    assert_eq!(of_this_process(), [] as [&str; 0]);
}

#[test]
#[ignore = "needs root"]
fn sweeping_removes_what_the_dead_left_and_spares_the_others() {
    let Some(_turn) = turn() else { return };
    // One of them dies when all is made: until then no other process sweeps it.
    let [dead, alive] = [(); 2].map(|()| Living(Command::new("sleep").arg("60").spawn().unwrap()));
    let (gone, here) = (dead.0.id(), alive.0.id());
    let program = std::env::current_exe().unwrap();
    let mut made = Made::default();
    for name in [
        format!("vmtax-{gone}-0-bound"),
        format!("vmtax-{here}-0-bound"),
        format!("other-{gone}-0"),
    ] {
        made.instance(&name);
    }
    for group in [
        format!("vmtax_{gone}_0"),
        format!("vmtax_{here}_0"),
        format!("other_{gone}_0"),
    ] {
        made.uprobe(
            &group,
            &format!("{}:{:#x}", program.display(), place_of(cheap as *const u8)),
        );
    }
    // As a killed process leaves them: the instance listens to the probe.
    let listening = format!("instances/vmtax-{gone}-0-bound/events/vmtax_{gone}_0/pop/enable");
    fs::write(root().join(listening), "1").unwrap();
    drop(dead);
    remove_stale_traces();
    assert_eq!(left(&format!("vmtax-{gone}-")), [] as [&str; 0]);
    assert_eq!(left(&format!("vmtax_{gone}_")), [] as [&str; 0]);
    assert_eq!(left(&format!("vmtax-{here}-")).len(), 1);
    assert_eq!(left(&format!("vmtax_{here}_")).len(), 1);
    assert_eq!(left(&format!("other-{gone}-")).len(), 1);
    assert_eq!(left(&format!("other_{gone}_")).len(), 1);
}

#[test]
#[ignore = "needs root"]
fn an_instance_in_use_cannot_be_removed_by_others() {
    let Some(_turn) = turn() else { return };
    let set = ProbeSet {
        free: vec![event("sched", &["sched_switch"], None)],
        ..ProbeSet::default()
    };
    let tracer = Tracer::start(&set, 64).unwrap();
    let name = of_this_process().remove(0);
    assert!(fs::remove_dir(root().join("instances").join(&name)).is_err());
    drop(tracer);
    assert_eq!(of_this_process(), [] as [&str; 0]);
}

#[test]
#[ignore = "needs root"]
fn the_hosts_own_set_is_there() {
    let Some(_turn) = turn() else { return };
    let disk = vmtax_observe::host_disk(&std::env::current_exe().unwrap()).unwrap();
    let tracer = Tracer::start(
        &ProbeSet::host(
            vmtax_model::DISK,
            &[thread()],
            HostDevice::Blocks(&[&disk]),
            false,
            Vec::new(),
            Vec::new(),
        ),
        64,
    )
    .unwrap();
    assert_eq!(
        tracer
            .missing()
            .iter()
            .filter(|m| !m.what.contains("io_uring"))
            .count(),
        0,
        "{:?}",
        tracer.missing()
    );
    let set = ProbeSet::host(
        vmtax_model::DISK,
        &[thread()],
        HostDevice::Blocks(&[]),
        false,
        Vec::new(),
        Vec::new(),
    );
    assert!(set.free.is_empty() && set.missing.iter().any(|m| m.what.contains("host's disk")));
}

// Functions as the placement tells them apart: a push is emulated, a sub is single-stepped.
global_asm!(
    ".globl probe_test_cheap",
    ".type probe_test_cheap,@function",
    "probe_test_cheap: push rbx; pop rbx; ret",
    ".globl probe_test_dear",
    ".type probe_test_dear,@function",
    "probe_test_dear: sub rsp, 8; add rsp, 8; ret",
);

unsafe extern "C" {
    #[link_name = "probe_test_cheap"]
    fn cheap(argument: u64);
    #[link_name = "probe_test_dear"]
    fn dear(argument: u64);
}

#[test]
#[ignore = "needs root"]
fn a_cheap_place_is_cheap_and_an_expensive_one_is_not() {
    let Some(_turn) = turn() else { return };
    let per_hit = |function: unsafe extern "C" fn(u64)| {
        let tracer = Tracer::start(&with_uprobe(place_of(function as *const u8)), 4096).unwrap();
        assert_eq!(tracer.missing(), []);
        tracer.on().unwrap();
        let times = (0..20).map(|_| {
            let begin = Instant::now();
            // SAFETY: the functions above take what they like and keep the stack.
            (0..100).for_each(|n| unsafe { function(n) });
            begin.elapsed().as_nanos() / 100
        });
        let best = times.min().unwrap();
        let files = save(&tracer);
        assert_eq!(counted(&files, "bound."), (2000, 0));
        let format = files
            .iter()
            .find(|(name, _)| name.ends_with(".pop"))
            .unwrap();
        assert!(
            String::from_utf8_lossy(format.1).contains("vq"),
            "{}",
            format.0
        );
        best
    };
    let (cheap, dear) = (per_hit(cheap), per_hit(dear));
    println!("{cheap} ns a hit on a push, {dear} ns on a sub");
    assert!(cheap * 3 < dear, "{cheap} ns, {dear} ns");
}

fn with_uprobe(offset: u64) -> ProbeSet {
    let binary = std::env::current_exe().unwrap();
    let probe = Uprobe {
        event: "pop",
        binary,
        offset,
        fields: "vq=%di:x64".into(),
        function: "virtqueue_pop",
    };
    ProbeSet {
        threads: vec![thread()],
        uprobes: vec![probe],
        ..ProbeSet::default()
    }
}

/// Where in this program's file an address of it lies.
fn place_of(address: *const u8) -> u64 {
    let address = address as u64;
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let [begin, end, offset] =
            [begin, end, words.nth(1)?].map(|hex| u64::from_str_radix(hex, 16).ok());
        (begin?..end?)
            .contains(&address)
            .then_some(address - begin? + offset?)
    });
    found.unwrap()
}

struct Living(Child);

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Trace instances and probes that a test made; removed whatever happens.
#[derive(Default)]
struct Made {
    instances: Vec<PathBuf>,
    probes: Vec<String>,
}

impl Made {
    fn instance(&mut self, name: &str) {
        let path = root().join("instances").join(name);
        fs::create_dir(&path).unwrap();
        self.instances.push(path);
    }

    fn uprobe(&mut self, group: &str, place: &str) {
        append(&format!("p:{group}/pop {place}\n")).unwrap();
        self.probes.push(format!("-:{group}/pop\n"));
    }
}

fn append(text: &str) -> std::io::Result<()> {
    let list = root().join("uprobe_events");
    std::io::Write::write_all(
        &mut fs::OpenOptions::new().append(true).open(list)?,
        text.as_bytes(),
    )
}

impl Drop for Made {
    fn drop(&mut self) {
        for instance in &self.instances {
            let _ = fs::remove_dir(instance);
        }
        for probe in &self.probes {
            let _ = append(probe);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn what_an_event_costs_is_measured_and_nothing_is_left() {
    let Some(_turn) = turn() else { return };
    let costs = event_costs(Side::Host).unwrap();
    for kind in [
        EventKind::Call,
        EventKind::Schedule,
        EventKind::Tracepoint,
        EventKind::Uprobe,
    ] {
        assert!(
            costs.iter().filter(|cost| cost.kind == kind).count() > 2,
            "{kind:?}: {costs:?}"
        );
    }
    assert!(
        costs
            .iter()
            .all(|cost| cost.first_ns.is_finite() && cost.again_ns.is_finite())
    );
    // Kprobes are the guest's.
    assert!(!costs.iter().any(|cost| cost.kind == EventKind::Kprobe));
    assert_eq!(of_this_process(), [] as [&str; 0]);
}

/// `clone(CLONE_VFORK | SIGCHLD)`: until its child has ended, which is when nobody writes to it any more, it waits in a way
/// that nothing interrupts.
const WAITS: &str = "import ctypes, os, sys, time
if ctypes.CDLL(None).syscall(56, 0x4000 | 17, 0, 0, 0, 0) == 0:
    os.read(0, 1)
    os._exit(0)
print('went on', flush=True)
time.sleep(60)";
const CLONE: i64 = 56;
const TIMEOUT: Duration = Duration::from_secs(20);

struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_thread_that_stops_late_is_let_go_though_nobody_reads_it_again() {
    let mut python = Command::new("python3");
    python
        .args(["-c", WAITS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut waiting = Waiting(python.spawn().unwrap());
    let tid = waiting.0.id() as i32;
    let mut reader = ThreadReader::new(tid).unwrap();
    let begin = Instant::now();
    let waits = |reader: &ThreadReader| {
        matches!(
            reader.state(tid),
            Some(ThreadState::Waits {
                call: Some(CLONE),
                ..
            })
        )
    };
    while !waits(&reader) {
        assert!(begin.elapsed() < TIMEOUT, "it does not wait");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(reader.stop(tid, &mut [0; 64]), None, "it cannot stop yet");

    drop(waiting.0.stdin.take());
    let output = BufReader::new(waiting.0.stdout.take().unwrap());
    let said = std::thread::spawn(move || output.lines().next().unwrap().unwrap());
    let begin = Instant::now();
    while !said.is_finished() {
        assert!(begin.elapsed() < TIMEOUT, "it stayed stopped");
        reader.rest(Duration::from_millis(100));
    }
    assert_eq!(said.join().unwrap(), "went on");
    assert!(
        reader.stop(tid, &mut [0; 64]).is_some(),
        "it can be read again"
    );
    assert_eq!(reader.end().len(), 2, "each stop counts");
}
