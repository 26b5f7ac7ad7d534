//! The first sentence of `vms`, `top`, `diagnose` and `profile` about a VM in a planted state.

use crate::common::boot_guest::{BootGuest, unhurried_reads};
use crate::common::{Outcome, Place, Signal, json as parsed, send, until};
use fastrand::Rng;
use nix::sys::ptrace;
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use vmtax_observe::counters::{process_stop, thread_state};
use vmtax_observe::own_tids;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Guest {
    Runs,
    Paused,
    Panicked,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Process {
    Runs,
    /// Stopped by the signal SIGSTOP.
    Stopped,
    /// All threads, by this test.
    Traced,
    /// The main loop alone: the monitor is silent, vCPUs run.
    MainLoopTraced,
    Ended,
}

#[derive(Debug, Clone, Copy)]
struct State {
    guest: Guest,
    process: Process,
    /// The memory is on its way to a host that takes none of it.
    is_migrating: bool,
    /// Another client is connected to each monitor.
    is_taken: bool,
}

const RUNS: State = State {
    guest: Guest::Runs,
    process: Process::Runs,
    is_migrating: false,
    is_taken: false,
};

/// Parts of the first sentences: of `vms`, of `top` and `diagnose`, and of `profile`; empty where they need not mention the
/// state.
struct Truth {
    vms: &'static str,
    top: &'static str,
    diagnose: &'static str,
    profile: &'static str,
}

impl State {
    fn drawn(rng: &mut Rng) -> State {
        use Process::{Ended, MainLoopTraced, Runs, Stopped, Traced};
        State {
            guest: [Guest::Runs, Guest::Paused, Guest::Panicked][rng.usize(..3)],
            process: [Runs, Stopped, Traced, MainLoopTraced, Ended][rng.usize(..5)],
            is_migrating: rng.bool(),
            is_taken: rng.bool(),
        }
    }

    fn truth(self) -> Truth {
        let found = |vms, finding, profile| Truth {
            vms,
            top: finding,
            diagnose: finding,
            profile,
        };
        let still = "No vCPU ran in 1.0 s: the guest is halted or paused; QMP does not tell which.";
        match (self.process, self.guest) {
            (Process::Stopped, _) => found(
                "does not run: QEMU is stopped (SIGSTOP)",
                "QEMU is stopped (SIGSTOP)",
                "is stopped (SIGSTOP)",
            ),
            (Process::Traced, _) => found(
                "has stopped QEMU",
                "has stopped QEMU",
                "has stopped process",
            ),
            // A main loop that has the big lock when it is stopped stops vCPUs, too.
            (Process::MainLoopTraced, Guest::Runs) if !self.is_taken => {
                found("does not respond", "does not respond", "vCPU ")
            }
            (Process::MainLoopTraced, _) if !self.is_taken => {
                found("does not respond", "QEMU does not respond", still)
            }
            (Process::MainLoopTraced, Guest::Runs) => found("", "", "vCPU "),
            (_, Guest::Runs) => found("", "", "vCPU 0 spent "),
            (_, _) if self.is_taken => Truth {
                vms: "",
                top: "is halted or paused is not known",
                diagnose: "Not observed: whether the guest runs (QMP)",
                profile: still,
            },
            (_, Guest::Paused) => found(
                "is paused",
                "its state is \"paused\"",
                "The guest is paused",
            ),
            (_, Guest::Panicked) => found(
                "'s guest has panicked",
                "The guest has panicked",
                "The guest has panicked",
            ),
        }
    }

    /// Plants it in a VM of its own, and reads the sentences.
    fn is_described_truly(self, name: &str) {
        let place = Place::new();
        let name = format!("{name}-{}", std::process::id());
        let planted = Planted::new(&place, &name, self);
        let pid = planted.vm.pid();
        let top = place.vmtax(&format!("top {pid} --batch --samples 1 --interval 1"));
        let [diagnose, profile] = ["diagnose", "profile --vm"].map(|command| {
            place.vmtax(&format!(
                "{command} {pid} --duration 1 --output {}",
                &command[..3]
            ))
        });
        if self.process == Process::Ended {
            for command in [top, diagnose, profile] {
                command.fails(&["vmtax"]);
            }
            assert!(
                !place.vmtax("vms").succeeds().stdout.contains(&name),
                "{self:?}"
            );
            return;
        }
        let truth = self.truth();
        // VMs of other tests may be in the same sentence.
        let vms = first(&place.vmtax("vms").succeeds());
        let said = vms
            .split("; ")
            .find(|clause| clause.contains(&name))
            .unwrap_or_default();
        assert!(
            said.is_empty() == truth.vms.is_empty() && said.contains(truth.vms),
            "{self:?}: vms: {vms}"
        );
        let limit = 180;
        for (command, truth) in [
            (top, truth.top),
            (diagnose, truth.diagnose),
            (profile, truth.profile),
        ] {
            let said = first(&command.start(limit).outcome().exits(0));
            assert!(said.contains(truth), "{self:?}: no {truth:?} in {said}");
            let untrue = [
                "healthy",
                "paused",
                "stopped",
                "panicked",
                "respond",
                "does not run",
                "mostly idle",
            ];
            let known = said.replace("halted or paused", "");
            let untrue = untrue
                .into_iter()
                .find(|word| !truth.contains(word) && known.contains(word));
            // A paused guest is advised to be resumed.
            let untrue = untrue.filter(|word| *word != "does not run" || self.guest == Guest::Runs);
            assert_eq!(untrue, None, "{self:?}: {said}");
        }
        drop(planted);
    }
}

/// The lines before the first that is no part of the answer.
fn first(outcome: &Outcome) -> String {
    let is_answer = |line: &&str| {
        let is_head =
            line.contains(" · ") || line.starts_with("Next:") || line.starts_with("Running VMs");
        !line.is_empty() && !is_head
    };
    outcome
        .stdout
        .lines()
        .take_while(is_answer)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A VM in a state; it ends with the value.
struct Planted {
    vm: BootGuest,
    traced: Vec<Pid>,
    _clients: Vec<UnixStream>,
    _target: UnixListener,
}

impl Planted {
    fn new(place: &Place, name: &str, state: State) -> Planted {
        let mut sector = match (state.guest, state.process) {
            // mov dx, 0x505; mov al, 1; out dx, al; hlt
            (Guest::Panicked, _) => vec![0xba, 0x05, 0x05, 0xb0, 0x01, 0xee, 0xf4],
            // jmp to itself: the main loop has the timer that would wake a vCPU.
            (_, Process::MainLoopTraced) => vec![0xeb, 0xfe],
            (Guest::Runs | Guest::Paused, _) => unhurried_reads(&[], 14),
        };
        sector.resize(510, 0);
        sector.extend([0x55, 0xaa]);
        let vm = BootGuest::start(
            place,
            name,
            "tcg",
            &sector,
            "",
            "-device pvpanic -action panic=pause",
        );
        let pid = vm.pid() as i32;
        let monitor = place.path(&format!("{name}.qmp"));
        until("its monitor is free", || {
            vmtax_vmm::Vm::find(&monitor.to_string_lossy()).ok()
        });
        vm.ask("cont");
        match state.guest {
            Guest::Runs => {}
            Guest::Paused => drop(vm.ask("stop")),
            Guest::Panicked => {
                until("it panics", || {
                    (vm.ask("query-status")["status"] == "guest-panicked").then_some(())
                });
            }
        }
        let target = place.path("target");
        let listener = UnixListener::bind(&target).unwrap();
        if state.is_migrating {
            let uri = format!("unix:{}", target.display());
            vm.command(&json!({ "execute": "migrate", "arguments": { "uri": uri } }));
            until("it migrates", || {
                (vm.ask("query-migrate")["status"] == "active").then_some(())
            });
        }
        let connect = |ending: &str| {
            let client = UnixStream::connect(place.path(&format!("{name}.{ending}"))).unwrap();
            // QEMU has accepted it once it greets.
            assert!(
                BufReader::new(&client)
                    .read_line(&mut String::new())
                    .unwrap()
                    > 0
            );
            client
        };
        let clients = if state.is_taken {
            ["qmp", "test"].map(connect).into()
        } else {
            Vec::new()
        };
        let mut planted = Planted {
            vm,
            traced: Vec::new(),
            _clients: clients,
            _target: listener,
        };
        match state.process {
            Process::Runs => {}
            Process::Stopped => send(pid as u32, Signal::STOP),
            Process::Traced => {
                let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
                let threads =
                    tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap());
                planted.trace(threads);
            }
            Process::MainLoopTraced => {
                planted.trace([pid]);
                until("it is stopped", || {
                    (thread_state(pid, pid) == Some('t')).then_some(())
                });
            }
            Process::Ended => planted.vm.kill(),
        }
        if matches!(state.process, Process::Stopped | Process::Traced) {
            until("all its threads are stopped", || process_stop(pid));
        }
        planted
    }

    fn trace(&mut self, threads: impl IntoIterator<Item = i32>) {
        for tid in threads.into_iter().map(Pid::from_raw) {
            // One that has ended meanwhile needs no tracer.
            if ptrace::seize(tid, ptrace::Options::empty()).is_ok() {
                ptrace::interrupt(tid).unwrap();
                self.traced.push(tid);
            }
        }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        for tid in &self.traced {
            let _ = ptrace::detach(*tid, None);
        }
    }
}

#[test]
fn a_vm_that_does_not_run_is_described_truly_and_one_that_does() {
    let states = [
        RUNS,
        State {
            is_migrating: true,
            ..RUNS
        },
        State {
            guest: Guest::Paused,
            ..RUNS
        },
        State {
            guest: Guest::Panicked,
            ..RUNS
        },
        State {
            process: Process::Stopped,
            ..RUNS
        },
        State {
            process: Process::Traced,
            guest: Guest::Paused,
            ..RUNS
        },
        State {
            process: Process::Ended,
            ..RUNS
        },
    ];
    states
        .into_iter()
        .enumerate()
        .for_each(|(number, state)| state.is_described_truly(&format!("state{number}")));
}

#[test]
fn a_vm_whose_main_loop_stands_is_described_truly() {
    State {
        process: Process::MainLoopTraced,
        ..RUNS
    }
    .is_described_truly("stands");
}

#[test]
fn a_vm_whose_monitor_belongs_to_another_client_is_described_truly() {
    State {
        guest: Guest::Paused,
        is_taken: true,
        ..RUNS
    }
    .is_described_truly("taken");
}

/// Without a monitor that answers, and without threads' names, CPU time tells which threads are vCPUs.
#[test]
fn a_thread_that_polls_is_no_vcpu_though_it_has_most_cpu_time() {
    let place = Place::new();
    let paused = State {
        guest: Guest::Paused,
        ..RUNS
    };
    let name = format!("polling-{}", std::process::id());
    let mut planted = Planted::new(&place, &name, paused);
    let vcpu = planted.vm.ask("query-cpus-fast")[0]["thread-id"].clone();
    let monitor = place.path(&format!("{name}.test"));
    for _ in 0..500 {
        let client = UnixStream::connect(&monitor).unwrap();
        BufReader::new(client)
            .read_line(&mut String::new())
            .unwrap();
    }
    let pid = planted.vm.pid() as i32;
    planted.trace([pid]);
    let threads = own_tids(pid);
    until("no thread runs", || {
        let mut states = threads.values().map(|tid| thread_state(pid, *tid));
        let sleep = states.all(|state| matches!(state, Some('S' | 't')));
        sleep.then_some(())
    });
    let listed = parsed(&place.vmtax("vms --json").succeeds().stdout);
    let vms = listed.as_array().unwrap();
    let vm = vms.iter().find(|vm| vm["pid"] == pid).unwrap();
    let threads = vm["threads"].as_array().unwrap();
    let roles = |tid: &Value| threads.iter().find(|thread| thread["tid"] == *tid).cloned();
    assert_eq!(
        roles(&vcpu).unwrap()["role"],
        json!({ "vcpu": 0 }),
        "{vm:#}"
    );
}

/// 200 states in some ten minutes.
#[test]
fn by_hand_random_states_are_described_truly() {
    thread::scope(|scope| {
        for seed in 0..4 {
            let mut rng = Rng::with_seed(seed);
            scope.spawn(move || {
                for number in 0..50 {
                    State::drawn(&mut rng).is_described_truly(&format!("random{seed}-{number}"));
                }
            });
        }
    });
}
