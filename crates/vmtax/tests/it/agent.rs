//! The agent: alone, in poor surroundings, and as the guest's end of the protocol.

use crate::common::{
    Place, Signal, Start, binary, fake_qemu, is_root, json, kernel, qemu, send, skipped, trials,
};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vmtax_model::{Metric, Probes, WorkloadName, WorkloadSpec};
use vmtax_wire::{Decoder, Frame, Reply, Request, encode};

/// Options that make a workload short.
const SHORT: [(&str, &str); 7] = [
    ("cpu", "time=0.05"),
    ("threads", "threads=3 time=0.05"),
    ("mutex", "threads=2 locks=20 loops=10"),
    ("memory", "total-size=2M"),
    ("fileio", "total-size=1M num=4 time=0.05 --files ."),
    ("syscalls", "time=0.002"),
    ("disk", "count=64 --disk disk"),
];

fn measured(result: &Value) -> Vec<&str> {
    result["measures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["metric"].as_str().unwrap())
        .collect()
}

#[test]
fn every_workload_runs_alone_and_gives_all_its_metrics() {
    assert_eq!(
        SHORT.map(|(name, _)| name),
        WorkloadName::usual()
            .map(WorkloadName::as_str)
            .collect::<Vec<_>>()[..]
    );
    let place = Place::new();
    place.put("disk", vec![7; 1 << 20]);
    for (name, options) in SHORT {
        let run = place
            .vmtax("agent run")
            .arg(name)
            .words(options)
            .arg("--json")
            .succeeds();
        let result = json(&run.stdout);
        for metric in Metric::ALL.iter().filter(|m| m.workload().as_str() == name) {
            assert!(
                measured(&result).contains(&metric.id()),
                "no {metric} in {result:#}"
            );
        }
        assert!(
            result["unsupported"].as_array().unwrap().is_empty(),
            "{}",
            result["unsupported"]
        );
        // And for people.
        place
            .vmtax("agent run")
            .arg(name)
            .words(options)
            .succeeds()
            .shows(name);
    }
    // What fileio wrote is gone, what disk read is as it was.
    let left: Vec<_> = fs::read_dir(place.path(""))
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(fs::read(place.path("disk")).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn every_workload_lists_its_options_and_refuses_others() {
    let place = Place::new();
    for (name, _) in SHORT {
        place
            .vmtax("agent run")
            .arg(name)
            .arg("--help-options")
            .succeeds()
            .shows("time=");
        place
            .vmtax("agent run")
            .arg(name)
            .arg("no-such-option=1")
            .fails(&["no-such-option", "choose from"]);
    }
    place
        .vmtax("agent run dhrystone")
        .fails(&["unknown workload 'dhrystone'", "cpu, threads"]);
    place.vmtax("agent run cpu time").fails(&["OPTION=VALUE"]);
    place
        .vmtax("agent run cpu time=soon")
        .fails(&["time", "soon"]);
}

/// A loop device on a file; detached at the end.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn on(file: &Path) -> Option<LoopDevice> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show"]).arg(file).output();
        let made = made.ok().filter(|output| output.status.success());
        let Some(made) = made else {
            skipped("no loop device can be made");
            return None;
        };
        let path = String::from_utf8(made.stdout).unwrap();
        Some(LoopDevice(path.trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// Workloads that write to the disk that is given, with the option that says so.
const WRITING: [(&str, &str); 6] = [
    ("disk operation=write count=9", "disk's operation=write"),
    (
        "disk rw=randwrite iodepth=4 count=9",
        "disk's operation=write",
    ),
    (
        "disk rw=write count=9 --series stamps",
        "disk's operation=write",
    ),
    (
        "fio time=0.1 'job=--name=a --rw=randwrite'",
        "fio's rw=randwrite",
    ),
    (
        "fio time=0.1 'job=--name=a --rw=randrw --rwmixread=50'",
        "fio's rw=randrw",
    ),
    ("fio time=0.1 'job=--name=a --rw=trim'", "fio's rw=trim"),
];

#[test]
#[ignore = "needs root"]
fn a_disk_is_overwritten_only_where_it_is_named_once_more() {
    const BYTES: usize = 2 << 20;
    let place = Place::new();
    let [file, other] = ["canary", "other"].map(|name| place.put(name, vec![7; BYTES]));
    let Some(device) = LoopDevice::on(&file) else {
        return;
    };
    let canary = |path: &Path| assert!(fs::read(path).unwrap() == vec![7; BYTES]);
    let has_fio = Command::new("fio").arg("--version").output().is_ok();
    let writing = WRITING
        .iter()
        .filter(|(words, _)| has_fio || words.starts_with("disk"));
    let start = |words: &str, disk: &Path| -> Start<'_> {
        let words = vmtax_model::shell_words(words).unwrap();
        let run = place.vmtax("agent run");
        let run = words.iter().fold(run, |run, word| run.arg(word));
        run.words("--disk").arg(disk)
    };
    for (words, option) in writing.clone() {
        let would = format!("{option} would overwrite {}", device.0.display());
        start(words, &device.0).fails(&[&would, "--destroy"]);
        let elsewhere = start(words, &device.0).words("--destroy").arg(&other);
        elsewhere.fails(&[&would]);
        // The file of a loop device is its disk, whoever is named.
        let of_loop = start(words, &file).words("--destroy").arg(&file);
        of_loop.fails(&[option, "which is the file of /dev/loop"]);
        let mut exclusive = OpenOptions::new();
        let held = exclusive
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(&device.0);
        let in_use = start(words, &device.0).words("--destroy").arg(&device.0);
        in_use.fails(&[option, "which is mounted or part of another device"]);
        drop(held.unwrap());
        canary(&device.0);
        canary(&file);
    }
    for (words, _) in writing.filter(|(words, _)| !words.contains("trim")) {
        let named = start(words, &device.0).words("--destroy").arg(&device.0);
        named.succeeds();
        assert!(fs::read(&device.0).unwrap() != vec![7; BYTES], "{words}");
        fs::write(&device.0, vec![7; BYTES]).unwrap();
    }
    canary(&other);
}

#[test]
fn an_ordinary_user_can_run_it() {
    let place = Place::new();
    let run = place
        .vmtax_as_ordinary_user("agent run syscalls time=0.002 --json")
        .succeeds();
    assert!(
        measured(&json(&run.stdout)).contains(&"syscalls.exec"),
        "{run}"
    );
}

#[test]
fn without_proc_sys_and_dev_it_measures_what_there_is() {
    let place = Place::new();
    let root = place.path("root");
    fs::create_dir(&root).unwrap();
    fs::copy(binary(), root.join("vmtax")).unwrap();
    let empty = |words: &str| {
        let chroot = if is_root() {
            place.program("chroot")
        } else {
            place.program("unshare").words("-r chroot")
        };
        chroot.arg(&root).words(words).outcome()
    };
    if !is_root() && empty("/vmtax --version").status != Some(0) {
        skipped("an ordinary user may not change the root here");
        return;
    }
    let run = empty("/vmtax agent run syscalls time=0.002 --json").exits(0);
    let result = json(&run.stdout);
    for metric in [
        Metric::SyscallGetpid,
        Metric::SyscallPipe,
        Metric::SyscallFork,
        Metric::SyscallPageFault,
    ] {
        assert!(
            measured(&result).contains(&metric.id()),
            "no {metric}\n{run}"
        );
    }
    // No /dev/null to write to: no number, but a reason.
    assert!(!measured(&result).contains(&Metric::SyscallWriteNull.id()));
    let unsupported = result["unsupported"].as_array().unwrap();
    let write_null = unsupported
        .iter()
        .find(|u| u["metric"] == Metric::SyscallWriteNull.id());
    assert!(
        write_null.is_some_and(|u| !u["reason"].as_str().unwrap().is_empty()),
        "{unsupported:?}"
    );
    for workload in [
        "cpu time=0.05",
        "threads threads=2 time=0.05",
        "memory total-size=1M",
    ] {
        let run = empty(&format!("/vmtax agent run {workload} --json")).exits(0);
        assert!(!measured(&json(&run.stdout)).is_empty(), "{run}");
    }
}

/// The controller's end of an agent's channel.
struct Channel(UnixStream, Decoder);

impl Channel {
    fn pair() -> (Channel, OwnedFd) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        (Channel(ours, Decoder::new()), theirs.into())
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn reply(&mut self) -> Reply {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.1.frame() {
                match frame.unwrap() {
                    Frame::Message(reply) => return reply,
                    Frame::Piece { name, .. } => {
                        panic!("a piece of {name}, where nothing was observed")
                    }
                }
            }
            let read = self.0.read(&mut buffer).unwrap();
            assert!(read > 0, "the agent left without an answer");
            self.1.push(&buffer[..read]);
        }
    }
}

#[test]
fn it_serves_on_the_cpus_it_was_given_until_told_to_leave() {
    let place = Place::new();
    let (mut channel, theirs) = Channel::pair();
    let agent = place.vmtax("agent serve --cpus 1").stdin(theirs).start(30);
    let Reply::Hello(hello) = channel.reply() else {
        panic!("no greeting")
    };
    assert_eq!(hello.cpus, 1);
    assert_eq!(hello.vmtax, env!("CARGO_PKG_VERSION"));
    let workload = WorkloadSpec::new(WorkloadName::Syscalls)
        .with("only", "getpid")
        .with("time", 0.01);
    channel.send(
        &encode(&Request::Run {
            workload: workload.clone(),
            probes: Probes::None,
        })
        .unwrap(),
    );
    let Reply::Done {
        result,
        observed: None,
    } = channel.reply()
    else {
        panic!("no result")
    };
    assert!(
        result
            .value(Metric::SyscallGetpid)
            .is_some_and(|ns| ns > 1.0)
    );
    assert_eq!(result.workload.options["only"], "getpid");
    // A workload that cannot run is an answer, and not the agent's end.
    let workload = workload.with("only", "nothing-known");
    channel.send(
        &encode(&Request::Run {
            workload,
            probes: Probes::None,
        })
        .unwrap(),
    );
    let Reply::Failed { error } = channel.reply() else {
        panic!("no failure")
    };
    assert!(error.contains("nothing-known"), "{error}");
    channel.send(&encode(&Request::Leave).unwrap());
    agent.outcome().exits(0);
}

#[test]
fn a_workload_that_is_killed_is_an_answer_too() {
    let place = Place::new();
    let (mut channel, theirs) = Channel::pair();
    let mut agent = place.vmtax("agent serve").stdin(theirs).start(30);
    channel.reply();
    let workload = WorkloadSpec::new(WorkloadName::Cpu).with("time", 20);
    channel.send(
        &encode(&Request::Run {
            workload,
            probes: Probes::None,
        })
        .unwrap(),
    );
    let victim = agent.until("the workload's process", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.command.contains("agent run cpu"))
    });
    send(victim.pid, Signal::KILL);
    let Reply::Failed { error } = channel.reply() else {
        panic!("no failure")
    };
    assert!(
        error.contains("signal 9") && error.contains("out of memory"),
        "{error}"
    );
    channel.send(&encode(&Request::Leave).unwrap());
    agent.outcome().exits(0);
}

#[test]
fn it_ends_with_its_channel_and_takes_no_garbage() {
    let place = Place::new();
    let (channel, theirs) = Channel::pair();
    let agent = place.vmtax("agent serve").stdin(theirs).start(30);
    drop(channel);
    // Its greeting may meet a closed channel: that is an error, but an end.
    let ended = agent.outcome();
    assert!(matches!(ended.status, Some(0 | 2)), "{ended}");

    for (garbage, said) in [
        (
            &b"VMTX\x02\0\xff\xff\xff\xff\0\0\0\0"[..],
            "4294967295 bytes",
        ),
        (b"VMTX\x07\0\0\0\0\0\0\0\0\0", "protocol 7"),
        (b"VMTX\x02\0\x02\0\0\0\0\0\0\0{}", "checksum"),
    ] {
        let (mut channel, theirs) = Channel::pair();
        let agent = place.vmtax("agent serve").stdin(theirs).start(30);
        channel.reply();
        channel.send(garbage);
        agent.outcome().exits(2).says(said);
    }
}

#[test]
fn a_result_of_the_agent_alone_is_what_a_run_records() {
    let place = Place::new();
    let alone = json(
        &place
            .vmtax("agent run cpu time=0.05 --json")
            .succeeds()
            .stdout,
    );
    let run = place
        .run("cpu cpu.time=0.05 --machine native --rounds 1 --json")
        .succeeds();
    let report = json(&run.stdout);
    let recorded = &trials(&report)[0]["result"];
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&alone), keys(recorded));
    assert_eq!(alone["workload"]["name"], recorded["workload"]["name"]);
}

