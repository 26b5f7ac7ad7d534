//! `tree`: copies a tree out of the share, cold and warm, walks it as `git status` does, and reads it mapped.
//!
//! A pass of the copy reads each folder, stats each name, and copies each file below 1 MiB when it is met: open, fstat,
//! read, write, close. The larger files follow, by 1 MiB. The rates are of the small part (folders and stats included)
//! and of the large part. The bytes go into one file of the guest's own, over and over, so that what the copy is written
//! to weighs the same for any tree. *Cold* is the first pass, after the caches were emptied if `drop` says so; *warm* the
//! second. The walk stats each name by its path from the root in order, then reads each folder, as git with an index
//! does. For the mapped pass, over larger files where there are any, the caches are emptied again.

mod mapped;
mod pass;

use crate::clock::Clock;
use crate::descriptor::{Workload, workload};
use crate::error::WorkloadError;
use crate::outcome::Yield;
use crate::share::{DROP, drop_caches, error, root};
use pass::{LARGE, Latencies, Pass, TreeFiles, changed};
use std::path::Path;
use vmtax_model::{Latency, Metric, Places, Unsupported, WorkloadName};

workload! {
    Tree: "copying, walking and mmapping a directory tree on a share";
    drop: bool = DROP;
}

const MEBIBYTE: f64 = (1 << 20) as f64;
/// So much is read mapped: 4096 pages tell their time, and an uncached 9p gives 10 MiB/s under TCG.
const MAPPED: u64 = 16 << 20;

impl Workload for Tree {
    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let root = root(WorkloadName::Tree, places)?;
        let temporary = std::env::temp_dir();
        let target = places.files.as_deref().unwrap_or(&temporary);
        let mut got = Yield::default();
        drop_caches(self.drop)?;
        let began = clock.start();
        let (cold, tree) = Pass::copy(root, target, clock)?;
        report(
            &mut got,
            cold,
            "cold",
            [Metric::TreeSmallCold, Metric::TreeLargeCold],
        );
        let (warm, again) = Pass::copy(root, target, clock)?;
        if tree != again {
            return Err(changed(root));
        }
        report(
            &mut got,
            warm,
            "warm",
            [Metric::TreeSmallWarm, Metric::TreeLargeWarm],
        );
        walk(root, &tree, clock, &mut got)?;
        drop_caches(self.drop)?;
        map(root, &tree, clock, &mut got)?;
        got.total_s = clock.ns(began, clock.stop()) as f64 / 1e9;
        Ok(got)
    }
}

fn report(got: &mut Yield, pass: Pass, name: &str, [small, large]: [Metric; 2]) {
    if pass.small.files > 0 {
        got.measure(small, pass.small.files as f64 / seconds(pass.small.ns));
    }
    if pass.large.bytes > 0 {
        got.measure(
            large,
            pass.large.bytes as f64 / MEBIBYTE / seconds(pass.large.ns),
        );
    }
    for (kind, latency) in pass.latencies.named() {
        operation(got, &format!("{kind}-{name}"), latency);
    }
}

fn operation(got: &mut Yield, name: &str, latency: Latency) {
    if latency.count() > 0 {
        got.operation(name, latency);
    }
}

fn seconds(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e9
}

/// Every name by its path from the root, in order, as git checks what its index lists; then every folder, as it looks
/// for what is new.
fn walk(
    root: &Path,
    tree: &TreeFiles,
    clock: &Clock,
    got: &mut Yield,
) -> Result<(), WorkloadError> {
    let mut latencies = Latencies::default();
    let began = clock.start();
    for (path, _) in &tree.files {
        clock
            .time(&mut latencies.lstat, || rustix::fs::lstat(path))
            .map_err(|e| error("stat", path, e))?;
    }
    for folder in &tree.folders {
        pass::entries(folder, clock, &mut latencies, |_| ())?;
    }
    let ns = clock.ns(began, clock.stop());
    if tree.files.is_empty() {
        return Err(WorkloadError::Unreadable {
            path: root.to_owned(),
            why: "has no file: give a tree with files, or see that the share is mounted".to_owned(),
        });
    }
    got.measure(Metric::TreeWalk, tree.files.len() as f64 / seconds(ns));
    for (kind, latency) in latencies.named() {
        operation(got, &format!("{kind}-walk"), latency);
    }
    Ok(())
}

fn map(root: &Path, tree: &TreeFiles, clock: &Clock, got: &mut Yield) -> Result<(), WorkloadError> {
    let (mut pages, mut bytes) = (Latency::new(), 0);
    let has_large = tree.files.iter().any(|(_, length)| *length >= LARGE);
    let began = clock.start();
    // Of a small file the figure would be that of opening it.
    for (path, length) in tree
        .files
        .iter()
        .filter(|(_, length)| *length >= LARGE || !has_large)
    {
        let part = (*length).min(MAPPED - bytes);
        match mapped::read(path, *length, part, clock, &mut pages) {
            Ok(true) => bytes += part,
            Ok(false) => return Err(changed(root)),
            // Some ways to share cannot map: that is for the figures to say, and the rest goes on.
            Err(e)
                if e.raw_os_error() == Some(libc::ENODEV)
                    || e.raw_os_error() == Some(libc::EINVAL) =>
            {
                let reason = format!("mmap: {e}");
                got.unsupported.push(Unsupported {
                    metric: Metric::TreeMmap,
                    reason,
                });
                return Ok(());
            }
            Err(e) => return Err(error("map", path, e)),
        }
        if bytes == MAPPED {
            break;
        }
    }
    let ns = clock.ns(began, clock.stop());
    if bytes > 0 {
        got.measure(Metric::TreeMmap, bytes as f64 / MEBIBYTE / seconds(ns));
        got.operation("page-mmap", pages);
    }
    Ok(())
}
