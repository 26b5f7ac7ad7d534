//! The guest of these tests: its first process, and its QEMU.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use vmtax_model::testing::{KvmGuest, skipped};
use vmtax_observe::{ProbeSet, Tracer, guest_disk, mount_tracefs};

const QEMU: &str = "qemu-system-x86_64";
const MIB: u64 = 16;
/// For a guest's boot under TCG on a busy host.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves on the console: to `SET READS` it traces that set while it reads the disk, and tells what came of it.
pub fn first_process() -> ! {
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        rustix::mount::mount(kind, at, kind, rustix::mount::MountFlags::empty(), None).unwrap();
    }
    for path in fs::read_to_string("/vmtax/modules.list").unwrap().lines() {
        let _ = rustix::system::finit_module(File::open(path).unwrap(), c"", 0);
    }
    let mut console = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/ttyS0")
        .unwrap();
    let mut mode = rustix::termios::tcgetattr(&console).unwrap();
    mode.make_raw();
    rustix::termios::tcsetattr(&console, rustix::termios::OptionalActions::Now, &mode).unwrap();
    mount_tracefs().unwrap();
    mount_tracefs().unwrap();
    let disk = guest_disk(Path::new("/dev/vda")).unwrap();
    assert!(
        disk.interrupts.len() == 1 && disk.device >> 20 > 0,
        "{disk:?}"
    );
    writeln!(console, "done ready").unwrap();
    let commands = BufReader::new(console.try_clone().unwrap()).lines();
    for command in commands {
        let command = command.unwrap();
        let (set, reads) = command.split_once(' ').unwrap();
        let reads = reads.parse().unwrap();
        let answer = match set {
            "none" => timed(reads),
            set => traced(&set_named(set), reads),
        };
        writeln!(console, "done {answer}").unwrap();
    }
    std::process::exit(1)
}

/// `all`, or some of all by their systems: `block+irq`.
fn set_named(name: &str) -> ProbeSet {
    let mut set = ProbeSet::guest(vmtax_model::DISK);
    match name {
        "all" => set,
        some => {
            set.free
                .retain(|event| some.split('+').any(|system| system == event.system));
            set.notify = if some.contains("notify") {
                set.notify
            } else {
                &[]
            };
            set
        }
    }
}

fn traced(set: &ProbeSet, reads: u64) -> String {
    let names = fs::read_to_string("/sys/kernel/tracing/options/record-cmd").unwrap();
    let tracer = Tracer::start(set, 4096).unwrap();
    tracer.on().unwrap();
    let time = timed(reads);
    tracer.off().unwrap();
    let (mut stats, mut formats) = (String::new(), BTreeSet::new());
    let mut sink = |name: &str, bytes: &[u8]| -> std::io::Result<()> {
        match name {
            "stats" => stats += std::str::from_utf8(bytes).unwrap(),
            name => {
                _ = name
                    .starts_with("formats/")
                    .then(|| formats.insert(name.rsplit('.').next().unwrap().to_owned()))
            }
        }
        Ok(())
    };
    tracer.save(&mut sink).unwrap();
    let missing = tracer.missing().len();
    drop(tracer);
    let sum_of_stats = |wanted: &[&str]| -> u64 {
        let found = stats
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter(|(name, _)| wanted.contains(name));
        found.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    };
    let left = fs::read_dir("/sys/kernel/tracing/instances")
        .unwrap()
        .count()
        + fs::read_to_string("/sys/kernel/tracing/kprobe_events")
            .unwrap_or_default()
            .lines()
            .count()
        + usize::from(
            fs::read_to_string("/sys/kernel/tracing/options/record-cmd").unwrap() != names,
        );
    let (events, lost) = (
        sum_of_stats(&["read events"]),
        sum_of_stats(&["overrun", "dropped events"]),
    );
    let formats: Vec<String> = formats.iter().map(|name| format!("{name}=1")).collect();
    format!(
        "{time} events={events} lost={lost} missing={missing} left={left} {}",
        formats.join(" ")
    )
}

