//! Samples of a process's threads while they are on a CPU, and events counted into a ring, by perf_event_open.

use crate::ProbeError;
use linux_perf_event_reader::{
    BranchSampleFormat, Endianness, RawData, RawEventRecord, ReadFormat, RecordIdParseInfo,
    RecordParseInfo, RecordType, SampleFormat,
};
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_CALLCHAIN,
    PERF_SAMPLE_CPU, PERF_SAMPLE_IP, PERF_SAMPLE_RAW, PERF_SAMPLE_REGS_USER,
    PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, PERF_TYPE_HARDWARE,
    PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr, perf_event_mmap_page,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Frame pointer, stack pointer and instruction pointer, as `asm/perf_regs.h` numbers them: what unwinding needs.
pub(super) const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// Event that triggers the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Cycles of the CPU, counted by itself.
    Cycles,
    /// The kernel's timer for a thread on a CPU.
    CpuClock,
}

/// Whom an event is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The threads of one process.
    Process,
    /// Whatever runs on a CPU.
    Machine,
}

/// Rate and size of the samples.
#[derive(Debug, Clone, Copy)]
pub struct SampleSettings {
    /// Samples a second of each running thread.
    pub hz: u32,
    /// Bytes copied of the stack with each sample.
    pub stack: u32,
}

/// The event that samples, at the rate and size of `sampling`; the reader is woken once the ring holds `watermark` bytes.
pub(super) fn attr(
    trigger: Trigger,
    kernel: bool,
    sampling: SampleSettings,
    scope: Scope,
    watermark: u32,
) -> perf_event_attr {
    let mut attr = triggered(trigger, sampling.hz);
    let mut what = PERF_SAMPLE_IP
        | PERF_SAMPLE_TID
        | PERF_SAMPLE_TIME
        | PERF_SAMPLE_REGS_USER
        | PERF_SAMPLE_STACK_USER;
    if kernel {
        what |= PERF_SAMPLE_CALLCHAIN;
    }
    if scope == Scope::Machine {
        what |= PERF_SAMPLE_CPU;
        attr.set_exclude_idle(1);
        attr.set_task(1);
        attr.set_comm_exec(1);
        attr.set_sample_id_all(1); // processes begin and map on one CPU, and are sampled on another
    } else {
        attr.set_inherit(1); // threads that begin later
    }
    attr.sample_type = what.into();
    attr.sample_regs_user = REGISTERS;
    attr.sample_stack_user = sampling.stack & !7;
    attr.set_exclude_kernel(u64::from(!kernel));
    attr.set_exclude_hv(1);
    attr.set_exclude_callchain_user(1); // by frame pointers, which distributions' programs do not keep
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = watermark;
    attr
}

/// An event that a trigger causes, so many times a second.
fn triggered(trigger: Trigger, hz: u32) -> perf_event_attr {
    let mut attr = begun();
    let hz = u64::from(hz.max(1));
    match trigger {
        Trigger::Cycles => {
            attr.type_ = PERF_TYPE_HARDWARE;
            attr.config = PERF_COUNT_HW_CPU_CYCLES.into();
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = hz;
        }
        Trigger::CpuClock => {
            attr.type_ = PERF_TYPE_SOFTWARE;
            attr.config = PERF_COUNT_SW_CPU_CLOCK.into();
            attr.__bindgen_anon_1.sample_period = 1_000_000_000 / hz;
        }
    }
    attr
}

/// Each time a tracepoint is passed, which the kernel knows by a number: who, when and with what.
pub(crate) fn tracepoint(id: u64) -> perf_event_attr {
    let mut attr = begun();
    attr.type_ = PERF_TYPE_TRACEPOINT;
    attr.config = id;
    attr.__bindgen_anon_1.sample_period = 1;
    attr.sample_type = (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW).into();
    attr
}

/// An event that is off, in the time of the monotonic clock.
fn begun() -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.set_disabled(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr
}

