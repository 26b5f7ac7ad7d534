//! `vmtax top` beside QEMUs that others started, with planted causes.

use crate::common::boot_guest::{BootGuest, random_requests};
use crate::common::{
    Busy, Domain, Ends, Place, Quota, Signal, json, skipped, until, until_near, virsh,
};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};
use vmtax_vmm::Vm;

/// The rule that fires first.
fn first_rule(vm: &Value) -> &str {
    vm["findings"][0]["rule"].as_str().unwrap_or_default()
}

#[test]
fn a_cpu_hog_on_the_vcpus_cpu_is_run_queue_wait() {
    let place = Place::new();
    let vm = Busy::start(&place, "hogged", "");
    let cpu = fs::read_to_string("/proc/self/status").unwrap();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let cpu = cpu.trim().split([',', '-']).next().unwrap().to_owned();
    let pin = |pid: i32| {
        Command::new("taskset")
            .args(["-a", "-p", "-c", &cpu, &pid.to_string()])
            .output()
            .unwrap()
    };
    assert!(pin(vm.pid()).status.success());
    let script = place.script("hog", "while :; do :; done");
    let _hogs =
        [0, 1].map(|_| Ends::start("taskset", &format!("-c {cpu} sh {}", script.display())));
    let vm = until("run-queue wait is found", || {
        let rates = vm.rates(&place, "--duration 1");
        (first_rule(&rates) == "vm-run-queue-wait").then_some(rates)
    });
    assert!(
        vm["ready"].as_f64().unwrap() > vm["throttled"].as_f64().unwrap_or(0.0),
        "{vm:#}"
    );
    assert_eq!(vm["threads"][0]["role"]["vcpu"], 0, "{vm:#}");
    // The group is that of this test, too.
    let vcpu = &vm["threads"][0]["tid"];
    assert_eq!(
        vm["findings"][0]["remedies"][0]["line"],
        format!("sudo taskset -pc CPUS {vcpu}")
    );
}

#[test]
#[ignore = "needs root"]
fn a_cpu_quota_is_throttling_and_not_run_queue_wait() {
    let place = Place::new();
    let Some(quota) = Quota::set() else {
        return skipped("there is no CPU controller to use");
    };
    let vm = Busy::start(&place, "throttled", "");
    fs::write(quota.0.join("cgroup.procs"), vm.pid().to_string()).unwrap();
    let rates = until("throttling is found", || {
        let rates = vm.rates(&place, "--duration 1");
        (first_rule(&rates) == "vm-throttled").then_some(rates)
    });
    assert!(
        rates["cgroup"].as_str().unwrap().contains("vmtax-test-"),
        "{rates:#}"
    );
    let line = rates["findings"][0]["remedies"][0]["line"]
        .as_str()
        .unwrap();
    assert!(
        line.contains("vmtax-test-") && line.contains("/cpu."),
        "{line}"
    );
    drop(vm);
    until("the group is empty", || fs::remove_dir(&quota.0).ok());
}

