//! `vmtax profile` of what threads wait for: by the clock, by the scheduler's counters and events.

use crate::common::{Ends, Place, Signal, binary, compiled, is_root, json, known_program, until};
use crate::profile::profile;
use serde_json::Value;
use std::fs;
use vmtax_findings::{CpuContention, RunQueueCause};

#[test]
fn a_thread_that_nothing_interrupts_is_told_by_its_call() {
    let place = Place::new();
    // clone(CLONE_VFORK | SIGCHLD): one waits for the other's end, which comes with its own.
    let script = "import ctypes, time\n\
                  call = ctypes.CDLL(None)\n\
                  if call.syscall(56, 0x4000 | 17, 0, 0, 0, 0) == 0: call.prctl(1, 9)\n\
                  time.sleep(60)";
    let running = place.program("python3").arg("-c").arg(script).start(60);
    running.settled();
    let words = format!(
        "profile --json --duration 1 --wall-hz 49 --stop-threads --output out --pid {}",
        running.pid()
    );
    let wall = &json(&place.vmtax(&words).succeeds().stdout)["wall"];
    let wait = &wall["threads"][0]["waits"][0];
    assert_eq!(wait["call"], "clone", "{wall:#}");
    assert!(wait["share"]["share"].as_f64().unwrap() > 0.9, "{wall:#}");
}

#[test]
fn no_thread_is_stopped_unless_asked_for() {
    let place = Place::new();
    let program = known_program(&place, "known");
    let running = place.program(&program).start(60);
    running.settled();
    let words = |more: &str| format!("profile --json --duration 2 {more} --pid {}", running.pid());
    let found = json(
        &place
            .vmtax(&words("--wall-hz 199 --output out"))
            .succeeds()
            .stdout,
    );
    let wall = &found["wall"];
    assert!(
        wall["pauses"]["count"] == 0 && wall["pauses"]["unstopped"] == wall["samples"],
        "{wall:#}"
    );
    // What a thread waits for is known all the same, with its stack.
    let states = found["states"]["threads"].as_array().unwrap();
    let thread_named = |name: &str| {
        states
            .iter()
            .find(|t| t["name"] == name)
            .unwrap_or_else(|| panic!("{states:#?}"))
    };
    let wait = &thread_named("known")["waits"][0];
    assert!(
        wait["reason"] == "lock" && wait["below"] == "waits_for_lock",
        "{states:#?}"
    );
    assert!(wait["fraction"].as_f64().unwrap() > 0.99, "{states:#?}");
    // Only root traces the scheduler.
    let source = if is_root() {
        "scheduler-events-then-counters"
    } else {
        "scheduler-counters"
    };
    assert_eq!(found["states"]["source"], source);
    let burner = thread_named("burner");
    let busy = burner["running"].as_f64().unwrap() + burner["runnable"].as_f64().unwrap();
    assert!(busy > 0.95, "{burner:#}");
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("none of which stopped a thread"));
    // With stops, what they will cost is said first; one that is too long ends them, and sampling goes on.
    let outcome = place
        .vmtax(&words("--wall-hz 99 --stop-threads=1ms --output stopped"))
        .start(60)
        .outcome()
        .exits(0);
    let outcome = outcome
        .says("2 threads of process")
        .says("99 times a second: expected")
        .says("ends stopping");
    let stopped = &json(&outcome.stdout)["wall"];
    let (count, ended) = (
        stopped["pauses"]["count"].as_u64().unwrap(),
        &stopped["stops_ended"],
    );
    assert!(
        count > 0 && (ended.is_null() == (stopped["pauses"]["max_ns"].as_f64() <= Some(1e6))),
        "{stopped:#}"
    );
    // As others see it: it does not even attach.
    if std::process::Command::new("strace")
        .arg("-V")
        .output()
        .is_ok_and(|out| out.status.success())
    {
        let strace = place
            .program("strace")
            .words("-f -qq -e trace=ptrace -o calls")
            .arg(binary());
        strace
            .words(&words("--output traced"))
            .start(60)
            .outcome()
            .exits(0);
        let calls = fs::read_to_string(place.path("calls")).unwrap();
        assert!(!calls.contains("ptrace("), "{calls}");
    }
}

