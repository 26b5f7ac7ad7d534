use std::io;

/// What to do where a limit of the process or the disk is reached, as the end of a sentence; empty for other errors.
pub fn limit_remedy(error: &io::Error) -> &'static str {
    // By Linux' numbers: not all have an `ErrorKind`.
    match error.raw_os_error() {
        // EMFILE
        Some(24) => "; allow more open files: ulimit -n 4096",
        // EFBIG
        Some(27) => "; allow larger files: ulimit -f unlimited",
        // ENOSPC, EDQUOT
        Some(28 | 122) => "; free space there, or name a folder on another disk with --dir",
        _ => "",
    }
}
