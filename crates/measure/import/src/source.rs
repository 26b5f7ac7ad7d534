//! A file of another tool, whatever its format.

use crate::error::ImportError;
use linux_perf_event_reader::{EventRecord, RecordType};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use vmtax_trace::{
    Dat, Events, Formats, MAX_THREADS, Perf, PerfRecords, QemuEvents, TraceError, TraceText,
    TracedGuest, TracedThreads, foreign_kvm,
};

/// A file without a NUL in so many bytes is a text.
const TEXT: usize = 4096;
/// Of a file, to recognize its format.
const HEAD: u64 = 65536;
const DAT: &[u8] = b"\x17\x08\x44tracing";
const PERF: [&[u8]; 2] = [b"PERFILE2", b"2ELIFREP"];
const SIMPLE: [u8; 16] = *b"\xff\xff\xff\xff\xff\xff\xff\xff\xb4\x29\xa4\x0a\xcb\x77\xb1\xf2";

/// An opened file.
pub(crate) struct SourceFile {
    pub path: PathBuf,
    pub trace: SourceTrace,
}

/// Content of a file, by format.
pub(crate) enum SourceTrace {
    Dat(Dat),
    Perf(Perf, TracedThreads),
    Text(TraceText),
    QemuLog(QemuEvents),
    QemuSimple(QemuEvents),
}

impl SourceFile {
    /// Opens a file by what it begins with.
    pub fn open(path: &Path) -> Result<SourceFile, ImportError> {
        let head = head(path)?;
        let trace = if head.starts_with(DAT) {
            SourceTrace::Dat(Dat::open(path)?)
        } else if PERF.iter().any(|magic| head.starts_with(magic)) {
            SourceTrace::Perf(Perf::open(path)?, perf_threads(path)?)
        } else if head.starts_with(&SIMPLE) {
            SourceTrace::QemuSimple(QemuEvents::block_requests())
        } else if is_qemu_log_without_times(&head) {
            return Err(ImportError::NoTimes {
                path: path.to_owned(),
            });
        } else if is_qemu_log(&head) {
            SourceTrace::QemuLog(QemuEvents::block_requests())
        } else if !head.is_empty() && !head[..head.len().min(TEXT)].contains(&0) {
            SourceTrace::Text(TraceText::open(path)?)
        } else {
            return Err(ImportError::Format {
                path: path.to_owned(),
            });
        };
        let file = SourceFile {
            path: path.to_owned(),
            trace,
        };
        match file.foreign_kvm() {
            Some(architecture) => Err(ImportError::Architecture {
                path: file.path,
                architecture,
            }),
            None => Ok(file),
        }
    }

    /// Returns the architecture of the file's KVM if it is not x86-64.
    fn foreign_kvm(&self) -> Option<&'static str> {
        match &self.trace {
            SourceTrace::Text(text) => text.foreign_kvm(),
            SourceTrace::Dat(_) | SourceTrace::Perf(..) => foreign_kvm(self.formats()),
            SourceTrace::QemuLog(_) | SourceTrace::QemuSimple(_) => None,
        }
    }

    /// Returns true if the file is text of a kernel's trace.
    pub fn is_text(&self) -> bool {
        matches!(self.trace, SourceTrace::Text(_))
    }

    /// Returns the name of the file's format, for people.
    pub fn format(&self) -> &'static str {
        match &self.trace {
            SourceTrace::Dat(_) => "trace.dat",
            SourceTrace::Perf(..) => "perf.data",
            SourceTrace::Text(_) => "ftrace text",
            SourceTrace::QemuLog(_) => "QEMU log",
            SourceTrace::QemuSimple(_) => "QEMU simple trace",
        }
    }

    /// Returns true if QEMU wrote the file.
    pub fn is_of_qemu(&self) -> bool {
        matches!(
            self.trace,
            SourceTrace::QemuLog(_) | SourceTrace::QemuSimple(_)
        )
    }

    /// The clock of its events, as the kernel's trace clocks are called; empty where the file does not say.
    pub fn clock(&self) -> &str {
        match &self.trace {
            SourceTrace::Dat(dat) => dat.clock(),
            SourceTrace::Perf(perf, _) => perf.clock(),
            SourceTrace::Text(_) => "",
            SourceTrace::QemuLog(_) => "realtime",
            SourceTrace::QemuSimple(_) => "mono",
        }
    }

    /// Ticks of its clock in a microsecond; `tsc_mhz` is the user's word for a clock that counts ticks.
    pub fn mhz(&self, tsc_mhz: Option<f64>) -> Result<f64, ImportError> {
        let unknown = |clock: &str| ImportError::Scale {
            path: self.path.clone(),
            clock: clock.to_owned(),
        };
        match &self.trace {
            SourceTrace::Dat(dat) => match dat.clock() {
                "counter" | "uptime" => Err(unknown(dat.clock())),
                clock if clock.contains("tsc") => {
                    let mhz = dat.tsc_scale().map(vmtax_trace::TscScale::mhz).or(tsc_mhz);
                    mhz.filter(|mhz| (1.0..=1e6).contains(mhz))
                        .ok_or_else(|| unknown(clock))
                }
                _ => Ok(NANOSECONDS),
            },
            SourceTrace::Text(text) if text.has_ticks() => {
                tsc_mhz.ok_or_else(|| unknown("of numbers without a point"))
            }
            _ => Ok(NANOSECONDS),
        }
    }

    /// Returns true if the file's times are ticks of the time stamp counter.
    pub fn counts_tsc(&self) -> bool {
        match &self.trace {
            SourceTrace::Dat(dat) => dat.clock().contains("tsc"),
            SourceTrace::Text(text) => text.has_ticks(),
            _ => false,
        }
    }

    pub fn formats(&self) -> &Formats {
        match &self.trace {
            SourceTrace::Dat(dat) => dat.formats(),
            SourceTrace::Perf(perf, _) => perf.formats(),
            SourceTrace::Text(text) => text.formats(),
            SourceTrace::QemuLog(qemu) | SourceTrace::QemuSimple(qemu) => qemu.formats(),
        }
    }

    pub fn events(&self) -> Result<Events<'_>, TraceError> {
        match &self.trace {
            SourceTrace::Dat(dat) => dat.events(),
            SourceTrace::Perf(perf, _) => perf.events(),
            SourceTrace::Text(text) => text.events(),
            SourceTrace::QemuLog(qemu) => qemu.log(&self.path),
            SourceTrace::QemuSimple(qemu) => qemu.simple(&self.path),
        }
    }

    /// The threads that it names.
    pub fn threads(&self) -> Option<&TracedThreads> {
        match &self.trace {
            SourceTrace::Dat(dat) => Some(dat.threads()),
            SourceTrace::Perf(_, threads) => Some(threads),
            SourceTrace::Text(text) => Some(text.threads()),
            SourceTrace::QemuLog(_) | SourceTrace::QemuSimple(_) => None,
        }
    }

    /// The guests that trace-cmd traced together with this file.
    pub fn guests(&self) -> impl Iterator<Item = &TracedGuest> {
        self.dat().into_iter().flat_map(Dat::guests)
    }

    /// Returns the metadata of trace-cmd's tracing session; `None` for a file of another format.
    pub fn dat(&self) -> Option<&Dat> {
        match &self.trace {
            SourceTrace::Dat(dat) => Some(dat),
            _ => None,
        }
    }
}