/// The trace of the scheduler ends after the first second: what follows counts, too.
#[test]
fn a_process_that_is_stopped_meanwhile_did_not_run_all_the_time() {
    let place = Place::new();
    let running = place
        .program("sh")
        .arg("-c")
        .arg("while :; do :; done")
        .start(60);
    running.settled();
    let words = format!(
        "profile --json --duration 8 --output out --pid {}",
        running.pid()
    );
    let mut profile = place.vmtax(&words).start(60);
    profile.until("samples are taken", |place| {
        place.path("out").exists().then_some(())
    });
    std::thread::sleep(std::time::Duration::from_secs(3)); // on a busy host sampling begins later
    running.signal(Signal::STOP);
    let found = json(&profile.outcome().exits(0).stdout);
    running.signal(Signal::CONT);
    let states = &found["states"];
    assert!(
        states["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 7.0),
        "{states:#}"
    );
    let thread = &states["threads"][0];
    let busy = thread["running"].as_f64().unwrap() + thread["runnable"].as_f64().unwrap();
    assert!((0.1..0.7).contains(&busy), "{states:#}");
}

#[test]
fn a_thread_that_waits_is_seen_by_the_clock_with_what_it_waits_for() {
    let place = Place::new();
    let program = known_program(&place, "known");
    let running = place.program(&program).start(60);
    running.settled();
    let found = profile(&place, &running, "out", "--wall-hz 199 --stop-threads=1s");
    let wall = &found["wall"];
    let threads = wall["threads"].as_array().unwrap();
    let thread_named = |name: &str| {
        threads
            .iter()
            .find(|t| t["name"] == name)
            .unwrap_or_else(|| panic!("{wall:#}"))
    };
    let (burner, main) = (thread_named("burner"), thread_named("known"));
    assert!(
        burner["runs"]["share"].as_f64().unwrap() > 0.95,
        "{burner:#}"
    );
    let wait = &main["waits"][0];
    assert_eq!(
        (&wait["reason"], &wait["call"], &wait["below"]),
        (&"lock".into(), &"futex".into(), &"waits_for_lock".into())
    );
    assert!(wait["share"]["share"].as_f64().unwrap() > 0.99, "{main:#}");
    // One that waits on is stopped once, not at each of the moments.
    let pauses = &wall["pauses"];
    let (moments, unstopped) = (
        wall["moments"].as_u64().unwrap(),
        pauses["unstopped"].as_u64().unwrap(),
    );
    assert!(moments > 20 && unstopped + 3 >= moments, "{wall:#}");
    assert!(
        wall["unwound"]["share"].as_f64().unwrap() > 0.98,
        "{wall:#}"
    );
    let states = found["states"]["threads"].as_array().unwrap();
    let waits = states
        .iter()
        .find(|t| t["name"] == "known")
        .map(|t| &t["waits"][0])
        .unwrap();
    assert!(
        waits["reason"] == "lock" && waits["below"] == "waits_for_lock",
        "{states:#?}"
    );
    assert!(waits["fraction"].as_f64().unwrap() > 0.99, "{states:#?}");
    // What runs has the same shares by the clock.
    let folded = fs::read_to_string(place.path("out/wall.folded")).unwrap();
    let count = |part: &str| -> f64 {
        let lines = folded.lines().filter(|line| line.contains(part));
        lines
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum()
    };
    let fifty = count(";caller;fifty") / count("burner;");
    assert!((fifty - 0.5).abs() < 0.15, "{folded}");
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(
        page.contains("Thread states over")
            && page.matches("data:image/svg+xml;base64,").count() == 2
    );
    // The one who was checked goes on, and keeps its signals.
    running.signal(crate::common::Signal::TERM);
    assert_eq!(running.outcome().status, None);
}

/// Returns the causes of run-queue wait of a process's threads, which is pinned to one CPU with `hogs` other
/// processes.
fn causes_on_one_cpu(threads: u32, hogs: usize) -> (Vec<RunQueueCause>, CpuContention) {
    let place = Place::new();
    let source = "#include <pthread.h>\n#include <stdlib.h>\nstatic void *burn(void *own) { for (;;) own = own; return own; }\n\
                  int main(int count, char **words) {\n    pthread_t thread;\n    if (count != 2) return 2;\n\
                  for (int i = 1; i < atoi(words[1]); i++) pthread_create(&thread, 0, burn, 0);\n    return burn(0) != 0;\n}\n";
    let program = compiled(&place, "burners", source, &["-pthread"]);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let cpus = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let cpu = cpus.trim().split([',', '-']).next_back().unwrap();
    let burn = |threads: u32| {
        Ends::start(
            "taskset",
            &format!("-c {cpu} {} {threads}", program.display()),
        )
    };
    let (burning, _hogs) = (
        burn(threads),
        (0..hogs).map(|_| burn(1)).collect::<Vec<_>>(),
    );
    until("all threads run", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", burning.0.id()))
            .ok()?
            .count();
        (tasks == threads as usize).then_some(())
    });
    let words = format!(
        "profile --pid {} --duration 3 --json --output out",
        burning.0.id()
    );
    let found = json(&place.vmtax(&words).succeeds().stdout);
    let contention: CpuContention = serde_json::from_value(found["states"]["contention"].clone())
        .unwrap_or_else(|why| panic!("{why}: {:#}", found["states"]));
    assert_eq!(contention.cpus, cpu);
    (contention.causes().0, contention)
}

