//! `fs-semantics`: what a share preserves of files and how they behave, each found by trying it.
//!
//! The properties that a file *has* (owner, attributes, type, …) are set first and checked afterwards, past this
//! system's caches if `drop` says so, by the same functions that [`check_from_host`] then uses on the host's side of
//! the share. The way in which files *behave* (renamed or unlinked while open, locked, mapped) is tried in one go. The
//! files stay in the share's folder `scratch/vmtax-fs-semantics` for the host to check, until the next trial. With
//! `linger` a process stays too, that holds a lock and an unlinked file.

mod behaviour;
mod host;
mod linger;
mod properties;

use crate::clock::Clock;
use crate::descriptor::{Room, Workload, workload};
use crate::error::WorkloadError;
use crate::options::{OptionInfo, count};
use crate::outcome::Yield;
use crate::share::{DROP, READ_ONLY, drop_caches, error, is_read_only, own_folder};
pub use host::{GuestState, check_from_host};
use properties::Found;
use std::io;
use std::time::Instant;
use vmtax_model::{Keeping, Kept, Places, WorkloadName, WorkloadSpec};

const LINGER: OptionInfo = count(
    "linger",
    "0",
    0..=86_400,
    "seconds for which a process stays that holds a lock and an unlinked file; 0: none",
);

workload! {
    FsSemantics: "which POSIX semantics and metadata a share preserves";
    drop: bool = DROP;
    linger: u32 = LINGER;
}

/// `fs-semantics`, after which a process stays for so many seconds that holds a lock and an unlinked file.
pub fn lingering(seconds: u32) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::FsSemantics).with(LINGER.name, seconds)
}

/// Returns true if the spec leaves a process behind.
fn lingers(spec: &WorkloadSpec) -> bool {
    spec.options
        .get(LINGER.name)
        .is_some_and(|seconds| seconds != "0")
}

fn kept(what: &str, found: Found) -> Kept {
    let (keeping, detail) = found.unwrap_or_else(|e| (Keeping::Refused, e.to_string()));
    Kept {
        what: what.to_owned(),
        keeping,
        detail,
    }
}

impl Workload for FsSemantics {
    fn room(&self, _: u64) -> Room {
        // Its files have a name and little else.
        Room {
            share_bytes: 1 << 20,
            share_files: 100,
            ..Room::default()
        }
    }

    fn run(&self, _: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        if is_read_only(places) {
            let refused = Kept {
                what: "writing".to_owned(),
                keeping: Keeping::Refused,
                detail: READ_ONLY.to_owned(),
            };
            return Ok(Yield {
                kept: vec![refused],
                ..Yield::default()
            });
        }
        let began = Instant::now();
        let folder = own_folder(WorkloadName::FsSemantics, places)?.keep();
        let set: Vec<io::Result<()>> = properties::ALL.iter().map(|t| (t.set)(&folder)).collect();
        drop_caches(self.drop)?;
        let mut got = Yield::default();
        for (property, set) in properties::ALL.iter().zip(set) {
            got.kept.push(kept(
                property.what,
                set.and_then(|()| (property.check)(&folder)),
            ));
        }
        for (what, attempt) in behaviour::ALL {
            got.kept.push(kept(what, attempt(&folder)));
        }
        if self.linger > 0 {
            linger::start(&folder, self.linger)
                .map_err(|e| error("leave a process that holds files of", &folder, e))?;
        }
        got.total_s = began.elapsed().as_secs_f64();
        Ok(got)
    }
}
