//! One request at a time: `pread(2)` or `pwrite(2)`.

use super::open::OpenDisk;
use super::positions::Positions;
use super::work::BlockWork;
use crate::{Clock, WorkloadError};
use std::os::unix::fs::FileExt;

pub(super) fn run(
    work: &BlockWork,
    disk: &OpenDisk,
    clock: &Clock,
    mut note: impl FnMut(u64, u64, u64),
) -> Result<(u64, u64), WorkloadError> {
    let mut buffer = work.buffer()?;
    let mut positions = Positions::new(work, disk);
    let mut made = 0;
    let start = clock.start();
    let mut now = start;
    while work.goes_on(made, clock.ns(start, now)) {
        let position = positions.next();
        if work.write {
            buffer.stamp(position);
        }
        let began = clock.start();
        let moved = if work.write {
            disk.file.write_at(buffer.bytes(), position)
        } else {
            disk.file.read_at(buffer.bytes(), position)
        };
        now = clock.stop();
        note(began, now, position);
        disk.check(work, position, moved)?;
        made += 1;
    }
    Ok((start, now))
}
