//! The network of a running VM: what was planted is found, and of a VM without it the rules are silent.

use crate::common::{
    ELSEWHERE_NS, PACKET_DELAY_NS, PLANTED_NS, Place, Running, Signal, json, packet_delaying_qemu,
    passes, until,
};
use crate::kvm_guest::{kvm, parts, report_without_probes};
use serde_json::Value;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use vmtax_model::testing::{KvmGuest, skipped};

/// The number under which QEMU has the tap.
const DESCRIPTOR: i32 = 77;

/// A tap with an address on the host, gone with the value.
struct Tap {
    file: File,
    name: String,
}

impl Tap {
    /// `None` where none can be made. Each test has a number, and with it a network 10.213.NUMBER.0/24.
    fn make(number: u8) -> Option<Tap> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
            .ok()?;
        let name = format!("vnet{}n{number}", std::process::id() % 100_000);
        // struct ifreq: a name of 16 bytes, the flags.
        let mut request = [0_u8; 40];
        request[..name.len()].copy_from_slice(name.as_bytes());
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request[16..18].copy_from_slice(&(flags as u16).to_ne_bytes());
        // SAFETY: TUNSETIFF reads and writes a struct ifreq of 40 bytes, which `request` has room for.
        let made =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
        (made == 0).then_some(())?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("addr add 10.213.{number}.1/24 dev {name}")).map(|()| Tap { file, name })
    }
}

fn ip(words: &str) -> Option<()> {
    Command::new("ip")
        .args(words.split(' '))
        .status()
        .ok()?
        .success()
        .then_some(())
}

/// A server on the host that sends to whoever connects and takes what that sends; its port.
fn server(address: &str) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut sender = client.try_clone().unwrap();
            std::thread::spawn(move || while sender.write_all(&[0; 65536]).is_ok() {});
            std::thread::spawn(move || io::copy(&mut client, &mut io::sink()));
        }
    });
    port
}

/// A guest that runs this script, with a card on this backend; `options`: of QEMU and the guest.
fn guest<'a>(
    place: &'a Place,
    kernel: &KvmGuest,
    options: &str,
    (netdev, card): (&str, &str),
    tap: Option<&Tap>,
    script: &str,
) -> Running<'a> {
    let start = kvm(place, kernel, "exec", "--machine kvm --rounds 1 -q").words(options);
    let (netdev, card) = (
        format!("{netdev},id=n"),
        format!("virtio-net-pci,netdev=n,romfile={card}"),
    );
    let start = start.qemu_args(["-netdev", &netdev, "-device", &card]);
    let start = tap
        .into_iter()
        .fold(start, |start, tap| start.descriptor(&tap.file, DESCRIPTOR));
    start.arg("--").arg("bash").arg("-c").arg(script).start(200)
}

/// The commands that give a guest's card this address, and open a connection as descriptor 3.
fn connected(address: &str, server: &str, port: u16) -> String {
    format!(
        "ip link set eth0 up; ip addr add {address}/24 dev eth0; exec 3<>/dev/tcp/{server}/{port}; "
    )
}

fn qemu(running: &mut Running<'_>) -> u32 {
    running.until("the guest runs", |place| {
        let mut all = place.processes().into_iter();
        all.find(|process| process.is_qemu() && process.command.contains(" -kernel "))
            .map(|qemu| qemu.pid)
    })
}

/// Of a VM, by its counters.
fn rates(place: &Place, pid: u32) -> Value {
    let text = place
        .vmtax(&format!("top {pid} --json --samples 1 --interval 2"))
        .succeeds()
        .stdout;
    json(text.lines().last().unwrap())["vms"][0].clone()
}

