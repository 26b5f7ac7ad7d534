//! Stamps exchanged with a real guest under TCG. This program is its own guest's `/init`, so it has no test harness.
//!
//! Needs QEMU and a guest kernel in vmtax's cache; says so and passes where one is missing.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use rustix::mount::{MountFlags, mount};
use std::fs;
use std::process::{Child, Command, Stdio, exit};
use std::time::{Duration, Instant};
use vmtax_clock::{
    ClockError, Evidence, GUEST_CELL, GuestTicks, HOST_CELL, Shared, answer, exchange, host_mhz,
};
use vmtax_model::Ping;
use vmtax_model::testing::{listed, skipped};

const QEMU: &str = "qemu-system-x86_64";
const BYTES: usize = 1 << 20;
const BOOT: Duration = Duration::from_secs(90);
/// Bound that the exchange has to reach, in ns.
const BOUND: f64 = 500.0;

fn main() {
    if std::process::id() == 1 {
        guest();
    }
    if !listed("stamps_bound_the_guests_clock") {
        host();
    }
}

/// Answers until QEMU is ended.
fn guest() -> ! {
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).unwrap();
    let shared = Shared::guest().unwrap();
    loop {
        if let Err(error) = answer(&shared, HOST_CELL, GUEST_CELL, BOOT) {
            eprintln!("guest: {error}");
            exit(1);
        }
    }
}

struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn host() {
    let kernel = vmtax_guests::kernel::cache_dir()
        .map(|cache| vmtax_guests::kernel::find(Some(&cache)).kernels);
    let Some(kernel) = kernel.unwrap_or_default().into_iter().next() else {
        return skipped("no guest kernel; `vmtax get kernel` fetches one");
    };
    if Command::new(QEMU)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        return skipped(&format!("no {QEMU}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let (initramfs, log) = (
        folder.path().join("initramfs"),
        folder.path().join("console.log"),
    );
    vmtax_guests::kernel::initramfs(
        &kernel,
        vmtax_guests::kernel::Init {
            program: &std::env::current_exe().unwrap(),
            symbols: false,
        },
        &[],
        vmtax_guests::kernel::Purpose::Workloads,
        &[],
        &initramfs,
    )
    .unwrap();
    let shared = Shared::create(BYTES).unwrap();
    let descriptor = shared.descriptor().unwrap();
    let memory = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&descriptor)
    );
    let mut qemu = Qemu(
        Command::new(QEMU)
            .args([
                "-machine",
                "q35",
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max",
                "-m",
                "256M",
                "-smp",
                "1",
            ])
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .args(["-serial", &format!("file:{}", log.display())])
            .args([
                "-object",
                &format!("memory-backend-file,id=m,mem-path={memory},size={BYTES},share=on"),
            ])
            .args(["-device", "ivshmem-plain,memdev=m"])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .args([
                "-append",
                "console=ttyS0 panic=-1 no_timer_check cryptomgr.notests quiet",
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let deadline = Instant::now() + BOOT;
    let first = loop {
        match exchange(&shared, HOST_CELL, GUEST_CELL, Duration::from_millis(60)) {
            Err(ClockError::Silent { .. })
                if Instant::now() < deadline && qemu.0.try_wait().unwrap().is_none() => {}
            result => break result,
        }
    };
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let first = first.unwrap_or_else(|error| panic!("{error}; the guest said:\n{}", said()));
    let mhz = host_mhz();
    let mut pings = vec![first];
    for ms in [1, 3, 10, 30, 60, 200, 1000, 60, 60] {
        pings.push(exchange(&shared, HOST_CELL, GUEST_CELL, Duration::from_millis(ms)).unwrap());
        report(ms, &pings[pings.len() - 1], mhz);
    }
    // A busy machine may keep one side waiting all along one exchange, but not along all. On one CPU both sides
    // always wait for each other.
    let wanted = if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
        BOUND
    } else {
        f64::INFINITY
    };
    let best = pings
        .iter()
        .map(|ping| bound_ns(ping, mhz))
        .fold(f64::INFINITY, f64::min);
    assert!(best <= wanted, "the best bound is {best:.0} ns: {pings:?}");

    let map = Evidence::new(&pings, None).map().unwrap();
    println!(
        "{:.0} ns along the run, moved by {} ticks",
        map.bound() as f64 * 1000.0 / mhz,
        map.moved()
    );
    for ping in &pings {
        let guest = GuestTicks(ping.at.wrapping_sub(((ping.low + ping.high) / 2) as u64));
        let off = map.host(guest).0.abs_diff(ping.at);
        assert!(off <= map.bound(), "{off} ticks off at {ping:?}");
    }
}

fn bound_ns(ping: &Ping, mhz: f64) -> f64 {
    (ping.high - ping.low) as f64 / 2.0 * 1000.0 / mhz
}

fn report(ms: u64, ping: &Ping, mhz: f64) {
    println!(
        "{ms:5} ms: +-{:5.0} ns, {:6} exchanges/ms",
        bound_ns(ping, mhz),
        ping.exchanges / ms
    );
}
