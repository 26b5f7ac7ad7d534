//! A micro-guest in a QEMU of its own, which ends with the value, also when a test panics.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vmtax_micro::layout::RAM_BYTES;
use vmtax_micro::{Failure, Mailbox, Order, State, qemu, rom};

/// No order of these tests takes a tenth of it, on a host that does nothing else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both accelerators; KVM only where this user may use it.
pub fn accelerators() -> Vec<&'static str> {
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => vec!["kvm", "tcg"],
        Err(e) => {
            println!("KVM is not tested: /dev/kvm: {e}");
            vec!["tcg"]
        }
    }
}

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
        let bytes: Vec<u8> = (0..DISK_SECTORS).flat_map(|sector| sector.to_le_bytes().repeat(64)).collect();
        std::fs::write(&path, bytes).unwrap();
        DiskFile { path, _folder: folder }
    }

    /// The file as words.
    pub fn words(&self) -> Vec<u64> {
        let bytes = std::fs::read(&self.path).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// QEMU's words for it as a disk that the ROM can use; `drive` and `device` begin with a comma.
    pub fn arguments(&self, drive: &str, device: &str) -> Vec<String> {
        disk_arguments(&format!("format=raw,cache.direct=on,file={}{drive}", self.path.display()), device)
    }
}

/// The same for any drive.
pub fn disk_arguments(drive: &str, device: &str) -> Vec<String> {
    let device = format!("{},drive=d0{device}", qemu::DISK_DEVICE);
    ["-drive", &format!("if=none,id=d0,{drive}"), "-device", &device].map(str::to_owned).to_vec()
}

pub struct Guest {
    qemu: Child,
    memory: Mapping,
    /// From starting QEMU to the ROM's readiness.
    pub start: Duration,
    _folder: tempfile::TempDir,
}

impl Guest {
    pub fn start(accelerator: &str, more: &[String]) -> Guest {
        Guest::try_start(accelerator, more).unwrap_or_else(|said| panic!("{said}"))
    }

    /// Says why where QEMU itself finds that it cannot, which a ROM that crashes is not taken for: QEMU's status is 0
    /// then.
    pub fn try_start(accelerator: &str, more: &[String]) -> Result<Guest, String> {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (image, ram) = (folder.path().join("rom"), folder.path().join("ram"));
        std::fs::write(&image, rom()).unwrap();
        let memory = Mapping::new(&ram);
        let begin = Instant::now();
        let qemu = Command::new("qemu-system-x86_64")
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-accel", accelerator, "-M", qemu::MACHINE, "-m", qemu::MEMORY])
            .args(["-object", &format!("{}{}", qemu::MEMORY_OBJECT, ram.display())])
            .arg("-bios")
            .arg(&image)
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("qemu-system-x86_64 starts: install it with `apt-get install qemu-system-x86`");
        let mut guest = Guest { qemu, memory, start: Duration::ZERO, _folder: folder };
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

    /// Words of its memory, from a byte offset on.
    pub fn memory(&self, at: usize, count: usize) -> Vec<u64> {
        let words = &self.memory.words()[at / 8..][..count];
        words.iter().map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// Overwrites a word of its memory.
    pub fn overwrite(&self, at: usize, word: u64) {
        self.memory.words()[at / 8].store(word, Ordering::Release);
    }

    /// Waits until the last order is done with.
    pub fn wait(&mut self) -> State {
        self.poll().unwrap_or_else(|said| panic!("{said}"))
    }

    fn poll(&mut self) -> Result<State, String> {
        let deadline = Instant::now() + PATIENCE;
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
        let deadline = Instant::now() + PATIENCE;
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

/// The guest's memory.
struct Mapping {
    address: *mut std::ffi::c_void,
}

impl Mapping {
    fn new(path: &Path) -> Mapping {
        let file = File::create_new(path).unwrap();
        file.set_len(RAM_BYTES as u64).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever the kernel finds room.
        let address = unsafe { mmap(std::ptr::null_mut(), RAM_BYTES, access, MapFlags::SHARED, &file, 0) };
        Mapping { address: address.unwrap() }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is so long, aligned to pages, and lives as long as self; the file is not made shorter.
        unsafe { std::slice::from_raw_parts(self.address.cast(), RAM_BYTES / 8) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made above with this length; borrows of it have ended.
        let _ = unsafe { munmap(self.address, RAM_BYTES) };
    }
}
