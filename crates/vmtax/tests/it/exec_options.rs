//! Additional options of a command, and the figures that it prints of itself.

use crate::common::{Place, binary, fast_guest, files_below, is_root, root_methods, terminal};
use crate::exec::{exec, native_and_guest, report};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::Command;

/// Twice as slow in a guest, as if sysbench had measured it; and a figure of its own on the other stream.
const TELLS: &str = "grep -q upperdir=/layer /proc/mounts && s=50 || s=100\n\
    printf 'sysbench 1.0.20 (planted)\\nNumber of threads: 1\\nCPU speed:\\n    events per second:  %s\\n' $s\n\
    printf 'General statistics:\\n    total time:   1.0s\\n    total number of events:  %s\\n' $s\n\
    echo done in $s ms >&2; yes padding | head -c 3000000; echo last line $s";

fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["findings"]["printed"].as_array().unwrap();
    rows.iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {rows:#?}"))
}

#[test]
fn what_a_command_prints_has_an_overhead_by_name() {
    let place = Place::new();
    let (machine, guest) = fast_guest();
    let start = place
        .vmtax(&format!("exec --rounds 1 --machine native {guest} --dir"))
        .arg(place.runs());
    let start = start
        .words("--metric")
        .arg("took:lower=done in (\\d+) ms")
        .words("--metric")
        .arg("last=^last line (.*)$");
    let start = start
        .words("--metric")
        .arg("absent=no such (.)")
        .words("--shell")
        .arg(TELLS);
    let outcome = start
        .outcome()
        .exits(0)
        .says("sysbench cpu")
        .says("×2.00")
        .says("--metric");
    let outcome = outcome
        .says("metric 'absent': no match in the output")
        .says("256 KiB");
    outcome.says("Of last which way is better is not known");
    let report = report(&place);
    let events = row(&report, "events");
    assert_eq!(
        (events["of"].as_str(), events["unit"].as_str()),
        (Some("sysbench cpu"), Some("/s"))
    );
    let guest = &events["machines"][1];
    assert_eq!(
        (
            guest["machine"].as_str(),
            guest["spread"]["median"].as_f64()
        ),
        (Some(machine), Some(50.0))
    );
    assert_eq!(guest["overhead"]["ratio"]["median"].as_f64(), Some(2.0));
    // Fewer milliseconds are better, so this one gains; and of the last nobody knows.
    assert_eq!(
        row(&report, "took")["machines"][1]["overhead"]["ratio"]["median"].as_f64(),
        Some(0.5)
    );
    assert_eq!(row(&report, "last")["better"], Value::Null);
    let page = fs::read_to_string(place.recording().join("report.html")).unwrap();
    assert!(
        page.contains("sysbench cpu") && page.contains("took"),
        "{page}"
    );
    let outcome = exec(&place, "--machine native --metric x=(", &["true"])
        .outcome()
        .exits(125);
    outcome.says("is not a regular expression");
}

#[test]
fn a_command_is_prepared_and_cleaned_up_after() {
    let place = Place::new();
    let start = place
        .vmtax(&format!("exec --rounds 1 {} --dir", native_and_guest()))
        .arg(place.runs())
        .words("--setup");
    // Who is set up stays until the end, and natively, too, no longer.
    let start =
        start.arg("echo setup > log; sleep 1000 </dev/null >/dev/null 2>&1 & echo $! > pid");
    let start = start
        .words("--prepare")
        .arg("echo prepare >> log")
        .words("--cleanup")
        .arg("echo cleaned; cat log");
    let outcome = start
        .words("--shell")
        .arg("cat log; kill -0 $(cat pid) && echo alive")
        .outcome()
        .exits(0);
    assert_eq!(
        outcome.stdout,
        "setup\nprepare\nalive\n".repeat(2),
        "{outcome}"
    );
    assert_eq!(
        outcome.stderr.matches("cleaned\nsetup\nprepare\n").count(),
        2,
        "{outcome}"
    );
    place.nothing_is_left();
    for (option, line) in [
        ("--setup", "exit 3"),
        ("--prepare", "no-such-program"),
        ("--cleanup", "false"),
    ] {
        let start = place
            .vmtax("exec --rounds 1 --machine native --dir")
            .arg(place.runs())
            .words(option)
            .arg(line);
        let outcome = start.words("-- echo ran").outcome().exits(125);
        assert_eq!(
            outcome.stdout.is_empty(),
            option != "--cleanup",
            "{outcome}"
        );
        outcome.says(&format!("{option} '{line}' failed"));
    }
}

