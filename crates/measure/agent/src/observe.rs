//! Traces the requests of a running guest's own kernel, for somebody who copied vmtax into it. The file is what a guest of
//! vmtax sends its controller: frames with pieces of the trace's files, and one message behind them.

use crate::{AgentError, Failure, cpus, kernel, send_frame, ship};
use rustix::fd::BorrowedFd;
use std::time::Duration;
use vmtax_model::{DISK, ObservedDisk, ObservedGuest, SCHEMA};
use vmtax_observe::{ProbeSet, Recorded, Tracer, cpu_buffer_kib, guest_disks};
use vmtax_wire::encode;

/// Room for events in the kernel, of all CPUs together, KiB.
const ROOM_KIB: usize = 64 << 10;
/// Of one CPU, KiB, at least and at most: a guest may have little memory.
const CPU_KIB: std::ops::RangeInclusive<usize> = (1 << 10)..=(8 << 10);
/// Bytes of the trace that are kept; then tracing ends.
const MAX_BYTES: u64 = 512 << 20;

/// A trace of this kernel's disks on virtio-blk and virtio-scsi that is ready to begin. Dropped, it leaves nothing in the guest.
pub struct GuestObserver {
    disks: Vec<ObservedDisk>,
    tracer: Tracer,
}

impl GuestObserver {
    /// Makes the tracefs instance.
    ///
    /// # Errors
    /// [`AgentError`] where there is none of these disks, or this user may not trace.
    pub fn start() -> Result<GuestObserver, AgentError> {
        let disks = guest_disks();
        if disks.is_empty() {
            return Err(AgentError::NoDisk);
        }
        let interrupts = disks.iter().flat_map(|disk| &disk.disk.interrupts);
        let interrupts: Vec<u32> = interrupts.copied().collect();
        let probes = ProbeSet::guest_of_others(DISK, &interrupts);
        let tracer = Tracer::start(&probes, cpu_buffer_kib(ROOM_KIB, CPU_KIB))?;
        Ok(GuestObserver { disks, tracer })
    }

    /// Traces until the time has passed or `stop` says so, and writes the file.
    ///
    /// # Errors
    /// [`AgentError`] where tracefs refuses, or the file cannot be written.
    pub fn record(
        self,
        output: BorrowedFd<'_>,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<ObservedGuest, AgentError> {
        let GuestObserver { disks, tracer } = self;
        let mut recorded = None;
        let mut send = |frame: &[u8]| send_frame(output, frame);
        let shipped = ship(&mut send, |ship| {
            let trace = tracer.record(time, MAX_BYTES, stop, ship);
            recorded = Some(trace.map_err(|e| e.to_string())?);
            Ok(())
        });
        shipped.map_err(|failure| match failure {
            Failure::Trial(error) => AgentError::Observe(error),
            Failure::Channel(AgentError::Channel(source)) => {
                AgentError::system("writing the trace", source)
            }
            Failure::Channel(error) => error,
        })?;
        let Recorded { begin, end, full } = recorded.unwrap_or(Recorded {
            begin: 0,
            end: 0,
            full: false,
        });
        let missing = tracer.missing().to_vec();

        let guest = ObservedGuest {
            schema: SCHEMA,
            kernel: kernel().release,
            cpus: cpus(),

            begin,
            end,
            disks,
            full,
            missing,
        };
        send(&encode(&guest)?)?;
        Ok(guest)
    }
}
