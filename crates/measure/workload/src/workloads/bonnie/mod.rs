//! `bonnie`: Bonnie++'s operations on one file by blocks, and on many small files.
//!
//! Reference: Bonnie++ 2.00 as `bonnie++ -f -s SIZE -n FILES/1024:FILE-SIZE`, without its bytes one at a time (`-f`), its
//! processes at once (`-c`) and its syncs after each call (`-b`). Blocks are of 8 KiB. Each part on the file ends with
//! fsync and close, which its rate includes; creating and deleting end with `sync(2)`. Bonnie++ waits three seconds
//! before the seeks, outside what it times; here nothing waits. It writes in the share's folder `scratch`.

mod operations;

use crate::descriptor::{Room, Workload, Yield, workload};
use crate::options::{count, size};
use crate::share::{NAME_BYTES, PAGE_BYTES, is_read_only, own_folder, read_only, root};
use crate::{Clock, WorkloadError};
use operations::{Done, File, Files, Order, Small, seek_randomly};
use vmtax_model::{Metric, Places, WorkloadName, WorkloadSpec};

workload! {
    Bonnie: "a large file and many small ones, like bonnie++ -f";
    size: u64 = size(
        "size", "64M", 0..=1 << 50, 1 << 20,
        "bytes of the file; 0: no file. A file that fits in memory is read from memory",
    );
    seeks: u32 = count(
        "seeks", "8192", 0..=1 << 20, "blocks read at random, one in ten of them written again; 0: none",
    );
    files: u64 = count(
        "files", "1024", 0..=1 << 24, "files created, read with stat and deleted in order, and again at random; 0: none",
    );
    file_size: u64 = size("file-size", "0", 0..=1 << 30, 1, "bytes of each");
}

/// `bonnie` with an eighth of its usual sizes, for shares on which a call takes milliseconds.
pub fn small_bonnie() -> WorkloadSpec {
    let sizes = [("size", "8M"), ("seeks", "1024"), ("files", "128")];
    sizes.iter().fold(
        WorkloadSpec::new(WorkloadName::Bonnie),
        |spec, (option, value)| spec.with(option, value),
    )
}

impl Workload for Bonnie {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        if self.size == 0 && self.files == 0 {
            let conflict = "size=0 and files=0 leave nothing to do: set one of them";
            return Err(WorkloadError::conflict(WorkloadName::Bonnie, conflict));
        }
        Ok(())
    }

    fn room(&self, _: u64) -> Room {
        let each = NAME_BYTES + self.file_size.next_multiple_of(PAGE_BYTES);
        let share_bytes = self.size.saturating_add(self.files.saturating_mul(each));
        Room {
            share_bytes,
            share_files: self.files + 3,
            ..Room::default()
        }
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        if is_read_only(places) {
            return Ok(read_only(WorkloadName::Bonnie));
        }
        let share = root(WorkloadName::Bonnie, places)?;
        let (size, files) = (self.size, self.files);
        let folder = own_folder(WorkloadName::Bonnie, places)?;
        let mut got = Yield::default();
        got.notes.extend(cached(size));
        got.notes.extend(room(share, size));
        let began = clock.start();
        if size > 0 {
            let file = File::new(folder.0.join("file"), size, clock)?;
            let mebibytes = size as f64 / (1 << 20) as f64;
            let mut rate = |metric, done: Done| add(&mut got, metric, mebibytes, done);
            rate(Metric::BonnieWrite, file.write()?);
            rate(Metric::BonnieRewrite, file.rewrite()?);
            rate(Metric::BonnieRead, file.read()?);
            if self.seeks > 0 {
                let done = seek_randomly(&file, self.seeks)?;
                add(&mut got, Metric::BonnieSeeks, self.seeks.into(), done);
            }
        }
        if files > 0 {
            let small = Small {
                folder: folder.0.join("files"),
                count: files,
                bytes: self.file_size,
            };
            let mut rate = |metric, done: Done| add(&mut got, metric, files as f64, done);
            let in_order = Files::create(&small, Order::InOrder, clock)?;
            rate(Metric::BonnieCreateSeq, in_order.created);
            rate(Metric::BonnieStatSeq, in_order.files.stat_in_order()?);
            rate(Metric::BonnieDeleteSeq, in_order.files.delete_in_order()?);
            let mut at_random = Files::create(&small, Order::AtRandom, clock)?;
            rate(Metric::BonnieCreateRandom, at_random.created);
            rate(Metric::BonnieStatRandom, at_random.files.stat_at_random()?);
            let deleted = at_random.files.delete_at_random()?;
            rate(Metric::BonnieDeleteRandom, deleted);
        }
        got.total_s = clock.ns(began, clock.stop()) as f64 / 1e9;
        Ok(got)
    }
}

/// The rate of so much, and each operation's latency, named as the metric says.
fn add(got: &mut Yield, metric: Metric, amount: f64, done: Done) {
    got.measure(metric, amount / done.seconds());
    if let Some(name) = metric.operation() {
        got.operation(name, done.latency);
    }
}

/// Returns a note if the file is smaller than twice the memory, which Bonnie++ refuses: reads may come from memory.
fn cached(size: u64) -> Option<String> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))?;
    let memory = kibibytes.parse::<u64>().ok()? << 10;
    (size > 0 && size < 2 * memory).then(|| {
        format!(
            "bonnie.size={} MiB is less than twice this system's memory ({} MiB): where the share is cached, reads are \
             answered from memory",
            size >> 20,
            memory >> 20
        )
    })
}

fn room(share: &std::path::Path, size: u64) -> Option<String> {
    let at = rustix::fs::statvfs(share).ok()?;
    let free = at.f_bavail.saturating_mul(at.f_frsize);
    (free < size).then(|| {
        format!(
            "the share reports {} MiB free, less than bonnie.size",
            free >> 20
        )
    })
}