#[test]
fn only_the_folder_that_guests_may_write_to_changes() {
    let place = Place::new();
    place.put("out/old", "old");
    place.put("kept", "kept");
    for way in root_methods() {
        let words = format!("exec --rounds 1 {} --root {way} --dir", fast_guest().1);
        let start = place.vmtax(&words).arg(place.runs());
        let script = "echo new > out/new; cat out/old; rm out/old; ln -s ../kept out/link; echo lost > kept; \
                      echo lost > other; echo lost > out/link; cat kept";
        let outcome = start
            .words("--write out -- sh -c")
            .arg(script)
            .outcome()
            .exits(0);
        assert_eq!(outcome.stdout, "oldlost\n", "{outcome}");
        assert_eq!(fs::read_to_string(place.path("out/new")).unwrap(), "new\n");
        assert_eq!(
            fs::read_to_string(place.path("kept")).unwrap(),
            "kept",
            "by the link it is the guest's own"
        );
        assert!(!place.path("out/old").exists() && !place.path("other").exists());
        fs::remove_file(place.path("out/link")).unwrap();
        place.put("out/old", "old");
    }
    for (folder, said) in [
        ("/", "cannot be shared read-write"),
        ("/proc", "/proc"),
        ("kept", "not a directory"),
        ("none", "No such file"),
    ] {
        let start = place
            .vmtax("exec --machine tcg --dir")
            .arg(place.runs())
            .words("--write")
            .arg(folder);
        start.words("-- true").outcome().exits(125).says(said);
    }
}

/// Writes of a native command: a new file, a directory that is renamed, a file that is changed and one that is
/// removed, and files in directories that all users share.
const WRITES: &str = "test ! -e new && echo new > new && mkdir a && echo below > a/file && mv a b && cat b/file && \
                      echo changed > changed && rm removed && echo $1 > /tmp/$1 && echo $1 > /var/tmp/$1 && \
                      echo $1 > /dev/shm/$1 && cat /tmp/$1 && pwd && id -u && echo kept > out/new; exit 3";

fn has_written(place: &Place) -> Vec<&'static str> {
    let has =
        |name: &str, text: &str| fs::read_to_string(place.path(name)).is_ok_and(|now| now == text);
    let all = [
        ("new", has("new", "new\n")),
        ("b", has("b/file", "below\n")),
        ("changed", has("changed", "changed\n")),
        ("removed", !place.path("removed").exists()),
        ("out", has("out/new", "kept\n")),
    ];
    all.into_iter()
        .filter_map(|(name, done)| done.then_some(name))
        .collect()
}

#[test]
fn what_a_native_command_writes_is_discarded_unless_asked_for() {
    let place = Place::new();
    place.put("changed", "before");
    place.put("removed", "");
    place.put("out/old", "");
    let name = format!("vmtax-test-{}", std::process::id());
    let shared =
        || ["/tmp", "/var/tmp", "/dev/shm"].map(|folder| std::path::Path::new(folder).join(&name));
    let run = |words: &str| {
        exec(
            &place,
            &format!("--machine native {words}"),
            &["sh", "-c", WRITES, "sh", &name],
        )
    };
    let printed = |id: u32| {
        format!(
            "below\n{name}\n{}\n{id}\n",
            place.path("").canonicalize().unwrap().display()
        )
    };
    // Each round begins with the files as they are.
    let user = rustix::process::getuid().as_raw();
    let outcome = run("--rounds 2 --ignore-failure").outcome().exits(3);
    assert_eq!(outcome.stdout, printed(user).repeat(2), "{outcome}");
    assert_eq!(has_written(&place), [""; 0], "{outcome}");
    assert!(shared().iter().all(|file| !file.exists()), "{outcome}");
    place.nothing_is_left();
    let outcome = run("--write out").outcome().exits(3);
    assert_eq!(
        (outcome.stdout.as_str(), has_written(&place)),
        (printed(user).as_str(), vec!["out"]),
        "{outcome}"
    );
    fs::remove_file(place.path("out/new")).unwrap();
    let outcome = run("--in-place").outcome().exits(3);
    assert_eq!(
        has_written(&place),
        ["new", "b", "changed", "removed", "out"],
        "{outcome}"
    );
    assert!(
        shared().iter().all(|file| fs::remove_file(file).is_ok()),
        "{outcome}"
    );
    // An ordinary user's, in a user namespace.
    let place = Place::new();
    let user = place.vmtax_as_ordinary_user("exec --rounds 1 --machine native --dir user --shell");
    let outcome = user
        .arg("echo new > new && cat new && echo $HOME > /tmp/vmtax-test-$$ && pwd && id -u")
        .outcome()
        .exits(0);
    let id = if is_root() {
        65534
    } else {
        rustix::process::getuid().as_raw()
    };
    assert_eq!(
        outcome.stdout,
        format!(
            "new\n{}\n{id}\n",
            place.path("").canonicalize().unwrap().display()
        )
    );
    assert!(!place.path("new").exists(), "{outcome}");
}

