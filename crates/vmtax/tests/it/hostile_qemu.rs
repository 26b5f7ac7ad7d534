//! A QEMU that a guest has taken over: whatever it sends, and when, vmtax ends in time, in bounded memory, with an error that
//! says what to do, and leaves nothing ([`Place`] checks the last).

use crate::common::{Outcome, Place, binary, fake_qemu, files_below};
use fastrand::Rng;
use std::fmt::Write;
use std::time::Duration;
use vmtax_model::KernelIdentity;
use vmtax_wire::{Hello, MAX_PIECE, Reply, encode, piece};

/// Guest's boot and a trial may take so long, seconds.
const TIMEOUT_S: u64 = 3;
/// Any sequence is over then, also on a busy host: boot, trial, monitor, end.
const LIMIT: Duration = Duration::from_secs(60);
/// Address space of vmtax, bytes. A host's QEMU that is asked for its devices needs most of it.
const MEMORY: u64 = 3 << 30;
/// Files of a recording, bytes.
const STORED: u64 = 256 << 20;

/// Answers of a monitor of a QEMU with one vCPU; THREAD stands for the ID of its thread.
const MONITOR: &str = "{\"QMP\": {\"version\": {}}}\n{\"return\": {}, \"id\": 1}\n\
                       {\"return\": [{\"cpu-index\": 0, \"thread-id\": THREAD}], \"id\": 2}\n\
                       {\"return\": [], \"id\": 3}\n";

fn hello() -> Vec<u8> {
    let text = || "6.1".to_owned();
    let kernel = KernelIdentity {
        system: "Linux".to_owned(),
        release: text(),
        version: text(),
    };
    let hello = Hello {
        vmtax: env!("CARGO_PKG_VERSION").to_owned(),
        kernel,
        cpus: 1,
        complaints: Vec::new(),
    };
    encode(&Reply::Hello(hello)).unwrap()
}

/// A run with this in QEMU's place.
fn run(place: &Place, body: &str) -> Outcome {
    let qemu = fake_qemu(place, body);
    let options =
        format!("--machine tcg --rounds 1 --boot-timeout {TIMEOUT_S} --timeout {TIMEOUT_S}");
    let vmtax = place
        .program("prlimit")
        .arg(format!("--as={MEMORY}"))
        .arg("--")
        .arg(binary());
    let run = vmtax
        .arg("run")
        .arg("--dir")
        .arg(place.runs())
        .words(&format!("cpu cpu.time=0.05 {options} --qemu"));
    let outcome = run.arg(qemu).start(LIMIT.as_secs()).outcome();
    assert_eq!(outcome.status, Some(2), "{outcome}");
    assert!(
        !outcome.stderr.contains("panicked") && outcome.stderr.contains("Error: "),
        "{outcome}"
    );
    let stored: u64 = files_below(&place.runs())
        .iter()
        .map(|file| file.metadata().map_or(0, |m| m.len()))
        .sum();
    assert!(stored < STORED, "{stored} bytes of files\n{outcome}");
    outcome
}

/// A shell's words that send a file through a descriptor.
fn send(place: &Place, name: &str, bytes: &[u8], descriptor: u8) -> String {
    format!("cat {} >&{descriptor}", place.put(name, bytes).display())
}

/// The monitor of a QEMU that is in order, then nothing.
fn monitor(place: &Place) -> String {
    format!(
        "sed s/THREAD/$$/ {} >&6",
        place.put("monitor", MONITOR).display()
    )
}

#[test]
fn a_console_without_end_does_not_keep_a_guest_whose_channel_is_closed() {
    let place = Place::new();
    // For all who hold it, the watchdog among them.
    let shut = "python3 -c 'import socket; socket.socket(fileno=4).shutdown(socket.SHUT_RDWR)'";
    let outcome = run(&place, &format!("cat /dev/zero >&5 & {shut}; sleep 100"));
    assert!(outcome.took < LIMIT / 2, "{outcome}");
}

#[test]
fn a_monitor_is_not_waited_for_longer_than_its_timeout() {
    let cases = [
        ("silent", "sleep 100"),
        (
            "events without end",
            "echo '{\"QMP\": {}}' >&6; yes '{\"event\": \"RESUME\"}' >&6",
        ),
        (
            "answers to others without end",
            "echo '{\"QMP\": {}}' >&6; yes '{\"return\": {}, \"id\": 77}' >&6",
        ),
        ("a line without end", "cat /dev/zero >&6"),
        (
            "it nests without end",
            "echo '{\"QMP\": {}}' >&6; printf '{\"return\": ' >&6; yes '[' | tr -d '\\n' >&6",
        ),
    ];
    std::thread::scope(|scope| {
        for (name, body) in cases {
            scope.spawn(move || {
                let place = Place::new();
                let hello = send(&place, "hello", &hello(), 4);
                let outcome = run(&place, &format!("{hello}; {body}; sleep 100"));
                assert!(outcome.stderr.contains("monitor"), "{name}: {outcome}");
            });
        }
    });
}