/// Opens the event for a thread on a CPU.
pub(crate) fn open(attr: &mut perf_event_attr, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is whole and says its size; the descriptor that comes back is ours alone.
    unsafe {
        let fd = perf_event_open(attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC.into());
        if fd < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}

/// Lets an event write into another's ring, of the same CPU.
pub(crate) fn write_into(event: &OwnedFd, ring: &impl AsFd) -> io::Result<()> {
    // SAFETY: two descriptors of events, which stay open during the call.
    done(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), ring.as_fd().as_raw_fd()) })
}

/// Starts or ends sampling by an event.
pub(crate) fn enable(event: &OwnedFd, on: bool) -> io::Result<()> {
    let fd = event.as_raw_fd();
    // SAFETY: the descriptor of an event, which stays open during the call.
    done(unsafe {
        if on {
            ioctls::ENABLE(fd, 0)
        } else {
            ioctls::DISABLE(fd, 0)
        }
    })
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Bytes: what is taken where it is granted, and what everybody is granted.
pub(crate) const SIZES: [usize; 2] = [4 << 20, 512 << 10];

/// A ring of records of one CPU.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Where the kernel's page begins; the records follow it.
    base: *mut u8,
    page: usize,
    /// Bytes of the records' part, a power of two.
    size: usize,
}

// SAFETY: the memory belongs to this value alone, wherever it is moved.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the largest ring that the kernel grants.
    pub(crate) fn largest(event: BorrowedFd<'_>) -> io::Result<Ring> {
        Ring::map(event, SIZES[0]).or_else(|_| Ring::map(event, SIZES[1]))
    }

    /// Maps the ring of an event. `size` is a power of two of pages, bytes.
    fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                page + size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )?
        };
        Ok(Ring {
            base: base.cast(),
            page,
            size,
        })
    }

    /// Copies out what came since the last time, whole records in their order.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) {
        let head = self
            .position(std::mem::offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        let tail_at = self.position(std::mem::offset_of!(perf_event_mmap_page, data_tail));
        let tail = tail_at.load(Ordering::Relaxed);
        let length = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(0)
            .min(self.size);
        let from = usize::try_from(tail).unwrap_or(0) & (self.size - 1);
        let first = length.min(self.size - from);
        for (offset, part) in [(from, first), (0, length - first)] {
            // SAFETY: both parts lie in the records' part, which is mapped, and the kernel does not write between tail
            // and head.
            into.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.base.add(self.page + offset), part)
            });
        }
        tail_at.store(head, Ordering::Release);
    }

    /// One of the two positions that kernel and reader tell each other.
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the field is aligned, inside the kernel's page, mapped as long as this value lives, and both sides use
        // it atomically only.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map` in this length, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.cast(), self.page + self.size) };
    }
}

/// The kernel's word for all processes on a CPU.
const ALL_PROCESSES: i32 = -1;

/// Samples a process, or all of them, until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    /// An event for each thread on each CPU, whose threads-to-be it follows.
    events: Vec<OwnedFd>,
    /// One a CPU, with the event that it was mapped from.
    rings: Vec<(Ring, usize)>,
    trigger: Trigger,
    kernel: bool,
    format: RecordParseInfo,
    copied: Vec<u8>,
}

impl Sampler {
    /// Starts to sample all threads of a process, and those that they start.
    ///
    /// # Errors
    /// [`ProbeError`] when there is no such process, it is somebody else's, or the kernel lets nobody sample.
    pub fn start(pid: i32, sampling: SampleSettings) -> Result<Sampler, ProbeError> {
        let threads: Vec<i32> = crate::thread_names(pid)
            .into_iter()
            .map(|(tid, _)| tid)
            .collect();
        if threads.is_empty() {
            return Err(ProbeError::NoProcess { pid });
        }
        raise_limit(threads.len());
        Sampler::begin(pid, &threads, sampling, Scope::Process)
    }

    /// Starts to sample whatever runs on this machine's CPUs, but their idleness. Records of each then tell their
    /// time and, of samples, the CPU; what processes begin and map is told too.
    ///
    /// # Errors
    /// [`ProbeError`] when the kernel lets nobody sample, or not this user.
    pub fn of_all(sampling: SampleSettings) -> Result<Sampler, ProbeError> {
        Sampler::begin(ALL_PROCESSES, &[ALL_PROCESSES], sampling, Scope::Machine)
    }

