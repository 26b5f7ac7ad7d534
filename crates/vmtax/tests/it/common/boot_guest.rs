//! A VM that the test starts by itself, paused, whose guest is a boot sector that does a known work.

use super::Place;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// QEMU has started, or answers, by then, also on a busy host.
const LIMIT: Duration = Duration::from_secs(60);
/// Where the firmware loads a boot sector, and where in it the packet and the counters lie.
const LOADED: u16 = 0x7c00;
const PACKET: usize = 0x80;
const COUNTS: usize = 0x90;
/// Address of the timer's handler, and whether it has halted the CPU.
const HANDLER: usize = 0xa0;
const HALTED: usize = 0x98;
/// Periods of a guest that does not hurry, in ticks of the PC's timer, of which 1193 take 1 ms.
const POLLING: u16 = 1193;
const RESTING: u16 = 4 * 1193;

/// A boot sector that reads 4 KiB from the first disk and from the second by the firmware, so often; then it halts.
pub fn reading(reads: [u16; 2]) -> Vec<u8> {
    let address_of = |offset: usize| (LOADED + offset as u16).to_le_bytes();
    let mut code = vec![0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb]; // segments 0, a stack, sti
    for (disk, count) in [0x80_u8, 0x81].into_iter().zip([COUNTS, COUNTS + 2]) {
        let (packet, lba, count) = (
            address_of(PACKET),
            address_of(PACKET + 8),
            address_of(count),
        );
        code.extend([0x83, 0x3e, count[0], count[1], 0x00]); // cmp word [count], 0
        code.extend([0x74, 21]); // je behind the jump back
        code.extend([0xb2, disk, 0xb4, 0x42]); // mov dl, disk; mov ah, 0x42: extended read
        code.extend([0xbe, packet[0], packet[1], 0xcd, 0x13]); // mov si, packet; int 0x13
        code.extend([0x66, 0x83, 0x06, lba[0], lba[1], 8]); // add dword [lba], 8
        code.extend([0xff, 0x0e, count[0], count[1]]); // dec word [count]
        code.extend([0xeb, (-28_i8) as u8]); // jmp to the comparison
    }
    code.extend([0xfa, 0xf4, 0xeb, 0xfd]); // cli, hlt, jmp to hlt
    assert!(code.len() <= PACKET, "{}", code.len());
    let mut sector = vec![0; 512];
    sector[..code.len()].copy_from_slice(&code);
    // 8 sectors to 0x1000:0.
    sector[PACKET..PACKET + 8].copy_from_slice(&[0x10, 0, 8, 0, 0, 0, 0, 0x10]);
    for (i, count) in reads.into_iter().enumerate() {
        sector[COUNTS + 2 * i..COUNTS + 2 * i + 2].copy_from_slice(&count.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// A boot sector that for ever asks each of these disks in turn for so many sectors, at random places below `2^bits` sectors. Its CPU
/// never rests: the firmware polls.
pub fn random_requests(is_write: bool, disks: &[u8], sectors: u8, bits: u32) -> Vec<u8> {
    requests(is_write, disks, sectors, bits, &[])
}

/// A boot sector that reads 4 KiB as [`random_requests`] does, but whose CPU is halted for most of the time that it would poll;
/// without disks, that it computes.
pub fn unhurried_reads(disks: &[u8], bits: u32) -> Vec<u8> {
    let address = |offset: usize| (LOADED + offset as u16).to_le_bytes();
    let (handler, halted) = (address(HANDLER), address(HALTED));
    let interrupt_after = |ticks: u16| {
        let [low, high] = ticks.to_le_bytes();
        [0xb0, low, 0xe6, 0x40, 0xb0, high, 0xe6, 0x40] // mov al, …; out 0x40, al, twice
    };
    let mut begin = vec![0xc7, 0x06, 0x20, 0x00, handler[0], handler[1]]; // mov word [4 * 8], handler
    begin.extend([0xc7, 0x06, 0x22, 0x00, 0x00, 0x00]); // mov word [4 * 8 + 2], 0
    begin.extend([0xb0, 0x30, 0xe6, 0x43]); // mov al, 0x30; out 0x43, al: one interrupt after a count
    begin.extend(interrupt_after(POLLING));
    let mut sector = requests(false, disks, 8, bits, &begin);
    // The timer interrupts the polling; the CPU is halted until it does so again.
    let mut code = vec![0x50, 0xb0, 0x20, 0xe6, 0x20]; // push ax; mov al, 0x20; out 0x20, al: end of interrupt
    code.extend([0x2e, 0x80, 0x36, halted[0], halted[1], 1]); // xor byte cs:[halted], 1
    code.extend([0x74, 20]); // jz behind the first iret: it was halted
    code.extend(interrupt_after(RESTING));
    code.extend([0xfb, 0xf4]); // sti; hlt
    code.extend([0x2e, 0x80, 0x3e, halted[0], halted[1], 0]); // cmp byte cs:[halted], 0
    code.extend([0x75, (-10_i8) as u8]); // jne to sti
    code.extend([0x58, 0xcf]); // pop ax; iret
    code.extend(interrupt_after(POLLING));
    code.extend([0x58, 0xcf]); // pop ax; iret
    sector[HANDLER..HANDLER + code.len()].copy_from_slice(&code);
    sector
}

/// As [`random_requests`], after what is done at the `begin`.
fn requests(is_write: bool, disks: &[u8], sectors: u8, bits: u32, begin: &[u8]) -> Vec<u8> {
    const SEED: usize = COUNTS;
    let address_of = |offset: usize| (LOADED + offset as u16).to_le_bytes();
    let (packet, lba, seed) = (address_of(PACKET), address_of(PACKET + 8), address_of(SEED));
    let mask = ((1_u32 << bits) - 1) & !7;
    let mut code = vec![0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xd0, 0xbc, 0x00, 0x7c]; // segments 0, a stack
    code.extend(begin);
    code.push(0xfb); // sti
    let begin = code.len();
    code.extend([0x66, 0xa1, seed[0], seed[1]]); // mov eax, [seed]
    code.extend([0x66, 0x69, 0xc0]); // imul eax, eax, …
    code.extend(1_103_515_245_u32.to_le_bytes());
    code.extend([0x66, 0x05]); // add eax, …
    code.extend(12345_u32.to_le_bytes());
    code.extend([0x66, 0xa3, seed[0], seed[1]]); // mov [seed], eax
    code.extend([0x66, 0xc1, 0xe8, 8, 0x66, 0x25]); // shr eax, 8; and eax, …
    code.extend(mask.to_le_bytes());
    code.extend([0x66, 0xa3, lba[0], lba[1]]); // mov [lba], eax
    for disk in disks {
        code.extend([0xb2, *disk, 0xb8, 0x00, if is_write { 0x43 } else { 0x42 }]); // mov dl, disk; mov ax, 0x4200
        code.extend([0xbe, packet[0], packet[1], 0xcd, 0x13]); // mov si, packet; int 0x13
    }
    code.extend([0xeb, (begin as i32 - code.len() as i32 - 2) as u8]); // jmp to the begin
    assert!(code.len() <= PACKET, "{}", code.len());
    let mut sector = vec![0; 512];
    sector[..code.len()].copy_from_slice(&code);
    // To 0x1000:0.
    sector[PACKET..PACKET + 8].copy_from_slice(&[0x10, 0, sectors, 0, 0, 0, 0, 0x10]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// Firmware that for ever reads a UART's line status and sends a byte, from the first instruction on.
pub fn polling_firmware() -> Vec<u8> {
    let mut rom = vec![0; 64 << 10];
    // mov dx, 0x3fd; in al, dx; mov dx, 0x3f8; out dx, al; jmp to the first
    rom[0xfff0..0xfffa]
        .copy_from_slice(&[0xba, 0xfd, 0x03, 0xec, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf6]);
    rom
}

/// The answer of the monitor with this socket to a command.
pub fn ask(socket: &Path, command: &Value) -> Value {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut answer = |command: &Value| {
        (&stream)
            .write_all(format!("{command}\n").as_bytes())
            .unwrap();
        lines
            .find_map(|line| {
                serde_json::from_str::<Value>(&line.unwrap())
                    .unwrap()
                    .get("return")
                    .cloned()
            })
            .unwrap()
    };
    answer(&json!({ "execute": "qmp_capabilities" }));
    answer(command)
}

/// The VM; it ends with the value.
pub struct BootGuest {
    child: Child,
    socket: PathBuf,
    /// The file of its first disk.
    pub file: PathBuf,
}

impl BootGuest {
    /// A paused VM of this name. It boots from `disk0`, a file with `options` of its drive, and has further arguments.
    pub fn start(
        place: &Place,
        name: &str,
        accelerator: &str,
        sector: &[u8],
        options: &str,
        more: &str,
    ) -> BootGuest {
        BootGuest::start_by(
            place,
            "qemu-system-x86_64",
            name,
            accelerator,
            sector,
            options,
            more,
        )
    }

    /// Starts such a VM by a QEMU of another version.
    pub fn start_by(
        place: &Place,
        program: &str,
        name: &str,
        accelerator: &str,
        sector: &[u8],
        options: &str,
        more: &str,
    ) -> BootGuest {
        let mut image = sector.to_vec();
        image.resize(16 << 20, 7);
        let file = place.put(&format!("{name}.raw"), &image);
        std::fs::File::open(&file).unwrap().sync_all().unwrap(); // its bytes have places on the device
        let socket = place.path(&format!("{name}.test"));
        let qmp = |socket: &Path| format!("unix:{},server=on,wait=off", socket.display());
        let child = Command::new(program)
            .args([
                "-nodefaults",
                "-display",
                "none",
                "-m",
                "64",
                "-S",
                "-name",
                name,
            ])
            .args(["-machine", &format!("pc,accel={accelerator}")])
            .args([
                "-drive",
                &format!("if=none,id=d0,format=raw,file={}{options}", file.display()),
            ])
            .args(["-device", "virtio-blk-pci,drive=d0,id=disk0,bootindex=0"])
            .args([
                "-qmp",
                &qmp(&place.path(&format!("{name}.qmp"))),
                "-qmp",
                &qmp(&socket),
            ])
            .args(more.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let guest = BootGuest {
            child,
            socket,
            file,
        };
        let deadline = Instant::now() + LIMIT;
        while UnixStream::connect(&guest.socket).is_err() {
            assert!(Instant::now() < deadline, "QEMU does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        guest
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// QEMU's answer to a command.
    pub fn ask(&self, command: &str) -> Value {
        self.command(&json!({ "execute": command }))
    }

    /// QEMU's answer to a command with arguments.
    pub fn command(&self, command: &Value) -> Value {
        ask(&self.socket, command)
    }

    /// Returns the number of reads that QEMU has completed for one of its disks.
    pub fn reads_done(&self, disk: &str) -> u64 {
        self.counter(disk, "rd_operations")
    }

    /// The time that they took in all, ns.
    pub fn read_ns(&self, disk: &str) -> u64 {
        self.counter(disk, "rd_total_time_ns")
    }

    fn counter(&self, disk: &str, name: &str) -> u64 {
        let all = self.ask("query-blockstats");
        // A device with an ID itself is named by that; one within another by its path.
        let is_it = |device: &str| {
            device
                .trim_start_matches("/machine/peripheral/")
                .split('/')
                .next()
                == Some(disk)
        };
        let mut disks = all.as_array().unwrap().iter();
        let of = disks
            .find(|stats| stats["qdev"].as_str().is_some_and(is_it))
            .unwrap_or_else(|| panic!("{all:#}"));
        of["stats"][name].as_u64().unwrap()
    }

    /// Kills the guest's QEMU and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for BootGuest {
    fn drop(&mut self) {
        self.kill();
    }
}
