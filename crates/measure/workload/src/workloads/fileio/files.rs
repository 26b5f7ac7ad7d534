//! `fileio`'s files: written, opened, removed.

use crate::buffer::Buffer;
use crate::{Clock, WorkloadError};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vmtax_model::{WorkloadName, WorkloadSpec};

/// Number and size of the files, and the size of their blocks, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub files: usize,
    pub file_bytes: u64,
    pub block_bytes: usize,
}

/// The files of a trial, open; removed when dropped.
pub(super) struct Files {
    directory: PathBuf,
    count: usize,
    pub open: Vec<File>,
}

/// A block's buffer.
pub(super) fn buffer(bytes: usize) -> Result<Buffer, WorkloadError> {
    Buffer::new(bytes as u64, WorkloadName::Fileio, WorkloadSpec::BLOCK_SIZE)
}

fn open_flags(words: &[&str]) -> i32 {
    words.iter().fold(0, |flags, word| {
        flags
            | match *word {
                "sync" => libc::O_SYNC,
                "dsync" => libc::O_DSYNC,
                "direct" => libc::O_DIRECT,
                _ => 0,
            }
    })
}

fn path(directory: &Path, file: usize) -> PathBuf {
    // sysbench's own names, so that one tool's leftovers are the other's to replace.
    directory.join(format!("test_file.{file}"))
}

fn file_error(action: &'static str, path: PathBuf, source: io::Error) -> WorkloadError {
    let fix = match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "give a smaller total-size, or a directory with more room"
        }
        Some(libc::EMFILE | libc::ENFILE) => "give a smaller num, or raise `ulimit -n`",
        Some(libc::EINVAL) => {
            "its filesystem may refuse extra-flags=direct: give another directory or extra-flags=none"
        }
        Some(libc::ENOENT | libc::ENOTDIR) => "make the directory first, or give another one",
        _ => "give a directory on a disk that works and may be written to",
    };
    WorkloadError::File {
        action,
        path,
        source,
        fix,
    }
}

impl Files {
    /// Writes new files (or none but their names, for a test that writes them itself) and opens them. Also gives the
    /// MiB/s of writing, syncs included.
    pub fn prepare(
        directory: &Path,
        layout: Layout,
        flags: &[&str],
        empty: bool,
        clock: &Clock,
    ) -> Result<(Files, Option<f64>), WorkloadError> {
        let mut files = Files {
            directory: directory.to_owned(),
            count: layout.files,
            open: Vec::new(),
        };
        for file in 0..layout.files {
            match fs::remove_file(path(directory, file)) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(files.error("remove", file, e));
                }
                _ => {}
            }
        }
        let flags = open_flags(flags);
        let mut buffer = buffer(layout.block_bytes)?;
        let began = clock.start();
        for file in 0..layout.files {
            let mut new = files.open(
                file,
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .custom_flags(flags),
            )?;
            let blocks = if empty { 0 } else { layout.file_bytes };
            for position in (0..blocks).step_by(layout.block_bytes) {
                buffer.stamp(file as u64 * layout.file_bytes + position);
                let bytes = (layout.file_bytes - position).min(layout.block_bytes as u64) as usize;
                new.write_all(&buffer.bytes()[..bytes])
                    .map_err(|e| files.error("write", file, e))?;
            }
            if !empty {
                new.sync_all().map_err(|e| files.error("sync", file, e))?;
            }
        }
        let seconds = clock.ns(began, clock.stop()) as f64 / 1e9;
        files.open = (0..layout.files)
            .map(|file| {
                files.open(
                    file,
                    OpenOptions::new()
                        .read(true)
                        .write(true)
                        .custom_flags(flags),
                )
            })
            .collect::<Result<_, _>>()?;
        let mebibytes = (layout.file_bytes * layout.files as u64) as f64 / (1 << 20) as f64;
        Ok((files, (!empty).then(|| mebibytes / seconds)))
    }

    fn open(&self, file: usize, how: &OpenOptions) -> Result<File, WorkloadError> {
        how.open(path(&self.directory, file))
            .map_err(|e| self.error("open", file, e))
    }

    /// The error of a call on a file.
    pub fn error(&self, action: &'static str, file: usize, source: io::Error) -> WorkloadError {
        file_error(action, path(&self.directory, file), source)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for file in 0..self.count {
            // One that is not there, or will not go, has been reported or is the next trial's to report.
            let _ = fs::remove_file(path(&self.directory, file));
        }
    }
}
