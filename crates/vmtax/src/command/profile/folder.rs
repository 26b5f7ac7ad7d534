//! The folder of a profile.

use crate::fault::Fault;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Folder(PathBuf);

impl Folder {
    /// The named one, or a new one below `profiles`, after what it is of. One that holds files already is refused: none is written over.
    pub fn create(named: Option<&Path>, of: &str) -> Result<Folder, Fault> {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let path = named.map_or_else(|| PathBuf::from(format!("profiles/{time}-{of}")), Path::to_path_buf);
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
