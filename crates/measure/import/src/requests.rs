//! The block requests in traces of the guest's kernel, of QEMU and of the host's kernel, on one clock.

use crate::error::ImportError;
use crate::folder::{self, FolderInput, WrittenFolder};
use crate::source::NANOSECONDS;
use crate::survey::Surveyed;
use vmtax_model::{
    GuestDisk, GuestTrace, JoinedClock, Missing, QemuThread, Role, SCHEMA, TraceSide, VmFacts,
    VmTrace, files,
};
use vmtax_recording::TrialFiles;
use vmtax_trace::TimeShift;

/// Disks of a guest that are followed.
const MAX_DISKS: usize = 16;

/// The files of one VM by what they are of.
pub(crate) struct Sides<'a> {
    pub host: Option<&'a Surveyed>,
    pub qemu: Vec<&'a Surveyed>,
    pub guest: Option<&'a Surveyed>,
}

/// Clocks by which traces were joined, and data that is missing.
#[derive(Default)]
pub(crate) struct StoredRequests {
    pub clocks: Vec<JoinedClock>,
    pub missing: Vec<Missing>,
}

impl Sides<'_> {
    /// Writes the traces of both sides on one clock, as far as the files allow it, with what is needed to read them.
    pub fn store(
        &self,
        vm: VmFacts,
        tsc_mhz: Option<f64>,
        trial: &mut TrialFiles,
    ) -> Result<StoredRequests, ImportError> {
        let mut stored = StoredRequests::default();
        let has_requests = |file: &&Surveyed| !file.survey.block_devices.is_empty();
        let guest = self.guest.filter(has_requests);
        if self.qemu.is_empty() && guest.is_none() {
            stored.missing.push(no_requests());
            return Ok(stored);
        }
        let host = self
            .host
            .filter(|host| self.qemu.iter().all(|qemu| stored.joins(host, qemu)));
        let mut joined = JoinedSides {
            host,
            qemu: &self.qemu,
            guest,
            tsc_mhz,
            mhz: self.mhz(host, guest, tsc_mhz)?,
            stored,
            is_full: false,
        };
        joined.store_host(trial)?;
        let of_guest = joined.store_guest(&vm, trial)?;
        let threads = self.threads(&vm);
        let trace = joined.metadata(vm, threads, of_guest);
        trial.store(files::VM_TRACE, &trace)?;
        Ok(joined.stored)
    }

    /// Returns the ticks in a microsecond of the clock that the traces of `host` and `guest` are stored on.
    fn mhz(
        &self,
        host: Option<&Surveyed>,
        guest: Option<&Surveyed>,
        tsc_mhz: Option<f64>,
    ) -> Result<f64, ImportError> {
        // One unit for all: that of the host's kernel, where its trace is joined.
        match (host, guest) {
            (Some(host), _) => host.file.mhz(tsc_mhz),
            (None, Some(guest)) if self.qemu.is_empty() => guest.file.mhz(tsc_mhz),
            _ => Ok(NANOSECONDS),
        }
    }

    /// The VM's threads, those of QEMU's own trace among them.
    fn threads(&self, vm: &VmFacts) -> Vec<QemuThread> {
        let mut threads = vm.threads.clone();
        for tid in self.qemu.iter().flat_map(|qemu| &qemu.survey.threads) {
            if !threads.iter().any(|thread| thread.tid == *tid) {
                let named = self.host.and_then(|host| host.file.threads()?.get(tid));
                let name = named.map(|thread| thread.name.clone());
                let name = name.unwrap_or_else(|| format!("QEMU thread {tid}"));
                threads.push(QemuThread {
                    tid: *tid,
                    role: Role::Other(name),
                });
            }
        }
        threads
    }
}

fn no_requests() -> Missing {
    Missing {
        what: "block requests by layer".to_owned(),
        why: "no file is of the guest's block layer or of QEMU's virtio disk".to_owned(),
        fix: "give a trace of the guest (`trace-cmd record -e block`), or QEMU's (`-trace 'virtio_blk_*'`), too"
            .to_owned(),
    }
}

/// The files of one VM whose traces are stored on one clock, and the outcome so far.
struct JoinedSides<'a> {
    /// The host's kernel, where its clock is that of all of QEMU's files.
    host: Option<&'a Surveyed>,
    qemu: &'a [&'a Surveyed],
    /// The guest's kernel, where it has block requests.
    guest: Option<&'a Surveyed>,
    /// The user's word for a clock that counts ticks.
    tsc_mhz: Option<f64>,
    /// Ticks of the one clock in a microsecond.
    mhz: f64,
    stored: StoredRequests,
    /// True if a trace was longer than what is kept.
    is_full: bool,
}

