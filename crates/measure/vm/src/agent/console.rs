//! A guest's console: kept in a file, its last lines at hand for errors.

use crate::MachineError;
use crate::process::log::{BoundedLog, has_panic, printable_tail};
use std::path::{Path, PathBuf};

const TAIL_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct Console {
    path: PathBuf,
    log: BoundedLog,
    end: Vec<u8>,
}

impl Console {
    pub fn create(path: PathBuf) -> Result<Self, MachineError> {
        let log = BoundedLog::create(&path)?;
        Ok(Console {
            path,
            log,
            end: Vec::new(),
        })
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.log.push(bytes);
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
        has_panic(&self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_endless_console_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut console = Console::create(folder.path().join("log")).unwrap();
        for _ in 0..40 {
            console.push(&vec![b'x'; 1 << 20]);
        }
        console.push(b"\nKernel panic: the end");
        assert!(std::fs::metadata(console.path()).unwrap().len() < 17 << 20);
        assert!(console.tail().contains("the end") && console.has_panic());
    }
}