/// Ticks of nanoseconds in a microsecond.
pub(crate) const NANOSECONDS: f64 = 1000.0;

fn head(path: &Path) -> Result<Vec<u8>, TraceError> {
    let unreadable = |source| TraceError::Read {
        path: path.to_owned(),
        source,
    };
    // Opening a pipe or device would hang.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(TraceError::Damaged {
            path: path.to_owned(),
            reason: "not a regular file".to_owned(),
        });
    }
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .map_err(unreadable)?;
    Ok(head)
}

/// A line as `4711@1700000000.000123:virtio_blk_handle_read vdev …`.
fn is_qemu_log(head: &[u8]) -> bool {
    String::from_utf8_lossy(head).lines().any(|line| {
        let stamped = line.split_once('@').and_then(|(thread, rest)| {
            let (time, _) = rest.split_once(':')?;
            Some((thread.parse::<i32>().ok()?, time.parse::<f64>().ok()?))
        });
        stamped.is_some()
    })
}

/// Returns true if lines are those of QEMU's log without their time: `virtio_blk_handle_read vdev 0x55d0 req …`. One with a time
/// has the thread and the time before the event's name, and a kernel's line its thread.
fn is_qemu_log_without_times(head: &[u8]) -> bool {
    let is_event = |line: &str| {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit() || b == b'/');
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        QEMU_SUBSYSTEMS.iter().any(|begin| name.starts_with(begin))
            && name.bytes().all(is_name)
            && arguments.contains("0x")
            // perf's lines may begin with such a name of a thread, and have its number then.
            && !arguments.trim_start().split(' ').next().is_some_and(is_number)
    };
    let text = String::from_utf8_lossy(head);
    text.lines().any(is_event) && !is_qemu_log(head)
}

/// Beginnings of the names of QEMU's events of disks and their devices.
const QEMU_SUBSYSTEMS: &[&str] = &[
    "virtio_",
    "virtqueue_",
    "blk_",
    "bdrv_",
    "paio_",
    "laio_",
    "luring_",
    "scsi_",
    "nvme_",
    "pci_nvme_",
    "ide_",
    "ahci_",
    "dma_",
    "qcow2_",
    "file_",
    "thread_pool_",
    "nbd_",
    "kvm_run_exit",
    "memory_region_ops_",
];

/// The threads that a `perf.data` names: each sample has its thread and process, and the kernel tells of names.
fn perf_threads(path: &Path) -> Result<TracedThreads, TraceError> {
    let mut threads = TracedThreads::new();
    PerfRecords::open(path, |_, record| {
        let named = matches!(record.record_type, RecordType::COMM).then(|| record.parse());
        let (process, tid, name) = match (named, record.common_data()) {
            (Some(Ok(EventRecord::Comm(comm))), _) => {
                let name = String::from_utf8_lossy(&comm.name.as_slice()).into_owned();
                (Some(comm.pid), Some(comm.tid), name)
            }
            (_, Ok(common)) => (common.pid, common.tid, String::new()),
            _ => return,
        };
        let (Some(process), Some(tid)) = (process, tid) else {
            return;
        };
        if threads.len() < MAX_THREADS || threads.contains_key(&tid) {
            let thread = threads.entry(tid).or_default();
            thread.process = Some(process);
            if !name.is_empty() {
                thread.name = name;
            }
        }
    })?;
    Ok(threads)
}
