//! The files that a process runs from, found through its own root, in whatever mount namespace it lives.

use crate::elf::Elf;
use crate::maps::Mapping;
use object::ReadCache;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The kernel's own library in each process is smaller.
const LARGEST_VDSO: u64 = 1 << 20;

/// Reads a file's tables without keeping the file.
pub fn read(path: &Path) -> Result<Elf, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    Elf::read(&ReadCache::new(file))
}

/// The program or library behind a mapping.
///
/// # Errors
/// Why its functions cannot be told, with what to do.
pub fn of_mapping(pid: i32, mapping: &Mapping, base: Option<&Mapping>) -> Result<Elf, String> {
    if mapping.path.starts_with('[') {
        return from_memory(pid, mapping);
    }
    // By its address the very file can be opened, also a deleted one; only root may.
    let by_address = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
    if let Ok(elf) = read(&by_address) {
        return Ok(elf);
    }
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    if exe.metadata().is_ok_and(|m| m.ino() == mapping.inode) {
        return read(&exe);
    }
    if mapping.deleted {
        return Err(
            "it was deleted or replaced since the process started: run vmtax as root, or restart the process".into()
        );
    }
    let below_root = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
    let elf = read(&below_root).map_err(|e| format!("{}: {e}", below_root.display()))?;
    let running = base.and_then(|base| from_memory(pid, base).ok()).map(|elf| elf.build_id).unwrap_or_default();
    if !running.is_empty() && running != elf.build_id {
        return Err("the file was replaced since the process started: restart the process".into());
    }
    Ok(elf)
}

/// What is loaded, as far as its first pages tell.
fn from_memory(pid: i32, mapping: &Mapping) -> Result<Elf, String> {
    let size = (mapping.end - mapping.start).min(LARGEST_VDSO) as usize;
    let mut bytes = vec![0; size];
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(|e| e.to_string())?;
    memory.read_exact_at(&mut bytes, mapping.start).map_err(|e| e.to_string())?;
    Elf::read(&bytes[..])
}

/// Where distributions and debuginfod keep what was stripped from the build with this id, the first that is there.
pub fn stripped_part(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = hex.split_at_checked(2)?;
    let packaged = |root: &Path| root.join(format!("usr/lib/debug/.build-id/{first}/{rest}.debug"));
    let cache = std::env::var_os("DEBUGINFOD_CACHE_PATH").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        cache.map(|cache| cache.join("debuginfod_client"))
    });
    let fetched = cache.map(|cache| cache.join(&hex).join("debuginfo"));
    let places = [Some(packaged(root)), Some(packaged(Path::new("/"))), fetched];
    places.into_iter().flatten().find(|path| path.is_file())
}