/// Some kernels have the driver built in, so it is the device that is taken away.
const WITHOUT_THE_PORT: &str = r#"
left=$#
while [ "$left" -gt 0 ]; do
    case "$1 $2" in
    "-device virtio-serial"* | "-device virtserialport"*) shift 2; left=$((left - 2)) ;;
    *) set -- "$@" "$1"; shift; left=$((left - 1)) ;;
    esac
done
"#;

#[test]
fn a_guest_without_virtio_serial_is_measured_over_the_console() {
    let place = Place::new();
    let kernel = kernel().copy(&place, &[]);
    let qemu = fake_qemu(
        &place,
        &format!("{WITHOUT_THE_PORT}exec {} \"$@\"", qemu().display()),
    );
    let plan = "syscalls syscalls.only=getpid,pipe syscalls.time=0.02 cpu cpu.time=0.1 --machine tcg --rounds 1";
    let run = place
        .run(plan)
        .words(&kernel.options())
        .arg("--qemu")
        .arg(qemu)
        .arg("--json")
        .start(90)
        .outcome()
        .exits(0);
    let report = json(&run.stdout);
    assert_eq!(trials(&report).len(), 2);
    for trial in trials(&report) {
        assert_eq!(trial["outcome"], "done", "{trial}");
    }
    // The console's log is the channel's too: the frames stand in it.
    let log = fs::read(place.recording().join("turns/0000-tcg/console.log")).unwrap();
    assert!(
        log.windows(4).any(|bytes| bytes == b"VMTX"),
        "not spoken over the console"
    );
}