    fn begin(
        pid: i32,
        threads: &[i32],
        sampling: SampleSettings,
        scope: Scope,
    ) -> Result<Sampler, ProbeError> {
        let (trigger, kernel) = permitted(pid, threads[0], sampling, scope)?;
        let mut sampler = Sampler {
            events: Vec::new(),
            rings: Vec::new(),
            trigger,
            kernel,
            format: format(kernel, scope),
            copied: Vec::new(),
        };
        for cpu in online() {
            sampler.open_on(cpu, pid, threads, sampling, scope)?;
        }
        for event in &sampler.events {
            enable(event, true).map_err(|e| refused(pid, e))?;
        }
        Ok(sampler)
    }

    /// The events of one CPU, into one ring.
    fn open_on(
        &mut self,
        cpu: i32,
        pid: i32,
        threads: &[i32],
        sampling: SampleSettings,
        scope: Scope,
    ) -> Result<(), ProbeError> {
        let mut first: Option<usize> = None;
        for &tid in threads {
            let half = SIZES[1] as u32 / 2;
            let mut attr = attr(self.trigger, self.kernel, sampling, scope, half);
            let event = match open(&mut attr, tid, cpu) {
                Ok(event) => event,
                // The thread ended meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(e) => return Err(refused(pid, e)),
            };
            match first {
                Some(first) => {
                    write_into(&event, &self.events[first]).map_err(|e| refused(pid, e))?
                }
                None => {
                    let ring = Ring::largest(event.as_fd()).map_err(|e| refused(pid, e))?;
                    first = Some(self.events.len());
                    self.rings.push((ring, self.events.len()));
                }
            }
            self.events.push(event);
        }
        first.map(drop).ok_or(ProbeError::NoProcess { pid })
    }

    /// Returns the event that triggers the samples here.
    pub fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// Returns true if the stacks include the kernel's part.
    pub fn sees_kernel(&self) -> bool {
        self.kernel
    }