/// Reads 4 KiB again and again; gives the median time in nanoseconds.
fn timed(reads: u64) -> String {
    let disk = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open("/dev/vda")
        .unwrap();
    let mut memory = vec![0u8; 8192];
    let begin = memory.as_ptr().align_offset(4096);
    let block = &mut memory[begin..begin + 4096];
    let mut times: Vec<u128> = (0..reads)
        .map(|n| {
            let begin = Instant::now();
            disk.read_exact_at(block, n * 4096 % (MIB << 20)).unwrap();
            begin.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    format!("ns={}", times[times.len() / 2])
}

/// A guest with one virtio disk. Its QEMU is gone when this is dropped.
pub struct Guest {
    qemu: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    folder: tempfile::TempDir,
}

impl Guest {
    /// On KVM where a kernel for it is given, else under TCG. `None`, with the reason on standard error, where there is no
    /// QEMU or no kernel.
    pub fn start(aio: &str, iothread: bool, kvm: Option<&KvmGuest>) -> Option<Guest> {
        let found = match kvm {
            Some(given) => vec![vmtax_guests::kernel::given(&given.kernel, None).unwrap()],
            None => {
                vmtax_guests::kernel::find(Some(&vmtax_guests::kernel::cache_dir().unwrap()))
                    .kernels
            }
        };
        let Some(kernel) = found.first() else {
            skipped("no guest kernel; `vmtax get kernel` fetches one");
            return None;
        };
        let (accelerator, cpu) = kvm.map_or(("tcg,thread=multi", "max"), |_| {
            ("kvm", KvmGuest::CPU_MODEL)
        });
        let mut append = "console=ttyS0 panic=-1 no_timer_check cryptomgr.notests quiet".to_owned();
        let folder = tempfile::Builder::new()
            .prefix("vmtax-probe-")
            .tempdir_in("/var/tmp")
            .unwrap();
        let (initramfs, disk) = (folder.path().join("initramfs"), folder.path().join("disk"));
        vmtax_guests::kernel::initramfs(
            kernel,
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
        fs::write(&disk, vec![7; (MIB as usize) << 20]).unwrap();
        let mut command = Command::new(QEMU);
        if kvm.is_some() {
            append += &format!(
                " {}",
                KvmGuest::kernel_args(vmtax_clock::host_mhz()).join(" ")
            );
            command.args(["-bios", KvmGuest::FIRMWARE]);
        }
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .args([
                "-name",
                "guest,debug-threads=on",
                "-machine",
                "q35",
                "-accel",
                accelerator,
            ])
            .args(["-cpu", cpu, "-m", "512M", "-append", &append])
            .args(["-serial", "stdio", "-kernel"])
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .args([
                "-drive",
                &format!(
                    "if=none,id=disk,file={},format=raw,cache=none,aio={aio}",
                    disk.display()
                ),
            ]);
        match iothread {
            true => command.args([
                "-object",
                "iothread,id=io0",
                "-device",
                "virtio-blk-pci,drive=disk,iothread=io0",
            ]),
            false => command.args(["-device", "virtio-blk-pci,drive=disk"]),
        };
        let Ok(mut qemu) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            skipped(&format!("no {QEMU}"));
            return None;
        };
        let (input, output) = (qemu.stdin.take().unwrap(), qemu.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            lines.all(|line| {
                send.send(String::from_utf8_lossy(&line).trim().to_owned())
                    .is_ok()
            });
        });
        let mut guest = Guest {
            qemu,
            input,
            lines,
            folder,
        };
        guest.answer();
        Some(guest)
    }

    pub fn process(&self) -> i32 {
        self.qemu.id() as i32
    }

    pub fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    pub fn binary(&self) -> PathBuf {
        fs::read_link(format!("/proc/{}/exe", self.process())).unwrap()
    }

    /// Has the guest read while it traces a set of its own; gives its answer.
    pub fn ask(&mut self, set: &str, reads: u64) -> String {
        writeln!(self.input, "{set} {reads}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut before = Vec::new();
        loop {
            match self.lines.recv_timeout(BOOT_TIMEOUT) {
                Ok(line) => match line.find("done ") {
                    Some(at) => return line[at + 5..].to_owned(),
                    None => before.push(line),
                },
                Err(e) => panic!(
                    "the guest does not answer ({e}); its console:\n{}",
                    before.join("\n")
                ),
            }
        }
    }
}

/// A number of an answer: `name=number`.
pub fn number(answer: &str, name: &str) -> u64 {
    let found = answer
        .split(' ')
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("{name} in {answer}"))
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
