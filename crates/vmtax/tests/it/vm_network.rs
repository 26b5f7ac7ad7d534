//! The network of a running VM: what was planted is found, and of a VM without it the rules are silent.

use crate::common::{Place, Running, json, until};
use crate::kvm_guest::kvm;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::Command;
use vmtax_model::testing::{KvmGuest, skipped};

/// Other load may take the processors for the whole time of one attempt.
const TRIES: usize = 8;
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
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").ok()?;
        let name = format!("vnet{}n{number}", std::process::id() % 100_000);
        // struct ifreq: a name of 16 bytes, the flags.
        let mut request = [0_u8; 40];
        request[..name.len()].copy_from_slice(name.as_bytes());
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request[16..18].copy_from_slice(&(flags as u16).to_ne_bytes());
        // SAFETY: TUNSETIFF reads and writes a struct ifreq of 40 bytes, which `request` has room for.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
        (made == 0).then_some(())?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("addr add 10.213.{number}.1/24 dev {name}")).map(|()| Tap { file, name })
    }
}

fn ip(words: &str) -> Option<()> {
    Command::new("ip").args(words.split(' ')).status().ok()?.success().then_some(())
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

/// A guest that runs this script, with a card on this backend.
fn guest<'a>(
    place: &'a Place,
    kernel: &KvmGuest,
    (netdev, card): (&str, &str),
    tap: Option<&Tap>,
    script: &str,
) -> Running<'a> {
    let start = kvm(place, kernel, "exec", "--machine kvm --rounds 1 -q");
    let (netdev, card) = (format!("{netdev},id=n"), format!("virtio-net-pci,netdev=n,romfile={card}"));
    let arguments = ["-netdev", &netdev, "-device", &card];
    let start = arguments.iter().fold(start, |start, argument| start.arg(format!("--qemu-arg={argument}")));
    let start = tap.into_iter().fold(start, |start, tap| start.descriptor(&tap.file, DESCRIPTOR));
    start.arg("--").arg("bash").arg("-c").arg(script).start(200)
}

/// The commands that give a guest's card this address, and open a connection as descriptor 3.
fn connected(address: &str, server: &str, port: u16) -> String {
    format!("ip link set eth0 up; ip addr add {address}/24 dev eth0; exec 3<>/dev/tcp/{server}/{port}; ")
}

fn qemu(running: &mut Running<'_>) -> u32 {
    running.until("the guest runs", |place| {
        let mut all = place.processes().into_iter();
        all.find(|process| process.is_qemu() && process.command.contains(" -kernel ")).map(|qemu| qemu.pid)
    })
}

/// Of a VM, by its counters.
fn rates(place: &Place, pid: u32) -> Value {
    let text = place.vmtax(&format!("top {pid} --json --samples 1 --interval 2")).succeeds().stdout;
    json(text.lines().last().unwrap())["vms"][0].clone()
}

#[test]
#[ignore = "needs root"]
fn packets_without_segmentation_offload_are_found() {
    let Some(kernel) = KvmGuest::given() else { return };
    for (number, offload, card) in [(71, false, ",host_tso4=off,host_tso6=off,gso=off"), (72, true, "")] {
        let Some(tap) = Tap::make(number) else { return skipped("no tap device can be made") };
        let place = Place::new();
        let server_address = format!("10.213.{number}.1");
        let port = server(&server_address);
        let script = connected(&format!("10.213.{number}.2"), &server_address, port) + "dd if=/dev/zero bs=64k >&3";
        let backend = format!("tap,fd={DESCRIPTOR}");
        let mut running = guest(&place, &kernel, (&backend, card), Some(&tap), &script);
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
            until("small segments are found", || is_found(&rates(&place, pid)).then_some(()));
        }
        running.signal(crate::common::Signal::INT);
        running.outcome();
    }
}

#[test]
#[ignore = "needs root"]
fn a_user_mode_network_that_takes_cpu_time_is_found() {
    let Some(kernel) = KvmGuest::given() else { return };
    let port = server("127.0.0.1");
    // The same card and the same backend, with and without load.
    let receives = connected("10.0.2.15", "10.0.2.2", port) + "cat <&3 >/dev/null";
    for (script, is_expected) in [(receives.as_str(), true), ("while :; do :; done", false)] {
        let place = Place::new();
        let mut running = guest(&place, &kernel, ("user", ""), None, script);
        let pid = qemu(&mut running);
        // Until it has booted there is nothing.
        std::thread::sleep(std::time::Duration::from_secs(8));
        let mut diagnoses = (0..TRIES).map(|number| {
            let words = format!("diagnose {pid} --json --duration 6 --output out-{number}");
            let report = json(&place.vmtax(&words).start(120).outcome().exits(0).stdout);
            report["findings"]["causes"].to_string()
        });
        if is_expected {
            assert!(diagnoses.any(|causes| causes.contains("vm-slirp")), "slirp is not found in {TRIES} diagnoses");
        } else {
            let causes = diagnoses.next().unwrap();
            assert!(!causes.contains("vm-slirp"), "{causes}");
        }
        running.signal(crate::common::Signal::INT);
        running.outcome();
    }
}