    /// Waits until there is something to read, at most so long.
    ///
    /// # Errors
    /// Errors of `poll`.
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let mut fds: Vec<PollFd<'_>> = self
            .rings
            .iter()
            .map(|(_, event)| PollFd::new(&self.events[*event], PollFlags::IN))
            .collect();
        let time = Timespec::try_from(time).ok();
        match poll(&mut fds, time.as_ref()) {
            // All events' threads ended: at once ready, for ever. The caller looks whether the process is there.
            Ok(_) if fds.iter().all(|fd| fd.revents().contains(PollFlags::HUP)) => {
                std::thread::sleep(Duration::from_millis(10));
                Ok(())
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Hands over the records that came since the last time, those of a CPU in their order.
    pub fn drain(&mut self, mut each: impl FnMut(RawEventRecord<'_>)) {
        for (ring, _) in &mut self.rings {
            records(ring, &mut self.copied, self.format, &mut each);
        }
    }

    /// Ends sampling; what came before can still be drained.
    pub fn stop(&self) {
        for event in &self.events {
            let _ = enable(event, false); // the thread may have ended
        }
    }
}

/// Hands over the records that came into a ring since the last time; `copied` is room for them.
pub(crate) fn records(
    ring: &mut Ring,
    copied: &mut Vec<u8>,
    layout: RecordParseInfo,
    mut each: impl FnMut(RawEventRecord<'_>),
) {
    copied.clear();
    ring.take(copied);
    let mut rest = &copied[..];
    while let Some((kind, misc, body, after)) = record(rest) {
        each(RawEventRecord::new(
            RecordType(kind),
            misc,
            RawData::Single(body),
            layout,
        ));
        rest = after;
    }
}

/// The first record of `bytes`: its kind, its flags, its body and what follows it.
fn record(bytes: &[u8]) -> Option<(u32, u16, &[u8], &[u8])> {
    let head = bytes.get(..8)?;
    let size = usize::from(u16::from_le_bytes([head[6], head[7]]));
    let body = bytes.get(8..size)?;
    let kind = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    Some((
        kind,
        u16::from_le_bytes([head[4], head[5]]),
        body,
        &bytes[size..],
    ))
}

/// Returns the layout of the records that [`attr`] asks for.
fn format(kernel: bool, scope: Scope) -> RecordParseInfo {
    let mut sample_format = SampleFormat::IP
        | SampleFormat::TID
        | SampleFormat::TIME
        | SampleFormat::REGS_USER
        | SampleFormat::STACK_USER;
    if kernel {
        sample_format |= SampleFormat::CALLCHAIN;
    }
    let everywhere = scope == Scope::Machine;
    if everywhere {
        sample_format |= SampleFormat::CPU;
    }
    RecordParseInfo {
        sample_regs_user: REGISTERS,
        user_regs_count: REGISTERS.count_ones() as u8,
        // Behind the time stands the CPU.
        nonsample_record_time_offset_from_end: everywhere.then_some(16),
        sample_record_time_offset_from_start: Some(16),
        ..layout(sample_format)
    }
}

/// Returns the layout of records whose samples have this format, without registers.
pub(crate) fn layout(sample_format: SampleFormat) -> RecordParseInfo {
    RecordParseInfo {
        endian: Endianness::LittleEndian,
        sample_format,
        branch_sample_format: BranchSampleFormat::empty(),
        read_format: ReadFormat::empty(),
        common_data_offset_from_end: None,
        sample_regs_user: 0,
        user_regs_count: 0,
        sample_regs_intr: 0,
        intr_regs_count: 0,
        id_parse_info: RecordIdParseInfo {
            nonsample_record_id_offset_from_end: None,
            sample_record_id_offset_from_start: None,
        },
        nonsample_record_time_offset_from_end: None,
        sample_record_time_offset_from_start: None,
    }
}

/// Returns the trigger that is available, and true if kernel stacks are: counters before the clock, with the kernel's
/// stacks before without.
fn permitted(
    pid: i32,
    tid: i32,
    sampling: SampleSettings,
    scope: Scope,
) -> Result<(Trigger, bool), ProbeError> {
    // Of a process, on any CPU; of all, on the first.
    let cpu = if tid == ALL_PROCESSES {
        online()[0]
    } else {
        -1
    };
    let mut said = io::Error::from(io::ErrorKind::Unsupported);
    for trigger in [Trigger::Cycles, Trigger::CpuClock] {
        for kernel in [true, false] {
            match open(&mut attr(trigger, kernel, sampling, scope, 1), tid, cpu) {
                Ok(_) => return Ok((trigger, kernel)),
                Err(e) => said = e,
            }
        }
    }
    Err(refused(pid, said))
}

/// Why an event could not be found, with what changes it.
fn refused(pid: i32, source: io::Error) -> ProbeError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => ProbeError::NoProcess { pid },
        Some(libc::EACCES | libc::EPERM) => {
            let own = pid == ALL_PROCESSES
                || fs::metadata(format!("/proc/{pid}"))
                    .is_ok_and(|m| m.uid() == rustix::process::getuid().as_raw());
            if own {
                let level = crate::read_text("/proc/sys/kernel/perf_event_paranoid");
                ProbeError::Paranoid {
                    level: level.unwrap_or_default(),
                }
            } else {
                ProbeError::NotOurs { pid }
            }
        }
        Some(libc::EMFILE) => ProbeError::TooManyEvents,
        _ => {
            let what = format!("sampling process {pid} with perf_event_open");
            ProbeError::system(what, source)
        }
    }
}

/// An event is a descriptor: a process with many threads on a large host takes more than a shell grants at first.
fn raise_limit(threads: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let needed = (threads * online().len() + 64) as u64;
    if limit.current.is_some_and(|current| current < needed) {
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        );
    }
}

/// The CPUs that are in use.
pub(crate) fn online() -> Vec<i32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let all = vmtax_model::cpu_list::parse(&list).unwrap_or_else(|| vec![0]);
    all.into_iter().map(|cpu| cpu as i32).collect()
}