#[test]
#[ignore = "needs root"]
fn packets_without_segmentation_offload_are_found() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    for (number, offload, card) in [
        (71, false, ",host_tso4=off,host_tso6=off,gso=off"),
        (72, true, ""),
    ] {
        let Some(tap) = Tap::make(number) else {
            return skipped("no tap device can be made");
        };
        let place = Place::new();
        let server_address = format!("10.213.{number}.1");
        let port = server(&server_address);
        let script = connected(&format!("10.213.{number}.2"), &server_address, port)
            + "dd if=/dev/zero bs=64k >&3";
        let backend = format!("tap,fd={DESCRIPTOR}");
        let mut running = guest(&place, &kernel, "", (&backend, card), Some(&tap), &script);
        let pid = qemu(&mut running);
        let found = until("it streams", || {
            let rates = rates(&place, pid);
            (rates["nics"][0]["tx_bytes_per_s"].as_f64()? > 2e6).then_some(rates)
        });
        assert_eq!(found["nics"][0]["tap"], tap.name.as_str());
        let is_found = |rates: &Value| rates["findings"].to_string().contains("vm-small-segments");
        if offload {
            assert!(!is_found(&found), "{found:#}");
        } else {
            // A second without a thousand packets is no load.
            until("small segments are found", || {
                is_found(&rates(&place, pid)).then_some(())
            });
        }
        running.signal(Signal::INT);
        running.outcome();
    }
}

#[test]
#[ignore = "needs root"]
fn a_user_mode_network_that_takes_cpu_time_is_found() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let port = server("127.0.0.1");
    // The same card and the same backend, with and without load.
    let receives = connected("10.0.2.15", "10.0.2.2", port) + "cat <&3 >/dev/null";
    for (script, is_expected) in [(receives.as_str(), true), ("while :; do :; done", false)] {
        let place = Place::new();
        let mut running = guest(&place, &kernel, "", ("user", ""), None, script);
        let pid = qemu(&mut running);
        // Until it has booted there is nothing.
        std::thread::sleep(std::time::Duration::from_secs(8));
        let words = format!("diagnose {pid} --json --duration 6 --output out");
        let report = json(&place.vmtax(&words).start(120).outcome().exits(0).stdout);
        let causes = report["findings"]["causes"].to_string();
        assert_eq!(causes.contains("vm-slirp"), is_expected, "{causes}");
        running.signal(Signal::INT);
        running.outcome();
    }
}

#[test]
#[ignore = "needs root"]
fn a_main_loop_that_packets_keep_busy_is_found() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let Some(tap) = Tap::make(75) else {
        return skipped("no tap device can be made");
    };
    let place = Place::new();
    // Nobody reads what comes there.
    let sink = UdpSocket::bind("10.213.75.1:0").unwrap();
    let port = sink.local_addr().unwrap().port();
    let address = "ip link set eth0 up; ip addr add 10.213.75.2/24 dev eth0; ";
    // A packet for each write.
    let script = format!("{address}exec 3<>/dev/udp/10.213.75.1/{port}; dd if=/dev/zero bs=64 >&3");
    let backend = format!("tap,fd={DESCRIPTOR}");
    // One vCPU does not send as many as the main loop can write: so each takes that longer.
    let qemu_of = format!("--qemu {}", packet_delaying_qemu(&place, 25_000).display());
    let mut running = guest(
        &place,
        &kernel,
        &qemu_of,
        (&backend, ""),
        Some(&tap),
        &script,
    );
    let pid = qemu(&mut running);
    // Other load would take the CPU on which the main loop, QEMU's first thread, is busy. Where a kernel groups sessions, a group
    // has a nice value of its own.
    let _ = fs::write(format!("/proc/{pid}/autogroup"), "-20");
    assert!(
        Command::new("renice")
            .args(["-n", "-20", "-p", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
    let is_found = || {
        rates(&place, pid)["findings"]
            .to_string()
            .contains("vm-tap-in-main-loop")
    };
    until("the busy main loop is found", || is_found().then_some(()));
    running.signal(Signal::INT);
    running.outcome();
}

/// A server on the host that sends back what it receives; its port.
fn echo(address: &str) -> u16 {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((length, client)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..length], client);
        }
    });
    port
}

/// The packets of one VM.
struct Traced {
    with_probes: Value,
    /// Recorded right after.
    without_probes: Value,
}