#[test]
#[ignore = "needs root"]
fn a_native_command_whose_writes_cannot_be_discarded_is_not_run() {
    let place = Place::new();
    let vmtax = binary();
    let run = |option: &str| {
        let no_namespaces = format!(
            "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \
             {vmtax} exec --rounds 1 --machine native --dir runs {option} -- touch new"
        );
        place
            .program("unshare")
            .words("--user --map-root-user sh -c")
            .arg(no_namespaces)
            .start(60)
            .outcome()
    };
    let outcome = run("")
        .exits(125)
        .says("cannot be discarded")
        .says("--in-place")
        .says("--machine kvm,tcg");
    assert!(!place.path("new").exists(), "{outcome}");
    run("--in-place").exits(0);
    assert!(place.path("new").exists());
}

#[test]
fn a_guest_has_a_network_when_it_is_given_one() {
    let place = Place::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (served, port) = (listener.local_addr().unwrap().port(), free_port());
    let answering = std::thread::spawn(move || {
        listener
            .accept()
            .unwrap()
            .0
            .write_all(b"from the host\n")
            .unwrap()
    });
    let script = format!(
        "import socket\ns = socket.create_server(('', 8080))\nprint(socket.create_connection(('10.0.2.2', {served})).recv(99).decode(), \
         end='', flush=True)\nc, _ = s.accept()\nc.sendall(b'from the guest')\n"
    );
    let out = place.path("out");
    let start = place
        .vmtax("exec --rounds 1 --net user")
        .words(&fast_guest().1)
        .words("--forward")
        .arg(format!("{port}:8080"));
    let start = start
        .words("--dir")
        .arg(place.runs())
        .words("-- python3 -c")
        .arg(script);
    let mut run = start.stdout(fs::File::create(&out).unwrap()).start(120);
    run.until("the guest was answered", |_| {
        fs::read_to_string(&out)
            .unwrap()
            .contains("from the host")
            .then_some(())
    });
    answering.join().unwrap();
    let mut said = String::new();
    TcpStream::connect(("127.0.0.1", port))
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(said, "from the guest");
    run.outcome().exits(0);
    // Else there is none, and a port that is taken is reported.
    let script =
        "python3 -c \"import socket; socket.create_connection(('10.0.2.2', 9))\" 2>&1 | tail -n 1";
    let outcome = exec(&place, &fast_guest().1, &["sh", "-c", script])
        .outcome()
        .exits(0);
    assert!(outcome.stdout.contains("unreachable"), "{outcome}");
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let words = format!(
        "--machine tcg --net user --forward {}:80",
        taken.local_addr().unwrap().port()
    );
    exec(&place, &words, &["true"])
        .outcome()
        .exits(125)
        .says("forwarding");
    exec(&place, "--machine tcg --forward 8080:80", &["true"])
        .outcome()
        .exits(2)
        .says("--net");
}

/// One that is free, and that the kernel gives nobody by itself meanwhile (ip_local_port_range begins at 32768).
fn free_port() -> u16 {
    let from = 20_000 + (std::process::id() % 10_000) as u16;
    (from..32_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

/// Types into vmtax's terminal, and says what there was to see, the exit status, and whether the terminal is as it was.
const PERSON: &str = r#"
import fcntl, os, pty, select, struct, sys, termios, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
before, seen = termios.tcgetattr(terminal), b""
def until(*answers):
    global seen
    end = time.time() + 60
    for what in answers:
        while what not in seen and time.time() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 65536)
        before, found, seen = seen.partition(what)
        assert found, (what, before.decode(errors="replace"))
prompt = b"ready> "
for typed, answers in [("", []), ("stty size; tty\n", [b"33 111\r\n/dev/pts/0"]), ("sleep 1000 & echo $((6*7))\n", [b"42\r\n"]),
                       ("cat\nin cat\n", [b"in cat\r\n", b"in cat\r\n"]), ("\x03", [b"^C"]), ("echo a'f'ter\n", [b"after\r\n"])]:
    os.write(terminal, typed.encode())
    until(*answers, *[prompt] * (not typed.startswith("cat")))
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 99, 0, 0))
# The quotes keep what the terminal echoes from being taken for the answer.
os.write(terminal, b"until [ \"$(stty size)\" = '44 '99 ]; do sleep 0.2; done; stty size\n")
until(b"44 99")
os.write(terminal, b"exit 7\n")
until(b"Report:")
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print("status", status, "restored", termios.tcgetattr(terminal) == before)
"#;

