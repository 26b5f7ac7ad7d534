//! The thread that serves the disk: it waits for the guest's notification, reads and writes the image, fills the used ring, and
//! interrupts the guest.

use crate::mmio::Doorbells;
use crate::{Engine, Result};
use io_uring::{IoUring, opcode, types};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use virtio_queue::{DescriptorChain, Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, VolatileSlice};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const SECTOR: u64 = 512;
const RING_ENTRIES: u32 = 256;

/// Types of requests, and the status of one that was done or was not understood (virtio 1.2, 5.2.6).
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const DONE: u8 = 0;
const FAILED: u8 = 1;
const UNSUPPORTED: u8 = 2;

pub struct Disk {
    pub image: File,
    pub memory: GuestMemoryMmap,
    pub engine: Engine,
    /// Planted, µs.
    pub delay_submit: u64,
    /// Planted, µs.
    pub delay_interrupt: u64,
    pub thread: String,
}

/// A request of the guest.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// Index of the first descriptor.
    head: u16,
    kind: u32,
    offset: u64,
    data: GuestAddress,
    length: u32,
    status: GuestAddress,
}

/// The device, while its thread serves it.
struct Server {
    disk: Disk,
    queue: Queue,
    doorbells: Arc<Doorbells>,
}

impl Disk {
    /// Starts the thread.
    pub fn start(self, queue: Queue, doorbells: Arc<Doorbells>) -> Result<()> {
        let name = self.thread.clone();
        let mut server = Server {
            disk: self,
            queue,
            doorbells,
        };
        thread::Builder::new().name(name).spawn(move || {
            let served = match server.disk.engine {
                Engine::Sync => server.by_calls(),
                Engine::IoUring => server.by_ring(),
            };
            if let Err(error) = served {
                eprintln!("vmtax-test-vmm: {error}");
                std::process::exit(1);
            }
        })?;
        Ok(())
    }

    /// A request's buffer in the guest's memory.
    fn buffer(&self, request: &Request) -> Result<VolatileSlice<'_>> {
        Ok(self
            .memory
            .get_slice(request.data, request.length as usize)?)
    }
}