impl JoinedSides<'_> {
    /// Writes the trace of the host: its kernel's events and those of QEMU, as far as there are any.
    fn store_host(&mut self, trial: &mut TrialFiles) -> Result<(), ImportError> {
        let inputs = self.qemu.iter().map(|qemu| FolderInput {
            file: &qemu.file,
            ticks: scaled(NANOSECONDS, self.mhz),
        });
        let qemu: Vec<FolderInput<'_>> = inputs.collect();
        let kernel = self.host.map(|host| FolderInput {
            file: &host.file,
            ticks: Box::new(|_, ticks| ticks),
        });
        if kernel.is_some() || !qemu.is_empty() {
            let written = folder::write(files::HOST, kernel.as_ref(), &qemu, trial)?;
            self.note(&written);
        }
        Ok(())
    }

    /// Writes the trace of the guest's kernel, if there is one, and returns how its clock is joined.
    fn store_guest(
        &mut self,
        vm: &VmFacts,
        trial: &mut TrialFiles,
    ) -> Result<Option<GuestTrace>, ImportError> {
        let Some(guest) = self.guest else {
            return Ok(None);
        };
        let clock = GuestClock::find(guest, self.host, vm);
        let ticks: Box<dyn Fn(u32, u64) -> u64> = match (clock.shift, clock.offset) {
            (Some(shift), _) => Box::new(move |cpu, ticks| shift.host(cpu, ticks)),
            (_, Some(offset)) => Box::new(move |_, ticks| ticks.saturating_add_signed(offset)),
            _ => scaled(guest.file.mhz(self.tsc_mhz)?, self.mhz),
        };
        let file = &guest.file;
        let input = FolderInput { file, ticks };
        let written = folder::write(files::GUEST, Some(&input), &[], trial)?;
        self.note(&written);
        let has_host = self.host.is_some() || !self.qemu.is_empty();
        Ok(Some(self.stored.guest(guest, clock, has_host, self.mhz)))
    }

    /// Notes if a written trace is not whole.
    fn note(&mut self, written: &WrittenFolder) {
        self.is_full |= written.is_full;
        self.stored.left_out(written.left_out);
    }

    /// Returns the metadata needed to read the traces.
    fn metadata(
        &self,
        vm: VmFacts,
        threads: Vec<QemuThread>,
        guest: Option<GuestTrace>,
    ) -> VmTrace {
        let (begin, end) = self.span();
        VmTrace {
            schema: SCHEMA,
            tsc_mhz: self.mhz,
            begin,
            end,
            threads,
            vm,
            disks: Vec::new(),
            nics: Vec::new(),
            ended: false,
            full: self.is_full,
            missing: Vec::new(),
            imported: true,
            guest,
            kvm_offset: None,
        }
    }

    /// Returns the times of the first and last event of the host's side, ticks; of the guest's where there is no other.
    fn span(&self) -> (u64, u64) {
        let files = self.host.into_iter().chain(self.qemu.iter().copied());
        let of_host = files
            .filter_map(|file| file.survey.span)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let of_guest = self.guest.and_then(|guest| guest.survey.span);
        of_host.or(of_guest).unwrap_or_default()
    }
}

/// The data by which the clock of the guest's trace is joined to that of the host's kernel, as far as there is any.
#[derive(Clone, Copy)]
struct GuestClock<'a> {
    /// The corrections of trace-cmd.
    shift: Option<&'a TimeShift>,
    /// Host minus guest, ticks of the time stamp counter; `None` where trace-cmd has corrections.
    offset: Option<i64>,
}

impl<'a> GuestClock<'a> {
    /// Looks up the data in the files of both.
    fn find(guest: &'a Surveyed, host: Option<&Surveyed>, vm: &VmFacts) -> GuestClock<'a> {
        let shift = host.and_then(|host| time_shift(guest, host));
        let offset = host
            .filter(|_| shift.is_none())
            .and_then(|host| shared_tsc(guest, host, vm));
        GuestClock { shift, offset }
    }
}

impl StoredRequests {
    fn left_out(&mut self, records: u64) {
        if records > 0 {
            self.missing.push(Missing {
                what: "some events".to_owned(),
                why: format!(
                    "{records} records are longer than a page of the ring buffer, or of more CPUs than a trace has"
                ),
                fix: String::new(),
            });
        }
    }

