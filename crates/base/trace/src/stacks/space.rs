//! A process's address space: which program or library is where, where code is, and how stacks in it unwind.

use super::elf::{Bytes, Elf};
use super::files::{FileSource, Mapping};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// The owner of code: a module, by its index in [`Space::modules`], or one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeOwner {
    /// A program or library.
    Module(u32),
    /// Kernel of the host.
    Kernel,
    /// Translated code, which QEMU generates.
    Jit,
    /// The guest's kernel, whose addresses say nothing on its host.
    GuestKernel,
    /// A program in the guest, likewise.
    GuestUser,
    /// A system call, by its number.
    Call,
    /// A function of the kernel that a thread waits in, by its number in [`crate::stacks::SampledStacks::waits`].
    Wait,
    /// Nothing that is mapped from a file.
    Nowhere,
}

/// Where code is: in which module, and at which address as that was linked, or as it is where there is no module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeLocation {
    /// Owner of the code.
    pub owner: CodeOwner,
    /// Where in it.
    pub at: u64,
}

/// End of a stack's unwinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwindEnd {
    /// Where the thread, or the coroutine, begins.
    Root,
    /// Where the copy of the stack ends.
    Cut,
    /// In code without unwind information.
    Lost,
}

/// The registers that unwinding begins from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer (`rip`).
    pub ip: u64,
    /// Stack pointer (`rsp`).
    pub sp: u64,
    /// Frame pointer (`rbp`).
    pub bp: u64,
}

/// A stack deeper than this is a loop.
const MAX_DEPTH: usize = 1024;

/// A program or library of the process.
#[derive(Debug)]
pub struct LoadedModule {
    /// Path of the file as the process sees it.
    pub path: String,
    /// Tables of the file; `why` says what is missing.
    pub elf: Rc<Elf>,
    /// Why its functions have no names, where that is so.
    pub why: Option<String>,
    inode: u64,
}

#[derive(Debug)]
struct Region {
    range: Range<u64>,
    owner: CodeOwner,
    /// To be taken from an address in the region for the linked one.
    bias: u64,
}

/// The address space of one process.
pub struct Space {
    /// Where its files are.
    pub source: FileSource,
    /// The file that it was started from, as it sees it.
    pub exe: String,
    /// Programs and libraries that are loaded.
    pub modules: Vec<LoadedModule>,
    /// Code, sorted by address.
    regions: Vec<Region>,
    /// Translated code that says how its frames are left.
    jits: Vec<Range<u64>>,
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
}

