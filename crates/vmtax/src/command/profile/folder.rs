//! The folder of a profile.

use crate::fault::Fault;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Folder(PathBuf);

impl Folder {
    /// Whether [`Folder::create`] will do, told before the time is spent for which there would be no place: the folder is made,
    /// and taken away again.
    pub fn check(named: Option<&Path>) -> Result<(), Fault> {
        let path = path(named, "");
        let new: Vec<&Path> = path.ancestors().take_while(|part| !part.exists()).collect();
        let made = Folder::create(Some(&path), "");
        let writable = made.and_then(|_| {
            let refused =
                |e: Errno| Fault::file(format!("{}: name another folder with --out", path.display()), e.into());
            access(&path, Access::WRITE_OK | Access::EXEC_OK).map_err(refused)
        });
        new.iter().for_each(|part| drop(fs::remove_dir(part)));
        writable
    }

    /// The named one, or a new one below `profiles`, after what it is of. One that holds files already is refused: none is
    /// written over.
    pub fn create(named: Option<&Path>, of: &str) -> Result<Folder, Fault> {
        let path = path(named, of);
        if fs::read_dir(&path).is_ok_and(|mut files| files.next().is_some()) {
            return Err(Fault::Usage(format!("{} holds files already: name a new folder with --out", path.display())));
        }
        let made = fs::create_dir_all(&path);
        made.map_err(|e| Fault::file(format!("making the folder {}: name one with --out", path.display()), e))?;
        Ok(Folder(path))
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), Fault> {
        let path = self.0.join(name);
        fs::write(&path, content).map_err(|e| Fault::file(format!("writing {}", path.display()), e))
    }

    pub fn shown(&self) -> String {
        vmtax_report::printable(&self.0.display().to_string())
    }
}

fn path(named: Option<&Path>, of: &str) -> PathBuf {
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    named.map_or_else(|| PathBuf::from(format!("profiles/{time}-{of}")), Path::to_path_buf)
}