/// The packets of a VM whose guest sends a byte to a server and waits for it, over and over: traced for some seconds.
fn packets(place: &Place, kernel: &KvmGuest, number: u8, options: &str) -> Option<Traced> {
    let tap = Tap::make(number)?;
    let server = format!("10.213.{number}.1");
    let port = echo(&server);
    let script = format!(
        "ip link set eth0 up; ip addr add 10.213.{number}.2/24 dev eth0; exec 3<>/dev/udp/{server}/{port}; \
         while :; do echo >&3; read -t 1 -u 3; done"
    );
    // QEMU runs as a user without rights.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let socket = folder.path().join("qmp");
    let options = format!(
        "{options} --qemu-arg=-qmp --qemu-arg=unix:{},server=on,wait=off",
        socket.display()
    );
    let backend = format!("tap,fd={DESCRIPTOR}");
    let mut running = guest(place, kernel, &options, (&backend, ""), Some(&tap), &script);
    let pid = qemu(&mut running);
    until("it sends", || {
        (rates(place, pid)["nics"][0]["tx_packets_per_s"].as_f64()? > 100.0).then_some(())
    });
    let traced = |output: &str| {
        let words =
            format!("layers --device net --vm {pid} --duration 1.5 --json --output {output}");
        json(&place.vmtax(&words).start(120).outcome().exits(0).stdout)
    };
    let with_probes = traced(&format!("out-{number}"));
    let without_probes = traced(&format!("calls-{number} --no-probes"));
    let text = place
        .vmtax(&format!("report out-{number}"))
        .succeeds()
        .stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for shown in [
        "A packet that the guest sends takes",
        "A packet that the guest receives takes",
        &tap.name,
        "per doorbell",
    ] {
        assert!(text.contains(shown), "no '{shown}' in {text}");
    }
    place
        .vmtax(&format!(
            "export out-{number} --parquet packets.parquet --perfetto trace.pftrace"
        ))
        .succeeds();
    running.signal(Signal::INT);
    running.outcome();
    Some(Traced {
        with_probes,
        without_probes,
    })
}

/// A direction's packets and its column.
fn direction<'a>(report: &'a Value, kind: &str) -> (&'a Value, &'a Value) {
    let all = report["findings"]["packets"].as_array().unwrap();
    let at = all.iter().position(|packets| packets["kind"] == kind);
    let at = at.unwrap_or_else(|| panic!("no {kind}: {:#}", report["findings"]));
    (&all[at], &report["findings"]["layers"]["columns"][at])
}

