//! The disk that requests go to.

use super::work::{BlockWork, SMALLEST};
use crate::WorkloadError;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// An open disk.
pub(super) struct OpenDisk {
    path: PathBuf,
    pub file: File,
    /// Bytes in whole blocks.
    pub end: u64,
}

impl OpenDisk {
    /// Opens the disk for direct requests and finds its size.
    pub fn open(path: &Path, work: &BlockWork) -> Result<OpenDisk, WorkloadError> {
        // Before it is opened: opening a FIFO would wait for a writer.
        let kind = path
            .metadata()
            .map_err(|e| failed("read the metadata of", path, e))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(unusable(
                path,
                "is neither a file nor a block device: give one with --disk",
            ));
        }
        let mut options = OpenOptions::new();
        // The kernel then refuses to overwrite a block device that is mounted.
        let alone = if work.write && kind.is_block_device() {
            libc::O_EXCL
        } else {
            0
        };
        options
            .read(!work.write)
            .write(work.write)
            .custom_flags(libc::O_DIRECT | alone);
        let mut file = options.open(path).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => unusable(
                path,
                "refuses direct I/O (O_DIRECT), as tmpfs and some overlays do: put the disk on ext4, xfs or btrfs",
            ),
            _ => failed("open", path, e),
        })?;
        // A block device's metadata say nothing of its size; its end does.
        let bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|e| failed("read the metadata of", path, e))?;
        if bytes < SMALLEST {
            return Err(unusable(
                path,
                format!("has {bytes} bytes: give a disk of at least {SMALLEST}"),
            ));
        }
        if kind.is_file() {
            // Also finds space that is reserved but not written, which reads as zeros without a disk.
            // SAFETY: lseek has no memory to be safe about.
            let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
            if (0..bytes as i64).contains(&hole) {
                return Err(unusable(
                    path,
                    format!(
                        "is sparse (a hole at byte {hole}), and holes are read without a disk: write it full first"
                    ),
                ));
            }
        }
        let blocks = bytes / work.block;
        if blocks < u64::from(work.depth) {
            let why = format!(
                "has {blocks} blocks of {}, fewer than depth={}: give a larger disk, or a smaller block-size or depth",
                work.block, work.depth
            );
            return Err(unusable(path, why));
        }
        Ok(OpenDisk {
            path: path.to_owned(),
            file,
            end: blocks * work.block,
        })
    }

    /// Returns an error unless a request moved its whole block.
    #[inline(always)]
    pub fn check(
        &self,
        work: &BlockWork,
        position: u64,
        moved: io::Result<usize>,
    ) -> Result<(), WorkloadError> {
        match moved {
            Ok(n) if n as u64 == work.block => Ok(()),
            other => Err(self.wrong(work, position, other)),
        }
    }

    #[cold]
    fn wrong(&self, work: &BlockWork, position: u64, moved: io::Result<usize>) -> WorkloadError {
        let (block, operation) = (work.block, work.operation());
        match moved {
            Ok(n) => unusable(
                &self.path,
                format!(
                    "did a {operation} of {n} of {block} bytes at {position}: it shrank; give a disk at rest"
                ),
            ),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => unusable(
                &self.path,
                format!(
                    "refuses direct {operation}s of {block} bytes: give a larger block-size, or a disk on ext4, xfs or btrfs"
                ),
            ),
            Err(e) => failed(operation, &self.path, e),
        }
    }
}

fn unusable(path: &Path, why: impl Into<String>) -> WorkloadError {
    WorkloadError::Unreadable {
        path: path.to_owned(),
        why: why.into(),
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> WorkloadError {
    let fix = match source.kind() {
        ErrorKind::NotFound => "give an existing block device or file with --disk",
        ErrorKind::PermissionDenied => "run as root, or give a file of your own with --disk",
        ErrorKind::ResourceBusy => {
            "it is in use, perhaps mounted: give a disk whose content nobody needs"
        }
        _ => "give another block device or file with --disk",
    };
    WorkloadError::File {
        action,
        path: path.to_owned(),
        source,
        fix,
    }
}