/// Host CPU time and time on the run queue of a thread, ns, as the kernel counts them.
fn schedstat(pid: u32, tid: &Value) -> [f64; 2] {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap();
    let mut numbers = text.split(' ').map(|number| number.trim().parse().unwrap());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

#[test]
fn figures_are_those_of_a_known_load_beside_another_vm() {
    let place = Place::new();
    // Reads of a disk that takes so long for each, as fast as they are answered.
    let start = |name: &str, latency_ns: u32| {
        let disk = format!(
            "-drive if=none,id=d,format=raw,file.driver=null-co,file.size=64M,file.read-zeroes=on,file.latency-ns={latency_ns} \
             -device virtio-blk-pci,drive=d,id=d"
        );
        let vm = BootGuest::start(
            &place,
            name,
            "tcg",
            &random_requests(false, &[0x81], 8, 14),
            "",
            &disk,
        );
        vm.ask("cont");
        vm
    };
    let (vm, beside) = (start("slow", 10_000_000), start("beside", 0));
    until("both read", || {
        (vm.reads_done("d") > 10 && beside.reads_done("d") > 10).then_some(())
    });
    let rates = |words: &str| {
        let words = format!("top {} --json --level 1 {words}", vm.pid());
        json(&place.vmtax(&words).succeeds().stdout)["vms"][0].clone()
    };
    let threads = rates("--duration 0.2")["threads"].clone();
    let vcpu = threads
        .as_array()
        .unwrap()
        .iter()
        .find(|thread| thread["role"]["vcpu"] == 0)
        .unwrap()["tid"]
        .clone();
    // A try counts where the load was the same before the interval, in it, and after.
    let compared = || {
        let truth = || {
            (
                Instant::now(),
                vm.reads_done("d") as f64,
                vm.read_ns("d") as f64,
                schedstat(vm.pid(), &vcpu),
            )
        };
        let (began, reads, ns, [run, ready]) = truth();
        let found = rates("--duration 4");
        let (ended, reads_then, ns_then, [run_then, ready_then]) = truth();
        let seconds = (ended - began).as_secs_f64();
        let of_one = (ns_then - ns) / (reads_then - reads);
        assert!(
            of_one >= 10e6,
            "no request is faster than its disk: {of_one} ns"
        );
        let disk = found["disks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|disk| disk["name"] == "d")
            .unwrap();
        [
            (
                "IOPS",
                &disk["io"]["reads_per_s"],
                (reads_then - reads) / seconds,
                0.0,
            ),
            ("BLKAVG", &disk["io"]["blkavg_ns"], of_one, 0.0),
            (
                "%RUN",
                &found["run"],
                (run_then - run) / seconds / 1e9,
                0.01,
            ),
            (
                "%RDY",
                &found["ready"],
                (ready_then - ready) / seconds / 1e9,
                0.01,
            ),
        ]
        .map(|(name, found, truth, least)| (name, found.as_f64().unwrap(), truth, least))
    };
    until_near(compared);
}

#[test]
fn a_stopped_guest_is_named_in_every_output() {
    let place = Place::new();
    let socket = place.path("q.sock");
    let vm = Busy::start(
        &place,
        "stopped",
        &format!("-S -qmp unix:{},server=on,wait=off", socket.display()),
    );
    until("the monitor answers", || {
        Vm::attach(vm.pid()).monitor().map(|_| ())
    });
    let rates = vm.rates(&place, "--samples 1 --interval 0.3");
    assert_eq!(
        (first_rule(&rates), &rates["state"]["stopped"]),
        ("vm-stopped", &"prelaunch".into())
    );
    let metrics = place.path("vms.prom");
    let words = format!(
        "top {} --batch --samples 2 --interval 0.2 --openmetrics {}",
        vm.name,
        metrics.display()
    );
    let table = place
        .vmtax(&words)
        .succeeds()
        .shows("its state is \"prelaunch\"")
        .stdout;
    let words: Vec<&str> = table.split_whitespace().collect();
    assert!(
        words.join(" ").matches("\"cont\"}' | socat").count() == 2 && table.contains("level 0"),
        "{table}"
    );
    let text = fs::read_to_string(&metrics).unwrap();
    assert!(
        text.contains(&format!(
            "vmtax_vm_running{{pid=\"{}\",vm=\"{}\"}} 0\n",
            vm.pid(),
            vm.name
        )),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
    let csv = place
        .vmtax(&format!("top {} --csv --samples 1 --interval 0.2", vm.name))
        .succeeds()
        .stdout;
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((lines.len(), lines[0].len()), (2, lines[1].len()), "{csv}");
    assert!(
        csv.contains(&vm.name) && csv.trim_end().ends_with("vm-stopped"),
        "{csv}"
    );
}

#[test]
fn openmetrics_are_served_on_the_loopback_address() {
    let place = Place::new();
    let vm = Busy::start(&place, "served", "-S");
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut top = place
        .vmtax(&format!(
            "top {} --interval 0.2 --openmetrics {port}",
            vm.pid()
        ))
        .start(60);
    let request = |method: &str, path: &str| -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let ask = |path: &str| request("GET", path);
    let answer = top.until("counters are served", |_| {
        ask("/metrics").filter(|answer| answer.contains("# EOF"))
    });
    assert!(
        answer.starts_with("HTTP/1.1 200 ")
            && answer.contains("application/openmetrics-text; version=1.0.0")
    );
    assert!(
        answer.contains(&format!("vmtax_vm_vcpus{{pid=\"{}\"", vm.pid())),
        "{answer}"
    );
    assert!(ask("/other").unwrap().starts_with("HTTP/1.1 404 "));
    let head = request("HEAD", "/metrics").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    // A client that sends half a request keeps no other out, and a signal ends it in good order.
    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    silent.write_all(b"GET /metr").unwrap();
    assert!(ask("/metrics").unwrap().contains("# EOF"));
    silent.set_nonblocking(true).unwrap();
    let still_open = silent.read(&mut [0; 1]).unwrap_err();
    assert_eq!(still_open.kind(), std::io::ErrorKind::WouldBlock);
    drop(silent);
    top.signal(Signal::TERM);
    top.outcome().exits(0);
}

/// Returns the boundaries of the disk's latency histogram, else null; `None` while another client has the monitor.
fn boundaries(socket: &Path) -> Option<Value> {
    let answers = qmp(socket, &[("query-blockstats", "{}")])?;
    Some(answers[0][0]["stats"]["rd_latency_histogram"]["boundaries"].clone())
}

/// Asks a monitor; `None` while another client has it.
fn qmp(socket: &Path, commands: &[(&str, &str)]) -> Option<Vec<Value>> {
    use std::io::{BufRead, BufReader};
    let stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    lines.next()?.ok()?;
    let mut ask = |command: &str, arguments: &str| {
        writeln!(
            &stream,
            r#"{{"execute":"{command}","arguments":{arguments}}}"#
        )
        .ok()?;
        let answers = lines
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        answers
            .into_iter()
            .find_map(|answer| answer.get("return").cloned())
    };
    ask("qmp_capabilities", "{}")?;
    commands
        .iter()
        .map(|(command, arguments)| ask(command, arguments))
        .collect()
}

#[test]
fn histograms_are_removed_at_the_end_after_a_kill_and_never_those_of_others() {
    let place = Place::new();
    let socket = place.path("q.sock");
    let disk = place.put("disk.img", vec![0; 1 << 20]);
    let more = format!(
        "-qmp unix:{},server=on,wait=off -drive if=none,id=d,file={},format=raw -device virtio-blk-pci,drive=d,id=vd0",
        socket.display(),
        disk.display()
    );
    let vm = Busy::start(&place, "histograms", &more);
    let runtime = place.path("run");
    fs::create_dir(&runtime).unwrap();
    let unset = || until("the monitor answers", || boundaries_of(&socket, "vd0")).is_null();
    let top = |words: &str| {
        let all = format!("top {} --level 1 --json --interval 0.3 {words}", vm.pid());
        place.vmtax(&all).env("XDG_RUNTIME_DIR", &runtime)
    };
    until("it answers", || boundaries(&socket));
    assert!(unset());
    let sample = json(&top("--samples 1").succeeds().stdout);
    let disks = sample["vms"][0]["disks"].as_array().unwrap();
    let disk = disks.iter().find(|disk| disk["name"] == "vd0").unwrap();
    assert!(
        disk["io"]["reads_per_s"].is_number() && disk["io"]["in_flight"] == 0,
        "{disk:#}"
    );
    assert!(unset(), "removed at the end");

    for (signal, status) in [(Signal::TERM, Some(0)), (Signal::KILL, None)] {
        let mut running = top("").start(60);
        running.until("histograms are set", |_| {
            boundaries_of(&socket, "vd0").filter(Value::is_array)
        });
        running.signal(signal);
        assert_eq!(running.outcome().status, status);
        assert_eq!(unset(), signal == Signal::TERM);
    }
    let other = "top --samples 1 --interval 0.1 --json".to_owned();
    place
        .vmtax(&other)
        .env("XDG_RUNTIME_DIR", &runtime)
        .succeeds();
    assert!(unset(), "removed by the next start");

    // Somebody else's: used as it is, and there afterwards.
    let path = "/machine/peripheral/vd0/virtio-backend";
    let set = format!(r#"{{"id":"{path}","boundaries":[1000,2000]}}"#);
    until("it is set", || {
        qmp(&socket, &[("block-latency-histogram-set", &set)])
    });
    top("--samples 1").succeeds();
    assert_eq!(
        until("the monitor answers", || boundaries_of(&socket, "vd0")),
        serde_json::json!([1000, 2000])
    );
}

/// The boundaries of one disk's histogram of reads; null where it has none.
fn boundaries_of(socket: &Path, id: &str) -> Option<Value> {
    let answers = qmp(socket, &[("query-blockstats", "{}")])?;
    let disk = answers[0]
        .as_array()?
        .iter()
        .find(|disk| disk["qdev"].as_str().is_some_and(|path| path.contains(id)))?;
    Some(disk["stats"]["rd_latency_histogram"]["boundaries"].clone())
}

/// A block device of the host with a file's bytes; detached with the value.
struct Loop(String);

impl Loop {
    fn attach(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| Loop(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A boot sector that reads itself again and again: `int 13h` of AH = 2, drive 80h.
fn reading_sector() -> Vec<u8> {
    let mut sector = vec![
        0xb8, 1, 2, 0xb9, 1, 0, 0xba, 0x80, 0, 0xbb, 0, 0x7e, 0xcd, 0x13, 0xeb, 0xf0,
    ];
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector.resize(1 << 20, 0);
    sector
}

#[test]
#[ignore = "needs root"]
fn the_device_of_a_disk_is_the_vms_only_where_the_disk_is_the_device() {
    let place = Place::new();
    let image = place.put("reads.img", reading_sector());
    let Some(device) = Loop::attach(&image) else {
        return skipped("no loop device can be attached");
    };
    for (name, file, is_own) in [
        ("device", device.0.clone(), true),
        ("file", image.display().to_string(), false),
    ] {
        let socket = place.path(&format!("{name}.sock"));
        let more = format!(
            "-qmp unix:{},server=on,wait=off -drive if=none,id=d,file={file},format=raw,cache=none,file.locking=off \
             -device ide-hd,drive=d,unit=1,bus=ide.0,bootindex=0",
            socket.display()
        );
        let vm = Busy::start(&place, name, &more);
        let disk = until("it reads", || {
            let rates = vm.rates(&place, "--duration 1");
            let disk = rates["disks"]
                .as_array()?
                .iter()
                .find(|disk| disk["name"] == "d")?
                .clone();
            (disk["io"]["reads_per_s"].as_f64()? > 20.0).then_some(disk)
        });
        assert_eq!(
            (
                disk["davg_ns"].is_number(),
                disk["io"]["blkavg_ns"].is_number()
            ),
            (is_own, true),
            "{disk:#}"
        );
        let shown = place
            .vmtax(&format!("top {} --duration 1", vm.pid()))
            .succeeds();
        let shown = shown
            .shows("EXIT/s: only KVM has VM exits")
            .shows("needs --level 1");
        let words = shown
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(
            words.contains("traces the requests to raw images"),
            !is_own,
            "{words}"
        );
    }
}

/// A tap device with an address on the host; removed with the value.
struct Tap(String);

impl Tap {
    fn make() -> Option<Tap> {
        let name = format!("vtop{}", std::process::id() % 100_000);
        ip(&format!("tuntap add dev {name} mode tap"))?;
        let tap = Tap(name.clone());
        ip(&format!("link set {name} txqueuelen 10 up"))?;
        ip(&format!("addr add 10.213.77.1/24 dev {name}"))?;
        ip(&format!(
            "neigh add 10.213.77.2 lladdr 52:54:00:12:34:56 dev {name} nud permanent"
        ))
        .map(|()| tap)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        ip(&format!("link delete {}", self.0));
    }
}

fn ip(words: &str) -> Option<()> {
    let output = Command::new("ip").args(words.split(' ')).output().ok()?;
    output.status.success().then_some(())
}

#[test]
#[ignore = "needs root"]
fn packets_of_a_tap_are_counted_and_drops_are_found() {
    let place = Place::new();
    let Some(tap) = Tap::make() else {
        return skipped("no tap device can be made");
    };
    // No driver in the guest takes packets, so the queue of ten runs over.
    let net = format!(
        "-netdev tap,id=n,ifname={},script=no,downscript=no -device virtio-net-pci,netdev=n,romfile=",
        tap.0
    );
    let vm = Busy::start(&place, "tap", &net);
    until("it has its tap", || {
        (vm.rates(&place, "--duration 0.2")["nics"][0]["tap"] == tap.0.as_str()).then_some(())
    });
    let socket = UdpSocket::bind("10.213.77.1:0").unwrap();
    // It sends until the other end of the channel is dropped.
    let (sending, ended) = channel::<()>();
    std::thread::spawn(move || {
        while ended.try_recv() == Err(TryRecvError::Empty) {
            let _ = socket.send_to(&[0; 100], "10.213.77.2:9");
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let rates = until("drops are found", || {
        let rates = vm.rates(&place, "--duration 1");
        rates["findings"]
            .to_string()
            .contains("vm-drops")
            .then_some(rates)
    });
    drop(sending);
    let nic = &rates["nics"][0];
    assert!(
        nic["rx_dropped_per_s"].as_f64().unwrap() > 1.0 && nic["tx_dropped_per_s"] == 0.0,
        "{nic:#}"
    );
}

#[test]
fn vms_that_end_or_are_replaced_are_named_and_wrong_arguments_explained() {
    let place = Place::new();
    let (first, second) = (
        Busy::start(&place, "ends", "-S"),
        Busy::start(&place, "stays", "-S"),
    );
    // Where no VM runs at all, the reason is another one.
    place.vmtax("top no-such-vm --batch").fails(&["vmtax vms"]);
    let words = format!("top {} {} --json --interval 0.3", first.pid(), second.pid());
    let running = place.vmtax(&words).start(60);
    // Also where other load takes the processors, it sees both, then one.
    let sees = || std::thread::sleep(Duration::from_secs(2));
    sees();
    let ended = first.name.clone();
    drop(first);
    sees();
    drop(second);
    let outcome = running
        .outcome()
        .exits(2)
        .says("vmtax vms")
        .shows(&format!("{ended} (PID"));
    let lines: Vec<Value> = outcome.stdout.lines().map(json).collect();
    assert!(lines.iter().any(|line| {
        line["notes"][0]
            .as_str()
            .is_some_and(|note| note.ends_with("has ended"))
    }));

    place
        .vmtax("top --explain %NOPE")
        .fails(&["there is no column", "%RDY"]);
    place
        .vmtax("top --explain rdy")
        .succeeds()
        .shows("Run-queue wait");
    place.vmtax("top --interval 0").fails(&["0.1 to 86400"]);
    place
        .vmtax("top --openmetrics 99999")
        .fails(&["1 to 65535"]);
    place.vmtax("top --level 3").fails(&["0..=2"]);
}

#[test]
#[ignore = "needs root"]
fn a_paused_domain_of_libvirt_is_found_without_a_taint_and_its_disks_at_level_1() {
    let place = Place::new();
    let folder = tempfile::Builder::new()
        .prefix("vmtax-domain")
        .tempdir_in("/var/tmp")
        .unwrap();
    let disk = folder.path().join("disk.raw");
    fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    Command::new("chmod")
        .arg("-R")
        .arg("a+rwX")
        .arg(folder.path())
        .status()
        .unwrap();
    let Some(domain) = Domain::start(&place, &disk, "") else {
        return;
    };
    virsh(&["suspend", &domain.name]).unwrap();
    // As virsh does on a host without polkit where it has a terminal.
    let noisy = "echo 'Authorization not available. Check if polkit service is running' >&2\nexec /usr/bin/virsh \"$@\"";
    let folder_of_virsh = place
        .script("bin/virsh", noisy)
        .parent()
        .unwrap()
        .to_owned();
    let path = format!(
        "{}:{}",
        folder_of_virsh.display(),
        std::env::var("PATH").unwrap()
    );
    let sample = |options: &str| {
        let words = format!("top {} --json --interval 0.5 {options}", domain.name);
        let text = place.vmtax(&words).env("PATH", &path).succeeds().stdout;
        json(text.lines().last().unwrap())["vms"][0].clone()
    };
    let paused = sample("--samples 2");
    assert_eq!(
        (first_rule(&paused), &paused["state"]["stopped"]),
        ("vm-stopped", &"paused".into()),
        "{paused:#}"
    );
    let disk = &paused["disks"][0];
    assert!(
        disk["io"]["reads_per_s"] == 0.0 && disk["name"] == "vda",
        "libvirt counts them: {paused:#}"
    );
    assert!(
        paused["io"]["in_flight"].is_null() && paused["manager"] == "libvirt",
        "{paused:#}"
    );
    let info = || virsh(&["dominfo", &domain.name]).unwrap();
    assert!(!info().contains("tainted"), "{}", info());
    virsh(&["resume", &domain.name]).unwrap();
    let running = sample("--samples 1 --level 1");
    assert_eq!(running["state"], "running", "{running:#}");
    assert!(running["io"]["in_flight"].is_number(), "{running:#}");
    assert!(
        info().contains("tainted"),
        "level 1 says that it taints, and it does: {}",
        info()
    );
    let stats = virsh(&[
        "qemu-monitor-command",
        &domain.name,
        "{\"execute\":\"query-blockstats\"}",
    ])
    .unwrap();
    assert!(
        stats.contains("rd_operations") && !stats.contains("rd_latency_histogram"),
        "{stats}"
    );
}