#[test]
fn threads_of_other_processes_are_not_taken_for_vcpus() {
    let place = Place::new();
    let lies = place.put("lies", MONITOR.replace("THREAD", "1"));
    let body = format!(
        "{}; cat {} >&6; sleep 100",
        send(&place, "hello", &hello(), 4),
        lies.display()
    );
    let outcome = run(&place, &body);
    assert!(
        outcome.stderr.contains("names a thread of process 1"),
        "{outcome}"
    );
}

fn reply(rng: &mut Rng) -> Vec<u8> {
    let error = "x".repeat(100);
    let all = [
        Reply::Sampling,
        Reply::Rooted,
        Reply::Began,
        Reply::Ended,
        Reply::Input,
        Reply::Pinged,
        Reply::Samples {
            missing: Vec::new(),
        },
        Reply::Shared {
            mount: "9p".to_owned(),
        },
        Reply::NotRun {
            status: 7,
            error: error.clone(),
        },
        Reply::Failed { error },
    ];
    encode(&all[rng.usize(..all.len())]).unwrap()
}

/// A part of a sequence: shell words.
fn step(place: &Place, number: usize, rng: &mut Rng) -> String {
    let name = format!("step-{number}");
    // Some go over the console, as of a guest without virtio-serial.
    let line = if rng.u8(..8) == 0 { 5 } else { 4 };
    let send = |bytes: &[u8]| send(place, &name, bytes, line);
    let reply = reply(rng);
    match rng.u8(..11) {
        0 => send(&reply),
        1 => send(&hello()),
        2 => send(&reply[..9]),
        3 => {
            let mut damaged = reply;
            let at = rng.usize(14..damaged.len());
            damaged[at] ^= 0x20;
            send(&damaged)
        }
        4 => send(b"VMTX\x02\x00\xff\xff\xff\xff\0\0\0\0"),
        5 => send(
            &(0..rng.usize(1..5000))
                .map(|_| rng.u8(..))
                .collect::<Vec<u8>>(),
        ),
        6 => {
            let names = [
                "stdout",
                "ops.hlog",
                "../../escaped",
                "/escaped",
                "",
                "a\nb",
            ];
            send(
                &piece(
                    names[rng.usize(..names.len())],
                    &vec![0; rng.usize(..MAX_PIECE)],
                )
                .unwrap(),
            )
        }
        7 => send(&piece("ops.hlog", b"x").unwrap().repeat(20_000)),
        8 => format!("sleep 0.{}", rng.u8(1..9)),
        9 => "yes 'a kernel that prints without end' | head -c 100000000 >&5".to_owned(),
        _ => "cat /dev/zero >&5 4>&- &".to_owned(),
    }
}

#[test]
fn no_sequence_of_messages_takes_longer_than_the_timeouts_or_leaves_anything() {
    let one = |seed: u64| {
        let place = Place::new();
        let mut rng = Rng::with_seed(seed);
        let mut body = String::new();
        // Most get past the greeting, some past the monitor's.
        if rng.u8(..5) > 0 {
            writeln!(body, "{}", send(&place, "hello", &hello(), 4)).unwrap();
        }
        if rng.u8(..5) > 0 {
            writeln!(body, "{}", monitor(&place)).unwrap();
        }
        for number in 0..rng.usize(1..8) {
            writeln!(body, "{}", step(&place, number, &mut rng)).unwrap();
        }
        let ends = [
            "exec 4>&-; sleep 100",
            "sleep 100",
            "exit 0",
            "kill -9 $$",
            "trap '' TERM INT HUP; sleep 100",
            "sleep 100 & exit 3",
        ];
        body.push_str(ends[rng.usize(..ends.len())]);
        run(&place, &body);
        assert!(
            files_below(&place.path(""))
                .iter()
                .all(|file| !file.ends_with("escaped")),
            "seed {seed}"
        );
    };
    // Mostly waits: several at a time.
    std::thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || (worker..12).step_by(4).for_each(one));
        }
    });
}
