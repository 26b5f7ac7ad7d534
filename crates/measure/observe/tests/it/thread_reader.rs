//! A thread that does not stop when it is asked to.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vmtax_model::samples::ThreadState;
use vmtax_observe::ThreadReader;

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