#[test]
fn threads_that_share_one_cpu_wait_for_each_other() {
    let (causes, found) = causes_on_one_cpu(4, 0);
    assert!(
        causes.contains(&RunQueueCause::OwnThreads) && !causes.contains(&RunQueueCause::Quota),
        "{found:?}"
    );
    assert!(
        found.waited > 1.0 && found.own[0] == found.own[1],
        "{found:?}"
    );
}

#[test]
fn a_thread_beside_hogs_waits_for_other_load() {
    let (causes, found) = causes_on_one_cpu(1, 3);
    assert_eq!(causes, [RunQueueCause::OtherLoad], "{found:?}");
}

#[test]
#[ignore = "needs root"]
fn threads_and_futexes_are_followed_through_the_scheduler() {
    let place = Place::new();
    let program = known_program(&place, "known");
    let running = place.program(&program).words("60 locks").start(60);
    running.settled();
    // Other load on the machine may take either thread's CPU for a while.
    let mut last = Value::Null;
    let found = (0..4).any(|round| {
        let out = format!(
            "--trace-duration 2 --wall-hz 50 --duration 4 --json --output traced-{round} --pid {}",
            running.pid()
        );
        last = json(&place.vmtax(&format!("profile {out}")).succeeds().stdout);
        is_as_planted(&last["schedule"])
    });
    assert!(found, "{:#}", last["schedule"]);
    // A lock that was never released has its holder, too.
    let futexes = last["schedule"]["futexes"].as_array().unwrap();
    let kept = futexes
        .iter()
        .find(|f| f["below"] == "waits_for_lock")
        .unwrap_or_else(|| panic!("{futexes:#?}"));
    assert!(
        kept["holder"]["name"] == "burner" && kept["wakers"].as_array().unwrap().is_empty(),
        "{kept:#}"
    );
    let page = fs::read_to_string(place.path("traced-0/report.html")).unwrap();
    assert!(page.contains("Threads by scheduler events") && page.contains("held by burner"));
    place
        .vmtax(&format!(
            "profile --trace-duration x --pid {}",
            running.pid()
        ))
        .fails(&["--trace-duration"]);
    let without = format!(
        "profile --trace-duration 0 --duration 0.5 --json --output none --pid {}",
        running.pid()
    );
    assert!(json(&place.vmtax(&without).succeeds().stdout)["schedule"].is_null());
}

/// Returns true if "waiter" is blocked about 70 % of the time on the lock that "holder" has.
fn is_as_planted(schedule: &Value) -> bool {
    let threads = schedule["threads"].as_array().unwrap();
    let thread_named = |name: &str| {
        threads
            .iter()
            .find(|t| t["name"] == name)
            .unwrap_or_else(|| panic!("{schedule:#}"))
    };
    let number = |value: &Value| value.as_f64().unwrap();
    let on = thread_named("waiter")["on"]
        .as_array()
        .unwrap()
        .iter()
        .find(|on| on["call"] == "futex");
    let Some(on) = on else { return false };
    let futexes = schedule["futexes"].as_array().unwrap();
    let lock = futexes
        .iter()
        .find(|f| f["address"] == on["futex"])
        .unwrap();
    let wakers = lock["wakers"].as_array().unwrap();
    let names = |list: &Value| {
        list.as_array()
            .unwrap()
            .iter()
            .map(|t| t["name"].clone())
            .collect::<Vec<_>>()
    };
    let calls = thread_named("holder")["calls"].as_array().unwrap();
    let slept = calls
        .iter()
        .find(|call| call["name"] == "clock_nanosleep")
        .map(|call| number(&call["mean_ns"]));
    (0.6..0.8).contains(&number(&on["share"]))
        && number(&thread_named("holder")["blocked"]) > 0.8
        && names(&lock["waiters"]) == ["waiter"]
        && wakers.len() == 1 && wakers[0]["name"] == "holder" && wakers[0]["count"].as_u64() >= Some(10)
        && lock["what"] == "lock" && lock["below"] == "waiter"
        // 75 and 25 ms by turns.
        && slept.is_some_and(|mean| (49e6..60e6).contains(&mean))
        && thread_named("burner")["on"].as_array().unwrap().is_empty()
}