impl Space {
    /// Reads the address space that a process has now.
    pub fn of_process(pid: i32) -> Space {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let exe = exe.to_string_lossy();
        let mut space = Space::empty(FileSource::Process(pid));
        space.exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe).to_owned();
        space.reload();
        space
    }

    /// One that nothing is mapped in.
    pub fn empty(source: FileSource) -> Space {
        Space {
            source,
            exe: String::new(),
            modules: Vec::new(),
            regions: Vec::new(),
            jits: Vec::new(),
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// Looks again what is mapped.
    pub fn reload(&mut self) {
        let maps = self.source.mappings();
        for mapping in maps.iter().filter(|m| m.executable) {
            let base = maps
                .iter()
                .find(|m| m.inode == mapping.inode && m.path == mapping.path && m.offset == 0);
            self.map(mapping, base);
        }
    }

    /// Forgets what is mapped: the process runs another program from here on.
    pub fn clear(&mut self) {
        self.unmap(0..u64::MAX);
        self.exe.clear();
    }

    /// Takes in a mapping of code, over what was there before.
    pub fn map(&mut self, mapping: &Mapping, base: Option<&Mapping>) {
        let range = mapping.start..mapping.end;
        self.unmap(range.clone());
        let path = mapping.path.as_str();
        let is_file = mapping.inode != 0 || path.starts_with("[vdso]");
        if path.is_empty() || !is_file || path.starts_with("/memfd:") {
            // Plain memory with code in it: translated code, unless it tells more of itself.
            let owner = if path.starts_with('[') {
                CodeOwner::Nowhere
            } else {
                CodeOwner::Jit
            };
            let bias = 0;
            return self.insert(Region { range, owner, bias });
        }
        let known = self
            .modules
            .iter()
            .position(|m| m.path == path && m.inode == mapping.inode);
        let number = known.unwrap_or_else(|| self.load(mapping, base));
        let elf = &self.modules[number].elf;
        // Of one that could not be read, the offset in its file stands for the linked address.
        let linked = elf.linked(mapping.offset).unwrap_or(mapping.offset);
        let bias = mapping.start.wrapping_sub(linked);
        let descriptor = elf.jit.filter(|_| known.is_none());
        self.unwinder
            .add_module(unwinding(path, range.clone(), bias, elf));
        let owner = CodeOwner::Module(number as u32);
        self.insert(Region { range, owner, bias });
        // The program is what is mapped first; only the vDSO may lie before it.
        if self.exe.is_empty() && mapping.inode != 0 {
            self.exe.clone_from(&mapping.path);
        }
        if let (FileSource::Process(pid), Some(at)) = (&self.source, descriptor) {
            for jit in registered_code(*pid, at.wrapping_add(bias)) {
                self.add_jit(jit);
            }
        }
    }

    /// Reads the file behind a mapping; gives its number among the modules.
    fn load(&mut self, mapping: &Mapping, base: Option<&Mapping>) -> usize {
        let (elf, why) = match self.source.elf(mapping, base) {
            Ok(elf) => (elf, None),
            Err(why) => (Rc::default(), Some(why)),
        };
        self.modules.push(LoadedModule {
            path: mapping.path.clone(),
            elf,
            why,
            inode: mapping.inode,
        });
        self.modules.len() - 1
    }

    fn add_jit(&mut self, Jit { range, debug_frame }: Jit) {
        let sections = ExplicitModuleSectionInfo {
            base_svma: range.start,
            debug_frame: Some(Bytes::from(debug_frame)),
            ..ExplicitModuleSectionInfo::default()
        };
        let name = "translated code".to_owned();
        self.unwinder
            .add_module(Module::new(name, range.clone(), range.start, sections));
        self.jits.push(range);
    }

    fn insert(&mut self, region: Region) {
        let at = self
            .regions
            .partition_point(|other| other.range.start < region.range.start);
        self.regions.insert(at, region);
    }

    fn unmap(&mut self, range: Range<u64>) {
        let gone =
            |region: &Region| region.range.start < range.end && range.start < region.range.end;
        for region in self.regions.iter().filter(|region| gone(region)) {
            self.unwinder.remove_module(region.range.start);
        }
        self.regions.retain(|region| !gone(region));
    }

    /// Whose code is at an address.
    pub fn place(&self, address: u64) -> CodeLocation {
        let after = self
            .regions
            .partition_point(|region| region.range.start <= address);
        let region = after
            .checked_sub(1)
            .map(|at| &self.regions[at])
            .filter(|region| region.range.contains(&address));
        let (owner, at) = match region.map(|region| (region.owner, region.bias)) {
            Some((owner @ CodeOwner::Module(_), bias)) => (owner, address.wrapping_sub(bias)),
            // One location: translated code has no functions to distinguish.
            Some((CodeOwner::Jit, _)) => (CodeOwner::Jit, 0),
            _ => (CodeOwner::Nowhere, address),
        };
        CodeLocation { owner, at }
    }

    /// Unwinds a copy of a stack that begins at the stack pointer, innermost frame first, onto `frames`.
    pub fn unwind(
        &mut self,
        registers: Registers,
        stack: &[u8],
        frames: &mut Vec<CodeLocation>,
    ) -> UnwindEnd {
        let begin = frames.len();
        let (mut unwound, mut end) = self.addresses(registers, stack);
        if end != UnwindEnd::Root {
            end = self.made_context(&mut unwound).unwrap_or(end);
        }
        for address in unwound {
            let place = self.place(address);
            if place.owner == CodeOwner::Nowhere && frames.len() > begin {
                return UnwindEnd::Lost;
            }
            if place.owner != CodeOwner::Jit || frames.last() != Some(&place) {
                frames.push(place);
            }
            if !self.leads_on(place, address) {
                return UnwindEnd::Lost;
            }
        }
        end
    }

    /// The addresses that a stack's frames are at, innermost first.
    fn addresses(&mut self, registers: Registers, stack: &[u8]) -> (Vec<u64>, UnwindEnd) {
        let mut read = |address: u64| {
            let at = address.checked_sub(registers.sp).ok_or(())?;
            let rest = stack.get(usize::try_from(at).map_err(drop)?..);
            let word = rest.and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_le_bytes(*word))
        };
        let regs = UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp);
        let mut unwound = Vec::with_capacity(64);
        let mut iterator =
            self.unwinder
                .iter_frames(registers.ip, regs, &mut self.cache, &mut read);
        let end = loop {
            match iterator.next() {
                Ok(Some(frame)) if unwound.len() < MAX_DEPTH => {
                    unwound.push(frame.address_for_lookup())
                }
                Ok(Some(_)) => break UnwindEnd::Lost,
                Ok(None) | Err(framehop::Error::ReturnAddressIsNull) => break UnwindEnd::Root,
                Err(framehop::Error::CouldNotReadStack(at))
                    if at >= registers.sp + stack.len() as u64 =>
                {
                    break UnwindEnd::Cut;
                }
                Err(_) => break UnwindEnd::Lost,
            }
        };
        (unwound, end)
    }

    /// Cuts a stack at the function that `makecontext` put below a coroutine's first one, and tells that it begins there. It
    /// was never called: the address to return to is where it begins, and what lies before that is another function.
    fn made_context(&self, addresses: &mut Vec<u64>) -> Option<UnwindEnd> {
        let begins = |address: u64| {
            let CodeLocation {
                owner: CodeOwner::Module(number),
                at,
            } = self.place(address)
            else {
                return false;
            };
            self.modules[number as usize].elf.ranges.start_of(at) == Some(at)
        };
        let at = (1..addresses.len()).find(|&at| begins(addresses[at].wrapping_add(1)))?;
        addresses.truncate(at + 1);
        addresses[at] = addresses[at].wrapping_add(1);
        Some(UnwindEnd::Root)
    }

    /// Returns true if the code says how its frames are left; what follows one that does not is guessed.
    fn leads_on(&self, place: CodeLocation, address: u64) -> bool {
        match place.owner {
            CodeOwner::Module(number) => self.modules[number as usize].elf.eh_frame.is_some(),
            CodeOwner::Jit => self.jits.iter().any(|range| range.contains(&address)),
            _ => false,
        }
    }
}

