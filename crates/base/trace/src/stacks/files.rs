//! The files that a process runs from: through its own root, in whatever mount namespace it lives; or, of a recorded one, by
//! their build-ids. And its memory mappings.

use super::elf::Elf;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The kernel's own library in each process is smaller.
const MAX_VDSO: u64 = 1 << 20;
const VDSO: &str = "[vdso]";
/// Message for a file here that is another than the recorded one.
const OTHER_BUILD: &str = "the file here is another build than the recorded one: import it on the host it was recorded on";

/// Where the files of an address space are.
#[derive(Debug)]
pub enum FileSource {
    /// A process that runs.
    Process(i32),
    /// Files of this machine, of processes that may have ended.
    LocalFiles(Rc<LocalFiles>),
    /// Build-ids by path, from a recording.
    Recorded(HashMap<String, Vec<u8>>),
}

impl FileSource {
    /// The file system that the files are on.
    fn root(&self) -> PathBuf {
        match self {
            FileSource::Process(pid) => PathBuf::from(format!("/proc/{pid}/root")),
            FileSource::LocalFiles(here) => here.roots.last().cloned().unwrap_or_default(),
            FileSource::Recorded(_) => PathBuf::from("/"),
        }
    }

    /// Returns what is mapped by /proc/PID/maps; nothing for a recording, whose records have the mappings.
    pub fn mappings(&self) -> Vec<Mapping> {
        let FileSource::Process(pid) = self else {
            return Vec::new();
        };
        parse_maps(&std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default())
    }

    /// The program or library behind a mapping; `base` is that of the file's first page.
    ///
    /// # Errors
    /// Why its functions cannot be named, with what to do.
    pub fn elf(&self, mapping: &Mapping, base: Option<&Mapping>) -> Result<Rc<Elf>, String> {
        match self {
            FileSource::Process(pid) => of_process(*pid, mapping, base).map(Rc::new),
            FileSource::LocalFiles(here) => here.elf(mapping),
            FileSource::Recorded(build_ids) => {
                recorded(mapping, build_ids.get(&mapping.path).map(Vec::as_slice)).map(Rc::new)
            }
        }
    }

    /// Returns the part of a program that was stripped, from a package or debuginfod; `None` where the program has its
    /// names itself, or no such part is here.
    pub fn stripped(&self, elf: &Elf) -> Option<Rc<Elf>> {
        if elf.unstripped || elf.build_id.is_empty() {
            return None;
        }
        let part = || {
            let path = stripped_part(&self.root(), &elf.build_id)?;
            Elf::open(&path).ok().map(Rc::new)
        };
        match self {
            FileSource::LocalFiles(here) => here
                .stripped
                .borrow_mut()
                .entry(elf.build_id.clone())
                .or_insert_with(part)
                .clone(),
            FileSource::Process(_) | FileSource::Recorded(_) => part(),
        }
    }
}

fn of_process(pid: i32, mapping: &Mapping, base: Option<&Mapping>) -> Result<Elf, String> {
    if mapping.path.starts_with('[') {
        return from_memory(pid, mapping);
    }
    // By its address the very file can be opened, also a deleted one; only root may.
    let by_address = PathBuf::from(format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    ));
    if let Ok(elf) = Elf::open(&by_address) {
        return Ok(elf);
    }
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    if exe.metadata().is_ok_and(|m| m.ino() == mapping.inode) {
        return Elf::open(&exe);
    }
    if mapping.deleted {
        return Err(
            "the file was deleted or replaced since the process started: run vmtax as root, or restart the process"
                .into(),
        );
    }
    let below_root = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
    let elf = Elf::open(&below_root).map_err(|e| format!("{}: {e}", below_root.display()))?;
    let running = base
        .and_then(|base| from_memory(pid, base).ok())
        .map(|elf| elf.build_id)
        .unwrap_or_default();
    if !running.is_empty() && running != elf.build_id {
        return Err("the file was replaced since the process started: restart the process".into());
    }
    Ok(elf)
}

