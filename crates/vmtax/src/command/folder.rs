//! The folder of a profile's recording.

use crate::fault::Fault;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::fs;
use std::path::Path;
use vmtax_model::{HostFacts, Plan};
use vmtax_recording::Writer;

/// Where a recording is made: in a named folder, or in a new one among the others.
pub struct Folder<'a> {
    /// The others.
    pub runs: &'a Path,
    /// The named one, which has to be new or empty.
    pub named: Option<&'a Path>,
}

impl Folder<'_> {
    /// Whether the named folder will do, told before the time is spent for which there would be no place: it is made, and
    /// taken away again.
    pub fn check(named: Option<&Path>) -> Result<(), Fault> {
        let Some(path) = named else { return Ok(()) };
        let new: Vec<&Path> = path.ancestors().take_while(|part| !part.exists()).collect();
        let made = fs::create_dir_all(path);
        let made =
            made.map_err(|e| Fault::file(format!("making the folder {}: name one with --out", path.display()), e));
        let usable = made.and_then(|()| match fs::read_dir(path).is_ok_and(|mut files| files.next().is_some()) {
            true => Err(Fault::Usage(format!("{} holds files already: name a new folder with --out", path.display()))),
            false => {
                let refused =
                    |e: Errno| Fault::file(format!("{}: name another folder with --out", path.display()), e.into());
                access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(refused)
            }
        });
        new.iter().for_each(|part| drop(fs::remove_dir(part)));
        usable
    }

    /// Begins a recording there.
    pub fn begin(&self, plan: &Plan, host: &HostFacts) -> Result<Writer, Fault> {
        let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let version = env!("CARGO_PKG_VERSION");
        Ok(match self.named {
            Some(folder) => Writer::create_at(folder, plan, host, &command, version)?,
            None => Writer::create(self.runs, plan, host, &command, version)?,
        })
    }
}
