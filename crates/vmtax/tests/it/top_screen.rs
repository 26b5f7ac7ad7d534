//! The live screen of `vmtax top` in a terminal: it draws, answers keys, and leaves the terminal as it was. Commands that stay
//! end with their terminal.

use crate::common::{Busy, Ends, Place, Signal, binary, is_root, terminal, until};
use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const SHOW_ALTERNATE: &str = "\u{1b}[?1049h";
const LEAVE_ALTERNATE: &str = "\u{1b}[?1049l";

/// Reads all that a program writes to its terminal.
fn reader(mut ours: File) -> Receiver<String> {
    let (parts, read) = channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(n @ 1..) = ours.read(&mut part) {
            if parts
                .send(String::from_utf8_lossy(&part[..n]).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    read
}

/// Reads until this text is on the screen.
fn wait_for(read: &Receiver<String>, seen: &mut String, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !seen.contains(text) && !screen(seen).contains(text) {
        assert!(
            Instant::now() < deadline,
            "no {text:?} on\n{}",
            screen(seen)
        );
        seen.extend(read.recv_timeout(Duration::from_millis(100)));
    }
}

/// Returns the screen of a terminal after this output: characters at the positions of the cursor. Sequences that clear
/// or set colors are ignored.
fn screen(output: &str) -> String {
    let mut cells = vec![vec![' '; 200]; 60];
    let (mut row, mut column) = (0, 0);
    let mut rest = output;
    while let Some(next) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\u{1b}[") {
            let Some(end) = sequence.find(|c: char| c.is_ascii_alphabetic()) else {
                break;
            };
            if &sequence[end..=end] == "H" {
                let mut numbers = sequence[..end]
                    .split(';')
                    .map(|number| number.parse::<usize>().unwrap_or(1) - 1);
                (row, column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            }
            rest = &sequence[end + 1..];
            continue;
        }
        if let Some(cell) = cells
            .get_mut(row)
            .and_then(|line: &mut Vec<char>| line.get_mut(column))
        {
            *cell = next;
        }
        column += 1;
        rest = &rest[next.len_utf8()..];
    }
    cells
        .iter()
        .map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n")
        .collect()
}

#[test]
fn the_screen_draws_answers_keys_and_restores_the_terminal_at_any_end() {
    let place = Place::new();
    let name = format!("screen-{}", std::process::id());
    let words = format!("-nodefaults -display none -machine none -accel tcg -m 1 -S -name {name}");
    let qemu = Ends::start("qemu-system-x86_64", &words);
    let pid = qemu.0.id() as i32;
    until("it runs", || {
        vmtax_vmm::running().contains(&pid).then_some(())
    });
    for (columns, end) in [(80, "q"), (160, "\u{3}"), (80, "TERM")] {
        let (ours, theirs) = terminal(columns);
        let mut keys = ours.try_clone().unwrap();
        let read = reader(ours);
        let all = format!("top {pid} --interval 0.3");
        let start = place
            .vmtax(&all)
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs);
        let running = start.env("TERM", "xterm-256color").start(90);
        let mut seen = String::new();
        wait_for(&read, &mut seen, SHOW_ALTERNATE);
        wait_for(&read, &mut seen, "level 0 (counters)");
        wait_for(&read, &mut seen, "No known problem");
        wait_for(&read, &mut seen, "Host CPUs: ");
        wait_for(&read, &mut seen, "Host memory: ");
        keys.write_all(b"s0.5\r").unwrap();
        wait_for(&read, &mut seen, "every 0.5 s");
        keys.write_all(b"f").unwrap();
        wait_for(&read, &mut seen, "Columns: automatic");
        keys.write_all(b"f").unwrap();
        keys.write_all(b"?").unwrap();
        wait_for(&read, &mut seen, "Columns (vmtax top --explain");
        keys.write_all(b"\x1b").unwrap();
        std::thread::sleep(Duration::from_secs(1));
        keys.write_all(b"\r").unwrap();
        wait_for(&read, &mut seen, "other threads by role");
        match end {
            "TERM" => running.signal(Signal::TERM),
            key => keys.write_all(key.as_bytes()).unwrap(),
        }
        wait_for(&read, &mut seen, LEAVE_ALTERNATE);
        running.outcome().exits(0);
    }
    drop(qemu);
}

#[test]
fn a_dumb_terminal_gets_tables_without_sequences() {
    let place = Place::new();
    let vm = Busy::start(&place, "dumb", "");
    for term in ["dumb", ""] {
        let (ours, theirs) = terminal(40);
        let start = place
            .vmtax(&format!("top {} -d 0.3 -n 2", vm.pid()))
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs);
        let running = start.env("TERM", term).start(60);
        let read = reader(ours);
        running.outcome().exits(0);
        let seen: String = read.iter().collect();
        assert!(!seen.contains('\u{1b}'), "TERM={term:?}: {seen:?}");
        assert_eq!(seen.matches("Host CPUs: ").count(), 2, "{seen}");
        assert!(
            seen.lines()
                .all(|line| line.trim_end().chars().count() <= 40),
            "{seen}"
        );
    }
}

#[test]
fn the_screen_ends_with_its_terminal() {
    let place = Place::new();
    let words = format!(
        "-nodefaults -display none -machine none -accel tcg -m 1 -S -name gone-{}",
        std::process::id()
    );
    let qemu = Ends::start("qemu-system-x86_64", &words);
    let pid = qemu.0.id() as i32;
    until("it runs", || {
        vmtax_vmm::running().contains(&pid).then_some(())
    });
    let (mut ours, theirs) = terminal(80);
    let start = place
        .vmtax(&format!("top {pid} --interval 0.3"))
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs);
    let running = start.env("TERM", "xterm-256color").start(60);
    let (mut seen, mut part) = (String::new(), [0; 4096]);
    // It draws again and again; where it has ended, reading fails.
    while !screen(&seen).contains("level 0 (counters)") {
        let n = ours.read(&mut part).unwrap();
        seen.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    drop(ours);
    running.outcome().exits(0);
}

/// A connection by SSH that breaks leaves no command behind.
#[test]
fn commands_that_stay_end_with_their_terminal() {
    let place = Place::new();
    let vm = Busy::start(&place, "left", "");
    let of_root = is_root().then_some("layers --vm PID --duration 600 --output layers");
    let of_anybody = [
        "top PID --batch --interval 0.3",
        "diagnose PID --duration 600 --output diagnosis",
        "profile --vm PID --duration 600 --output profile",
    ];
    for words in of_anybody.into_iter().chain(of_root) {
        let (ours, theirs) = terminal(80);
        let start = place.program("setsid").arg("--ctty").arg(binary());
        let start = start.words(&words.replace("PID", &vm.pid().to_string()));
        let running = start
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs)
            .start(60);
        std::thread::sleep(Duration::from_secs(2));
        drop(ours);
        // It fails where it does not end.
        running.outcome();
    }
}
