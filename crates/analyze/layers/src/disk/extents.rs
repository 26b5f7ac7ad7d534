//! Where on the host's device the disk's file lies.

use crate::events::event::Mark;
use vmtax_model::{Extent, HostDisk};

/// The disk's file on its device, by position on the device.
#[derive(Debug, Default)]
pub(crate) struct Extents(Vec<Extent>);

impl Extents {
    pub fn new(disk: &HostDisk) -> Self {
        let mut extents = disk.extents.clone();
        extents.sort_by_key(|e| e.device);
        Extents(extents)
    }

    /// A range of the device as ranges of the disk's file.
    pub fn in_file(&self, range: Mark) -> impl Iterator<Item = Mark> + '_ {
        let offset = range.offset.unwrap_or(0);
        let end = offset.saturating_add(range.bytes);
        let first = self
            .0
            .partition_point(|e| e.device.saturating_add(e.length) <= offset);
        self.0[first..]
            .iter()
            .take_while(move |e| e.device < end)
            .map(move |e| {
                let from = offset.max(e.device);
                let to = end.min(e.device.saturating_add(e.length));
                Mark::range(e.file.saturating_add(from - e.device), to - from)
            })
    }
}
