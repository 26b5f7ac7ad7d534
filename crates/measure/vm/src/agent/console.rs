//! A guest's console: kept whole in a file, its last lines at hand for errors.

use crate::MachineError;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A guest may talk without end; the host's disk has one.
const MAX_LOG: usize = 16 << 20;
const CUT: &[u8] = b"\n[vmtax: the console log exceeds 16 MiB; the rest was dropped]\n";
const TAIL_BYTES: usize = 8 * 1024;
const MAX_LINES: usize = 12;
const PANIC: &str = "Kernel panic";

#[derive(Debug)]
pub(crate) struct Console {
    path: PathBuf,
    file: File,
    written: usize,
    end: Vec<u8>,
}

impl Console {
    pub fn create(path: PathBuf) -> Result<Self, MachineError> {
        let file = File::create(&path).map_err(|e| MachineError::system(format!("creating {}", path.display()), e))?;
        Ok(Console { path, file, written: 0, end: Vec::new() })
    }

    pub fn push(&mut self, bytes: &[u8]) {
        // A full disk must not end a measurement; the tail is kept in memory.
        if self.written < MAX_LOG {
            let _ = self.file.write_all(bytes);
            self.written += bytes.len();
            if self.written >= MAX_LOG {
                let _ = self.file.write_all(CUT);
            }
        }
        self.end.extend_from_slice(bytes);
        let surplus = self.end.len().saturating_sub(TAIL_BYTES);
        self.end.drain(..surplus);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last lines, control characters taken out: a guest may send anything.
    pub fn tail(&self) -> String {
        printable_tail(&self.end)
    }

    pub fn has_panic(&self) -> bool {
        String::from_utf8_lossy(&self.end).contains(PANIC)
    }
}

/// The last lines of `bytes` as they may be shown on a terminal.
pub(crate) fn printable_tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|l| {
            l.chars().filter(|c| !c.is_control() && *c != char::REPLACEMENT_CHARACTER).take(200).collect::<String>()
        })
        .filter(|l| !l.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(MAX_LINES);
    // A panic's own line stands above a call trace that is longer than what is shown.
    let panic = lines[..from].iter().rfind(|l| l.contains(PANIC));
    let shown = panic.into_iter().chain(&lines[from..]);
    shown.map(|l| format!("  | {}", l.trim_end())).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_console_does_not_fill_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut console = Console::create(folder.path().join("log")).unwrap();
        for _ in 0..40 {
            console.push(&vec![b'x'; 1 << 20]);
        }
        console.push(b"\nthe end");
        let size = std::fs::metadata(console.path()).unwrap().len() as usize;
        assert!((MAX_LOG..MAX_LOG + (2 << 20)).contains(&size), "{size}");
        assert!(console.tail().contains("the end"));
    }

    #[test]
    fn the_tail_is_short_and_harmless() {
        let mut noisy: Vec<u8> = (0..100).flat_map(|i| format!("line {i}\r\n").into_bytes()).collect();
        noisy.extend_from_slice(b"\x1b[31mred\x07 \xff\xfe\n");
        let tail = printable_tail(&noisy);
        assert_eq!(tail.lines().count(), MAX_LINES);
        assert!(tail.contains("line 99") && !tail.contains("line 80\n"));
        assert!(tail.chars().all(|c| c == '\n' || !c.is_control()), "{tail:?}");
    }

    #[test]
    fn a_panics_own_line_is_shown_above_its_trace() {
        let trace: String = (0..40).map(|i| format!("function {i}\n")).collect();
        let tail = printable_tail(format!("Kernel panic - not syncing: no root\n{trace}").as_bytes());
        assert!(tail.starts_with("  | Kernel panic - not syncing: no root\n  | function 28"), "{tail}");
    }
}