fn unwinding(path: &str, range: Range<u64>, bias: u64, elf: &Elf) -> Module<Bytes> {
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: elf.text.clone(),
        got_svma: elf.got.clone(),
        eh_frame_svma: elf.eh_frame.as_ref().map(|s| s.at.clone()),
        eh_frame: elf.eh_frame.as_ref().map(|s| s.bytes.clone()),
        eh_frame_hdr_svma: elf.eh_frame_hdr.as_ref().map(|s| s.at.clone()),
        eh_frame_hdr: elf.eh_frame_hdr.as_ref().map(|s| s.bytes.clone()),
        ..ExplicitModuleSectionInfo::default()
    };
    Module::new(path.to_owned(), range, bias, sections)
}

/// No object file in memory is larger; QEMU's is of some kilobytes.
const MAX_OBJECT: u64 = 16 << 20;
/// Entries of the list that are read at most.
const MAX_OBJECTS: usize = 64;

/// Code that a process generates and registers with debuggers: QEMU's translated code.
struct Jit {
    range: Range<u64>,
    /// Unwind information of the code: its section `.debug_frame`.
    debug_frame: Vec<u8>,
}

/// The code registered in the descriptor at this address; empty where it is damaged.
///
/// The interface is GDB's: a descriptor in the program, a list of object files in memory. QEMU's is one file over its whole
/// buffer, in every version with TCG, and says how a frame of translated code is left.
fn registered_code(pid: i32, descriptor: u64) -> Vec<Jit> {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        return Vec::new();
    };
    let words = |at: u64| {
        let mut bytes = [0; 32];
        memory.read_exact_at(&mut bytes, at).ok()?;
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j]));
        Some([word(0), word(1), word(2), word(3)])
    };
    let mut found = Vec::new();
    // { u32 version; u32 action; entry *relevant; entry *first }
    let mut entry = words(descriptor).map_or(0, |[_, _, first, _]| first);
    while entry != 0 && found.len() < MAX_OBJECTS {
        // { entry *next; entry *previous; char *file; u64 size }
        let Some([next, _, file, size]) = words(entry) else {
            break;
        };
        let mut bytes = vec![0; size.min(MAX_OBJECT) as usize];
        if memory.read_exact_at(&mut bytes, file).is_ok() {
            found.extend(jit(&bytes));
        }
        entry = next;
    }
    found
}

fn jit(bytes: &[u8]) -> Option<Jit> {
    let file = object::File::parse(bytes).ok()?;
    let text = file.section_by_name(".text")?;
    let debug_frame = file.section_by_name(".debug_frame")?.data().ok()?.to_vec();
    let range = text.address()..text.address().checked_add(text.size())?;
    (!range.is_empty()).then_some(Jit { range, debug_frame })
}

#[cfg(test)]
mod tests {
    use super::super::files::parse_maps;
    use super::*;

    #[test]
    fn the_program_is_no_vdso_that_lies_before_it() {
        let maps = "7fc4a77fe000-7fc4a7800000 r-xp 00000000 00:00 0 [vdso]\n\
                    7fc4a7a70000-7fc4a7fc0000 r-xp 00000000 fe:00 11723358 /sbin/static-pie\n";
        let mut space = Space::empty(FileSource::Recorded(Default::default()));
        for mapping in &parse_maps(maps) {
            space.map(mapping, None);
        }
        assert_eq!(space.exe, "/sbin/static-pie");
    }
}
