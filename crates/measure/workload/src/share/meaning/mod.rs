//! `meaning`: what a share keeps of what files are and how they behave, each found by trying it.
//!
//! What a file *has* (owner, attributes, type, …) is set first and looked at afterwards, past this system's caches if
//! `drop` says so, by the same functions that [`look`] then uses on the host's side of the share. How files *behave*
//! (renamed or unlinked while open, locked, mapped) is tried in one go. The files stay in the share's folder
//! `scratch/vmtax-meaning` for the host to look at, until the next trial. With `linger` a process stays too, that holds
//! a lock and an unlinked file.

mod behaviour;
mod host;
mod linger;
mod properties;

use super::{DROP, READ_ONLY, drop_caches, error, is_read_only, own_folder};
use crate::options::{Kind, OptionInfo, Values};
use crate::{Places, WorkloadError, Yield};
pub use host::{Guest, look};
use std::io;
use std::path::Path;
use std::time::Instant;
use vmtax_model::{Keeping, Kept, WorkloadName};

pub(crate) const OPTIONS: &[OptionInfo] = &[
    DROP,
    OptionInfo {
        name: "linger",
        default: "0",
        help: "seconds for which a process stays that holds a lock and an unlinked file; 0: none",
        kind: Kind::Count { min: 0, max: 86_400 },
    },
];

/// What an attempt found. An error of the system is a refusal.
type Found = io::Result<(Keeping, String)>;

/// One thing that is tried.
struct Trial {
    what: &'static str,
    /// Makes what is looked at, in the folder given.
    set: fn(&Path) -> io::Result<()>,
    /// Looks at it.
    look: fn(&Path) -> Found,
}

/// Kept if so.
fn kept_if(kept: bool, detail: impl Into<String>) -> Found {
    Ok((if kept { Keeping::Kept } else { Keeping::Lost }, detail.into()))
}

fn told(what: &str, found: Found) -> Kept {
    let (keeping, detail) = found.unwrap_or_else(|e| (Keeping::Refused, e.to_string()));
    Kept { what: what.to_owned(), keeping, detail }
}

pub(crate) fn run(values: &Values, places: &Places) -> Result<Yield, WorkloadError> {
    if is_read_only(places) {
        let refused = Kept { what: "writing".to_owned(), keeping: Keeping::Refused, detail: READ_ONLY.to_owned() };
        return Ok(Yield { kept: vec![refused], ..Yield::default() });
    }
    let began = Instant::now();
    let folder = own_folder(WorkloadName::Meaning, places)?.keep();
    let set: Vec<io::Result<()>> = properties::ALL.iter().map(|t| (t.set)(&folder)).collect();
    drop_caches(values)?;
    let mut got = Yield::default();
    for (trial, set) in properties::ALL.iter().zip(set) {
        got.kept.push(told(trial.what, set.and_then(|()| (trial.look)(&folder))));
    }
    for (what, attempt) in behaviour::ALL {
        got.kept.push(told(what, attempt(&folder)));
    }
    let seconds = values.small("linger")?;
    if seconds > 0 {
        linger::start(&folder, seconds).map_err(|e| error("leave a process that holds files of", &folder, e))?;
    }
    got.total_s = began.elapsed().as_secs_f64();
    Ok(got)
}