/// The delays that are planted are work: a thread that sleeps needs longer than it is told.
fn spin(micros: u64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

/// Reads a request's descriptors: header, data (none of a flush), status.
fn request_of(mut chain: DescriptorChain<&GuestMemoryMmap>) -> Result<Request> {
    let memory = chain.memory().clone();
    let head = chain.head_index();
    let all: Vec<_> = chain.by_ref().collect();
    let ([header, .., status], Some(data)) = (all.as_slice(), all.get(1)) else {
        return Err("a request has fewer than two descriptors".into());
    };
    if all.len() > 3 {
        return Err("a request has more than one buffer".into());
    }
    let kind: u32 = memory.read_obj(header.addr())?;
    let sector: u64 = memory.read_obj(GuestAddress(header.addr().0 + 8))?;
    Ok(Request {
        head,
        kind,
        offset: sector * SECTOR,
        data: data.addr(),
        length: if all.len() == 3 { data.len() } else { 0 },
        status: status.addr(),
    })
}

impl Server {
    /// Serves one request after the other.
    fn by_calls(&mut self) -> Result<()> {
        let waits = Waits::new(&[&self.doorbells.kick])?;
        loop {
            waits.next()?;
            let _ = self.doorbells.kick.read();
            loop {
                self.queue.disable_notification(&self.disk.memory)?;
                while let Some(request) = self.next()? {
                    spin(self.disk.delay_submit);
                    let done = self.disk.call(&request)?;
                    self.finish(&request, done)?;
                    self.interrupt()?;
                }
                if !self.queue.enable_notification(&self.disk.memory)? {
                    break;
                }
            }
        }
    }

    /// Hands all requests of a notification to the kernel, and goes on when some are done.
    fn by_ring(&mut self) -> Result<()> {
        let mut ring = IoUring::new(RING_ENTRIES)?;
        let completions = EventFd::new(EFD_NONBLOCK)?;
        ring.submitter().register_eventfd(completions.as_raw_fd())?;
        let waits = Waits::new(&[&self.doorbells.kick, &completions])?;
        let mut under_way: Vec<Option<Request>> = vec![None; usize::from(u16::MAX) + 1];
        loop {
            let woken_by = waits.next()?;
            if woken_by == 0 {
                let _ = self.doorbells.kick.read();
                loop {
                    self.queue.disable_notification(&self.disk.memory)?;
                    while let Some(request) = self.next()? {
                        self.disk.push(&mut ring, &request)?;
                        under_way[usize::from(request.head)] = Some(request);
                    }
                    if !ring.submission().is_empty() {
                        spin(self.disk.delay_submit);
                        ring.submit()?;
                    }
                    if !self.queue.enable_notification(&self.disk.memory)? {
                        break;
                    }
                }
                continue;
            }
            let _ = completions.read();
            let done: Vec<_> = ring.completion().collect();
            for entry in &done {
                let request = under_way[entry.user_data() as usize].take();
                let request = request.ok_or("a completion of no request")?;
                let is_whole = i64::from(entry.result()) == i64::from(request.length);
                self.finish(&request, if is_whole { DONE } else { FAILED })?;
            }
            if !done.is_empty() {
                self.interrupt()?;
            }
        }
    }

    fn next(&mut self) -> Result<Option<Request>> {
        let chain = self.queue.pop_descriptor_chain(&self.disk.memory);
        chain.map(request_of).transpose()
    }

    /// Puts a request on the used ring.
    fn finish(&mut self, request: &Request, status: u8) -> Result<()> {
        let memory = &self.disk.memory;
        memory.write_obj(status, request.status)?;
        let read = if request.kind == READ {
            request.length
        } else {
            0
        };
        self.queue.add_used(memory, request.head, read + 1)?;
        Ok(())
    }

    /// Interrupts the guest, unless it has said that it does not want that.
    fn interrupt(&mut self) -> Result<()> {
        spin(self.disk.delay_interrupt);
        if self.queue.needs_notification(&self.disk.memory)? {
            self.doorbells.status.fetch_or(1, Ordering::SeqCst);
            self.doorbells.interrupt.write(1)?;
        }
        Ok(())
    }
}

impl Disk {
    /// Serves a request by a system call; gives its status.
    fn call(&self, request: &Request) -> Result<u8> {
        let buffer = self.buffer(request)?;
        let (fd, length) = (self.image.as_raw_fd(), buffer.len());
        let at = request.offset as libc::off_t;
        let pointer = buffer.ptr_guard_mut().as_ptr();
        let done = match request.kind {
            // SAFETY: the buffer lies in the guest's memory, which stays mapped, and nothing here refers to its content.
            READ => unsafe { libc::pread(fd, pointer.cast(), length, at) },
            // SAFETY: as above.
            WRITE => unsafe { libc::pwrite(fd, pointer.cast(), length, at) },
            FLUSH => {
                return Ok(if self.image.sync_data().is_ok() {
                    DONE
                } else {
                    FAILED
                });
            }
            _ => return Ok(UNSUPPORTED),
        };
        Ok(if done == length as isize {
            DONE
        } else {
            FAILED
        })
    }

    /// Puts a request on the submission queue.
    fn push(&self, ring: &mut IoUring, request: &Request) -> Result<()> {
        let buffer = self.buffer(request)?;
        let fd = types::Fd(self.image.as_raw_fd());
        let (pointer, length) = (buffer.ptr_guard_mut().as_ptr(), request.length);
        let entry = match request.kind {
            READ => opcode::Read::new(fd, pointer, length)
                .offset(request.offset)
                .build(),
            WRITE => opcode::Write::new(fd, pointer, length)
                .offset(request.offset)
                .build(),
            FLUSH => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            _ => opcode::Nop::new().build(),
        };
        let entry = entry.user_data(request.head.into());
        // SAFETY: the buffer lies in the guest's memory, which stays mapped, and nothing here refers to its content.
        unsafe { ring.submission().push(&entry)? };
        Ok(())
    }
}

/// An event loop's wait for one of several eventfds.
struct Waits(OwnedFd);

impl Waits {
    fn new(events: &[&EventFd]) -> Result<Waits> {
        let waits = Waits(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        for (number, event) in (0..).zip(events) {
            // SAFETY: the eventfds live as long as the thread that waits.
            let fd = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
            epoll::add(
                &waits.0,
                fd,
                epoll::EventData::new_u64(number),
                epoll::EventFlags::IN,
            )?;
        }
        Ok(waits)
    }

    /// Waits; gives the number of an eventfd that has been written.
    fn next(&self) -> Result<u64> {
        loop {
            let mut events = Vec::with_capacity(1);
            match epoll::wait(&self.0, spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if let Some(event) = events.first() {
                return Ok(event.data.u64());
            }
        }
    }
}
