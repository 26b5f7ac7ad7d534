//! The guest's bus: a serial port, and a virtio block device by MMIO (virtio 1.2, 4.2.2), whose notifications are an ioeventfd
//! and whose interrupts an irqfd.

use crate::Result;
use crate::disk::Disk;
use crate::serial::{self, Serial};
use kvm_ioctls::{IoEventAddress, VmFd};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use virtio_queue::{Queue, QueueT};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Address, length and interrupt of the device: the first of libkrun's.
const BASE: u64 = 0xd000_0000;
const LENGTH: u64 = 0x1000;
const INTERRUPT: u32 = 5;
/// Port of the real-time clock's data.
const CLOCK: u16 = 0x71;
const QUEUE_SIZE: u16 = 128;
const SECTOR: u64 = 512;

const MAGIC: u32 = 0x7472_6976;
const VERSION: u32 = 2;
const BLOCK: u32 = 2;
const BLOCK_FLUSH: u32 = 1 << 9;
/// The driver says which notifications and interrupts it wants.
const EVENT_IDX: u32 = 1 << 29;
/// Features 0 to 31 and 32 to 63, of which the first is that of virtio 1.
const FEATURES: [u32; 2] = [BLOCK_FLUSH | EVENT_IDX, 1];
const DRIVER_OK: u32 = 4;
const QUEUE_NOTIFY: u64 = 0x50;
const CONFIG: u64 = 0x100;

/// State that a device shares with its thread.
pub struct Doorbells {
    /// The guest's notification.
    pub kick: EventFd,
    /// Interrupt of the guest.
    pub interrupt: EventFd,
    /// InterruptStatus: bit 0 where the used ring has news.
    pub status: AtomicU32,
}

pub struct VirtioBlock {
    sectors: u64,
    /// Until the driver is ready; then its thread has it.
    disk: Option<Disk>,
    queue: Queue,
    doorbells: Arc<Doorbells>,
    /// Which 32 features the driver reads, and which it sets.
    feature_words: [usize; 2],
    status: u32,
}

impl VirtioBlock {
    pub fn new(vm: &VmFd, disk: Disk) -> Result<VirtioBlock> {
        let doorbells = Doorbells {
            kick: EventFd::new(EFD_NONBLOCK)?,
            interrupt: EventFd::new(EFD_NONBLOCK)?,
            status: AtomicU32::new(0),
        };
        let notify = IoEventAddress::Mmio(BASE + QUEUE_NOTIFY);
        vm.register_ioevent(&doorbells.kick, &notify, 0u32)?;
        vm.register_irqfd(&doorbells.interrupt, INTERRUPT)?;
        Ok(VirtioBlock {
            sectors: disk.image.metadata()?.len() / SECTOR,
            disk: Some(disk),
            queue: Queue::new(QUEUE_SIZE)?,
            doorbells: Arc::new(doorbells),
            feature_words: [0; 2],
            status: 0,
        })
    }

    /// Returns the argument that tells the kernel about the device.
    pub fn kernel_argument(&self) -> String {
        format!("virtio_mmio.device={LENGTH:#x}@{BASE:#x}:{INTERRUPT}")
    }

    fn read(&self, register: u64) -> u32 {
        match register {
            0x0 => MAGIC,
            0x4 => VERSION,
            0x8 => BLOCK,
            0x10 => FEATURES.get(self.feature_words[0]).copied().unwrap_or(0),
            0x34 => u32::from(QUEUE_SIZE),
            0x44 => u32::from(self.queue.ready()),
            0x60 => self.doorbells.status.load(Ordering::SeqCst),
            0x70 => self.status,
            CONFIG => self.sectors as u32,
            0x104 => (self.sectors >> 32) as u32,
            _ => 0,
        }
    }

    fn write(&mut self, register: u64, value: u32) -> Result<()> {
        let queue = &mut self.queue;
        match register {
            0x14 => self.feature_words[0] = value as usize,
            0x20 if self.feature_words[1] == 0 => queue.set_event_idx(value & EVENT_IDX != 0),
            0x24 => self.feature_words[1] = value as usize,
            0x38 => queue.set_size(u16::try_from(value)?),
            0x44 => queue.set_ready(value == 1),
            0x64 => {
                self.doorbells.status.fetch_and(!value, Ordering::SeqCst);
            }
            0x70 => {
                self.status = value;
                if value & DRIVER_OK != 0 {
                    self.begin()?;
                }
            }
            0x80 => queue.set_desc_table_address(Some(value), None),
            0x84 => queue.set_desc_table_address(None, Some(value)),
            0x90 => queue.set_avail_ring_address(Some(value), None),
            0x94 => queue.set_avail_ring_address(None, Some(value)),
            0xa0 => queue.set_used_ring_address(Some(value), None),
            0xa4 => queue.set_used_ring_address(None, Some(value)),
            _ => {}
        }
        Ok(())
    }

    /// Starts the thread that serves the device.
    fn begin(&mut self) -> Result<()> {
        let queue = std::mem::replace(&mut self.queue, Queue::new(QUEUE_SIZE)?);
        match self.disk.take() {
            Some(disk) => disk.start(queue, Arc::clone(&self.doorbells)),
            None => Ok(()),
        }
    }
}

/// Everything that the guest reaches by an exit to this program.
pub struct Bus {
    serial: Serial,
    block: VirtioBlock,
}

impl Bus {
    pub fn new(console: Box<dyn Write + Send>, block: VirtioBlock) -> Bus {
        Bus {
            serial: Serial::new(console),
            block,
        }
    }

    /// Writes to a port; true where that resets the machine (`reboot=k`: the keyboard controller's command).
    pub fn port_write(&mut self, port: u16, data: &[u8]) -> bool {
        if let (serial::PORT..=0x3ff, [value, ..]) = (port, data) {
            self.serial.write(port - serial::PORT, *value);
        }
        (port, data) == (0x64, &[0xfe])
    }

    pub fn port_read(&mut self, port: u16, data: &mut [u8]) {
        // Nobody answers, except a clock, of which Linux waits 10 s for the end of an update.
        data.fill(if port == CLOCK { 0 } else { 0xff });
        if let (serial::PORT..=0x3ff, [value, ..]) = (port, data) {
            *value = self.serial.read(port - serial::PORT);
        }
    }

    pub fn read(&mut self, address: u64, data: &mut [u8]) {
        data.fill(0xff);
        let Some(register) = address.checked_sub(BASE).filter(|at| *at < LENGTH) else {
            return;
        };
        // Drivers read the configuration in pieces of their fields' sizes.
        let value = self.block.read(register & !3).to_le_bytes();
        let from = (register & 3) as usize;
        for (to, from) in data.iter_mut().zip(value.iter().skip(from)) {
            *to = *from;
        }
    }

    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        let register = address.checked_sub(BASE).filter(|at| *at < LENGTH);
        match (register, data.try_into()) {
            (Some(register), Ok(value)) => self.block.write(register, u32::from_le_bytes(value)),
            _ => Ok(()),
        }
    }
}