#[test]
fn a_terminal_is_a_guests() {
    let place = Place::new();
    let start = place.program("python3").arg("-c").arg(PERSON).arg(binary());
    let start = start
        .words(&format!("exec -t {} --dir", fast_guest().1))
        .arg(place.runs());
    let start = start.words("-- env").arg("PS1=ready> ").arg("sh");
    let outcome = start.start(120).outcome().exits(0);
    assert_eq!(outcome.stdout, "status 7 restored True\n", "{outcome}");
    place.nothing_is_left();
    exec(&place, "-t --machine tcg", &["true"])
        .outcome()
        .exits(125)
        .says("terminal");
    for words in [
        "-t --machine native,tcg",
        "-t --machine native",
        "-t --machine tcg --rounds 2",
    ] {
        exec(&place, words, &["true"])
            .outcome()
            .exits(125)
            .says("one guest machine");
    }
}

#[test]
fn a_guests_command_ends_with_its_terminal() {
    let place = Place::new();
    let (mut ours, theirs) = terminal(80);
    let start = exec(
        &place,
        &format!("-t {}", fast_guest().1),
        &["sh", "-c", "echo here; exec sleep 1000"],
    );
    let running = start
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs)
        .start(60);
    let (mut seen, mut part) = (String::new(), [0; 4096]);
    while !seen.contains("here") {
        let n = ours.read(&mut part).unwrap();
        seen.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    drop(ours);
    running.outcome().exits(125).says("no exit status");
    place.nothing_is_left();
}

#[test]
fn words_that_are_too_many_are_said() {
    let place = Place::new();
    // JSON takes six bytes for each of these.
    let word = "\u{1}".repeat(100_000);
    let words = [&word[..]; 5];
    let command: Vec<&str> = ["echo"].into_iter().chain(words).collect();
    exec(&place, "--machine native", &command)
        .outcome()
        .exits(125)
        .says("environment have 3 MiB");
}

#[test]
fn pipes_sockets_and_devices_of_the_host_lead_to_nobody_there() {
    let place = Place::new();
    // One who reads and one who listens: neither is to hear of a guest.
    let fifo = place.path("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let listener = UnixListener::bind(place.path("socket")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .unwrap();
    let script = "import os, socket\n\
                  try: os.open('fifo', os.O_WRONLY | os.O_NONBLOCK); print('a reader')\n\
                  except OSError as e: print(e.strerror)\n\
                  try: socket.socket(socket.AF_UNIX).connect('socket'); print('a listener')\n\
                  except OSError as e: print(e.strerror)\n\
                  os.mkfifo('own'); os.open('own', os.O_RDWR); print('its own')\n\
                  open('/dev/null', 'w').write('x')";
    let outcome = exec(&place, &fast_guest().1, &["python3", "-c", script])
        .outcome()
        .exits(0);
    assert_eq!(
        outcome.stdout, "No such device or address\nConnection refused\nits own\n",
        "{outcome}"
    );
    assert!(listener.accept().is_err() && !place.path("own").exists());
    drop(reader);
}

#[test]
#[ignore = "needs root"]
fn a_command_is_looked_at_in_one_more_run() {
    let place = Place::new();
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; cat";
    let start = exec(&place, "--machine tcg --profile", &["sh", "-c", script]);
    let outcome = start
        .stdin(fs::File::open(place.put("input", "again\n")).unwrap())
        .outcome()
        .exits(0);
    assert_eq!(outcome.stdout, "again\nagain\n", "{outcome}");
    let outcome = outcome.says("profile of tcg");
    let profiles: Vec<_> = files_below(&place.runs())
        .into_iter()
        .filter(|f| f.ends_with("profile.json"))
        .collect();
    assert_eq!(profiles.len(), 1, "{outcome}");
    assert!(
        profiles[0].with_file_name("report.html").exists(),
        "{profiles:?}"
    );
}

#[test]
fn warm_up_runs_come_first_and_are_not_measured() {
    let place = Place::new();
    let (machines, log) = (native_and_guest(), "echo run; echo run >> log; wc -l < log");
    let start = place
        .vmtax(&format!("exec --rounds 1 {machines} --warmup 2 --dir"))
        .arg(place.runs())
        .words("--setup")
        .arg("echo set up >&2")
        .words("--prepare")
        .arg("echo prepared >&2");
    let outcome = start.words("--shell").arg(log).succeeds();
    // On each of two machines three runs, the measured one last, and what is said before them.
    let count = |text: &str, line: &str| text.lines().filter(|said| *said == line).count();
    assert_eq!(count(&outcome.stdout, "run"), 6, "{outcome}");
    assert_eq!(count(&outcome.stdout, "3"), 2, "{outcome}");
    assert_eq!(count(&outcome.stderr, "set up"), 2, "{outcome}");
    assert_eq!(count(&outcome.stderr, "prepared"), 6, "{outcome}");
    assert_eq!(place.trials(), 2);
}
