//! A micro-guest in a QEMU of its own, which ends with the value, also when a test panics; and distributions of its ticks, for
//! people.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use vmtax_clock::Shared;
use vmtax_vm::micro_guest::layout::RAM_BYTES;
use vmtax_vm::micro_guest::{Failure, Mailbox, Order, State, qemu, rom};

/// The longest order of these tests takes three quarters of a minute on a host that does nothing else.
const GUEST_TIMEOUT: Duration = Duration::from_secs(240);

pub const DISK_SECTORS: u64 = 32 << 10;

/// A disk of a file: every word of sector n is n.
pub struct DiskFile {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl DiskFile {
    pub fn new() -> DiskFile {
        // Not below /tmp, which may be memory: there is no O_DIRECT there.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("disk");
        let bytes: Vec<u8> = (0..DISK_SECTORS)
            .flat_map(|sector| sector.to_le_bytes().repeat(64))
            .collect();
        std::fs::write(&path, bytes).unwrap();
        DiskFile {
            path,
            _folder: folder,
        }
    }

    /// The file as words.
    pub fn words(&self) -> Vec<u64> {
        let bytes = std::fs::read(&self.path).unwrap();
        bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    /// QEMU's arguments for it as a disk that the ROM can use; `drive` and `device` begin with a comma.
    pub fn arguments(&self, drive: &str, device: &str) -> Vec<String> {
        disk_arguments(
            &format!(
                "format=raw,cache.direct=on,file={}{drive}",
                self.path.display()
            ),
            device,
        )
    }
}

/// Returns QEMU's arguments for any drive as a disk that the ROM can use; `device` begins with a comma.
pub fn disk_arguments(drive: &str, device: &str) -> Vec<String> {
    let device = format!("{},drive=d0{device}", qemu::DISK_DEVICE);
    [
        "-drive",
        &format!("if=none,id=d0,{drive}"),
        "-device",
        &device,
    ]
    .map(str::to_owned)
    .to_vec()
}

pub struct Guest {
    qemu: Child,
    pub memory: Shared,
    /// From starting QEMU to the ROM's readiness.
    pub start: Duration,
    _image: tempfile::NamedTempFile,
}

impl Guest {
    pub fn start(accelerator: &str, more: &[String]) -> Guest {
        Guest::try_start(accelerator, more).unwrap_or_else(|said| panic!("{said}"))
    }

    /// Says why where QEMU itself finds that it cannot, which a ROM that crashes is not taken for: QEMU's status is 0
    /// then.
    pub fn try_start(accelerator: &str, more: &[String]) -> Result<Guest, String> {
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&image, rom()).unwrap();
        let memory = Shared::create(RAM_BYTES).unwrap();
        let file = memory.descriptor().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let begin = Instant::now();
        let qemu = Command::new("qemu-system-x86_64")
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args([
                "-accel",
                accelerator,
                "-M",
                qemu::MACHINE,
                "-m",
                qemu::MEMORY,
            ])
            .args(["-object", &format!("{}{path}", qemu::MEMORY_OBJECT)])
            .arg("-bios")
            .arg(image.path())
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("qemu-system-x86_64 starts: install it with `apt-get install qemu-system-x86`");
        let mut guest = Guest {
            qemu,
            memory,
            start: Duration::ZERO,
            _image: image,
        };
        assert_eq!(guest.poll()?, State::Ready);
        guest.start = begin.elapsed();
        Ok(guest)
    }

    pub fn mailbox(&self) -> Mailbox<'_> {
        Mailbox::new(self.memory.words()).unwrap()
    }

    /// Gives an order and waits for its end.
    pub fn carry_out(&mut self, order: Order) -> Result<(), Failure> {
        self.mailbox().order(&order).unwrap();
        match self.wait() {
            State::Done => Ok(()),
            State::Failed(failure) => Err(failure),
            state => panic!("{order:?} ended as {state:?}"),
        }
    }

    /// Waits until the last order is done with.
    pub fn wait(&mut self) -> State {
        self.poll().unwrap_or_else(|said| panic!("{said}"))
    }

    fn poll(&mut self) -> Result<State, String> {
        let deadline = Instant::now() + GUEST_TIMEOUT;
        loop {
            match self.mailbox().state().unwrap() {
                State::Starting | State::Running => {}
                state => return Ok(state),
            }
            if let Some(status) = self.qemu.try_wait().unwrap() {
                assert!(!status.success(), "the machine was reset or powered off");
                return Err(format!("QEMU ended ({status}): {}", self.said()));
            }
            assert!(Instant::now() < deadline, "the guest does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Powers it off; gives QEMU's status.
    pub fn leave(mut self) -> Option<i32> {
        self.mailbox().order(&Order::Leave).unwrap();
        let deadline = Instant::now() + GUEST_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.qemu.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("QEMU does not end");
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.qemu.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        said
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Ticks per microsecond.
pub fn per_us() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(vmtax_clock::host_mhz)
}

/// The value that so many percent are at most.
pub fn percentile(ticks: &[u64], percent: usize) -> u64 {
    let mut sorted = ticks.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// p50, p90, p99 and the largest, in microseconds.
pub fn summary(ticks: &[u64]) -> String {
    let [p50, p90, p99, max] =
        [50, 90, 99, 100].map(|percent| percentile(ticks, percent) as f64 / per_us());
    format!("{p50:10.3} {p90:10.3} {p99:10.3} {max:10.3} us")
}
