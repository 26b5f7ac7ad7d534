//! Writes the events of files of other tools as one trace, as vmtax's own tracer leaves it.

use crate::error::ImportError;
use crate::qemu_records::QemuRecords;
use crate::source::SourceFile;
use std::collections::BTreeSet;
use vmtax_model::IMPORTED_CLOCK;
use vmtax_recording::{RecordingError, TrialFiles};
use vmtax_trace::{Entry, EventId, FolderWriter, Formats, KernelDecoder};

/// Bytes of one side's trace that are kept.
const MAX_BYTES: u64 = 1 << 30;

/// A file whose events go into a trace.
pub(crate) struct FolderInput<'a> {
    pub file: &'a SourceFile,
    /// From its CPU and ticks to the trace's ticks.
    pub ticks: Box<dyn Fn(u32, u64) -> u64 + 'a>,
}

/// Result of writing a trace.
pub(crate) struct WrittenFolder {
    /// The trace was longer than what is kept.
    pub is_full: bool,
    /// Records that could not be kept.
    pub left_out: u64,
}

/// Writes the events that analyses read of a kernel's file, and those of QEMU's files, into a folder of the trial.
pub(crate) fn write(
    name: &str,
    kernel: Option<&FolderInput<'_>>,
    qemu: &[FolderInput<'_>],
    trial: &mut TrialFiles,
) -> Result<WrittenFolder, ImportError> {
    let mut keep = |file: &str, content: &[u8]| trial.append(&format!("{name}/{file}"), content);
    let mut formats = kernel.map_or_else(Formats::default, |input| input.file.formats().clone());
    let mut records = if qemu.is_empty() {
        QemuRecords::default()
    } else {
        QemuRecords::new(&mut formats)
    };
    let mut writer = FolderWriter::default();
    let (mut used, mut is_full) = (BTreeSet::new(), false);
    let mut kept = 0_u64;
    if let Some(FolderInput { file, ticks }) = kernel {
        let decoder = KernelDecoder::new(file.formats());
        let mut events = file.events()?;
        while let Some(entry) = events.next()? {
            match entry {
                Entry::Event(event) if decoder.decode(&event).is_some() => {
                    kept += event.data.len() as u64 + 8;
                    if kept > MAX_BYTES {
                        is_full = true;
                        break;
                    }
                    used.insert(event.id);
                    writer.event(
                        event.input,
                        event.cpu,
                        ticks(event.cpu, event.ticks),
                        event.data,
                        &mut keep,
                    )?;
                }
                Entry::Event(_) => {}
                Entry::Lost(lost) => {
                    writer.lost(lost.input, lost.cpu, lost.events.unwrap_or(1), &mut keep)?;
                }
            }
        }
    }
    for (n, FolderInput { file, ticks }) in (FIRST_QEMU..).zip(qemu) {
        let mut events = file.events()?;
        let mut record = Vec::new();
        while let Some(entry) = events.next()? {
            match entry {
                Entry::Event(event) => {
                    let Some(id) = records.record(file.formats(), &event, &mut record) else {
                        continue;
                    };
                    kept += record.len() as u64 + 8;
                    if kept > MAX_BYTES {
                        is_full = true;
                        break;
                    }
                    used.insert(id);
                    writer.event(n, 0, ticks(0, event.ticks), &record, &mut keep)?;
                }
                Entry::Lost(lost) => writer.lost(n, 0, lost.events.unwrap_or(1), &mut keep)?,
            }
        }
    }
    let used: Vec<EventId> = used.into_iter().collect();
    writer.head::<RecordingError>(&formats, &used, IMPORTED_CLOCK, &mut keep)?;
    let left_out = writer.finish(&mut keep)?;
    Ok(WrittenFolder { is_full, left_out })
}

/// Instances of QEMU's files are numbered from here, beyond the inputs of any kernel.
const FIRST_QEMU: u32 = 1 << 20;