/// A row's figure, ns; of one row for each state.
fn row(report: &Value, kind: &str, to: &str, measure: &str) -> f64 {
    let rows = direction(report, kind).1["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["to"] == to);
    rows.map(|row| row["time"][measure].as_f64().unwrap()).sum()
}

#[test]
#[ignore = "needs root"]
fn each_packet_of_a_running_vm_is_followed_and_a_delay_is_found_in_its_row() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let Some(plain_run) = packets(&place, &kernel, 73, "") else {
        return skipped("no tap device can be made");
    };
    let late = format!(
        "--qemu {}",
        packet_delaying_qemu(&place, PACKET_DELAY_NS as u64).display()
    );
    let late_run = packets(&place, &kernel, 74, &late).unwrap();
    let (plain, late) = (&plain_run.with_probes, &late_run.with_probes);
    let sent = [
        "net-kvm-kick",
        "net-tx-wake",
        "net-tx",
        "net-tap-write",
        "net-tap-receive",
    ];
    let received = [
        "net-host-xmit",
        "net-rx-wake",
        "net-tap-read",
        "net-rx",
        "net-rx-fill",
        "net-rx-notify",
        "net-inject",
    ];
    for report in [plain, late] {
        for (kind, path) in [("transmit", &sent[1..]), ("receive", &received[..])] {
            let (packets, column) = direction(report, kind);
            let (all, followed) = (
                packets["packets"].as_f64().unwrap(),
                packets["followed"].as_f64().unwrap(),
            );
            assert!(
                all > 300.0 && followed >= 0.99 * all,
                "{kind}: {packets:#} {:#}",
                column["matched"]
            );
            assert_eq!(column["clock"]["violations"], 0, "{}", column["clock"]);
            assert_eq!(packets["thread"], "main loop");
            for to in path {
                let passes = passes(column, to) as f64;
                assert!(
                    passes > 0.5 * followed,
                    "{kind}: {to} is seldom passed: {:#}",
                    column["rows"]
                );
            }
            let rows = column["rows"].as_array().unwrap().iter();
            let sum: f64 = rows
                .map(|row| row["time"]["mean_ns"].as_f64().unwrap())
                .sum();
            let (mean, rest) = (
                packets["time"]["mean_ns"].as_f64().unwrap(),
                column["unexplained_ns"].as_f64().unwrap(),
            );
            assert!(
                (sum + rest - mean).abs() < 0.002 * mean && rest.abs() < 0.02 * mean,
                "{sum} + {rest} of {mean}"
            );
        }
        // One packet each way at a time; on a busy host the main loop may find two.
        let batching = &direction(report, "transmit").0["batching"][0];
        assert_eq!(batching["kind"], "doorbell");
        assert!(
            batching["packets"].as_f64().unwrap() < 2.0 * batching["batches"].as_f64().unwrap(),
            "{batching}"
        );
    }
    for (number, report) in [(73, plain), (74, late)] {
        let recording = format!("out-{number}");
        same_without_probes(&report_without_probes(&place, &recording), report);
    }
    for report in [&plain_run.without_probes, &late_run.without_probes] {
        is_followed_by_calls(report);
    }
    let late_by_calls = |to| {
        let [late, plain] =
            [&late_run, &plain_run].map(|run| row(&run.without_probes, "transmit", to, "p50_ns"));
        late - plain
    };
    let by_calls = late_by_calls("net-tap-write");
    assert!(
        PLANTED_NS.contains(&by_calls) && late_by_calls("net-tap-receive").abs() < ELSEWHERE_NS,
        "{by_calls} ns of {PACKET_DELAY_NS} before the write to the tap"
    );
    let grown = |kind, to| row(late, kind, to, "p50_ns") - row(plain, kind, to, "p50_ns");
    let there = grown("transmit", "net-tap-write");
    assert!(
        PLANTED_NS.contains(&there),
        "{there} ns of {PACKET_DELAY_NS} before the write to the tap"
    );
    for (kind, to) in [
        ("transmit", "net-tap-receive"),
        ("receive", "net-tap-read"),
        ("receive", "net-rx-fill"),
    ] {
        assert!(
            grown(kind, to).abs() < ELSEWHERE_NS,
            "{to}: {} ns more",
            grown(kind, to)
        );
    }
}

/// Nearly all packets are followed, to the interrupt, where no probe was set.
fn is_followed_by_calls(report: &Value) {
    for (kind, path) in [
        (
            "transmit",
            &["net-tx-wake", "net-tap-write", "net-tap-receive"][..],
        ),
        ("receive", &["net-host-xmit", "net-tap-read", "net-inject"]),
    ] {
        let (packets, column) = direction(report, kind);
        let [all, followed] = ["packets", "followed"].map(|field| packets[field].as_f64().unwrap());
        assert!(all > 300.0 && followed >= 0.98 * all, "{kind}: {packets:#}");
        assert_eq!(packets["thread"], "main loop");
        for to in path {
            assert!(
                passes(column, to) as f64 > 0.5 * followed,
                "{kind}: {to} is seldom passed: {:#}",
                column["rows"]
            );
        }
        for to in ["net-tx", "net-rx", "net-rx-fill", "net-rx-notify"] {
            assert_eq!(passes(column, to), 0, "{to}");
        }
    }
    let missing = report["findings"]["missing"].to_string();
    assert!(missing.contains("the VMM's own steps"), "{missing}");
}