/// A program's tables, or why they cannot be read.
type Shared = Result<Rc<Elf>, String>;

/// Files of this machine by what processes mapped, below the roots that processes have here; each is read once.
#[derive(Debug)]
pub struct LocalFiles {
    roots: Vec<PathBuf>,
    /// By path and inode number; or why not.
    read: RefCell<HashMap<(String, u64), Shared>>,
    /// Debug files with what was stripped from programs, by build-id; `None` where there is none.
    stripped: RefCell<HashMap<Vec<u8>, Option<Rc<Elf>>>>,
}

impl LocalFiles {
    /// Below `/`, and below other roots, the usual last.
    pub fn new(others: &[PathBuf]) -> LocalFiles {
        let roots = std::iter::once(PathBuf::from("/"))
            .chain(others.iter().cloned())
            .collect();
        LocalFiles {
            roots,
            read: RefCell::default(),
            stripped: RefCell::default(),
        }
    }

    fn elf(&self, mapping: &Mapping) -> Result<Rc<Elf>, String> {
        let key = (mapping.path.clone(), mapping.inode);
        if let Some(known) = self.read.borrow().get(&key) {
            return known.clone();
        }
        let elf = if mapping.path == VDSO {
            own_vdso()
        } else {
            self.file(mapping)
        }
        .map(Rc::new);
        self.read.borrow_mut().insert(key, elf.clone());
        elf
    }

    /// The very file that was mapped; where a root is of layers, whose numbers are not those below, what is in its place.
    fn file(&self, mapping: &Mapping) -> Result<Elf, String> {
        let below = |root: &PathBuf| root.join(mapping.path.trim_start_matches('/'));
        let same = |path: &PathBuf| path.metadata().is_ok_and(|m| m.ino() == mapping.inode);
        let other = || {
            self.roots
                .iter()
                .skip(1)
                .map(below)
                .find(|path| path.is_file())
        };
        let path = self.roots.iter().map(below).find(same).or_else(other);
        Elf::open(&path.ok_or("the file was deleted or replaced since it was mapped")?)
    }
}

/// Reads the vDSO that the kernel maps into each process.
fn own_vdso() -> Result<Elf, String> {
    let pid = std::process::id() as i32;
    let mut maps = FileSource::Process(pid).mappings().into_iter();
    let own = maps
        .find(|m| m.path == VDSO)
        .ok_or("this process has no vDSO")?;
    from_memory(pid, &own)
}

/// The file that was recorded: by its path, from perf's own cache or debuginfod's.
fn recorded(mapping: &Mapping, build_id: Option<&[u8]>) -> Result<Elf, String> {
    if mapping.path == VDSO {
        let elf = own_vdso()?;
        return if build_id == Some(&elf.build_id) {
            Ok(elf)
        } else {
            Err(OTHER_BUILD.to_owned())
        };
    }
    let path = Path::new(&mapping.path);
    let found = if mapping.path.starts_with('/') {
        Elf::open(path)
    } else {
        Err("not a file".to_owned())
    };
    let Some(build_id) = build_id.filter(|id| !id.is_empty()) else {
        // A recording without build-ids (perf record -B): only the very file counts.
        let same = path.metadata().is_ok_and(|m| m.ino() == mapping.inode);
        return if same {
            found
        } else {
            found.and(Err(OTHER_BUILD.to_owned()))
        };
    };
    if found.as_ref().is_ok_and(|elf| elf.build_id == build_id) {
        return found;
    }
    let hex = hex(build_id);
    let kept = hex.split_at_checked(2).zip(std::env::var_os("HOME"));
    let kept = kept.map(|((first, rest), home)| {
        Path::new(&home).join(format!(".debug/.build-id/{first}/{rest}/elf"))
    });
    let fetched = debuginfod(&hex).map(|folder| folder.join("executable"));
    let elsewhere = kept
        .into_iter()
        .chain(fetched)
        .find_map(|path| Elf::open(&path).ok().filter(|e| e.build_id == build_id));
    elsewhere.ok_or_else(|| found.err().unwrap_or_else(|| OTHER_BUILD.to_owned()))
}