    /// Returns true if the clock of QEMU's trace is that of the host's kernel; records how they are joined, or why
    /// not.
    fn joins(&mut self, host: &Surveyed, qemu: &Surveyed) -> bool {
        let (of_host, of_qemu) = (host.file.clock(), qemu.file.clock());
        let file = qemu.file.path.display().to_string();
        // Text does not tell its clock: the times must lie in each other.
        let spans = host.survey.span.zip(qemu.survey.span);
        let overlaps = spans.is_some_and(|(a, b)| a.0 <= b.1 && b.0 <= a.1);
        let joined = of_host == of_qemu || of_host.is_empty();
        if joined && overlaps {
            let method = match of_host {
                "" => format!(
                    "taken for the clock of {}, whose times overlap",
                    host.file.path.display()
                ),
                clock => format!("the same clock ({clock}) as {}", host.file.path.display()),
            };
            // QEMU's log has microseconds.
            let bound_ns =
                (of_host == of_qemu).then_some(if of_qemu == "realtime" { 1000.0 } else { 0.0 });
            self.clocks.push(JoinedClock {
                file,
                method,
                bound_ns,
            });
            return true;
        }
        let why = match joined {
            true => "their times do not overlap: they are of different runs or boots".to_owned(),
            false => format!("its clock is {of_host}, that of {file} is {of_qemu}"),
        };
        let fix = match of_qemu {
            "mono" => "record the host with `trace-cmd record -C mono`",
            _ => "use QEMU's simple trace backend and `trace-cmd record -C mono`",
        };
        self.missing.push(Missing {
            what: format!("events of {} among the requests", host.file.path.display()),
            why,
            fix: fix.to_owned(),
        });
        false
    }

    /// The guest's trace, and how its clock is joined.
    fn guest(
        &mut self,
        guest: &Surveyed,
        clock: GuestClock<'_>,
        has_host: bool,
        mhz: f64,
    ) -> GuestTrace {
        let GuestClock { shift, offset } = clock;
        let mut devices: Vec<(&u64, &u64)> = guest.survey.block_devices.iter().collect();
        devices.sort_by_key(|(_, requests)| std::cmp::Reverse(**requests));
        let disk = |(device, _): (&u64, &u64)| GuestDisk {
            device: *device,
            interrupts: guest.survey.disk_interrupts.iter().copied().collect(),
        };
        let disks = devices.into_iter().take(MAX_DISKS).map(disk).collect();
        let is_measured = shift.is_some_and(|shift| shift.measured);
        let is_joined = shift.is_some() || offset.is_some();
        let bound = shift
            .filter(|_| is_measured)
            .map_or(u64::from(is_joined), TimeShift::spread);
        let source = match (shift, offset) {
            (Some(_), _) if is_measured => {
                "trace-cmd's time synchronization (measured; the error is by how much its measurements differ)"
                    .to_owned()
            }
            (Some(_), _) => "trace-cmd's time synchronization (KVM's offset)".to_owned(),
            (_, Some(0)) => "the host's time stamp counter, which the guest reads as it is".to_owned(),
            (_, Some(_)) => "the host's time stamp counter and KVM's offset (kvm_write_tsc_offset)".to_owned(),
            _ if has_host => "cause and effect among the requests".to_owned(),
            _ => "the guest's events alone".to_owned(),
        };
        if is_joined {
            self.clocks.push(JoinedClock {
                file: guest.file.path.display().to_string(),
                method: source.clone(),
                bound_ns: Some(bound as f64 * 1000.0 / mhz),
            });
        }
        GuestTrace {
            disks,
            is_unknown_kernel: guest.side == TraceSide::Unknown,
            is_on_host_clock: is_joined || !has_host,
            bound,
            source,
        }
    }
}

/// Returns the time shift by which trace-cmd joined the guest's clock to that of this host.
fn time_shift<'a>(guest: &'a Surveyed, host: &Surveyed) -> Option<&'a TimeShift> {
    let id = host.file.dat()?.trace_id()?;
    let mut shifts = guest.file.dat()?.time_shifts().iter();
    shifts.find(|shift| shift.peer == id)
}

/// Returns the offset that turns the guest's ticks of the time stamp counter into the host's: minus KVM's offset where
/// the host's trace has it, or 0 for a guest that reads the counter as it is; the first by which the guest's events
/// lie within the host's.
fn shared_tsc(guest: &Surveyed, host: &Surveyed, vm: &VmFacts) -> Option<i64> {
    if !(guest.file.counts_tsc() && host.file.counts_tsc()) {
        return None;
    }
    let (first, last) = host.survey.span?;
    let (begin, end) = guest.survey.span?;
    let of_vm = |(tid, _): &(&i32, &i64)| vm.threads.iter().any(|thread| thread.tid == **tid);
    let kvms = host.survey.tsc_offsets.iter().filter(of_vm);
    let mut offsets = kvms.map(|(_, offset)| offset.wrapping_neg()).chain([0]);
    offsets.find(|offset| {
        let begin = begin.checked_add_signed(*offset);
        let end = end.checked_add_signed(*offset);
        begin.is_some_and(|begin| first <= begin) && end.is_some_and(|end| end <= last)
    })
}

/// Ticks of one rate as those of another.
fn scaled(from: f64, to: f64) -> Box<dyn Fn(u32, u64) -> u64> {
    if (from - to).abs() < f64::EPSILON * to {
        return Box::new(|_, ticks| ticks);
    }
    let ratio = to / from;
    Box::new(move |_, ticks| (ticks as f64 * ratio) as u64)
}
