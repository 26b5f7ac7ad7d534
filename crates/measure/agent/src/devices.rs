//! Devices: waited for, since they appear a moment after their drivers, and found.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const APPEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// What `find` finds, as soon as it finds it; `None` after some seconds.
pub(crate) fn wait_for<T>(find: impl Fn() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + APPEAR_TIMEOUT;
    loop {
        let found = find();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The block device whose serial number is `serial`.
pub(crate) fn disk_with_serial(serial: &str) -> Option<PathBuf> {
    let disks = fs::read_dir("/sys/block").ok()?.flatten();
    disks
        .into_iter()
        .find(|d| fs::read_to_string(d.path().join("serial")).is_ok_and(|s| s.trim_end() == serial))
        .map(|d| Path::new("/dev").join(d.file_name()))
}