/// The build-id of what is loaded, from its first pages.
fn from_memory(pid: i32, mapping: &Mapping) -> Result<Elf, String> {
    let size = (mapping.end - mapping.start).min(MAX_VDSO) as usize;
    let mut bytes = vec![0; size];
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(|e| e.to_string())?;
    memory
        .read_exact_at(&mut bytes, mapping.start)
        .map_err(|e| e.to_string())?;
    Elf::read(&bytes[..])
}

/// Where distributions and debuginfod keep what was stripped from the build with this id, the first that is there.
fn stripped_part(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let hex = hex(build_id);
    let (first, rest) = hex.split_at_checked(2)?;
    let packaged = |root: &Path| root.join(format!("usr/lib/debug/.build-id/{first}/{rest}.debug"));
    let fetched = debuginfod(&hex).map(|folder| folder.join("debuginfo"));
    let places = [
        Some(packaged(root)),
        Some(packaged(Path::new("/"))),
        fetched,
    ];
    places.into_iter().flatten().find(|path| path.is_file())
}

/// Returns the directory in which debuginfod's client keeps the files of a build.
fn debuginfod(hex: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("DEBUGINFOD_CACHE_PATH")
        .map(PathBuf::from)
        .or_else(|| {
            let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let cache = cache
                .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
            cache.map(|cache| cache.join("debuginfod_client"))
        });
    cache.map(|cache| cache.join(hex))
}

fn hex(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line of /proc/PID/maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address of the mapping.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
    /// True if code may run there.
    pub executable: bool,
    /// True if it can be written to.
    pub writable: bool,
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// The file's number on its file system; 0 where it is no file.
    pub inode: u64,
    /// The file, as the process sees it, or the kernel's name in brackets; empty for plain memory.
    pub path: String,
    /// The file was removed, or another put in its place.
    pub deleted: bool,
}

/// All lines of /proc/PID/maps that are well formed.
pub(super) fn parse_maps(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    // "55d0-55d4 r-xp 00001000 fe:00 1234    /usr/bin/qemu (deleted)": the path may have blanks.
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start();
        let (word, after) = trimmed.split_at(trimmed.find(' ').unwrap_or(trimmed.len()));
        rest = after;
        word
    };
    let (range, rights, offset, _device, inode) = (word(), word(), word(), word(), word());
    let path = rest.trim_start();
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let kept = path.strip_suffix(" (deleted)");
    (start < end).then_some(())?;
    Some(Mapping {
        start,
        end,
        executable: rights.as_bytes().get(2) == Some(&b'x'),
        writable: rights.as_bytes().get(1) == Some(&b'w'),
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        path: kept.unwrap_or(path).to_owned(),
        deleted: kept.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_a_process() {
        let all = parse_maps(
            "55d0-55d4 r-xp 00001000 fe:00 1234     /usr/bin/a b (deleted)\n7f00-7f01 rwxp 00000000 00:00 0 \n\
             7ffd-7ffe r-xp 00000000 00:00 0          [vdso]\nnonsense\n5-4 r-xp 0 0:0 0\n",
        );
        assert_eq!(all.len(), 3);
        assert_eq!(
            (all[0].path.as_str(), all[0].deleted, all[0].offset),
            ("/usr/bin/a b", true, 0x1000)
        );
        assert!(all[1].path.is_empty() && all[1].executable && all[1].writable);
        assert_eq!(all[2].path, "[vdso]");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(text in "[0-9a-f rwxp:./()\n-]{0,400}") {
            parse_maps(&text);
        }
    }
}