/// Compares what remains of a recording without the probes' events with what they show.
fn same_without_probes(without: &Value, with: &Value) {
    let sums: [(&str, &str, &str, &[&str]); 7] = [
        ("transmit", "net-kvm-kick", "net-tx-wake", &[]),
        ("transmit", "net-tx-wake", "net-tap-write", &["net-tx"]),
        ("transmit", "net-tap-write", "net-tap-receive", &[]),
        ("receive", "net-host-queue", "net-host-xmit", &[]),
        ("receive", "net-host-xmit", "net-rx-wake", &[]),
        ("receive", "net-rx-wake", "net-tap-read", &[]),
        (
            "receive",
            "net-tap-read",
            "net-inject",
            &["net-rx", "net-rx-fill", "net-rx-notify"],
        ),
    ];
    for (kind, from, to, between) in sums {
        let (packets, column) = direction(without, kind);
        let (all, all_column) = direction(with, kind);
        assert!(
            packets["followed"].as_f64() >= all["followed"].as_f64().map(|all| 0.98 * all),
            "{packets:#} of {all:#}"
        );
        let ends: Vec<&str> = [&[from], between, &[to]].concat();
        let parts_of_all = parts(all_column);
        let part = |from: &str, to: &str| parts_of_all.get(&(from.to_owned(), to.to_owned()));
        let expected: f64 = ends.windows(2).filter_map(|two| part(two[0], two[1])).sum();
        let found = parts(column)[&(from.to_owned(), to.to_owned())];
        assert!(
            (0.97..=1.03).contains(&(found / expected)),
            "{kind} {from} to {to}: {found} without, {expected} with probes"
        );
    }
}

/// Without KVM no event shows a doorbell: it is the moment at which a vCPU's thread wakes the main loop.
#[test]
#[ignore = "needs root"]
fn under_tcg_a_packet_begins_when_a_vcpu_wakes_the_main_loop() {
    crate::common::kernel();
    let place = Place::new();
    let start = place
        .vmtax("run net-rr --machine tcg --rounds 1 time=60 --dir")
        .arg(place.runs());
    let mut running = start.start(200);
    let pid = qemu(&mut running);
    // Its tap is in a namespace of its own, where no counter of the host shows that it has booted.
    let words = format!("layers --device net --vm {pid} --duration 3 --json --dir traced");
    let report = until("the guest sends", || {
        let report = json(&place.vmtax(&words).start(120).outcome().exits(0).stdout);
        let all = report["findings"]["packets"].as_array()?.iter();
        (all.filter_map(|packets| packets["packets"].as_u64()).max() > Some(200)).then_some(report)
    });
    for (kind, first) in [("transmit", "net-tx-wake"), ("receive", "net-rx-wake")] {
        let (packets, column) = direction(&report, kind);
        let (all, followed) = (
            packets["packets"].as_f64().unwrap(),
            packets["followed"].as_f64().unwrap(),
        );
        assert!(
            followed >= 0.99 * all,
            "{kind}: {packets:#} {:#}",
            column["matched"]
        );
        assert_eq!(column["clock"]["violations"], 0, "{}", column["clock"]);
        assert!(
            row(&report, kind, first, "mean_ns") > 0.0,
            "{kind}: {:#}",
            column["rows"]
        );
    }
    let batching = &direction(&report, "transmit").0["batching"][0];
    assert_eq!(batching["kind"], "doorbell");
    // On a busy host the main loop is awake already when some packets come: those need no wake-up.
    assert!(
        batching["packets"].as_f64().unwrap() < 2.0 * batching["batches"].as_f64().unwrap(),
        "{batching}"
    );
    running.signal(Signal::INT);
    running.outcome();
}

#[test]
#[ignore = "needs root"]
fn a_vm_without_a_tap_says_what_it_has_in_place_of_one() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let mut running = guest(&place, &kernel, "", ("user", ""), None, "sleep 60");
    let pid = qemu(&mut running);
    let refused = place.vmtax(&format!("layers --device net --vm {pid}"));
    refused.fails(&["reads no tap", "backend n (user)", "--set backend=user"]);
    running.signal(Signal::INT);
    running.outcome();
}
