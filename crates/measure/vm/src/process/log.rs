//! Logs of processes and consoles: bounded when written, read from their ends. A guest can print without end.

use crate::MachineError;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use vmtax_model::without_secrets;

/// The size of a log, bytes.
const MAX_LOG: usize = 16 << 20;
const CUT: &[u8] = b"\n[vmtax: this log exceeds 16 MiB; the rest was dropped]\n";
/// Number of bytes that are read of a log, from its end.
const MAX_TAIL: u64 = 64 << 10;
const MAX_LINES: usize = 12;
/// Length of the part that is shown of a longer line's beginning, characters.
const LINE_START: usize = 100;
const LINE_END: usize = 200;
const PANIC: &str = "Kernel panic";

/// A log that takes no more than 16 MiB of what is written to it.
#[derive(Debug)]
pub(crate) struct BoundedLog {
    file: File,
    written: usize,
}

impl BoundedLog {
    /// An empty file.
    pub fn create(path: &Path) -> Result<BoundedLog, MachineError> {
        let file = File::create(path)
            .map_err(|e| MachineError::system(format!("creating {}", path.display()), e))?;
        Ok(BoundedLog::new(file))
    }

    pub fn new(file: File) -> BoundedLog {
        BoundedLog { file, written: 0 }
    }

    /// A full disk must not end a measurement.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.written < MAX_LOG {
            let kept = &bytes[..bytes.len().min(MAX_LOG - self.written)];
            let _ = self.file.write_all(kept);
            self.written += kept.len();
            if self.written == MAX_LOG {
                let _ = self.file.write_all(CUT);
            }
        }
    }
}

/// The last lines of a log file, printable.
pub(crate) fn log_tail(path: &Path) -> String {
    printable_tail(&log_end(path))
}

/// The last 64 KiB of a log file; nothing where it cannot be read.
pub(crate) fn log_end(path: &Path) -> Vec<u8> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(MAX_TAIL);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        // It may grow meanwhile.
        file.take(MAX_TAIL).read_to_end(&mut end)?;
        Ok(end)
    };
    read().unwrap_or_default()
}

/// Returns true if these bytes contain the line of a kernel panic.
pub(crate) fn has_panic(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).contains(PANIC)
}

/// The last lines of `bytes` as they may be shown on a terminal.
pub(crate) fn printable_tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    // QEMU quotes options of its command line.
    let text = without_secrets(&text);
    let lines: Vec<String> = text
        .lines()
        .map(|l| {
            shortened(
                l.chars()
                    .filter(|c| !c.is_control() && *c != char::REPLACEMENT_CHARACTER)
                    .collect(),
            )
        })
        .filter(|l| !l.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(MAX_LINES);
    // A panic's own line stands above a call trace that is longer than what is shown.
    let panic = lines[..from].iter().rfind(|l| l.contains(PANIC));
    let shown = panic.into_iter().chain(&lines[from..]);
    shown
        .map(|l| format!("  | {}", l.trim_end()))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A line without its middle, where it is long: QEMU names an option first, and what is wrong with it last.
fn shortened(line: Vec<char>) -> String {
    match line.len().checked_sub(LINE_START + LINE_END) {
        None | Some(0) => line.into_iter().collect(),
        Some(more) => line[..LINE_START]
            .iter()
            .chain(&[' ', '…', ' '])
            .chain(&line[LINE_START + more..])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_keeps_its_reason() {
        let option = format!("qemu: -blockdev {{{}}}", "x".repeat(500));
        let tail =
            printable_tail(format!("{option}: aio=native requires cache.direct=on\n").as_bytes());
        assert!(
            tail.starts_with("  | qemu: -blockdev {xx")
                && tail.ends_with("x}: aio=native requires cache.direct=on"),
            "{tail}"
        );
        assert_eq!(tail.chars().count(), 4 + LINE_START + 3 + LINE_END);
        let whole = "y".repeat(LINE_START + LINE_END);
        assert_eq!(printable_tail(whole.as_bytes()), format!("  | {whole}"));
    }

    #[test]
    fn a_log_without_end_is_cut_and_only_its_end_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = BoundedLog::create(&path).unwrap();
        for _ in 0..40 {
            log.push(&vec![b'x'; (1 << 20) - 7]);
        }
        assert_eq!(
            std::fs::metadata(&path).unwrap().len() as usize,
            MAX_LOG + CUT.len()
        );
        let end = log_end(&path);
        assert!(end.len() as u64 == MAX_TAIL && end.ends_with(CUT));
        assert!(
            log_tail(&path).contains("exceeds 16 MiB")
                && log_tail(&folder.path().join("none")).is_empty()
        );
    }

    #[test]
    fn the_tail_is_short_and_harmless() {
        let mut noisy: Vec<u8> = (0..100)
            .flat_map(|i| format!("line {i}\r\n").into_bytes())
            .collect();
        noisy.extend_from_slice(b"\x1b[31mred\x07 \xff\xfe\n");
        let tail = printable_tail(&noisy);
        assert_eq!(tail.lines().count(), MAX_LINES);
        assert!(tail.contains("line 99") && !tail.contains("line 80\n"));
        assert!(
            tail.chars().all(|c| c == '\n' || !c.is_control()),
            "{tail:?}"
        );
    }

    #[test]
    fn a_panics_own_line_is_shown_above_its_trace() {
        let trace: String = (0..40).map(|i| format!("function {i}\n")).collect();
        let tail =
            printable_tail(format!("Kernel panic - not syncing: no root\n{trace}").as_bytes());
        assert!(
            tail.starts_with("  | Kernel panic - not syncing: no root\n  | function 28"),
            "{tail}"
        );
    }
}
